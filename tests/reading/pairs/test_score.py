"""Scores of pairs: torch's loss, padding, what is exact, and edit distances."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from encoded import reader_of
from hypothesis import given
from hypothesis import strategies as some

from gpt.config import ModelConfig
from gpt.model import GPT, initialise
from gpt.reading import pairs
from gpt.reading.gpt import Reader
from gpt.reading.pairs import PairScores, edit_distances, surprisals_of_targets

FIRST, LAST = 1, 2
SHAPE: dict[str, Any] = dict(vocab_size=9, block_size=24, n_layer=2, n_head=2, n_embd=8)
PAIRS = [
    (np.array(source), np.array(target, np.int64))
    for source, target in (
        ([3, 4, 5], [4, 4]),
        ([6], [3]),
        ([8, 7, 6, 5, 4, 3], [3, 4, 5, 6, 7, 8]),
        ([6], [5, 5, 5]),
        ([3, 3], []),
    )
]


def model_of(**options: Any) -> GPT:
    model = GPT(ModelConfig(**SHAPE | options))
    initialise(model, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@pytest.mark.parametrize("options", [{"encoder_layers": 2}, {"encoder_layers": 0}])
@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_surprisals_are_torchs_loss_of_each_pair_alone(
    options: dict[str, Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "windows_at_once", lambda config: at_once)
    model, expected = model_of(**options), []
    for source, target in PAIRS:
        read: Any = {"source": torch.tensor(source[None])} if model.encoder else {}
        before = [FIRST] if model.encoder else [LAST, *source, FIRST]
        after = torch.tensor([*target, LAST])
        with torch.no_grad():
            logits = model(torch.tensor([[*before, *target]]), **read)[0, len(before) - 1 :]
        expected += F.cross_entropy(logits, after, reduction="none").tolist()
    found = surprisals_of_targets(reader_of(model), PAIRS, FIRST, LAST)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_padding_changes_no_surprisal() -> None:
    config = model_of(encoder_layers=1).config
    random = np.random.default_rng(1)
    reader = Reader(config, {n: random.normal(size=size) for n, size in config.shapes().items()})
    together = surprisals_of_targets(reader, PAIRS, FIRST, LAST)
    alone = [surprisals_of_targets(reader, [pair], FIRST, LAST) for pair in PAIRS]
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=0, atol=1e-9)


def scores_of(*rows: tuple[str, str, str, int, int]) -> PairScores:
    """From (source, target, written, distance, characters of the nearest target)."""
    sources, targets, written, distances, nearest = zip(*rows, strict=True)
    characters = sum(len(target) + 1 for target in targets)
    nats, lines = np.arange(characters, dtype=np.float64), np.arange(1, len(rows) + 1)
    numbers = np.array(distances), np.array(nearest)
    return PairScores(lines, sources, targets, written, nats, *numbers)


def test_a_source_with_several_targets_counts_once() -> None:
    found = scores_of(
        ("a", "xy", "z", 1, 1),
        ("b", "u", "u", 0, 1),
        ("a", "z!", "z", 1, 1),
        ("c", "www", "", 3, 3),
    )
    assert found.firsts.tolist() == [True, True, False, True]
    assert found.exact == pytest.approx(1 / 3)
    assert found.error_rate == pytest.approx(4 / 5)
    assert (found.score.characters, found.score.nats) == (12, 5.5)
    assert found.means.tolist() == [1, 3.5, 6, 9.5]
    assert repr(found) == (
        "<PairScores of 4 pairs: 5.5000 nats a target character, 33.33 % of 3 sources exact, "
        "character error rate 80.00 %>"
    )


def distance(text: tuple[int, ...], other: tuple[int, ...]) -> int:
    """The definition, as a recursion."""

    @cache
    def of(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        replaced = of(i - 1, j - 1) + (text[i - 1] != other[j - 1])
        return min(of(i - 1, j) + 1, of(i, j - 1) + 1, replaced)

    return of(len(text), len(other))


TEXTS = some.lists(some.integers(0, 2), max_size=6).map(tuple)


@given(some.lists(some.tuples(TEXTS, TEXTS), max_size=5))
def test_edit_distances_are_those_of_the_definition(
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    texts, others = ([np.array(pair[side], np.int64) for pair in pairs] for side in (0, 1))
    found = edit_distances(texts, others)
    assert found.tolist() == [distance(*pair) for pair in pairs]
