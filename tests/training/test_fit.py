"""Fitting to corpus and time: larger shapes for more operations, more dropout for more epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.config.train import FITTED, preset
from gpt.training.plan import (
    DROPOUT,
    LEAST_STEPS,
    MOST_EPOCHS,
    PER_LAYER,
    REACHED,
    SHAPES,
    Recipe,
    Speed,
    estimate,
    fit_evaluations,
    fit_memory,
    fit_precision,
    fit_size,
    fit_to_corpus,
    steps_in,
    training_rate,
)

LONG = 10**9
KNOWN = [{name: shape[name] for name in SHAPES[0][-1]} for _, _, shape in SHAPES]


def recipe_of(
    characters: int = LONG,
    longest_context: int = LONG,
    fixed: Iterable[str] = (),
    device: str = "cpu",
    **values: Any,
) -> Recipe:
    """The default preset for a text of so many characters, changed by `values`."""
    chosen = {**preset("default", device), **values}
    return Recipe(
        ModelConfig(vocab_size=65, **only_fields(ModelConfig, chosen)),
        TrainConfig(**only_fields(TrainConfig, chosen)),
        fixed=frozenset(fixed),
        fitted=True,
        train_characters=characters,
        val_characters=5000,
        longest_context=longest_context,
    )


def shape_of(recipe: Recipe) -> dict[str, Any]:
    values = {**vars(recipe.model), **vars(recipe.train)}
    return {name: values[name] for name in SHAPES[0][-1]}


def test_more_operations_allow_a_larger_shape() -> None:
    chosen = [shape_of(fit_size(recipe_of(), "cpu", 1.1**n)) for n in range(210, 480)]
    numbers = [KNOWN.index(shape) for shape in chosen]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(SHAPES)))


def test_more_text_allows_a_larger_shape_but_without_a_time_none_above_the_presets() -> None:
    sizes = [10**power for power in range(1, 10)]
    for flops, largest in ((1e30, len(SHAPES) - 1), (math.inf, 4)):
        chosen = [shape_of(fit_size(recipe_of(size), "cpu", flops)) for size in sizes]
        numbers = [KNOWN.index(shape) for shape in chosen]
        assert numbers == sorted(numbers)
        assert (numbers[0], numbers[-1]) == (0, largest)
    assert fit_size(recipe_of(), "cpu") == recipe_of()


def test_a_run_takes_a_larger_shape_only_where_it_ends_with_a_lower_loss() -> None:
    """Seconds at the rate of the ledger's machine, and the shape with the lower loss there."""
    rate = 2.6e11
    lower = [
        (3, 0),
        (6, 0),
        (12, 1),
        (26, 2),
        (45, 3),
        (120, 3),
        (180, 4),
        (360, 4),
        (900, 5),
        (3600, 6),
    ]
    for seconds, best in lower:
        fitted = fit_size(recipe_of(1_003_854), "cpu", seconds * rate)
        assert shape_of(fitted) == KNOWN[best], seconds
    for characters, seconds, best in ((18_000, 6, 0), (18_000, 13, 1), (225_000, 65, 2)):
        fitted = fit_size(recipe_of(characters), "cpu", seconds * rate)
        assert shape_of(fitted) == KNOWN[best], (characters, seconds)


@pytest.mark.parametrize(
    "given",
    [{"n_embd": 64}, {"n_head": 8}, {"block_size": 16}, {"n_layer": 3}, {"batch_size": 3}],
)
@pytest.mark.parametrize(("size", "flops"), [(10_000, math.inf), (LONG, 1e12), (LONG, 1e30)])
def test_given_options_stay_and_the_rest_is_fitted(
    given: dict[str, int], size: int, flops: float
) -> None:
    free = shape_of(fit_size(recipe_of(size), "cpu", flops))
    fitted = shape_of(fit_size(recipe_of(size, fixed=given, **given), "cpu", flops))
    assert fitted.items() >= given.items()
    if flops < math.inf and not {"n_layer", "n_embd"} & set(given):  # equal work per character
        alone = {*given, *(("n_head", "n_embd") if "n_head" in given else ())}
        assert {k: v for k, v in fitted.items() if k not in alone}.items() <= free.items()
    assert fitted["n_embd"] % fitted["n_head"] == 0


def test_the_dropout_of_a_shape_is_not_taken_for_another_size() -> None:
    shape = {"n_head": 6, "n_embd": 192}
    measured = fit_size(recipe_of(10**6, n_layer=6, **shape), "cpu").model
    assert (measured.n_layer, measured.n_embd, measured.dropout) == (6, 192, 0.2)
    for given in ({"n_layer": 4, **shape}, {"n_layer": 6, "n_embd": 256, "n_head": 8}):
        for flops in (math.inf, 1e30):
            fitted = fit_size(recipe_of(10**6, fixed=given, **given), "cpu", flops)
            assert (fitted.model.n_layer, fitted.model.dropout) == (given["n_layer"], 0.0)
            assert fitted.why == ()


def test_fitting_changes_no_given_option() -> None:
    given = {"batch_size": 3, "dropout": 0.05, "steps": 10**6}
    shaped = fit_size(recipe_of(fixed=given, **given), "cpu", 1e30)
    recipe = fit_to_corpus(replace(shaped, train_characters=1000))
    values = {**vars(recipe.model), **vars(recipe.train)}
    assert {name: values[name] for name in given} == given
    assert recipe.model.n_layer == KNOWN[-1]["n_layer"]


def test_context_is_chosen_for_the_text() -> None:
    assert fit_size(recipe_of(9_000, 69), "cpu").model.block_size == 69
    kept = fit_size(recipe_of(9_000, 69, fixed={"block_size"}), "cpu")
    assert kept.model.block_size == 128
    assert not any("context" in why for why in kept.why)


def test_only_options_that_the_help_calls_fitted_change() -> None:
    for size in (100, 10_000, LONG):
        recipe = fit_to_corpus(fit_size(recipe_of(size, 50), "cpu", 1e14))
        before, after = recipe_of(), recipe
        for old, new in ((before.model, after.model), (before.train, after.train)):
            changed = {name for name, value in vars(new).items() if value != vars(old)[name]}
            assert changed <= set(FITTED)


@pytest.mark.parametrize(
    ("vocab_size", "device", "given", "micro"),
    [
        (65, "cpu", {}, 0),
        (1_000, "cpu", {}, 0),
        (5_000, "cpu", {}, 3),
        (10_000, "cpu", {}, 1),
        (1_100_000, "cpu", {}, 1),
        (10_000, "cuda", {}, 0),
        (10_000, "cpu", {"micro_batch_size": 5}, 5),
    ],
)
def test_a_cpu_computes_a_bounded_number_of_logits_at_once(
    vocab_size: int, device: str, given: dict[str, int], micro: int
) -> None:
    recipe = recipe_of(fixed=given, **given)
    recipe = replace(recipe, model=replace(recipe.model, vocab_size=vocab_size))
    fitted = fit_memory(recipe, device)
    assert fitted.train == replace(recipe.train, micro_batch_size=micro)
    assert fitted.model == recipe.model


def test_a_small_corpus_gets_few_epochs_and_more_dropout() -> None:
    recipe = recipe_of()
    seen = recipe.train.steps * recipe.step_characters
    found = []
    for characters in (*(int(seen / each) for each in (0.1, 1, 3, 5, 8, 10, 100)), 70):
        fitted = fit_to_corpus(recipe := recipe_of(characters))
        epochs = fitted.train.steps * fitted.step_characters / characters
        assert epochs <= MOST_EPOCHS or fitted.train.steps == 1
        assert bool(fitted.why) == (fitted != recipe)
        found.append(fitted.model.dropout)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.0, DROPOUT)
    assert any(0 < each < DROPOUT for each in found)


def test_the_weights_of_a_small_text_decay_more_with_each_epoch() -> None:
    decays = []
    for characters, epochs in ((10**6, 20), (40_000, 0.1), (40_000, 5), (40_000, 20), (10, 10**6)):
        recipe = recipe_of(characters)
        steps = max(1, int(epochs * characters / recipe.step_characters))
        given = replace(recipe, train=replace(recipe.train, steps=steps))
        decays.append(fit_to_corpus(given).train.weight_decay)
    default = recipe.train.weight_decay
    assert decays == [pytest.approx(each, rel=0.05) for each in (0.5, default, 1.0, 4.0, 5.0)]
    kept = fit_to_corpus(replace(given, fixed=frozenset({"weight_decay"})))
    assert (kept.train.weight_decay, kept.model.dropout) == (default, DROPOUT)


def test_on_a_gpu_the_corpus_decides_whether_to_drop_and_the_preset_the_share() -> None:
    """As many epochs as on a CPU; the preset's dropout if there are many epochs."""
    found = {}
    for characters in (20_000, 1_000_000, 10**9):
        fitted = fit_to_corpus(fit_size(recipe_of(characters, device="cuda"), "cuda"))
        epochs = fitted.train.steps * fitted.step_characters / characters
        found[characters] = fitted.train.batch_size, round(epochs), fitted.model.dropout
    assert found == {
        20_000: (7, 25, 0.2),
        1_000_000: (64, 25, 0.2),
        10**9: (64, 0, 0.0),
    }


@pytest.mark.parametrize("characters", [1, 4_000, 20_000, 163_000, 164_000, 10**7])
def test_gpu_batch_leaves_enough_steps(characters: int) -> None:
    recipe = recipe_of(characters, device="cuda")
    fitted = fit_size(recipe, "cuda")
    steps = MOST_EPOCHS * characters // fitted.step_characters
    assert steps >= LEAST_STEPS or fitted.train.batch_size == 1
    assert bool(fitted.why) == (fitted != recipe) == (characters < 164_000)
    given = replace(recipe, fixed=frozenset({"batch_size"}))
    assert fit_size(given, "cuda") == given


def test_evaluations_take_at_most_a_twentieth_of_the_time_of_the_steps() -> None:
    for steps, values, read in (
        (100_000, {}, 0),
        (1000, {}, 3200),
        (1000, {"evaluations": 5}, 0),
        (1000, {"eval_interval": 50}, 2000),
        (10, {}, 2000),
    ):
        recipe = recipe_of(steps=steps, batch_size=5, **values)
        fitted = fit_evaluations(recipe, Speed(step=0.01, character=1.4e-5))
        assert fitted.train.eval_chars == read, values  # an evaluated character costs a trained one
    given = recipe_of(fixed={"eval_chars"}, eval_chars=7)
    assert fit_evaluations(given, Speed(0.01, 1e-3)) == given


def test_slightly_different_speeds_give_the_same_evaluations() -> None:
    recipe = recipe_of(steps=1000, batch_size=5)
    parts = {
        fit_evaluations(recipe, Speed(0.01, cost)).train.eval_chars
        for cost in (1.2e-5, 1.3e-5, 1.5e-5)
    }
    assert len(parts) == 1


def test_a_time_allows_steps_for_most_of_it() -> None:
    assert steps_in(60, Speed(step=0.1)) == 540
    assert steps_in(0.001, Speed(step=0.1)) == 1


def test_speed_is_estimated_from_the_rate_of_one_core() -> None:
    assert training_rate("cpu", 5e10, 4, ranks=3) == pytest.approx(12 * REACHED * 5e10)
    assert training_rate("cpu", 5e10, 64) == training_rate("cpu", 5e10, 8)
    assert training_rate("cuda", 5e10, 2) > 1e13
    alone, counting = recipe_of(counting=0), recipe_of(counting=8)
    speed, mixed = (estimate(recipe, 1e11, 10**6) for recipe in (alone, counting))
    layers = PER_LAYER * (alone.model.n_layer + 1)
    learning = 2048 * alone.model.training_flops / 1e11 + layers
    muon = 25 * 128 * 12 * 4 * 128**2 / 1e11  # 4 layers × 128
    assert speed.step == pytest.approx(learning + muon)
    assert speed.character == pytest.approx(learning / 2048 / 3)
    adamw = estimate(recipe_of(matrix_lr=0.0), 1e11, 10**6)
    assert adamw.step == pytest.approx(learning)
    assert (speed.fitting, speed.step) == (0, mixed.step)
    assert mixed.character > speed.character
    # Of Tiny Shakespeare, fitting and an evaluation of 2,000 characters took 13 steps, not 25.
    assert mixed.fitting == pytest.approx(2**14 * mixed.character)


def test_a_text_computes_in_bfloat16_where_that_is_fast() -> None:
    def precision(recipe: Recipe, low: bool) -> str:
        return fit_precision(recipe, low).train.precision

    assert [precision(recipe_of(), low) for low in (False, True)] == ["float32", "bfloat16"]
    given = recipe_of(fixed={"precision"})
    assert fit_precision(given, True) == given  # without a reason, too
    assert precision(replace(recipe_of(), fitted=False), True) == "float32"  # as classic
