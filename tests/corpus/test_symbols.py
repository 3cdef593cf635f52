"""Symbols of several characters: their codes, the corpus, its vocabulary, and the split."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from conftest import manifest_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paired import read, sides

from gpt.config import TrainConfig
from gpt.corpus import symbols, text
from gpt.corpus.corpus import find_corpus, read_corpus
from gpt.corpus.pair_batches import split_pairs
from gpt.corpus.pairs import find_pairs, learn_sides
from gpt.corpus.symbols import FIRST_CODE, SymbolCodes
from gpt.errors import TextError
from gpt.vocabulary import REPLACEMENT, Vocabulary

PHONEMES = ["t͡s", "bː", "ɒ", "e", "k", "AH", "NG", "年月"]
WORD = st.text(st.sampled_from("abcek年 "), min_size=1, max_size=6)
SPOKEN = st.lists(st.sampled_from(PHONEMES), min_size=1, max_size=5)
LINES = st.lists(st.tuples(WORD, SPOKEN), min_size=2, max_size=12)
SPACED = {"target_symbols": "space"}
FIXTURES = [HealthCheck.function_scoped_fixture]
QUICK = settings(deadline=None, max_examples=40, suppress_health_check=FIXTURES)


@QUICK
@given(
    lines=LINES,
    gap=st.sampled_from([" ", "  "]),
    end=st.sampled_from(["\n", "\r\n"]),
    chunk=st.sampled_from([4, 7, 2**18]),
)
def test_what_spaces_separate_is_one_id(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[tuple[str, list[str]]],
    gap: str,
    end: str,
    chunk: int,
) -> None:
    """However the file is cut into chunks, however many spaces there are."""
    monkeypatch.setattr(text, "CHUNK", chunk)
    written = "".join(f"{source}\t{gap.join(target)}{end}" for source, target in lines)
    corpus = read(tmp_path_factory.mktemp("symbols"), written, **SPACED)
    vocabulary, pairs = corpus.vocabulary, find_pairs(corpus)
    every = {symbol for source, target in lines for symbol in (*source, *target)} | {"\t", "\n"}
    assert vocabulary.characters == (*sorted(every),)
    assert len(pairs) == len(lines)
    for number, (source, target) in enumerate(lines):
        first, second = sides(pairs, number)
        assert vocabulary.symbols(first) == (*source,)
        assert vocabulary.written(second, "target") == (*target,)
        assert vocabulary.decode(second, "target") == " ".join(target)
    plain = "".join(f"{source}\t{' '.join(target)}\n" for source, target in lines)
    assert vocabulary.decode(corpus.ids) == plain
    assert vocabulary.encode(plain).tolist() == corpus.ids.tolist()
    lf = written.replace("\r\n", "\n")
    assert corpus.identity.digest == blake3(lf.encode()).hexdigest()


def test_both_sides_or_the_source_alone_may_have_symbols(tmp_path: Path) -> None:
    line = "a bc d\tx yz\n"
    both = read(tmp_path / "both", line * 2, source_symbols="space", **SPACED).vocabulary
    assert both.characters == ("\t", "\n", "a", "bc", "d", "x", "yz")
    source = read(tmp_path / "source", line * 2, source_symbols="space").vocabulary
    assert source.characters == ("\t", "\n", " ", "a", "bc", "d", "x", "y", "z")
    ids = source.encode("a bc d\tx yz")
    assert source.written(ids[:3], "source") == ("a", "bc", "d")
    assert source.written(ids[4:], "target") == "x yz"
    assert source.decode(ids) == "a bc d\tx yz"


def test_a_corpus_is_found_again_and_another_text_is_not(tmp_path: Path) -> None:
    corpus = learn_sides(read(tmp_path, "ab\tt͡s k\ncd\tk bː\n" * 9, **SPACED))
    manifest = manifest_of(corpus, {**SPACED})
    data = tmp_path / "data"
    again = find_corpus(manifest, [], data, io.BytesIO(), pairs=True)
    assert (again.identity, again.vocabulary) == (corpus.identity, corpus.vocabulary)
    for path in data.iterdir():
        path.unlink()
    again = find_corpus(manifest, [], data, io.BytesIO(), pairs=True)
    assert again.vocabulary == corpus.vocabulary
    np.testing.assert_array_equal(again.ids, corpus.ids)
    (tmp_path / "0.tsv").write_text("ab\tt͡ʃ k\ncd\tk bː\n" * 9)
    for path in data.iterdir():
        path.unlink()
    with pytest.raises(TextError, match="corpus changed"):
        find_corpus(manifest, [], data, io.BytesIO(), pairs=True)


def test_the_same_file_by_characters_is_another_encoding(tmp_path: Path) -> None:
    written = "ab\tx y\n" * 5
    spaced, plain = read(tmp_path, written, **SPACED), read(tmp_path, written)
    assert spaced.vocabulary.characters == ("\t", "\n", "a", "b", "x", "y")
    assert plain.vocabulary.characters == "\t\n abxy"
    assert len(spaced.ids) == len(plain.ids) - 5
    assert read(tmp_path, written, **SPACED).notes == spaced.notes == ()


def test_lines_that_are_no_pair_are_named_as_they_stand(tmp_path: Path) -> None:
    for line, problem in (("ab\tx y\tz", "several TABs"), ("ab\t  ", "empty target"), ("a", "no")):
        corpus = read(tmp_path / problem[:2], f"ab\tx yy\n{line}\n", **SPACED)
        with pytest.raises(TextError, match=f"^line 2 of .*{problem}") as error:
            find_pairs(corpus)
        assert repr(line.rstrip(" "))[1:-1] in str(error.value)


def test_rare_symbols_are_replaced(tmp_path: Path) -> None:
    corpus = read(tmp_path, "ab\tx t͡s\n" * 3 + "ab\tbː x\n", min_count=2, **SPACED)
    assert corpus.identity.folded == ("bː",)
    assert REPLACEMENT in corpus.vocabulary.characters
    assert "bː" not in corpus.vocabulary.characters
    assert corpus.vocabulary.decode(corpus.ids).endswith(f"\t{REPLACEMENT} x\n")


def test_symbols_are_only_for_pairs_and_words_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a text")
    with pytest.raises(TextError, match=r"^`target_symbols` is for pairs, lines of SO"):
        read_corpus(
            [str(tmp_path / "a.txt")],
            tmp_path / "data",
            io.BytesIO(),
            config=TrainConfig(target_symbols="space"),
        )
    monkeypatch.setattr(symbols, "MOST", 3)
    with pytest.raises(TextError, match=r"^spaces separate more than 3 different symb"):
        SymbolCodes(("target",)).of("a\taa bb cc dd\n")


def test_codes_are_after_those_of_unicode() -> None:
    codes = SymbolCodes(("target",))
    found = codes.of("né\tt͡s k t͡s\n").tolist()
    assert found == [110, 233, 9, FIRST_CODE, 107, FIRST_CODE, 10]
    assert "".join(map(codes.symbol, found)) == "né\tt͡skt͡s\n"


@pytest.mark.parametrize("separated", ["chars", "space"])
def test_the_split_does_not_depend_on_the_vocabulary(tmp_path: Path, separated: str) -> None:
    """A line more, with another symbol, moves no source to the other side."""
    lines = [f"{n} w{n % 7}\tp{n % 3} q\n" for n in range(60)]
    config = TrainConfig(split="source", val_fraction=0.3)

    def validating(name: str, written: str) -> set[str]:
        options = {"source_symbols": separated, "target_symbols": separated}
        corpus = read(tmp_path / name, written, split="source", **options)
        pairs = find_pairs(corpus)
        _, val = split_pairs(corpus, config)
        return {corpus.vocabulary.decode(sides(pairs, int(line))[0]) for line in val.lines}

    first = validating("first", "".join(lines))
    assert 3 < len(first) < 40
    assert first == validating("second", "".join(lines) + "0 w0\t!! AA\n")


def test_a_lemma_of_symbols_is_on_one_side(tmp_path: Path) -> None:
    rows = [(f"k{n} a t", f"x y{n % 4}", tags) for n in range(20) for tags in ("N;SG", "N;PL;ACC")]
    table = "".join(f"{lemma}\t{form}\t{tags}\n" for lemma, form, tags in rows)
    options = {"source_symbols": "space", "target_symbols": "space", "split": "group:1"}
    corpus = read(tmp_path, table, **options)
    assert "N;PL;ACC" in corpus.vocabulary.characters
    pairs, decode = find_pairs(corpus), corpus.vocabulary.decode
    halves = split_pairs(corpus, TrainConfig(split="group:1", val_fraction=0.3))
    train, val = (
        {decode(sides(pairs, n)[0]).rsplit(" ", 1)[0] for n in half.lines.tolist()}
        for half in halves
    )
    assert train
    assert val
    assert not train & val


@QUICK
@given(lines=LINES, at_once=st.sampled_from([2, 5, 2**20]), spaced=st.booleans())
def test_what_stands_only_in_targets_is_unread(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    lines: list[tuple[str, list[str]]],
    at_once: int,
    spaced: bool,
) -> None:
    monkeypatch.setattr("gpt.corpus.pairs.SEARCHED_AT_ONCE", at_once)
    written = "\n".join(f"{source}\t{' '.join(target)}\n" for source, target in lines)
    corpus = read(tmp_path_factory.mktemp("sides"), written, **(SPACED if spaced else {}))
    found = learn_sides(corpus)
    sources = {character for source, _ in lines for character in source}
    every = {*corpus.vocabulary.characters} - {"\t", "\n"}
    assert {*found.vocabulary.unread} == every - sources
    shown = (" ".join(target) for _, target in lines)
    targets = {each for text in shown for each in (text.split(" ") if spaced else text)}
    assert {*found.vocabulary.unwritten} == every - targets
    parent = Vocabulary("\t\nk", unread=())
    assert {*learn_sides(corpus, parent).vocabulary.unwritten} == every - targets - {"k"}
    assert {*learn_sides(corpus, parent).vocabulary.unread} == every - sources - {"k"}
    parent = replace(parent, unread=("k",))
    assert {*learn_sides(corpus, parent).vocabulary.unread} == every - sources


def test_spaces_alone_are_an_empty_corpus(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"^corpus is empty: .*0\.tsv$"):
        read(tmp_path, "  ", source_symbols="space")


def test_many_symbols_with_commas_are_found_again(tmp_path: Path) -> None:
    written = "".join(f"a\tw{n},x v{n}\n" for n in range(25_000))
    corpus = read(tmp_path, written, **SPACED)
    assert len(corpus.vocabulary) == 50_003
    assert read(tmp_path, written, **SPACED).notes == ()
