"""Pieces of a source and of its target: of known heads, and the best head of several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpt.heads.alignment import align, alignments
from gpt.reading.layers import Array


def reads(source: str, *places: int) -> Array:
    """(1, 1, T, S) weights of a head of which row t has most of its weight on places[t]."""
    weights = np.full((len(places), len(source)), 0.1 / (len(source) - 1))
    weights[np.arange(len(places)), places] = 0.9
    return weights[None, None]


@pytest.mark.parametrize(
    ("source", "target", "places", "shown"),
    [
        ("egészs", "ɛɡeːʃː", (0, 1, 2, 2, 5, 5), "e–ɛ g–ɡ é–eː szs–ʃː"),
        ("ax", "aks", (0, 1, 1), "a–a x–ks"),
        ("xab", "ksa", (0, 0, 1), "x–ks ab–a"),  # as long, but not one by one
        ("knee", "ni", (1, 3), "kn–n ee–i"),
        ("e\u0301n", "en", (0, 2), "e\u0301–e n–n"),
        ("ház A;B", "házat", (0, 1, 2, 6, 6), "h–h á–á z–z \u0020A;B–at"),
    ],
)
def test_pieces_follow_a_head_that_goes_through_the_source(
    source: str, target: str, places: tuple[int, ...], shown: str
) -> None:
    found = align(reads(source, *places), source, target)
    assert found is not None
    assert " ".join("–".join(pair) for pair in found.pieces) == shown


def test_the_best_head_is_the_one_that_goes_forward() -> None:
    source, target = "abcd", "wxyz"
    backward, still = reads(source, 3, 2, 1, 0), reads(source, 0, 0, 0, 0)
    forward = reads(source, 0, 1, 2, 3)
    weights = np.concatenate(
        [np.concatenate([backward, still], 1), np.concatenate([still, forward], 1)]
    )
    found = align(weights, source, target)
    assert found is not None
    assert (found.layer, found.head) == (1, 1)
    assert (found.aligned, found.uniform) == pytest.approx((0.9, 0.25))
    assert found.pieces == tuple(zip(source, target, strict=True))
    assert alignments(backward[0])[0] == pytest.approx((0.9 + 2 / 30) / 4)
    assert alignments(still[0])[0] == pytest.approx((0.9 + 3 / 30) / 4)
    assert align(weights[:, :, :0], source, "") is None
    uniform = align(np.full((1, 1, 2, 4), 0.25), source, "wx")
    assert uniform is not None
    assert (uniform.aligned, uniform.monotone) == (0.25, 0)


@given(some.integers(1, 7), some.integers(1, 7), some.integers(0, 99))
def test_pieces_are_never_empty_and_are_both_texts(T: int, S: int, seed: int) -> None:
    weights = np.random.default_rng(seed).random((1, 2, T, S)).round(1)  # with ties, and zeros
    source, target = "abcdefg"[:S], "tuvwxyz"[:T]
    found = align(weights, source, target)
    assert found is not None
    assert "".join(one for one, _ in found.pieces) == source
    assert "".join(other for _, other in found.pieces) == target
    assert len(found.pieces) <= min(T, S)
    assert all(one and other for one, other in found.pieces)
