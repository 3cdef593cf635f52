"""The lesson `mine`: every number follows from the named weights, and checks find wrong ones."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from gpt.config import ModelConfig
from gpt.config.model import Activation, Norm, Position
from gpt.errors import ConfigError, TextError
from gpt.heads.attention_map import AttentionMap, inspect
from gpt.interface.trained import TrainedGPT
from gpt.lessons.lesson import Lesson, Table
from gpt.lessons.own_model import check_length, explain_model
from gpt.reading.gpt import Reader, Stages
from gpt.storage.run import Checkpoint
from gpt.vocabulary import Vocabulary

LETTERS = Vocabulary("abcdefghi")
TEXT = "beaded"


def small(dtype: npt.DTypeLike = np.float32, **options: Any) -> Reader:
    shape: dict[str, Any] = {"vocab_size": 9, "n_layer": 2, "n_head": 2, "n_embd": 8}
    config = ModelConfig(**{**shape, "block_size": 40, **options})
    random = np.random.default_rng(1)
    shapes = config.shapes().items()
    return Reader(config, {name: random.normal(size=s).astype(dtype) for name, s in shapes})


def attention_of(reader: Reader, text: str = TEXT) -> AttentionMap:
    return inspect(reader, text, LETTERS.encode(text))


def walked(reader: Reader, layer: int = 0, head: int = 0, text: str = TEXT) -> Lesson:
    return explain_model(reader, attention_of(reader, text), LETTERS, layer, head)


def tables_of(lesson: Lesson) -> dict[str, Table]:
    """The tables by name; fails if a name occurs twice."""
    tables = [table for step in lesson.steps for table in step.tables]
    named = {table.name: table for table in tables}
    assert len(named) == len(tables)
    return named


@pytest.mark.parametrize(
    ("position", "norm", "dtype"),
    [
        ("rotary", "rms", np.float32),
        ("learned", "layer", np.float64),
        ("sinusoidal", "rms", np.float64),
    ],
)
def test_checks_of_mine_pass_for_every_kind_of_model(
    position: str, norm: str, dtype: npt.DTypeLike
) -> None:
    for more in ({}, {"bias": True, "qkv_bias": True}, {"tied": True}):
        reader = small(dtype, position=position, norm=norm, **more)
        for layer, head in ((0, 0), (1, 1)):
            assert walked(reader, layer, head).failed == []


@pytest.mark.parametrize("norm", get_args(Norm))
@pytest.mark.parametrize("scaled", [False, True])
def test_mine_explains_norms_after_the_sublayers_and_scaled_embeddings(
    norm: str, scaled: bool
) -> None:
    reader = small(norm=norm, post_norm=True, scaled_embedding=scaled, position="learned")
    lesson = walked(reader, layer=1, head=1)
    assert lesson.failed == []
    assert "Normalise" not in [step.title for step in lesson.steps]
    formulas = " ".join(step.formula for step in lesson.steps)
    assert "q = resid_pre · W_qᵀ" in formulas
    assert "x = resid_pre + proj" in formulas
    assert "norm2(resid_mid + ffn_out)" in formulas
    assert "logits = resid_post[5] · Wᵀ" in formulas
    tables = tables_of(lesson)
    rows = reader.tensors["token_embedding.weight"][LETTERS.encode(TEXT)]
    factor = np.sqrt(8) if scaled else 1
    np.testing.assert_allclose(tables["token embeddings"].values, rows * factor, rtol=1e-6)
    resid_pre, up = (tables[name].values for name in ("resid_pre of layer 1", "ffn_up"))
    first = reader.tensors["blocks.1.attention.qkv.weight"].astype(np.float64)[4:8]
    np.testing.assert_allclose(tables["q"].values, resid_pre @ first.T, rtol=1e-4, atol=1e-4)
    matrix = reader.tensors["blocks.1.feed_forward.up.weight"].astype(np.float64)
    np.testing.assert_allclose(up, tables["resid_mid"].values @ matrix.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", get_args(Activation))
def test_checks_of_mine_pass_for_every_activation(activation: str) -> None:
    assert walked(small(activation=activation, n_layer=1, n_head=1)).failed == []


@pytest.mark.parametrize("post_norm", [False, True])
def test_mine_ends_a_layer_after_attention_where_there_is_no_feed_forward(post_norm: bool) -> None:
    reader = small(feed_forward=False, position="none", norm="layer", post_norm=post_norm)
    lesson = walked(reader, layer=1, head=1)
    assert lesson.failed == []
    assert "This model has no positions" in lesson.steps[0].text
    assert "Feed-forward" not in [step.title for step in lesson.steps]
    (residual,) = (step for step in lesson.steps if step.title == "Residual")
    assert residual.text.endswith("so the stream leaves the layer here.")
    assert not any("ffn" in step.formula for step in lesson.steps)


@pytest.mark.parametrize("position", get_args(Position))
def test_the_stream_is_called_a_sum_only_where_positions_are_added(position: str) -> None:
    first = walked(small(position=position)).steps[0]
    added = position in ("learned", "sinusoidal")
    assert ("sum" in first.text) == (" + " in first.formula) == added
    numbers = [table.values.tobytes() for table in first.tables]
    assert len(set(numbers)) == len(numbers) == (4 if added else 2)  # no table twice


def test_tables_equal_the_products_with_the_named_weights() -> None:
    reader = small(position="learned", norm="layer")
    tables = tables_of(walked(reader, layer=1, head=1))
    for name in "qkv":
        source = tables[name].source
        found = re.fullmatch(r"(\S+), rows (\d+)–(\d+)", source)
        assert found, source
        rows = reader.tensors[found[1]][int(found[2]) : int(found[3]) + 1]
        expected = tables["normed"].values @ rows.T.astype(np.float64)
        np.testing.assert_allclose(tables[name].values, expected, rtol=0, atol=1e-12)
    by_head = tables["of it by head 1"]
    found = re.fullmatch(r"(\S+), columns (\d+)–(\d+)", by_head.source)
    assert found, by_head.source
    columns = reader.tensors[found[1]][:, int(found[2]) : int(found[3]) + 1]
    expected = tables["context"].values @ columns.T
    np.testing.assert_allclose(by_head.values, expected, rtol=0, atol=1e-4)


def test_biases_of_queries_keys_and_values_are_named_and_added() -> None:
    reader = small(position="learned", norm="layer", qkv_bias=True)
    lesson = walked(reader, layer=1, head=1)
    tables = tables_of(lesson)
    (step,) = (each for each in lesson.steps if each.title.startswith("Queries, keys and values"))
    assert "plus its number in blocks.1.attention.qkv.bias" in step.text
    assert "k = normed · W_kᵀ + b_k" in step.formula
    weight, bias = (reader.tensors[f"blocks.1.attention.qkv.{kind}"] for kind in ("weight", "bias"))
    for name, first in zip("qkv", (4, 12, 20), strict=True):
        rows = weight[first : first + 4].astype(np.float64)
        expected = tables["normed"].values @ rows.T + bias[first : first + 4]
        np.testing.assert_allclose(tables[name].values, expected, rtol=0, atol=1e-12)
    first_number = f"{tables['q'].values[-1, 0]:.4f}"
    assert step.notice.endswith(f".weight[4] + blocks.1.attention.qkv.bias[4] = {first_number}")


@pytest.mark.parametrize(
    "stage", [field.name for field in fields(Stages) if field.name != "masked"]
)
@pytest.mark.parametrize("wrong", [0.1, np.nan])
def test_check_fails_for_a_changed_stage(stage: str, wrong: float) -> None:
    reader = small()
    attention = attention_of(reader)
    first = attention.layers[0]
    values = getattr(first, stage).copy()
    values.reshape(-1)[0] += wrong
    tampered = replace(attention, layers=(replace(first, **{stage: values}), *attention.layers[1:]))
    assert stage in explain_model(reader, tampered, LETTERS, 0, 0).failed


def test_check_fails_if_the_mask_lets_the_future_through() -> None:
    reader = small(n_layer=1)
    attention = attention_of(reader)
    masked = attention.layers[0].masked.copy()
    masked[0, 0, 1] = 0.0
    seen = replace(attention, layers=(replace(attention.layers[0], masked=masked),))
    assert "masked" in explain_model(reader, seen, LETTERS, 0, 0).failed


def test_later_layer_starts_from_the_output_of_earlier_ones() -> None:
    reader = small()
    titles = [step.title for step in walked(reader, layer=1).steps]
    assert "Earlier layers" in titles
    assert "Earlier layers" not in [step.title for step in walked(reader, layer=0).steps]
    tables = tables_of(walked(reader, layer=1))
    np.testing.assert_array_equal(
        tables["resid_pre of layer 1"].values, attention_of(reader).layers[0].resid_post
    )


def test_unknown_layer_or_head_and_too_long_a_text_are_refused() -> None:
    reader = small()
    with pytest.raises(ConfigError, match=r"^layer: 2 is not in 0 … 1"):
        walked(reader, layer=2)
    with pytest.raises(ConfigError, match=r"^head: -1 is not in 0 … 1"):
        walked(reader, head=-1)
    with pytest.raises(TextError, match=r"33 characters: .* at most 32; gptx attn … shows"):
        walked(reader, text="a" * 33)
    with pytest.raises(TextError, match=r"has 9: give at most 9; gptx attn … --truncate"):
        check_length(replace(reader.config, block_size=9), 10)
    with pytest.raises(TextError, match=r"41 characters: .* at most 32; .* shows the last 40"):
        check_length(reader.config, 41)
    with pytest.raises(TextError, match="no text"):
        check_length(reader.config, 0)
    assert walked(reader, text="a" * 32).failed == []
    assert walked(reader, text="a").failed == []


def test_trained_model_passes_the_checks_of_mine(tiny: Checkpoint) -> None:
    trained = TrainedGPT(tiny.model())
    lesson = trained.explain("the cat", layer=1, head=1)
    assert lesson.name == "mine"
    assert lesson.failed == []
    names = [check.name for check in lesson.steps[-1].checks]
    assert "logits = torch's at saving" in names
    following = trained.next("the cat", temperature=1.0).expected
    chances = tables_of(lesson)["chances"].values
    np.testing.assert_allclose(chances, np.sort(following)[::-1][:8], atol=1e-6)
    with pytest.raises(TextError, match="é"):
        trained.explain("thé")
