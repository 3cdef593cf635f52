"""Pairs of texts: lines of source and target, their split, padded batches, errors with the line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.corpus import pair_batches, pair_split
from gpt.corpus import pairs as module
from gpt.corpus.corpus import Corpus, read_corpus
from gpt.corpus.pair_batches import IGNORED, batch_lines, padded
from gpt.corpus.pair_split import split_lines
from gpt.corpus.pairs import Pairs, check_window, pairs_of
from gpt.errors import TextError

WORDS = "".join(map(chr, range(ord("a"), ord("k")))) + "árvíztűrő年月日👩🚀 \u2028\x85\0"
SIDE = st.text(st.sampled_from(WORDS), min_size=1, max_size=8)
LINES = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=30)
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n\r\n"])


def read(folder: Path, *texts: str, **options: Any) -> Corpus:
    """The texts, in files 0.tsv, 1.tsv, …, as a corpus of pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.tsv").write_bytes(text.encode())
    names = [str(folder / f"{number}.tsv") for number in range(len(texts))]
    config = TrainConfig(**options)
    return read_corpus(names, folder / "data", io.BytesIO(), config=config, pairs=True)


def texts_of(pairs: Pairs, corpus: Corpus, lines: Sequence[int]) -> list[tuple[str, str]]:
    """(source, target) of these lines."""
    decode = corpus.vocabulary.decode
    return [(decode(pairs.source(line)), decode(pairs.target(line))) for line in lines]


@settings(deadline=None, max_examples=60)
@given(lines=LINES, end=ENDS, trailing=st.booleans(), at_once=st.integers(1, 50))
@example(lines=[("a", "b"), ("👩\u200d🚀", "űrhajós")], end="\r\n", trailing=True, at_once=1)
@example(lines=[("2026年12月24日", "2026-12-24"), (" ", "b")], end="\n", trailing=False, at_once=7)
def test_pairs_are_the_lines_of_the_text(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, str]],
    end: str,
    trailing: bool,
    at_once: int,
) -> None:
    text = end.join("\t".join(line) for line in lines) + end * (trailing or len(lines) == 1)
    assume(text.count("\0") <= len(text.encode()) // 4)
    with mock.patch.object(module, "SEARCHED_AT_ONCE", at_once):
        corpus = read(tmp_path_factory.mktemp("pairs"), text)
        pairs = pairs_of(corpus)
    assert isinstance(pairs.ids, np.memmap)
    assert texts_of(pairs, corpus, range(len(pairs))) == lines
    assert (pairs.first, pairs.last) == tuple(corpus.vocabulary.encode("\t\n").tolist())
    assert pairs.longest == max(max(len(source), len(target) + 1) for source, target in lines)
    chosen = np.arange(0, len(pairs), 2)
    assert pairs.characters(chosen) == sum(len(target) + 1 for _, target in lines[::2])


GOOD = "one\teins\n\r\n\ntwo\tzwei\n"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("no tab", r"has no TAB: 'no tab'"),
        (" ", r"has no TAB: ' '"),
        ("a\tb\tc\td", r"has several TABs: 'a\\tb\\tc\\td'"),
        ("\tb", r"has an empty source: '\\tb'"),
        ("a\t", r"has an empty target: 'a\\t'"),
        ("a\t\r", r"has an empty target: 'a\\t'"),
        ("x" * 60, r"has no TAB: 'x{40}'…"),
    ],
)
def test_first_line_that_is_no_pair_is_named_with_its_file(
    tmp_path: Path, bad: str, reason: str
) -> None:
    remedy = "; each line is SOURCE, one TAB, TARGET; correct the line or delete it$"
    for number, text in enumerate((f"{GOOD}{bad}\nlast\n\t\n", f"{GOOD}{bad}")):
        corpus = read(tmp_path / str(number), text)
        with pytest.raises(TextError, match=rf"^line 5 of \S*0\.tsv {reason}{remedy}"):
            pairs_of(corpus)
    (tmp_path / "dev.tsv").write_text(f"{bad}\n")
    characters = "".join(set(bad) - {"\t", "\r"})
    good = f"{GOOD}{characters}-\t{characters}-\n"
    corpus = read(tmp_path, good, split=str(tmp_path / "dev.tsv"))
    with pytest.raises(TextError, match=rf"^line 1 of the file of `split` {reason}{remedy}"):
        pairs_of(corpus)


def test_line_in_several_files_is_counted_through_all_of_them(tmp_path: Path) -> None:
    corpus = read(tmp_path / "2", "a\tb", "c\td\ne\n")
    with pytest.raises(TextError, match=r"^line 3 of \S*0\.tsv \+ \S*1\.tsv has no TAB: 'e'"):
        pairs_of(corpus)
    corpus = read(tmp_path / "3", "a\tb", "c\td\n", "e\n")
    with pytest.raises(TextError, match=r"^line 3 of \S*0\.tsv and the 2 texts after it has no"):
        pairs_of(corpus)


def test_text_without_pairs_or_without_newline_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"0\.tsv has only blank lines; each line is"):
        pairs_of(read(tmp_path / "blank", "\n\r\n\n"))
    with pytest.raises(TextError, match=r"0\.tsv has no NEWLINE; end each line with one$"):
        pairs_of(read(tmp_path / "line", "a\tb"))
    with pytest.raises(TextError, match=r"^TAB is among the rare characters .* `min_count`$"):
        pairs_of(read(tmp_path / "rare", "a\ta\n" * 3, min_count=4))


def test_options_for_the_other_kind_of_text_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"^`separator='\\\\t'`: texts of pairs are joined"):
        read(tmp_path, "a\tb\n", separator="\\t")
    config = TrainConfig(split="source")
    assert config.validation is None
    with pytest.raises(TextError, match=r"^`split='source'` is for pairs, .*every:N or a file$"):
        read_corpus([str(tmp_path / "0.tsv")], tmp_path, io.BytesIO(), config=config)
    with pytest.raises(TextError, match=r"^`split` takes last, every:N or a file, of pairs also"):
        read(tmp_path, "a\tb\n", split="nowhere.tsv")


def test_line_longer_than_the_context_is_named_with_the_block_size_that_fits(
    tmp_path: Path,
) -> None:
    corpus = read(tmp_path, "ab\tcd\n\nabcd\te\nab\tabcde\nabcdefg\ta\n")
    pairs = pairs_of(corpus)
    every = np.arange(4)
    assert pairs.longest == 7
    check_window(pairs, every, 7)
    check_window(pairs, every[:2], 4)
    message = r"^line 5 .*0\.tsv: its source has 7 .* holds 6; use `block_size=7`"
    with pytest.raises(TextError, match=message):
        check_window(pairs, every, 6)
    message = r"^line 4 .*: its target with its NEWLINE has 6 .* holds 5; use `block_size=7`"
    with pytest.raises(TextError, match=message):
        check_window(pairs, every, 5)
    with pytest.raises(TextError, match=r"^line 3 .*: its source has 4 .*; use `block_size=4`"):
        check_window(pairs, every[:2], 3)


@settings(deadline=None, max_examples=60)
@given(
    lines=LINES, split=st.sampled_from(["source", "last", "every:2"]), share=st.floats(0.01, 0.99)
)
def test_split_has_every_line_once_and_each_source_on_one_side(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, str]],
    split: str,
    share: float,
) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    lines = [(source.replace("\0", "0"), target.replace("\0", "0")) for source, target in lines]
    config = TrainConfig(split=split, val_fraction=share)
    corpus = read(folder, "".join(f"{source}\t{target}\n" for source, target in lines))
    pairs = pairs_of(corpus)
    try:
        with mock.patch.object(pair_split, "HASHED_AT_ONCE", 7):
            train, val = split_lines(pairs, corpus, config)
    except TextError as error:
        changes = [a != c and b != d for (a, b), (c, d) in pairwise(lines)]
        few = {"source": len({source for source, _ in lines}) == 1, "last": not any(changes)}
        if few.get(split, len(lines) == 1):
            return
        raise error
    assert sorted([*train.tolist(), *val.tolist()]) == [*range(len(lines))]
    assert len(train) * len(val) > 0
    if split == "every:2":
        assert val.tolist() == [*range(1, len(lines), 2)]
    elif split == "source":
        assert not {lines[line][0] for line in train} & {lines[line][0] for line in val}
    else:
        (before, left), (after, right) = lines[train[-1]], lines[val[0]]
        assert (before != after, left != right) == (True, True)
        assert val[0] == train[-1] + 1


def test_side_of_a_source_does_not_depend_on_other_lines(tmp_path: Path) -> None:
    words = [f"{number:b}".replace("0", "a").replace("1", "b") for number in range(1, 2001)]
    sides: list[set[str]] = []
    text = "".join(f"{word}\t{word}{end}\n" for word in words for end in "xy")
    other = "Éva\tx\nΩ\ty\n" + "".join(f"{word}\tx\n" for word in words[::-1])  # and other ids
    for number, content in enumerate((text, other)):
        corpus = read(tmp_path / str(number), content)
        pairs = pairs_of(corpus)
        train, val = split_lines(pairs, corpus, TrainConfig(split="source", val_fraction=0.1))
        sides.append({source for source, _ in texts_of(pairs, corpus, val)} - {"Éva", "Ω"})
        assert 0.08 < len(val) / (len(train) + len(val)) < 0.12
    assert sides[0] == sides[1]


def test_last_split_is_where_source_and_target_change_nearest_to_the_share(tmp_path: Path) -> None:
    corpus = read(tmp_path, "a\tx\na\ty\nb\ty\nc\tz\nc\tw\nc\tv\nd\tv\ne\tv\nf\tv\nf\tv\n")
    pairs = pairs_of(corpus)
    for share, border in ((0.05, 3), (0.9, 3)):
        val = split_lines(pairs, corpus, TrainConfig(val_fraction=share))[1]
        assert val.tolist() == [*range(border, 10)]


def test_file_of_split_validates_whole(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("b\ta\n\na\ta\n")
    dev = str(tmp_path / "dev.tsv")
    corpus = read(tmp_path, "a\tb", "b\tb", split=dev)
    pairs = pairs_of(corpus)
    train, val = split_lines(pairs, corpus, TrainConfig(split=dev))
    assert (train.tolist(), val.tolist()) == ([0, 1], [2, 3])
    assert texts_of(pairs, corpus, val) == [("b", "a"), ("a", "a")]
    (tmp_path / "dev.tsv").write_text("\n")
    corpus = read(tmp_path, "a\tb", split=dev)
    with pytest.raises(TextError, match=r"^`split='.*dev\.tsv'`: none of 1 lines would validate"):
        split_lines(pairs_of(corpus), corpus, TrainConfig(split=dev))


def test_split_without_lines_on_one_side_says_what_to_do(tmp_path: Path) -> None:
    corpus = read(tmp_path, "a\tb\na\tc\n")
    pairs = pairs_of(corpus)
    for split, remedy in (
        ("source", "use another `split`, or more lines"),
        ("last", "use another `split`, or more lines"),
        ("every:3", "use every:2 or less"),
    ):
        message = rf"^`split='{split}'`: none of 2 lines would (train|validate); {remedy}$"
        with pytest.raises(TextError, match=message):
            split_lines(pairs, corpus, TrainConfig(split=split))


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
    pairs = pairs_of(corpus)
    chosen = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=9))
    batch = padded(pairs, np.array(chosen))
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
    assert (padded(pairs, np.array(chosen), -1).targets >= -1).all()
    assert (batch.targets != IGNORED).sum() == pairs.characters(np.array(chosen))


def of_lengths(sources: Sequence[int], targets: Sequence[int]) -> Pairs:
    """Pairs that have only lengths."""
    starts = np.zeros(len(sources), np.int64)
    nothing = np.zeros(1, np.uint8)
    tabs = np.array(sources, np.int64)
    return Pairs(nothing, starts, tabs, tabs + targets, 0, 0, mock.Mock())


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**63 - 1), st.integers(1, 60), st.integers(1, 40), st.integers(1, 3), st.data()
)
def test_each_epoch_has_every_line_once(
    seed: int, count: int, batch_size: int, pooled: int, data: st.DataObject
) -> None:
    lengths = st.lists(st.integers(1, 9), min_size=2 * count, max_size=2 * count)
    pairs = of_lengths(data.draw(lengths), data.draw(lengths))
    lines = np.arange(count) * 2 + 1
    pair_batches._epoch.cache_clear()
    with mock.patch.object(pair_batches, "POOLED", pooled):
        steps = range(-(-3 * count // batch_size))
        rows = [batch_lines(pairs, lines, seed, step, batch_size) for step in steps]
        for step in data.draw(st.permutations(steps))[:5]:  # pure: in any order
            assert np.array_equal(batch_lines(pairs, lines, seed, step, batch_size), rows[step])
    assert {row.shape for row in rows} == {(batch_size,)}
    order = np.concatenate(rows)
    for first in range(0, 3 * count, count):
        assert sorted(order[first : first + count]) == lines.tolist()


def test_orders_differ_between_epochs_seeds_and_lines() -> None:
    pairs = of_lengths([5] * 400, [5] * 400)
    lines, others = np.arange(200), np.arange(200, 400)
    first = batch_lines(pairs, lines, 1, 0, 200)
    assert sorted(first) == lines.tolist()
    assert not np.array_equal(first, batch_lines(pairs, lines, 1, 1, 200))
    assert not np.array_equal(first, batch_lines(pairs, lines, 2, 0, 200))
    assert sorted(batch_lines(pairs, others, 1, 0, 200)) == others.tolist()
    # The same in every release of numpy and gptx.
    assert first[:8].tolist() == [48, 183, 189, 199, 38, 158, 179, 65]


def test_lines_of_a_batch_have_similar_lengths_and_batches_come_in_random_order() -> None:
    rng = np.random.default_rng(3)
    sources = rng.integers(1, 30, 8000)
    targets = np.maximum(1, sources + rng.integers(-5, 6, 8000))
    pairs, lines = of_lengths(sources.tolist(), targets.tolist()), np.arange(8000)
    rows = np.array([batch_lines(pairs, lines, 1, step, 50) for step in range(160)])

    def padding(rows: Any) -> float:
        lengths = pairs.source_lengths[rows], pairs.target_lengths[rows]
        real = sum(each.sum() for each in lengths)
        return float(1 - real / sum(each.max(axis=1).sum() * 50 for each in lengths))

    assert padding(rows) < 0.12 < 0.4 < padding(np.sort(rows.ravel()).reshape(rows.shape))
    longest = pairs.target_lengths[rows].max(axis=1).astype(float)
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.2
