"""An attention map passes its checks, each check detects damage, and keys name its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from gpt.config import DrawnStage, ModelConfig
from gpt.config.model import FINAL_STAGES, HEAD_STAGES, SQUARE, STAGES
from gpt.errors import TextError
from gpt.heads.activations import stage_shapes
from gpt.heads.attention_map import AttentionMap, compute_attention_map
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Array, Reader, Stages
from gpt.show.result import Check
from gpt.vocabulary import Ids

SUM, FLOAT64, DIAGONAL, PROBE, FLOAT32 = (
    "rows sum to 1",
    "the same in float64",
    "above the diagonal exactly 0",
    "logits = torch's at saving",
    "logits in float32",
)
KEPT = tuple(field.name for field in fields(Stages))
HEADS = Path(__file__).parents[2] / "docs/heads.md"
ROW = re.compile(r"^\| `(\w+)` \| \(([^)]*)\) \| .* \| .* \|$", re.MULTILINE)
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


def damaged(trained: TrainedGPT, layer: int, stage: str, damage: Damage) -> AttentionMap:
    reader = Damaged(trained, layer, stage, damage)
    return compute_attention_map(reader, "the cat", trained.vocabulary.encode("the cat"))


def failed(attention: AttentionMap, stage: str = "weights") -> list[str]:
    """The names of the checks that do not pass."""
    return [check.name for check in attention.checked(stage) if not check.passed]


@pytest.mark.parametrize("text", ["t", "\n\n\n", "the cat", "the cat sat on t"])
def test_trained_model_passes_every_check(trained: TrainedGPT, text: str) -> None:
    attention = trained.attn(text)
    checks = {check.name: check for check in attention.checked()}
    assert list(checks) == [SUM, FLOAT64, DIAGONAL, PROBE, FLOAT32]
    assert failed(attention) == []
    assert checks[DIAGONAL].error == checks[DIAGONAL].bound == 0.0
    assert checks[PROBE].error == trained.probe_check.error > 0
    assert checks[FLOAT32].error == trained.float32_check.error > checks[PROBE].error
    assert [check.name for check in checks.values() if not check.detail] == [SUM, FLOAT64]
    assert (attention.text, len(attention.ids)) == (text, len(text))


def test_the_difference_from_float64_is_that_of_the_stage(trained: TrainedGPT) -> None:
    attention = trained.attn("the cat sat")
    exact = trained.reader.in_float64().stages(attention.ids)
    read = np.tri(len(attention.ids), dtype=np.bool_)
    for stage, error in attention.rounding.items():
        shown, expected = attention[stage], np.stack([getattr(layer, stage) for layer in exact])
        if stage in SQUARE:
            shown, expected = shown[..., read], expected[..., read]
        assert error == np.abs(shown - expected).max() < 1e-5
        assert attention.checked(stage)[1] == Check(FLOAT64, error)
    assert attention.rounding.keys() == {*KEPT}
    assert attention.rounding["weights"] > 0


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize(
    ("damage", "noticed"), [(at((0, 3, 3), 1.5e-6), SUM), (at((0, 3, 4), 1e-30), DIAGONAL)]
)
def test_damaged_weights_fail_their_check(
    trained: TrainedGPT, layer: int, damage: Damage, noticed: str
) -> None:
    assert failed(damaged(trained, layer, "weights", damage)) == [noticed]


@pytest.mark.parametrize("stage", KEPT)
def test_nan_in_a_stage_fails_its_check(trained: TrainedGPT, stage: str) -> None:
    place = (0, 2, 1) if stage in HEAD_STAGES else (2, 1)
    for layer in (0, 1):
        attention = damaged(trained, layer, stage, at(place, float("nan")))
        assert FLOAT64 in failed(attention, stage)


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
    assert trained.attn("the€ cat", unknown="skip").text == "the cat"


def test_the_table_in_the_docs_has_every_stage_in_order_with_its_shape() -> None:
    config = ModelConfig(vocab_size=9, block_size=8, n_layer=3, n_head=2, n_embd=8)
    rows = ROW.findall(HEADS.read_text(encoding="utf-8"))
    assert tuple(name for name, _ in rows) == STAGES
    sizes = {"T": 5, "C": 8, "H": 2, "D": 4, "V": 9, "4·C": config.ffn_hidden}
    shapes = {name: tuple(sizes[axis] for axis in shape.split(", ")) for name, shape in rows}
    assert shapes == stage_shapes(config, 5)
    assert {name for name, shape in rows if shape.startswith("H")} == {*HEAD_STAGES}
    for part in (SQUARE, HEAD_STAGES, FINAL_STAGES, get_args(DrawnStage), KEPT):
        assert part == tuple(name for name in STAGES if name in part)
