"""The lines of pairs that validate: by source, the last, every Nth, or those of a file."""

from __future__ import annotations

import shutil
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from conftest import manifest_of
from hypothesis import given, settings
from hypothesis import strategies as st
from paired import LINES, read, texts_of

from gpt.config import TrainConfig
from gpt.corpus import pair_batches
from gpt.corpus.corpus import find_corpus
from gpt.corpus.pair_batches import split_pairs
from gpt.corpus.pairs import find_pairs
from gpt.errors import TextError


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
    text = "".join(f"{source}\t{target}\n" for source, target in lines)
    corpus = read(folder, text, split=split, val_fraction=share)
    try:
        with mock.patch.object(pair_batches, "HASHED_AT_ONCE", 7):
            train, val = (half.lines for half in split_pairs(corpus, config))
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
    other = "007\tx\nΩ\ty\n" + "".join(f"{word}\tx\n" for word in words[::-1])  # and other ids
    for number, content in enumerate((text, other)):
        corpus = read(tmp_path / str(number), content)
        pairs = find_pairs(corpus)
        config = TrainConfig(split="source", val_fraction=0.1)
        train, val = (half.lines for half in split_pairs(corpus, config))
        sides.append({source for source, _ in texts_of(pairs, corpus, val)} - {"007", "Ω"})
        assert 0.08 < len(val) / (len(train) + len(val)) < 0.12
    assert sides[0] == sides[1]


def test_last_split_is_where_source_and_target_change_nearest_to_the_share(tmp_path: Path) -> None:
    corpus = read(tmp_path, "a\tx\na\ty\nb\ty\nc\tz\nc\tw\nc\tv\nd\tv\ne\tv\nf\tv\nf\tv\n")
    for share, border in ((0.05, 3), (0.9, 3)):
        val = split_pairs(corpus, TrainConfig(val_fraction=share))[1]
        assert val.lines.tolist() == [*range(border, 10)]


def test_file_of_split_validates_whole(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("b\ta\n\na\ta\n")
    dev = str(tmp_path / "dev.tsv")
    corpus = read(tmp_path, "a\tb", "b\tb", split=dev)
    pairs = find_pairs(corpus)
    train, val = (half.lines for half in split_pairs(corpus, TrainConfig(split=dev)))
    assert (train.tolist(), val.tolist()) == ([0, 1], [2, 3])
    assert texts_of(pairs, corpus, val) == [("b", "a"), ("a", "a")]
    (tmp_path / "dev.tsv").write_text("\n")
    corpus = read(tmp_path, "a\tb", split=dev)
    with pytest.raises(TextError, match=r"^`split='.*dev\.tsv'`: none of 1 lines would validate"):
        split_pairs(corpus, TrainConfig(split=dev))


def test_split_without_lines_on_one_side_says_what_to_do(tmp_path: Path) -> None:
    corpus = read(tmp_path, "a\tb\na\tc\n")
    for split, remedy in (
        ("source", "use another `split`, or more lines"),
        ("last", "use another `split`, or more lines"),
        ("every:3", "use every:2 or less"),
    ):
        message = rf"^`split='{split}'`: none of 2 lines would (train|validate); {remedy}$"
        with pytest.raises(TextError, match=message):
            split_pairs(corpus, TrainConfig(split=split))


def test_run_finds_its_pairs_again_in_their_order(tmp_path: Path) -> None:
    corpus = read(tmp_path, "".join(f"{n}\t{n}\n" for n in range(99)), split="every:2")
    manifest = manifest_of(corpus, {"split": "every:2"})
    shutil.rmtree(tmp_path / "data")
    for _ in range(2):  # read again, then from `data`
        again = find_corpus(manifest, [], tmp_path / "data", BytesIO(), pairs=True)
        assert again.identity == corpus.identity
        assert np.array_equal(again.ids, corpus.ids)
