"""The lessons about two texts: their numbers follow from the tables shown, and slips do harm."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from gpt.lessons.catalogue import make_lesson, make_material
from gpt.lessons.lesson import Lesson, Step


@cache
def played(name: str) -> Lesson:
    return make_lesson(name)


def numbers(name: str, table: str) -> Any:
    tables = [each for step in played(name).steps for each in step.tables]
    return next(each.values for each in tables if each.name == table)


def step(name: str, title: str) -> Step:
    return next(each for each in played(name).steps if each.title.startswith(title))


def test_a_mask_as_long_as_the_queries_raises_errors() -> None:
    told = step("cross", "Slip 2").text
    assert "RuntimeError: shape '[1, 1, 4]' is invalid for input of size 6" in told
    assert "size of tensor a (6) must match the size of tensor b (4)" in told


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_the_two_texts_have_different_lengths(size: int) -> None:
    own = make_lesson("cross", make_material("cross", rows=[[0.5]] * size))
    given, other = own.steps[0].tables
    assert len(given.rows) == size != len(other.rows)
    assert other.rows[0] == "y1"


def test_003_block_and_embedding_have_the_tutorials_parameters() -> None:
    embedding, encoder, decoder = numbers("encoder-decoder", "parameters").tolist()
    assert (embedding, encoder) == (524_288, 3_150_848)
    assert decoder == encoder + 4 * 512 * 512 + 512 + 2 * 512, "cross-attention and its norm"
    told = step("encoder-decoder", "At the paper’s size").text
    assert "8 heads of 64, 2,048 numbers" in told
    assert "3,150,848 parameters" in told


def test_003_positions_are_the_papers() -> None:
    positions = numbers("encoder-decoder", "positions")
    for t in range(6):
        for i in range(4):
            angle = t / 10_000 ** (2 * i / 8)
            expected = np.sin(angle), np.cos(angle)
            np.testing.assert_allclose(positions[t, 2 * i : 2 * i + 2], expected, atol=1e-12)


def test_003_each_slip_shows_what_it_breaks() -> None:
    assert "IndexError: index out of range" in step("encoder-decoder", "Slip 1").text
    spreads = numbers("encoder-decoder", "standard deviations at the start")
    np.testing.assert_allclose(spreads[:2, 0], 64**0.5, rtol=0.02)
    np.testing.assert_allclose(spreads[2, 0], (2 / 3) ** 0.5, rtol=0.02)
    assert spreads[1, 3] > 5 * np.log(128) > 4 * spreads[2, 3], "the loss of tied weights, in nats"
    untied, tied = numbers("encoder-decoder", "parameters of the model")
    assert untied - tied == 2 * 524_288
    slip, repaired = numbers("encoder-decoder", "share of zeros")
    assert (slip[:2] == 0).all()
    assert min(slip[2], *repaired) > 0.08
    slip, repaired = numbers("encoder-decoder", "change of the logits")
    assert slip > 0.1 > 1e-12 > repaired


@pytest.mark.parametrize("wrong", ["all of the memory", "no memory", "unscaled"])
def test_a_model_with_an_error_fails_a_check(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpt.model import gpt as model

    if wrong == "all of the memory":  # padding is not masked
        monkeypatch.setattr(model, "key_mask", lambda seen: None)
    elif wrong == "no memory":
        cross = model.Block.forward
        monkeypatch.setattr(
            model.Block,
            "forward",
            lambda *given, memory=None, **more: cross(
                *given, memory=None if memory is None else 0 * memory, **more
            ),
        )
    else:
        add = model.Block._add
        monkeypatch.setattr(model.Block, "_add", lambda *given: 2 * add(*given))
    assert make_lesson("encoder-decoder").failed
