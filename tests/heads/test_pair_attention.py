"""Attention of models with an encoder: three kinds of map, each of whose numbers is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from encoded import encoded_file

from gpt import load
from gpt.config import AttentionKind
from gpt.errors import ConfigError, TextError
from gpt.heads.attention_map import inspect
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.storage.run import Checkpoint

KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)
SOURCE, TARGET = "24 abc", "2-1"
PAIR = f"{SOURCE}\t{TARGET}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return load(encoded_file(tmp_path_factory.mktemp("pairs") / "p.safetensors"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("post_norm", "position", "norm"),
    [
        *((False, "rotary", "rms"), (True, "rotary", "layer"), (True, "learned", "rms")),
        *((False, "learned", "layer"), (True, "sinusoidal", "layer"), (False, "sinusoidal", "rms")),
    ],
)
def test_every_kind_passes_its_checks(
    tmp_path: Path, kind: AttentionKind, post_norm: bool, position: str, norm: str
) -> None:
    options: dict[str, Any] = {"post_norm": post_norm, "position": position, "norm": norm}
    model = load(encoded_file(tmp_path / "p.safetensors", **options))
    found = model.attn(PAIR, attention=kind)
    assert [check.name for check in found.checks if not check.passed] == []
    assert len(found.layers) == (3 if kind == "encoder" else 2)


def test_rows_and_columns_of_each_kind(trained: TrainedGPT) -> None:
    maps = {kind: trained.attn(PAIR, attention=kind) for kind in KINDS}
    texts = {kind: (each.text, each.columns) for kind, each in maps.items()}
    read = f"\t{TARGET}"
    assert texts == {
        "encoder": (SOURCE, SOURCE),
        "decoder": (read, read),
        "cross": (read, SOURCE),
    }
    for each in maps.values():
        assert each.allowed.shape == each.layers[0].weights.shape[1:]
        assert (each.layers[0].weights > 0).all(axis=0).tolist() == each.allowed.tolist()
        assert trained.vocabulary.decode(each.ids) == each.text
        assert trained.vocabulary.decode(each.column_ids) == each.columns
    assert trained.attn(PAIR).kind == "cross"
    assert maps["cross"].to_numpy()["weights"].shape == (2, 2, len(read), len(SOURCE))
    assert maps["cross"].to_numpy()["column_ids"].tolist() == maps["encoder"].ids.tolist()


def test_a_map_has_the_stages_of_the_forward_pass(trained: TrainedGPT) -> None:
    cross = trained.attn(PAIR)
    reader = trained.reader
    memory = reader.encode(cross.column_ids[None])
    stream = reader.forward(cross.ids[None], memory)
    last = reader.final_norm(cross.layers[-1].resid_post[None])
    np.testing.assert_array_equal(last, stream)


def test_without_a_target_the_model_writes_it(trained: TrainedGPT) -> None:
    found = trained.attn(SOURCE)
    assert found.text == "\t" + trained.answers([SOURCE])[0]


def test_the_first_rows_of_a_map(trained: TrainedGPT) -> None:
    both: tuple[AttentionKind, ...] = ("cross", "decoder")
    for kind in both:
        whole, part = (
            trained.attn(PAIR, attention=kind),
            trained.attn(f"{SOURCE}\t2", attention=kind),
        )
        first = whole.first(2)
        assert (first.text, first.columns) == (part.text, part.columns)
        for name, each in first.to_numpy().items():
            np.testing.assert_allclose(each, part.to_numpy()[name], rtol=0, atol=2e-5, err_msg=name)
    with pytest.raises(ValueError, match="whole text"):
        trained.attn(PAIR, attention="encoder").first(2)


class Damaged(Reader):
    """A reader that changes a number of one stage in the last layer of one kind of attention."""

    def __init__(self, sound: TrainedGPT, kind: str, stage: str, by: float) -> None:
        super().__init__(sound.config, sound.stored.tensors)
        self._spoil = kind, stage, by
        if self.encoder is not None and kind == "encoder":
            sound_stages = self.encoder.stages
            self.encoder.stages = lambda ids, **more: self._spoilt(sound_stages(ids, **more))  # type: ignore[method-assign]

    def sublayers(self, *ids: Any, **more: Any) -> dict[str, tuple[Stages, ...]]:
        found = super().sublayers(*ids, **more)
        name = {"decoder": "attention", "cross": "cross"}.get(self._spoil[0])
        return {key: self._spoilt(each) if key == name else each for key, each in found.items()}

    def _spoilt(self, layers: tuple[Stages, ...]) -> tuple[Stages, ...]:
        _, stage, by = self._spoil
        changed: Array = getattr(layers[-1], stage).copy()
        changed[..., 0, -1] += by
        return (*layers[:-1], replace(layers[-1], **{stage: changed}))


#: Stage -> the check that fails if one of its numbers is wrong.
GUARDED = {
    **dict.fromkeys(("q", "k", "v"), "q, k, v"),
    **dict.fromkeys(("scores", "scaled", "masked"), "scores"),
    **dict.fromkeys(("context", "concat"), "context"),
    **{name: name for name in ("resid_pre", "weights", "proj", "resid_mid", "resid_post")},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stage", [each.name for each in fields(Stages)])
def test_a_wrong_number_fails_the_check_of_its_stage(
    trained: TrainedGPT, kind: AttentionKind, stage: str
) -> None:
    failing = checks_of(trained, Damaged(trained, kind, stage, 0.1), kind)
    if (kind, stage) != ("decoder", "masked"):  # −inf + 0.1 is −inf
        assert GUARDED[stage] in failing


@pytest.mark.parametrize(("kind", "fails"), [("decoder", True), ("cross", False)])
def test_only_the_decoders_own_weights_are_0_above_the_diagonal(
    trained: TrainedGPT, kind: AttentionKind, fails: bool
) -> None:
    failing = checks_of(trained, Damaged(trained, kind, "weights", 0.1), kind)
    assert ("above the diagonal exactly 0" in failing) == fails
    assert "rows sum to 1" in failing


def test_cross_attention_must_read_what_the_encoder_wrote(trained: TrainedGPT) -> None:
    class Other(Reader):
        def encode(self, source: Any, seen: Any = None) -> Any:
            memory = super().encode(source, seen)
            return replace(memory, states=memory.states + np.float32(0.01))

    failing = checks_of(trained, Other(trained.config, trained.stored.tensors), "cross")
    assert "memory" in failing


def checks_of(trained: TrainedGPT, reader: Reader, kind: AttentionKind) -> set[str]:
    """The names of the checks that fail."""
    encode: Callable[[str], Any] = trained.vocabulary.encode
    read = "\t" + TARGET
    given: Any = {"source": (SOURCE, encode(SOURCE)), "kind": kind}
    found = inspect(reader, read, encode(read), **given)
    return {check.name for check in found.checks if not check.passed}


def test_rollout_exists_for_self_attention_only(trained: TrainedGPT) -> None:
    assert trained.attn(PAIR, attention="encoder").rollout(2).shape == (6, 6)
    with pytest.raises(ValueError, match="self-attention only"):
        trained.attn(PAIR).rollout(0)


def test_positions_of_keys_and_values_are_those_of_the_text_that_is_read(
    trained: TrainedGPT,
) -> None:
    cross = trained.attn(PAIR)
    queries, keys = len(cross.ids), len(cross.column_ids)
    assert queries != keys
    assert cross["weights", 0, 1].shape == (queries, keys)
    assert np.array_equal(cross["v", 0, 1, -1], cross.layers[0].v[1, keys - 1])
    assert np.array_equal(cross["q", 0, 1, -1], cross.layers[0].q[1, queries - 1])
    for name, count in (("k", keys), ("q", queries)):
        with pytest.raises(IndexError, match=rf"position {count} is not in -{count} … {count - 1}"):
            cross[name, 0, 1, count]  # type: ignore[index]


def test_what_does_not_fit_a_model_is_refused(trained: TrainedGPT, tiny: Checkpoint) -> None:
    other: Any = "sideways"
    for call, named in [
        (lambda: trained.attn(PAIR, attention=other), "sideways"),
        (lambda: trained.attn(PAIR, truncate=True), "truncate"),
        (lambda: TrainedGPT(tiny.model()).attn("the", attention="cross"), "no encoder"),
    ]:
        with pytest.raises(ConfigError, match=named):
            call()
    with pytest.raises(TextError, match="several TABs"):
        trained.attn("a\tb\tc")
