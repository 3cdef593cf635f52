"""The lesson "induction": its numbers, computed again word by word in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from two_layers import numbers_of, table

from gpt.lessons.catalogue import make_lesson, make_material
from gpt.lessons.lesson import Lesson
from gpt.lessons.tutorials import induction

TEXT = ("one", "step", "and", "one")


def played(*words: str) -> Lesson:
    return make_lesson("induction", make_material("induction", words or None))


@pytest.mark.parametrize(
    "words", [TEXT, ("a",), ("a", "a"), ("the", "cat", "the", "dog", "the"), ("é", "👩", "é")]
)
def test_every_number_follows_from_the_words(words: tuple[str, ...]) -> None:
    told, expected = played(*words), numbers_of(words)
    assert told.failed == []
    for name, key, first in (
        ("weights of layer 0", "looking", 0),
        ("before", "before", 0),
        ("scores of layer 1", "scores", 1),
        ("weights of layer 1", "weights", 1),
        ("next", "next", 1),
        ("p of the next word", "p", 1),
    ):
        np.testing.assert_allclose(table(told, name).values, expected[key][first:], atol=1e-12)
    without = numbers_of(words, previous=0)
    np.testing.assert_allclose(
        table(told, "weights without layer 0").values, without["weights"][1:], atol=1e-12
    )
    both = np.transpose([expected["p"][-1], without["p"][-1]])
    np.testing.assert_allclose(table(told, "p with and without").values, both, atol=1e-12)
    best = int(np.argmax(both[:, 0]))
    assert f"was {both[best, 0]:.4f} and is {both[best, 1]:.4f}" in told.steps[-1].notice


def test_the_composed_matrix_scores_a_word_with_the_same_word_before_a_key() -> None:
    told = played()
    product = table(told, "W_QK · W_OV: word, word before")
    np.testing.assert_array_equal(product.values, 8 * np.eye(4))
    assert product.rows == product.columns == ("(start)", "one", "step", "and")
    looks = table(told, "W_QK of layer 0, by places").values
    assert [tuple(place) for place in np.argwhere(looks).tolist()] == [
        (t, t - 1) for t in range(1, 5)
    ]


@settings(deadline=None, max_examples=40)
@given(words=st.lists(st.sampled_from("abcde"), min_size=1, max_size=12))
def test_the_likeliest_word_is_one_that_followed_the_last_word(words: list[str]) -> None:
    followers = [words[n + 1] for n in range(len(words) - 1) if words[n] == words[-1]]
    told = played(*words)
    p = table(told, "p of the next word")
    best = p.columns[int(p.values[-1].argmax())]
    assert told.failed == []
    if followers:
        assert followers.count(best) == max(map(followers.count, followers))
    said = told.steps[0].notice
    expected = "”, “".join(followers)
    assert f"after it came “{expected}”." in said if followers else "nothing to copy" in said


def test_the_copy_is_lost_without_the_previous_word_head() -> None:
    told = played()
    names = table(told, "p with and without").rows
    with_it, without = table(told, "p with and without").values[names.index("step")]
    assert with_it > 0.97
    assert without < 0.2
    flat = table(told, "weights without layer 0").values
    for t, row in enumerate(flat, 1):
        np.testing.assert_allclose(row[: t + 1], 1 / (t + 1))


@pytest.mark.parametrize(
    ("slip", "check"),
    [
        ("no mask", "stream = torch’s attention"),
        ("another output", "p = torch’s attention"),
        ("no product", "scores = by the product"),
    ],
)
def test_a_slip_fails_a_check(slip: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = induction.TwoLayers.__init__
    if slip == "no mask":
        monkeypatch.setattr(induction, "causal", lambda size: torch.ones(size, size).bool())
    else:

        def wrong(self: Any, *given: Any, **more: Any) -> None:
            real(self, *given, **more)
            if slip == "another output":
                self.p = self.p.roll(1, dims=0)
            else:
                self.W[1, 0] *= 2

        monkeypatch.setattr(induction.TwoLayers, "__init__", wrong)
    assert check in played().failed
