"""An attention map passes its checks, each of them detects damage, and built heads are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from gpt.checks import Check
from gpt.config.model import HEAD_STAGES
from gpt.errors import TextError
from gpt.heads.attention_map import inspect
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.vocabulary import Ids

SUM, DIAGONAL, PRE, QKV, SCORES, WEIGHTS, CONTEXT, PROJ, MID, POST, LOGITS, WAY, PROBE = (
    "rows sum to 1",
    "above the diagonal exactly 0",
    "resid_pre",
    "q, k, v",
    "scores",
    "weights",
    "context",
    "proj",
    "resid_mid",
    "resid_post",
    "logits",
    "logits end to end",
    "logits = torch's at saving",
)
Damage = Callable[[Array], None]


class Damaged(Reader):
    """A reader that changes one number of one stage of one layer."""

    def __init__(self, sound: TrainedGPT, layer: int, stage: str, damage: Damage) -> None:
        super().__init__(sound.config, sound.stored.tensors)
        self._damage = layer, stage, damage

    def stages(self, ids: Ids) -> tuple[Stages, ...]:
        layers = list(super().stages(ids))
        layer, stage, damage = self._damage
        spoilt = getattr(layers[layer], stage).copy()
        damage(spoilt)
        layers[layer] = replace(layers[layer], **{stage: spoilt})
        return tuple(layers)


def at(place: tuple[int, ...], value: float) -> Damage:
    """Adds the value to the number at a place."""

    def damage(array: Array) -> None:
        array[place] += value

    return damage


def failed(reader: Reader, trained: TrainedGPT) -> set[str]:
    """The names of the checks that do not pass."""
    ids = trained.vocabulary.encode("the cat")
    return {check.name for check in inspect(reader, "the cat", ids).checks if not check.passed}


@pytest.mark.parametrize("text", ["t", "\n\n\n", "the cat", "the cat sat on t"])
def test_trained_model_passes_every_check(trained: TrainedGPT, text: str) -> None:
    attention = trained.attn(text)
    assert [check.name for check in attention.checks] == [
        *(SUM, DIAGONAL, PRE, QKV, SCORES, WEIGHTS, CONTEXT, PROJ, MID, POST),
        *(LOGITS, WAY, PROBE),
    ]
    assert all(check.passed for check in attention.checks)
    assert {check.name: check.bound for check in attention.checks}[WEIGHTS] < 1e-6
    assert attention.checks[1].error == attention.checks[1].bound == 0.0
    assert attention.checks[-1].error == trained.proof.error > 0
    assert (attention.text, len(attention.ids)) == (text, len(text))


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(
    ("stage", "damage", "noticed"),
    [
        ("weights", at((0, 3, 3), 1.5e-6), {SUM, WEIGHTS}),
        ("weights", at((0, 3, 4), 1e-30), {DIAGONAL}),
        ("q", at((1, 4, 0), 0.1), {QKV, SCORES, WEIGHTS}),
        ("k", at((1, 2, 0), 0.1), {QKV, SCORES, WEIGHTS}),
        ("v", at((0, 1, 2), 0.1), {QKV, CONTEXT}),
        ("context", at((1, 6, 1), 1e-3), {CONTEXT}),
        ("concat", at((6, 1), 1e-3), {CONTEXT, PROJ}),
        ("proj", at((6, 1), 1e-3), {PROJ, MID}),
        ("resid_mid", at((6, 1), 1e-3), {MID, POST}),
        ("resid_pre", at((6, 1), 1e-3), {PRE, QKV, MID}),
        ("scores", at((0, 2, 1), 0.1), {SCORES}),
        ("scaled", at((0, 2, 1), 0.1), {SCORES}),
        ("masked", at((0, 2, 1), 0.1), {SCORES}),
        ("masked", lambda stage: np.copyto(stage, -1e9, where=np.isinf(stage)), {SCORES}),
    ],
)
def test_each_check_detects_damage_to_its_stage(
    trained: TrainedGPT, layer: int, stage: str, damage: Damage, noticed: set[str]
) -> None:
    assert failed(Damaged(trained, layer, stage, damage), trained) == noticed


@pytest.mark.parametrize("stage", [field.name for field in fields(Stages)])
@pytest.mark.filterwarnings("ignore")
def test_nan_in_any_stage_fails_a_check(trained: TrainedGPT, stage: str) -> None:
    shape = getattr(trained.attn("the cat").layers[0], stage).shape
    place = (0, 2, 1) if len(shape) == 3 else (2, 1)
    assert failed(Damaged(trained, 1, stage, at(place, float("nan"))), trained)


@pytest.mark.parametrize("layer", [0, 1])
def test_two_layers_check_the_output_between_them(trained: TrainedGPT, layer: int) -> None:
    damaged = Damaged(trained, layer, "resid_post", at((6, 1), 1e-3))
    # The next layer's resid_pre no longer equals it; after the last layer, the logits differ.
    expected = {POST, PRE} if layer == 0 else {POST, WAY}
    assert failed(damaged, trained) == expected


@pytest.mark.parametrize("error", [1.1e-4, float("nan"), float("inf")])
def test_a_failed_probe_is_among_the_checks(trained: TrainedGPT, error: float) -> None:
    ids = trained.vocabulary.encode("the cat")
    found = inspect(trained.reader, "the cat", ids, Check(PROBE, error, 1e-4)).checks
    assert [check.name for check in found if not check.passed] == [PROBE]


def test_a_float64_model_is_checked_to_1e_12(trained: TrainedGPT) -> None:
    tensors = {name: array.astype(np.float64) for name, array in trained.stored.tensors.items()}
    reader = Reader(trained.config, tensors)
    attention = inspect(reader, "the cat", trained.vocabulary.encode("the cat"))
    assert all(check.passed for check in attention.checks)
    assert {check.name: check.bound for check in attention.checks}[WEIGHTS] <= 1e-12


STAGES = [field.name for field in fields(Stages)]


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", STAGES)
def test_every_stage_is_per_head_or_per_layer(trained: TrainedGPT, name: Any, layer: int) -> None:
    attention = trained.attn("the cat")
    values = getattr(attention.layers[layer], name)
    of_heads = name in HEAD_STAGES
    assert values.shape[: 1 + of_heads] == ((2, 7) if of_heads else (7,))
    for head in (0, 1, np.int64(1)) if of_heads else (None,):
        expected = values if head is None else values[head]
        assert np.array_equal(attention[name, np.int32(layer), head], expected)
        assert np.array_equal(attention[name, layer, head, 5], expected[5])
        assert np.array_equal(attention[name, layer, head, -1], expected[-1])
        assert np.array_equal(attention[name, None, head, 2][layer], expected[2])
    assert np.shares_memory(attention[name, layer], values)
    assert np.array_equal(attention[name, layer], values)
    assert np.array_equal(attention[name][layer], values)
    if of_heads:
        assert np.array_equal(attention[name, layer, "mean"], values.mean(axis=0))
        assert np.array_equal(attention[name, None, "mean"][layer], values.mean(axis=0))


def test_unknown_layers_heads_and_words_are_refused(trained: TrainedGPT) -> None:
    attention = trained.attn("the cat")
    keys: list[Any] = [("q", 0, -1), ("q", 0, 2), ("q", -1, 0), ("q", 2, "mean"), ("proj", -1)]
    for key in keys:
        with pytest.raises(IndexError, match=r"^(layer|head) -?\d is not in 0 … 1$"):
            attention[key]
    for position in (7, -8):
        with pytest.raises(IndexError, match=rf"^position {position} is not in -7 … 6$"):
            attention["proj", 0, None, position]
    wrong: list[Any] = [("weights", 0, "max"), "logits", ("ffn_out", 0)]
    for key in [*wrong, ("proj", 0, 1), ("proj", 0, "mean")]:
        with pytest.raises(ValueError, match=r"not a head's number or mean|not one of|no heads"):
            attention[key]


def test_an_empty_or_too_long_text_is_refused(trained: TrainedGPT) -> None:
    with pytest.raises(TextError, match="at least one character"):
        trained.attn("")
    with pytest.raises(TextError, match=r"17 characters.* 16.*`truncate`"):
        trained.attn("the cat sat on th")
    with pytest.raises(TextError, match=r"'€' \(U\+20AC EURO SIGN\) at position 4"):
        trained.attn("the €")


def test_a_truncated_text_gives_the_map_of_its_end(trained: TrainedGPT) -> None:
    cut, alone = trained.attn("the cat sat on the mat", truncate=True), "t sat on the mat"
    assert cut.text == alone
    for ours, theirs in zip(cut.layers, trained.attn(alone).layers, strict=True):
        assert np.array_equal(ours.weights, theirs.weights)
    assert trained.attn("the cat", truncate=True).text == "the cat"
    assert trained.attn("the€ cat", unknown="skip").text == "the cat"
