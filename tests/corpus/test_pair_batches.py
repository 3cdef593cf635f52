"""Batches of pairs: padded, each line once an epoch, with lines of similar lengths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from paired import LINES, read

from gpt.corpus import pair_batches
from gpt.corpus.pair_batches import IGNORED, PairLines, batch_lines, pad_pairs
from gpt.corpus.pairs import Pairs, find_pairs


@settings(deadline=None, max_examples=40)
@given(lines=LINES, end=st.sampled_from(["\n", "\r\n"]), data=st.data())
def test_padded_batch_has_source_and_target_of_each_line(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, str]],
    end: str,
    data: st.DataObject,
) -> None:
    text = "".join(f"{source}\t{target}{end}" for source, target in lines)
    assume(text.count("\0") <= len(text.encode()) // 4)
    corpus = read(tmp_path_factory.mktemp("pairs"), text.removesuffix(end) + end * (len(lines) < 2))
    pairs = find_pairs(corpus)
    chosen = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=9))
    batch = pad_pairs(pairs, np.array(chosen))
    decode = corpus.vocabulary.decode
    sources, targets = zip(*(lines[line] for line in chosen), strict=True)
    assert batch.source.shape == batch.seen.shape == (len(chosen), max(map(len, sources)))
    assert batch.inputs.shape == batch.targets.shape == (len(chosen), max(map(len, targets)) + 1)
    assert batch.source.dtype == batch.inputs.dtype == batch.targets.dtype == np.int64
    assert max(batch.source.max(), batch.inputs.max()) < len(corpus.vocabulary)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        length = len(target) + 1
        assert batch.seen[row].tolist() == [n < len(source) for n in range(batch.seen.shape[1])]
        assert decode(batch.source[row][: len(source)]) == source
        assert decode(batch.inputs[row][:length]) == "\t" + target
        assert decode(batch.targets[row][:length]) == target + "\n"
        assert (batch.targets[row][length:] == IGNORED).all()
    assert (batch.targets != IGNORED).sum() == pairs.characters(np.array(chosen))


def test_parts_of_a_batch_for_the_ranks_are_its_rows(tmp_path: Path) -> None:
    text = "".join(f"{'ab' * n}\t{'c' * (9 - n)}\n" for n in range(1, 9))
    pairs = find_pairs(read(tmp_path, text))
    lines = batch_lines(PairLines(pairs, np.arange(8)), 1, 0, 8)
    whole = pad_pairs(pairs, lines)
    for part in (slice(0, 3), slice(3, 8)):
        mine = pad_pairs(pairs, lines[part])
        sources, targets = mine.source.shape[1], mine.inputs.shape[1]
        assert np.array_equal(mine.source, whole.source[part, :sources])
        assert np.array_equal(mine.seen, whole.seen[part, :sources])
        assert not whole.seen[part, sources:].any()
        assert np.array_equal(mine.inputs, whole.inputs[part, :targets])
        assert np.array_equal(mine.targets, whole.targets[part, :targets])
        assert (whole.targets[part, targets:] == IGNORED).all()


def of_lengths(sources: Sequence[int], targets: Sequence[int]) -> Pairs:
    """Pairs that have only lengths."""
    starts = np.zeros(len(sources), np.int64)
    nothing = np.zeros(1, np.uint8)
    tabs = np.array(sources, np.int64)
    return Pairs(nothing, starts, tabs, tabs + targets, 0, mock.Mock())


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**63 - 1), st.integers(1, 60), st.integers(1, 40), st.integers(1, 3), st.data()
)
def test_each_epoch_has_every_line_once(
    seed: int, count: int, batch_size: int, pooled: int, data: st.DataObject
) -> None:
    lengths = st.lists(st.integers(1, 9), min_size=2 * count, max_size=2 * count)
    pairs = of_lengths(data.draw(lengths), data.draw(lengths))
    half = PairLines(pairs, np.arange(count) * 2 + 1)
    pair_batches._epoch.cache_clear()
    with mock.patch.object(pair_batches, "POOLED", pooled):
        steps = range(-(-3 * count // batch_size))
        rows = [batch_lines(half, seed, step, batch_size) for step in steps]
        for step in data.draw(st.permutations(steps))[:5]:  # pure: in any order
            assert np.array_equal(batch_lines(half, seed, step, batch_size), rows[step])
    assert {row.shape for row in rows} == {(batch_size,)}
    order = np.concatenate(rows)
    for first in range(0, 3 * count, count):
        assert sorted(order[first : first + count]) == half.lines.tolist()


def test_orders_differ_between_epochs_seeds_and_lines() -> None:
    pairs = of_lengths([5] * 400, [5] * 400)
    half, other = PairLines(pairs, np.arange(200)), PairLines(pairs, np.arange(200, 400))
    first = batch_lines(half, 1, 0, 200)
    assert sorted(first) == half.lines.tolist()
    assert not np.array_equal(first, batch_lines(half, 1, 1, 200))
    assert not np.array_equal(first, batch_lines(half, 2, 0, 200))
    assert sorted(batch_lines(other, 1, 0, 200)) == other.lines.tolist()
    # The same in every release of numpy and gptx.
    assert first[:8].tolist() == [48, 183, 189, 199, 38, 158, 179, 65]


def test_lines_of_a_batch_have_similar_lengths_and_batches_come_in_random_order() -> None:
    rng = np.random.default_rng(3)
    sources = rng.integers(1, 30, 8000)
    targets = np.maximum(1, sources + rng.integers(-5, 6, 8000))
    pairs, lines = of_lengths(sources.tolist(), targets.tolist()), np.arange(8000)
    half = PairLines(pairs, lines)
    rows = np.array([batch_lines(half, 1, step, 50) for step in range(160)])

    def padding(rows: Any) -> float:
        lengths = pairs.source_lengths[rows], pairs.target_lengths[rows]
        real = sum(each.sum() for each in lengths)
        return float(1 - real / sum(each.max(axis=1).sum() * 50 for each in lengths))

    fewer = PairLines(pairs, lines[:-9])  # so that batches and epochs end at different lines
    later = np.array([batch_lines(fewer, 1, step, 50) for step in range(165, 325)])
    assert (
        max(padding(rows), padding(later))
        < 0.1
        < 0.4
        < padding(np.sort(rows.ravel()).reshape(rows.shape))
    )
    longest = pairs.target_lengths[rows].max(axis=1).astype(float)
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.2
