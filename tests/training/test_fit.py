"""Fitting to corpus and time: larger shapes for more operations, more dropout for more epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from manifests import manifest

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.config.train import preset_values
from gpt.training.plan import (
    DROPOUT,
    MOST_EPOCHS,
    SHAPES,
    Machine,
    Plan,
    fit,
    fit_epochs_and_regularisation,
    fit_evaluations,
    fit_size,
)
from gpt.training.progress import Speed

LONG = 10**9
KNOWN = [{name: shape[name] for name in SHAPES[0][-1]} for _, _, shape in SHAPES]
CPU = Machine("cpu", 1e11, None, {"ranks": 1})


def plan_of(
    characters: int = LONG,
    longest_context: int = LONG,
    fixed: Iterable[str] = (),
    device: str = "cpu",
    preset: str = "default",
    **values: Any,
) -> Plan:
    """The preset for a text of so many characters, changed by `values`."""
    options = {**preset_values(preset, device), **values}
    start = manifest(
        model=ModelConfig(**{"vocab_size": 65, **only_fields(ModelConfig, options)}),
        train=TrainConfig(**only_fields(TrainConfig, options)),
        preset=preset,
        val_characters=5000,
    )
    text: Any = SimpleNamespace(longest_context=lambda fraction: longest_context)
    return Plan(text, start, replace(CPU, device=device), characters, frozenset(fixed))


def shape_of(plan: Plan) -> dict[str, Any]:
    values = {**vars(plan.manifest.model), **vars(plan.manifest.train)}
    return {name: values[name] for name in SHAPES[0][-1]}


def test_more_operations_or_text_allow_a_larger_shape() -> None:
    shapes = [shape_of(fit_size(plan_of(), 1.1**n)) for n in range(210, 480)]
    numbers = [KNOWN.index(shape) for shape in shapes]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(len(SHAPES)))
    for flops, largest in ((1e30, len(SHAPES) - 1), (math.inf, 4)):  # no time: not above presets'
        shapes = [shape_of(fit_size(plan_of(10**n), flops)) for n in range(1, 10)]
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
        fitted = fit_size(plan_of(characters), seconds * 2.6e11)
        assert shape_of(fitted) == KNOWN[best], seconds


@pytest.mark.parametrize(
    "given",
    [{"n_embd": 64}, {"n_head": 8}, {"block_size": 16}, {"n_layer": 3}, {"batch_size": 3}],
)
@pytest.mark.parametrize(("size", "flops"), [(10_000, math.inf), (LONG, 1e12), (LONG, 1e30)])
def test_given_options_stay_and_the_rest_is_fitted(
    given: dict[str, int], size: int, flops: float
) -> None:
    fitted = shape_of(fit_size(plan_of(size, fixed=given, **given), flops))
    assert fitted.items() >= given.items()
    assert fitted["n_embd"] % fitted["n_head"] == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_context_is_no_longer_than_the_text_allows(device: str) -> None:
    assert fit_size(plan_of(9_000, 69, device=device)).manifest.model.block_size == 69
    kept = fit_size(plan_of(9_000, 69, {"block_size"}, device=device))
    assert kept.manifest.model.block_size == preset_values("default", device)["block_size"]


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
    own = {"preset": "classic", "block_size": 128, "batch_size": 16, "vocab_size": vocab_size}
    fitted = fit(plan_of(fixed=given, device=device, **own, **given))
    assert fitted.manifest.train.micro_batch_size == micro


def test_a_small_corpus_gets_few_epochs_and_more_dropout() -> None:
    start = plan_of().manifest
    seen = start.train.steps * start.step_characters
    dropouts = []
    for characters in (*(int(seen / epochs) for epochs in (0.1, 1, 3, 5, 8, 10, 100)), 70):
        fitted = fit_epochs_and_regularisation(plan_of(characters))
        epochs = fitted.manifest.train.steps * fitted.manifest.step_characters / characters
        assert epochs <= MOST_EPOCHS or fitted.manifest.train.steps == 1
        dropouts.append(fitted.manifest.model.dropout)
    assert dropouts == sorted(dropouts)
    assert (dropouts[0], dropouts[-1]) == (0.0, DROPOUT)
    assert any(0 < dropout < DROPOUT for dropout in dropouts)


def test_the_weights_of_a_small_text_decay_more_with_each_epoch() -> None:
    decays = []
    for characters, epochs in ((10**6, 20), (40_000, 0.1), (40_000, 5), (40_000, 20), (10, 10**6)):
        start = plan_of(characters)
        steps = max(1, int(epochs * characters / start.manifest.step_characters))
        given = start.with_options(steps=steps)
        decays.append(fit_epochs_and_regularisation(given).manifest.train.weight_decay)
    default = start.manifest.train.weight_decay
    assert decays == [pytest.approx(decay, rel=0.05) for decay in (0.5, default, 1.0, 4.0, 5.0)]
    kept = fit_epochs_and_regularisation(replace(given, fixed=frozenset({"weight_decay"})))
    assert (kept.manifest.train.weight_decay, kept.manifest.model.dropout) == (default, DROPOUT)


def test_evaluations_take_at_most_a_twentieth_of_the_time_of_the_steps() -> None:
    for steps, values, read in (
        (100_000, {}, 0),
        (1000, {}, 3200),
        (1000, {"evaluations": 5}, 0),
        (1000, {"eval_interval": 50}, 2000),
        (10, {}, 2000),
    ):
        start = plan_of(steps=steps, batch_size=5, **values)
        for cost in (1.3e-5, 1.4e-5, 1.5e-5):  # slightly different speeds
            fitted = fit_evaluations(replace(start, speed=Speed(step=0.01, character=cost)))
            assert fitted.manifest.train.eval_chars == read, values
    given = replace(plan_of(fixed={"eval_chars"}, eval_chars=7), speed=Speed(0.01, 1e-3))
    assert fit_evaluations(given) == given
