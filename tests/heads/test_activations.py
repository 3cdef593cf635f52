"""Kept stages are those of each text alone; padding and chunks change no number."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from random_models import random_reader

from gpt.config.model import HEAD_STAGES
from gpt.errors import TextError
from gpt.heads.activations import ActivationPlan, Activations, stage_shapes
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import ACTIVATIONS, Reader, Stages

ALL = tuple(stage_shapes(random_reader().config, 1))
T = 8


def reader_of(dtype: npt.DTypeLike = np.float64, **options: Any) -> Reader:
    return random_reader(dtype, n_layer=3, **options)


def ids_of(batch: int = 5) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(2).integers(9, size=(batch, T)).astype(np.uint8)


def assert_right(reader: Reader, acts: Activations, text: int) -> None:
    """The stages are those of this text alone; the other arrays follow from them."""
    config, tolerance = reader.config, {4: 1e-5, 8: 1e-12}[reader.dtype.itemsize]

    def assert_equal(name: str, array: Any, expected: Any) -> None:
        size = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max()
        np.testing.assert_allclose(array, expected, rtol=0, atol=tolerance * size, err_msg=name)

    for layer, stages in enumerate(reader.stages(acts.ids[text])):
        block = f"blocks.{layer}."
        for field in fields(Stages):
            expected = getattr(stages, field.name)
            assert_equal(field.name, acts[field.name, layer][text], expected)
        up = reader.apply_linear(
            reader.apply_norm(stages.resid_mid, block + "norm2"), f"{block}feed_forward.up"
        )
        hidden = ACTIVATIONS[config.activation](up)
        assert_equal("ffn_hidden", acts["ffn_hidden", layer][text], hidden)
        down = reader.apply_linear(hidden, block + "feed_forward.down")
        assert_equal("ffn_out", acts["ffn_out", layer][text], down)

        by_head = acts["head_output", layer][text]
        weight, bias = reader.weight_and_bias(block + "attention.proj")
        summed = by_head.sum(axis=0) + (0 if bias is None else bias)
        assert_equal("head_output, summed", summed, stages.proj)
        columns = np.split(weight, config.n_head, axis=1)
        for number, context in enumerate(stages.context):
            assert_equal("head_output", by_head[number], context @ columns[number].T)
    final = reader.final_norm(stages.resid_post)
    assert_equal("final_norm", acts["final_norm"][text], final)
    assert_equal("logits", acts["logits"][text], reader.logits(final))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("more", [{}, {"bias": True, "qkv_bias": True, "activation": "gelu"}])
def test_every_array_is_that_of_its_text(more: dict[str, Any], dtype: npt.DTypeLike) -> None:
    reader = reader_of(dtype, **more)
    acts = ActivationPlan(reader, ids_of(2), ALL).read()
    assert tuple(acts) == ALL
    for name, shape in stage_shapes(reader.config, T).items():
        layers = () if name in ("final_norm", "logits") else (3,)
        assert (acts[name].shape, acts[name].dtype) == ((2, *layers, *shape), dtype)
    for text in range(2):
        assert_right(reader, acts, text)


def test_arrays_of_one_text_equal_the_attention_maps(trained: TrainedGPT) -> None:
    seen, acts = trained.attn("the cat"), trained.activations("the cat")
    for layer, stages in enumerate(seen.layers):
        for field in fields(Stages):
            expected = getattr(stages, field.name)
            assert np.array_equal(acts[field.name, layer][0], expected), field.name
    assert_right(trained.reader, trained.activations("the cat", ALL), 0)
    assert np.array_equal(trained.logits("the cat"), acts["logits"])
    for key in ("weights", ("weights", 1), ("q", 0, 1), ("k", None, 1, -1)):
        assert np.array_equal(seen[key], acts[key][0])


def test_named_stages_and_layers_are_kept() -> None:
    reader, ids = reader_of(), ids_of()
    whole = ActivationPlan(reader, ids).read()
    assert {*whole} == {*ALL} - {"head_output"}
    acts = ActivationPlan(reader, ids, ["weights", "q"], [2, 0]).read()
    assert ((*acts,), acts.layers) == (("q", "weights"), (2, 0))
    assert acts["q"].shape == (5, 2, 2, T, 4)
    for name in acts:
        assert np.array_equal(acts[name][:, 0], whole[name, 2])
        assert np.array_equal(acts[name, 0], whole[name, 0])
        for head in (None, *range(2)) if name in HEAD_STAGES else (None,):
            whole_head = whole[name, 2] if head is None else whole[name, 2][:, head]
            assert np.array_equal(acts[name, 2, head], whole_head)
            assert np.array_equal(acts[name, np.int64(2), head, -2], whole_head[..., T - 2, :])
            every = whole[name][:, [2, 0]] if head is None else whole[name][:, [2, 0], head]
            assert np.array_equal(acts[name, None, head, 3], every[..., 3, :])
    one = ActivationPlan(reader, ids, "resid_mid", np.int64(1)).read()
    assert np.array_equal(one["resid_mid"], whole["resid_mid"][:, 1:2])


def test_layers_after_the_last_kept_one_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, computed = reader_of(), list[int]()
    block = reader.block

    def counted(x: Any, layer: int, *more: Any) -> Any:
        computed.append(layer)
        return block(x, layer, *more)

    monkeypatch.setattr(reader, "block", counted)
    ActivationPlan(reader, ids_of(), "q", [1]).read()
    assert computed == [0, 1]
    ActivationPlan(reader, ids_of(), "logits", [1]).read()
    assert computed == [0, 1, 0, 1, 2]


def test_padding_changes_no_number_of_a_shorter_text() -> None:
    reader, ids = reader_of(), ids_of(3)
    lengths = np.array([8, 1, 5])
    acts = ActivationPlan(reader, ids, ALL, lengths=lengths).read()
    for text, length in enumerate(lengths.tolist()):
        alone = ActivationPlan(reader, ids[text : text + 1, :length], ALL).read()
        for name in ALL:
            matrix = name in ("scores", "scaled", "masked", "weights")
            kept = acts[name][text, ..., :length, :]
            kept = kept[..., :length] if matrix else kept
            np.testing.assert_allclose(kept, alone[name][0], rtol=1e-12, atol=1e-12)
            assert (acts[name][text, ..., length:, :] == 0).all()
        assert (acts["scores"][text, ..., length:] == 0).all()
        assert (acts["weights"][text, ..., length:] == 0).all()
    other = ids.copy()
    other[1, 1:], other[2, 5:] = 8 - ids[1, 1:], 8 - ids[2, 5:]
    again = ActivationPlan(reader, other, ALL, lengths=lengths).read()
    assert all(np.array_equal(again[name], acts[name]) for name in ALL)


def test_texts_of_different_lengths_are_padded_and_ids_are_read_alike(trained: TrainedGPT) -> None:
    texts = ["the cat", "no rat!", "a"]
    acts = trained.activations(texts, "logits")
    ids = [trained.vocabulary.encode(text) for text in texts]
    assert acts.lengths.tolist() == [7, 7, 1]
    assert np.array_equal(acts.ids[1], ids[1])
    assert np.array_equal(trained.logits(ids), acts["logits"])
    assert np.array_equal(trained.logits(np.stack(ids[:2])), trained.logits(texts[:2]))
    assert np.array_equal(trained.logits(ids[0]), trained.logits(texts[0]))
    assert np.array_equal(trained.logits([list(ids[0])]), trained.logits(texts[0]))
    assert np.array_equal(trained.logits("théx", unknown="skip"), trained.logits("th"))


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda run: run.activations("the", "Q"), ValueError, "names: 'Q' is not one of resid_pre, q"),
    (lambda run: run.activations("the", "q", 2), IndexError, r"layer 2 is not in 0 … 1"),
    (lambda run: run.activations("the", "q", 1)["q", 0], IndexError, "layer 0 is not one of 1"),
    (lambda run: run.logits(""), TextError, "text 0 has 0 characters; the model reads 1 to 16"),
    (lambda run: run.logits(["a", "the cat " * 3]), TextError, "text 1 has 24 characters"),
    (lambda run: run.logits([]), ValueError, "texts: there is none"),
    (lambda run: run.logits([1, 2]), TypeError, "texts: expected a row of ids, not an"),
    (lambda run: run.logits(np.array([[0, 15]])), ValueError, r"texts: 0 … 15 are not in 0 … 14"),
]


@pytest.mark.parametrize(("call", "error", "problem"), WRONG)
def test_error_names_what_exists(
    trained: TrainedGPT, call: Any, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        call(trained)
