"""Tables of lemma, form and features: which column is which, as pairs, split by lemma, as texts."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from conftest import manifest_of
from paired import read, texts_of

from gpt.config import TrainConfig
from gpt.corpus.corpus import find_corpus, read_corpus
from gpt.corpus.pair_batches import split_pairs
from gpt.corpus.pairs import find_pairs
from gpt.corpus.tables import are_features, features_column, pairs_of_table, source_of_columns
from gpt.errors import TextError

LEMMAS = ["alma", "kutya", "ház", "look up", "kéz", "ló", "út", "tó", "kő", "fa", "ing", "szoba"]
TAGS = {"N;NOM;SG": "", "N;ACC;SG": "t", "N;IN+ESS;PL": "kban", "N;DAT;PSS1S": "nak"}
ROWS = [(lemma, lemma + end, tags) for lemma in LEMMAS for tags, end in TAGS.items()]
FORM_FIRST = "".join(f"{lemma}\t{form}\t{tags}\n" for lemma, form, tags in ROWS)
TAGS_FIRST = "".join(f"{lemma}\t{tags}\t{form}\n" for lemma, form, tags in ROWS)
PAIRS = [(f"{lemma} {tags}", form) for lemma, form, tags in ROWS]


@pytest.mark.parametrize(
    ("cells", "are"),
    [
        (["V;PST;3;SG", "N;NOM(PL)", "V.PTCP;PST", "N;LGSPEC1/LGSPEC2"], True),
        (["N", "PL"], False),  # without a ;
        (["kutya;macska", "Ház;FA"], False),
        ([], False),
    ],
)
def test_features_are_uppercase_tags_with_semicolons(cells: list[str], are: bool) -> None:
    assert are_features(cells) is are


def test_the_column_of_the_features_is_found() -> None:
    for text, column in ((FORM_FIRST, 2), (TAGS_FIRST, 1), ("a\tb\n" * 9, None), ("", None)):
        assert features_column(text.split("\n")) == column
    assert features_column(["A;B\tA;B\tA;B"] * 9) is None  # both columns look like features
    assert features_column(["a\tb\tc", "a\tN;SG\tc", "a\tb", "c"] * 9) is None
    assert pairs_of_table("a\tb\nc\td\n") == "a\tb\nc\td\n"


@pytest.mark.parametrize("text", [FORM_FIRST, TAGS_FIRST, FORM_FIRST.replace("\n", "\r\n")])
def test_a_table_is_read_as_pairs(tmp_path: Path, text: str) -> None:
    corpus = read(tmp_path, text, split="source")
    pairs = find_pairs(corpus)
    assert texts_of(pairs, corpus, range(len(pairs))) == PAIRS
    (note,) = (each for each in corpus.notes if "is a table" in each)
    assert note.endswith(
        "0.tsv is a table of lemma, form and features: a source is the lemma, a space and the "
        "features, as in 'alma N;NOM;SG'; to validate on other lemmas: `split='group:1'`"
    )
    assert pairs_of_table(text).splitlines() == [f"{source}\t{form}" for source, form in PAIRS]
    assert not [*(tmp_path / "data").glob("tmp*")]  # no copy is left


def test_a_run_finds_its_table_again(tmp_path: Path) -> None:
    corpus = read(tmp_path, "\ufeff" + FORM_FIRST)
    manifest = manifest_of(corpus)
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    again = find_corpus(manifest, [], tmp_path / "data", io.BytesIO(), pairs=True)
    assert again.identity == corpus.identity


@pytest.mark.parametrize("text", [FORM_FIRST, "".join(f"{a}\t{b}\n" for a, b in PAIRS)])
def test_all_lines_of_a_lemma_are_on_one_side(tmp_path: Path, text: str) -> None:
    """Also of a file whose sources were joined before."""
    config = TrainConfig(split="group:1", val_fraction=0.3)
    corpus = read(tmp_path, text, split="group:1")
    assert not any("other lemmas" in note for note in corpus.notes)
    pairs = find_pairs(corpus)
    train, val = (
        {source.rsplit(" ", 1)[0] for source, _ in texts_of(pairs, corpus, half.lines.tolist())}
        for half in split_pairs(corpus, config)
    )
    assert (train | val, train & val) == (set(LEMMAS), set())
    assert 1 <= len(val) <= 6
    by_source = TrainConfig(split="source", val_fraction=0.3)
    train, val = (
        {source.rsplit(" ", 1)[0] for source, _ in texts_of(pairs, corpus, half.lines.tolist())}
        for half in split_pairs(corpus, by_source)
    )
    assert train & val


def test_without_features_the_first_column_is_the_source(tmp_path: Path) -> None:
    corpus = read(tmp_path, "".join(f"a {n}\tb\nc\tb\n" for n in range(50)), split="group:1")
    found = [
        [half.lines.tolist() for half in split_pairs(corpus, TrainConfig(split=split))]
        for split in ("group:1", "source")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("line", "shown"),
    [("ló\tlovat", r"'ló\tlovat'"), ("ló\t\tN;SG", r"'ló\t\tN;SG'"), ("ló\ta\tN;SG\tx", "'ló")],
)
def test_a_line_without_three_columns_is_named(tmp_path: Path, line: str, shown: str) -> None:
    text = f"{FORM_FIRST}\n{line}\n"
    with pytest.raises(TextError) as raised:
        read(tmp_path, text)
    number = len(ROWS) + 2
    assert str(raised.value).startswith(f"line {number} of {tmp_path / '0.tsv'} does not have the")
    assert shown in str(raised.value)
    with pytest.raises(TextError, match=f"^line {number} does not have the three columns"):
        pairs_of_table(text)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_error_of_encoding_names_a_byte_of_its_line(tmp_path: Path, end: str) -> None:
    before, line = FORM_FIRST.replace("\n", end).encode(), b"h\t\xe9\tN;SG"
    (tmp_path / "0.tsv").write_bytes(before + line + end.encode())
    with pytest.raises(TextError, match="invalid UTF-8 at byte") as raised:
        read_corpus([str(tmp_path / "0.tsv")], tmp_path / "data", io.BytesIO(), pairs=True)
    byte = int(str(raised.value).split("at byte ")[1].split(";")[0])
    assert len(before) <= byte < len(before) + len(line)


def test_two_columns_of_a_table_are_a_source() -> None:
    assert source_of_columns("look up\tV;PST\r") == "look up V;PST\r"
    for line in ("ab", "a\tb", "a\tN;SG\tb", "\t", ""):
        assert source_of_columns(line) == line
