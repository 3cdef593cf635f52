"""Pairs of texts: lines of source and target, and errors that name the first bad line."""

from __future__ import annotations

import io
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from paired import ENDS, LINES, read, texts_of

from gpt.config import TrainConfig
from gpt.corpus import pairs as module
from gpt.corpus.corpus import read_corpus
from gpt.corpus.pairs import check_window, find_pairs
from gpt.errors import TextError


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
        pairs = find_pairs(corpus)
    assert isinstance(pairs.ids, np.memmap)
    assert texts_of(pairs, corpus, range(len(pairs))) == lines
    assert pairs.last == corpus.vocabulary.id_of("\n")
    assert pairs.longest == max(max(len(source), len(target) + 1) for source, target in lines)
    chosen = np.arange(0, len(pairs), 2)
    assert pairs.characters(chosen) == sum(len(target) + 1 for _, target in lines[::2])


GOOD = "one\teins\n\r\n\ntwo\tzwei\n"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("no tab", r"has no TAB: 'no tab'"),
        ("hó 東\u202e", r"has no TAB: 'hó 東\\u202e'"),
        ("a\tb\tc", r"has several TABs: 'a\\tb\\tc'"),
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
            find_pairs(corpus)
    (tmp_path / "dev.tsv").write_text(f"{bad}\n")
    characters = "".join(set(bad) - {"\t", "\r"})
    good = f"{GOOD}{characters}-\t{characters}-\n"
    corpus = read(tmp_path, good, split=str(tmp_path / "dev.tsv"))
    with pytest.raises(TextError, match=rf"^line 1 of the file of `split` {reason}{remedy}"):
        find_pairs(corpus)


def test_line_in_several_files_is_counted_through_all_of_them(tmp_path: Path) -> None:
    corpus = read(tmp_path / "2", "a\tb", "c\td\ne\n")
    with pytest.raises(TextError, match=r"^line 3 of \S*0\.tsv \+ \S*1\.tsv has no TAB: 'e'"):
        find_pairs(corpus)
    corpus = read(tmp_path / "3", "a\tb", "c\td\n", "e\n")
    with pytest.raises(TextError, match=r"^line 3 of \S*0\.tsv and the 2 texts after it has no"):
        find_pairs(corpus)


def test_text_without_pairs_or_without_newline_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"0\.tsv has only blank lines; each line is"):
        find_pairs(read(tmp_path / "blank", "\n\r\n\n"))
    with pytest.raises(TextError, match=r"0\.tsv has no NEWLINE; end each line with one$"):
        find_pairs(read(tmp_path / "line", "a\tb"))
    with pytest.raises(TextError, match=r"^TAB is among the rare characters .* `min_count`$"):
        find_pairs(read(tmp_path / "rare", "a\ta\n" * 3, min_count=4))


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
    pairs = find_pairs(corpus)
    assert pairs.longest == 7
    check_window(pairs, 7)
    message = r"^line 5 .*0\.tsv: its source is 7 long, .* holds 6; use `block_size=7`"
    with pytest.raises(TextError, match=message):
        check_window(pairs, 6)
    message = r"^line 4 .*: its target with its NEWLINE is 6 long, .* holds 5; use `block_size=7`"
    with pytest.raises(TextError, match=message):
        check_window(pairs, 5)
    with pytest.raises(TextError, match=r"^line 3 .*: its source is 4 long.*; use `block_size=7`"):
        check_window(pairs, 3)
