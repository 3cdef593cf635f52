"""Fitting to corpus and time: larger shapes for more operations, more dropout for more epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.config.train import preset_values
from gpt.training.plan import (
    DROPOUT,
    LEAST_STEPS,
    MOST_EPOCHS,
    PER_LAYER,
    SHAPES,
    Machine,
    Recipe,
    Speed,
    estimate,
    fit,
    fit_epochs,
    fit_evaluations,
    fit_size,
)

LONG = 10**9
KNOWN = [{name: shape[name] for name in SHAPES[0][-1]} for _, _, shape in SHAPES]
CPU = Machine("cpu", 1e11, None, {"ranks": 1})


def recipe_of(
    characters: int = LONG,
    longest_context: int = LONG,
    fixed: Iterable[str] = (),
    device: str = "cpu",
    **values: Any,
) -> Recipe:
    """The default preset for a text of so many characters, changed by `values`."""
    options = {**preset_values("default", device), **values}
    return Recipe(
        ModelConfig(vocab_size=65, **only_fields(ModelConfig, options)),
        TrainConfig(**only_fields(TrainConfig, options)),
        fixed=frozenset(fixed),
        fitted=True,
        train_characters=characters,
        val_characters=5000,
        longest_context=longest_context,
    )


def shape_of(recipe: Recipe) -> dict[str, Any]:
    values = {**vars(recipe.model), **vars(recipe.train)}
    return {name: values[name] for name in SHAPES[0][-1]}


def test_more_operations_or_text_allow_a_larger_shape() -> None:
    shapes = [shape_of(fit_size(recipe_of(), "cpu", 1.1**n)) for n in range(210, 480)]
    numbers = [KNOWN.index(shape) for shape in shapes]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(SHAPES)))
    for flops, largest in ((1e30, len(SHAPES) - 1), (math.inf, 4)):  # no time: not above presets'
        shapes = [shape_of(fit_size(recipe_of(10**n), "cpu", flops)) for n in range(1, 10)]
        numbers = [KNOWN.index(shape) for shape in shapes]
        assert numbers == sorted(numbers)
        assert (numbers[0], numbers[-1]) == (0, largest)


@pytest.mark.parametrize(
    ("characters", "best_after"),
    [
        (
            1_003_854,
            {3: 0, 6: 0, 12: 1, 26: 2, 45: 3, 120: 3, 180: 4, 360: 4, 900: 5, 3600: 6},
        ),
        (18_000, {6: 0, 13: 1}),
        (225_000, {65: 2}),
    ],
)
def test_a_run_takes_a_larger_shape_only_where_it_ends_with_a_lower_loss(
    characters: int, best_after: dict[int, int]
) -> None:
    """Seconds at the rate of the ledger's machine, and the shape with the lower loss there."""
    for seconds, best in best_after.items():
        fitted = fit_size(recipe_of(characters), "cpu", seconds * 2.6e11)
        assert shape_of(fitted) == KNOWN[best], seconds


@pytest.mark.parametrize(
    "given",
    [{"n_embd": 64}, {"n_head": 8}, {"block_size": 16}, {"n_layer": 3}, {"batch_size": 3}],
)
@pytest.mark.parametrize(("size", "flops"), [(10_000, math.inf), (LONG, 1e12), (LONG, 1e30)])
def test_given_options_stay_and_the_rest_is_fitted(
    given: dict[str, int], size: int, flops: float
) -> None:
    fitted = shape_of(fit_size(recipe_of(size, fixed=given, **given), "cpu", flops))
    assert fitted.items() >= given.items()
    assert fitted["n_embd"] % fitted["n_head"] == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_context_is_no_longer_than_the_text_allows(device: str) -> None:
    assert fit_size(recipe_of(9_000, 69, device=device), device).model.block_size == 69
    kept = fit_size(recipe_of(9_000, 69, {"block_size"}, device=device), device)
    assert kept.model.block_size == preset_values("default", device)["block_size"]


@pytest.mark.parametrize(
    ("vocab_size", "device", "given", "micro"),
    [
        (1_000, "cpu", {}, 0),
        (5_000, "cpu", {}, 3),
        (1_100_000, "cpu", {}, 1),
        (10_000, "cuda", {}, 0),
        (10_000, "cpu", {"micro_batch_size": 5}, 5),
    ],
)
def test_a_cpu_computes_a_bounded_number_of_logits_at_once(
    vocab_size: int, device: str, given: dict[str, int], micro: int
) -> None:
    recipe = replace(recipe_of(fixed=given, **given), fitted=False)
    recipe = replace(recipe, model=replace(recipe.model, vocab_size=vocab_size))
    fitted, _ = fit(recipe, replace(CPU, device=device))
    assert fitted.train.micro_batch_size == micro


def test_a_small_corpus_gets_few_epochs_and_more_dropout() -> None:
    recipe = recipe_of()
    seen = recipe.train.steps * recipe.step_characters
    dropouts = []
    for characters in (*(int(seen / epochs) for epochs in (0.1, 1, 3, 5, 8, 10, 100)), 70):
        fitted = fit_epochs(recipe_of(characters))
        epochs = fitted.train.steps * fitted.step_characters / characters
        assert epochs <= MOST_EPOCHS or fitted.train.steps == 1
        dropouts.append(fitted.model.dropout)
    assert dropouts == sorted(dropouts)
    assert (dropouts[0], dropouts[-1]) == (0.0, DROPOUT)
    assert any(0 < dropout < DROPOUT for dropout in dropouts)


def test_the_weights_of_a_small_text_decay_more_with_each_epoch() -> None:
    decays = []
    for characters, epochs in ((10**6, 20), (40_000, 0.1), (40_000, 5), (40_000, 20), (10, 10**6)):
        recipe = recipe_of(characters)
        steps = max(1, int(epochs * characters / recipe.step_characters))
        given = replace(recipe, train=replace(recipe.train, steps=steps))
        decays.append(fit_epochs(given).train.weight_decay)
    default = recipe.train.weight_decay
    assert decays == [pytest.approx(decay, rel=0.05) for decay in (0.5, default, 1.0, 4.0, 5.0)]
    kept = fit_epochs(replace(given, fixed=frozenset({"weight_decay"})))
    assert (kept.train.weight_decay, kept.model.dropout) == (default, DROPOUT)


@pytest.mark.parametrize(
    ("characters", "batch", "epochs", "dropout"),
    [(20_000, 7, 25, 0.2), (1_000_000, 64, 25, 0.2), (10**9, 64, 0, 0.0)],
)
def test_on_a_gpu_the_corpus_decides_whether_to_drop_and_the_preset_the_share(
    characters: int, batch: int, epochs: int, dropout: float
) -> None:
    fitted = fit_epochs(fit_size(recipe_of(characters, device="cuda"), "cuda"))
    seen = fitted.train.steps * fitted.step_characters / characters
    assert (fitted.train.batch_size, round(seen), fitted.model.dropout) == (batch, epochs, dropout)
    assert MOST_EPOCHS * characters // fitted.step_characters >= LEAST_STEPS


def test_evaluations_take_at_most_a_twentieth_of_the_time_of_the_steps() -> None:
    for steps, values, read in (
        (100_000, {}, 0),
        (1000, {}, 3200),
        (1000, {"evaluations": 5}, 0),
        (1000, {"eval_interval": 50}, 2000),
        (10, {}, 2000),
    ):
        recipe = recipe_of(steps=steps, batch_size=5, **values)
        for cost in (1.3e-5, 1.4e-5, 1.5e-5):  # slightly different speeds
            fitted = fit_evaluations(recipe, Speed(step=0.01, character=cost))
            assert fitted.train.eval_chars == read, values
    given = recipe_of(fixed={"eval_chars"}, eval_chars=7)
    assert fit_evaluations(given, Speed(0.01, 1e-3)) == given


def test_speed_is_estimated_from_the_operations() -> None:
    alone, counting = recipe_of(counting=0), recipe_of(counting=8)
    speed, mixed = (estimate(recipe, 1e11, 10**6) for recipe in (alone, counting))
    layers = PER_LAYER * (alone.model.n_layer + 1)
    learning = 2048 * alone.model.training_flops / 1e11 + layers
    muon = 25 * 128 * 12 * 4 * 128**2 / 1e11  # 4 layers × 128
    assert speed.step == pytest.approx(learning + muon)
    assert speed.character == pytest.approx(learning / 2048 / 3)
    assert (speed.fitting, speed.step) == (0, mixed.step)
    assert mixed.character > speed.character
    assert mixed.fitting == pytest.approx(2**14 * mixed.character)
