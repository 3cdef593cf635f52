"""The text that the gate is fitted to: few pieces, all over the text, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from gpt.counting.held_out import MOST, MOST_NUMBERS, PIECES, HeldOut


@pytest.mark.parametrize(
    ("characters", "vocab_size"),
    [(1, 2), (100, 65), (1_000, 30_000), (18_000, 2), (1_003_854, 65), (5_000_000, 30_000)],
)
def test_pieces_are_few_and_apart_from_what_is_counted_to_fit_the_gate(
    characters: int, vocab_size: int
) -> None:
    held = HeldOut.of(characters, vocab_size)
    places = np.arange(characters)
    inside = held.contains(places)
    assert inside.sum() == held.length * len(held.starts)
    assert inside.sum() <= min(MOST, characters / 20)
    assert held.share == inside.mean()
    expected = np.concatenate([start + np.arange(held.length) for start in held.starts] or [[]])
    assert np.array_equal(places[inside], expected)
    ids = places.astype("u4")
    margin = (characters - held.start) // 100
    near = np.zeros(characters, bool)
    for start in held.starts:
        near[max(0, start - margin) : start + held.length + margin] = True
    assert np.array_equal(held.apart(ids), places[held.start :][~near[held.start :]])
    assert (~near[held.start :]).mean() > 0.75


def test_pieces_lie_all_over_the_counted_text() -> None:
    held = HeldOut.of(1_003_854, 65)
    assert held.length == MOST // PIECES
    assert np.diff(held.starts).min() > 100_000
    assert held.starts[0] > 50_000
    assert held.starts[-1] + held.length < 1_003_854 - 50_000


def test_a_large_alphabet_fits_its_gate_to_fewer_characters() -> None:
    for alphabet, most in ((100, MOST), (256, MOST), (10_000, MOST_NUMBERS // 10_000)):
        held = HeldOut.of(30_000_000, alphabet).length * PIECES
        assert most - PIECES < held <= most
