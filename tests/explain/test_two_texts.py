"""The lessons about two texts: their numbers follow from the tables shown, and slips do harm."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from gpt.explain.catalogue import lesson, material
from gpt.explain.lesson import Lesson, Step


@cache
def played(name: str) -> Lesson:
    return lesson(name)


def numbers(name: str, table: str) -> Any:
    tables = [each for step in played(name).steps for each in step.tables]
    return next(each.values for each in tables if each.name == table)


def step(name: str, title: str) -> Step:
    return next(each for each in played(name).steps if each.title.startswith(title))


def softmax(scores: Any) -> Any:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def test_cross_attention_follows_from_the_tables_shown() -> None:
    source, target = numbers("cross", "source"), numbers("cross", "target")
    weights = softmax(target @ source.T)
    np.testing.assert_allclose(numbers("cross", "weights"), weights, atol=1e-12)
    np.testing.assert_allclose(numbers("cross", "contexts"), weights @ source, atol=1e-12)
    queries, keys, values = (numbers("cross", name) for name in ("queries", "keys", "values"))
    weights = softmax(queries @ keys.T / 3**0.5)
    np.testing.assert_allclose(numbers("cross", "weights with matrices"), weights, atol=1e-12)
    np.testing.assert_allclose(
        numbers("cross", "contexts with matrices"), weights @ values, atol=1e-12
    )
    assert weights.shape == (4, 6)


def test_padding_has_weight_only_without_a_mask() -> None:
    masked, unmasked = (
        numbers("cross", f"weights {how}") for how in ("with the mask", "without a mask")
    )
    assert (masked[:, -1] == 0).all()
    assert (unmasked[:, -1] > 0.1).all()
    np.testing.assert_allclose(masked[:, :-1], numbers("cross", "weights with matrices"))


def test_the_mask_of_the_wrong_text_hides_words_and_shows_padding() -> None:
    to_source, to_target = (
        numbers("cross", f"weights, {who}") for who in ("target asks source", "source asks target")
    )
    assert (to_source[:, 4:] == 0).all()
    assert (to_target[:, 4:] > 0.1).all()
    effects = numbers("cross", "effects when this text asks")
    np.testing.assert_allclose(effects[:, 0], [2, 0])
    np.testing.assert_allclose(effects[:, 1], [0, to_target[:, 4:].sum(axis=-1).mean()])
    assert (effects[:, 2] > 0.1).all()


def test_a_mask_as_long_as_the_queries_raises_errors() -> None:
    told = step("cross", "Slip 2").text
    assert "RuntimeError: shape '[1, 1, 4]' is invalid for input of size 6" in told
    assert "size of tensor a (6) must match the size of tensor b (4)" in told


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_the_two_texts_have_different_lengths(size: int) -> None:
    own = lesson("cross", material("cross", rows=[[0.5]] * size))
    given, other = own.steps[0].tables
    assert len(given.rows) == size != len(other.rows)
    assert other.rows[0] == "y1"
