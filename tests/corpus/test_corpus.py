"""Corpora: any UTF-8 text is encoded exactly and once, split, and found again by its run."""

from __future__ import annotations

import codecs
import io
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, corpus_of, manifest_of, sources_of
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.corpus import corpus as module
from gpt.corpus import sources as texts
from gpt.corpus.corpus import (
    Corpus,
    SplitOrder,
    build_vocabulary,
    choose_split,
    encode_corpus,
    find_corpus,
    read_corpus,
    reopen_corpus,
    write_ids,
)
from gpt.corpus.sources import JoinedText, Texts, measure_text
from gpt.errors import TextError
from gpt.vocabulary import Vocabulary, unix_lines

DELICATE = "\r\n\r\x85\u2028é e\u0301 👩\u200d🚀\ufeff\U0010ffff"
CHUNKS = st.integers(4, 9)


def encoded(folder: Path, *contents: bytes) -> Corpus:
    """Files of these bytes, 0.txt, 1.txt, …, as one corpus."""
    return encode_corpus(JoinedText(sources_of(folder, *contents)), folder / "data")


def text_of(corpus: Corpus) -> str:
    """The text of a corpus."""
    return corpus.vocabulary.decode(corpus.ids)


@settings(deadline=None, max_examples=50)
@given(text=st.text(st.sampled_from(DELICATE) | st.characters(codec="utf-8")), chunk=CHUNKS)
@example(text=DELICATE, chunk=4)
def test_any_text_is_read_exactly_in_chunks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int
) -> None:
    whole = "A text: " + text
    assume("\0" not in whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CHUNK", chunk)
        corpus = encoded(tmp_path_factory.mktemp("corpus"), whole.encode())
    whole = unix_lines(whole)
    assert text_of(corpus) == whole
    assert corpus.vocabulary == Vocabulary.from_text(whole)
    assert (corpus.identity.characters, corpus.ids.dtype) == (len(whole), corpus.vocabulary.dtype)
    assert isinstance(corpus.ids, np.memmap)


@settings(deadline=None, max_examples=60)
@given(before=st.text(), junk=st.binary(min_size=1, max_size=4), after=st.text(), chunk=CHUNKS)
@example(before="é", junk="\ud83d".encode("utf-8", "surrogatepass"), after="", chunk=4)
@example(before="", junk="😀".encode()[:3], after="", chunk=4)
@example(before="aaaa", junk=b"\xc0\x80", after="é", chunk=5)
@example(before="", junk=b"\xff", after="", chunk=7)
def test_invalid_utf8_is_reported_with_its_byte_at_any_chunk_boundary(
    tmp_path_factory: pytest.TempPathFactory, before: str, junk: bytes, after: str, chunk: int
) -> None:
    content = b"A text: " + before.encode() + junk + after.encode()
    assume(b"\0" not in content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CHUNK", chunk)
        for start in (b"", codecs.BOM_UTF8):
            folder = tmp_path_factory.mktemp("corpus")
            try:
                expected = content.decode()
            except UnicodeDecodeError as error:
                place = len(start) + error.start
                with pytest.raises(TextError, match=rf"^0\.txt: byte {place:,} is not UTF-8[;,]"):
                    encoded(folder, start + content)
                assert list(folder.glob("data/*")) == []
            else:
                assert text_of(encoded(folder, start + content)) == unix_lines(expected)


@pytest.mark.parametrize("contents", [[b""], [codecs.BOM_UTF8], [b"", b""]])
def test_an_empty_corpus_is_rejected(tmp_path: Path, contents: list[bytes]) -> None:
    names = ", ".join(f"{number}.txt" for number in range(len(contents)))
    with pytest.raises(TextError, match=f"^corpus is empty: {names}$"):
        encoded(tmp_path, *contents)


@pytest.mark.parametrize(
    "changed",
    [TEXT.replace("cat", "rat"), TEXT[:-9], TEXT[:-4] + "\U0010ffff"],
)
def test_a_text_that_changes_between_the_readings_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    (source,), real = sources_of(tmp_path, TEXT), module.measure_text

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        made = real(*arguments, **options)
        source.path.write_text(changed)
        return made

    monkeypatch.setattr(module, "measure_text", meanwhile)
    with pytest.raises(TextError, match=r"^0\.txt was changed while it was read"):
        encode_corpus(JoinedText([source]), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("few", [7, module.FEW])
@pytest.mark.parametrize("part", ["ids", "json"])
@pytest.mark.parametrize("how", ["first", "last", "torn", "longer", "gone"])
def test_damaged_encoding_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, how: str, few: int
) -> None:
    monkeypatch.setattr(module, "FEW", few)
    identity = corpus_of(TEXT, tmp_path).identity
    (path,) = (tmp_path / "data").glob(f"*.{part}")
    content = path.read_bytes()
    path.unlink()
    changed = {
        "first": bytes([content[0] ^ 3]) + content[1:],  # of ids: another character
        "last": content[:-1] + bytes([content[-1] ^ 3]),
        "torn": content[:-1],
        "longer": content + b"\0",
    }
    if how in changed:
        path.write_bytes(changed[how])
    assert reopen_corpus(identity, tmp_path / "data", Vocabulary.from_text(TEXT)) is None
    corpus = corpus_of(TEXT, tmp_path)
    assert (text_of(corpus), corpus.identity) == (TEXT, identity)
    assert reopen_corpus(identity, tmp_path / "data", Vocabulary.from_text(TEXT)) is not None


@pytest.mark.parametrize(("fraction", "short"), [(0.25, "validation"), (0.75, "training")])
def test_split_shorter_than_a_window_is_refused_with_a_block_size_that_fits(
    tmp_path: Path, fraction: float, short: str
) -> None:
    corpus = corpus_of("abcd" * 9, tmp_path)  # the shorter split has 9 characters
    assert sorted(map(len, corpus.split(fraction, block_size=8))) == [9, 27]
    with pytest.raises(TextError) as caught:
        corpus.split(fraction, block_size=9)
    message = f"the {short} split has 9 characters, needs 10; use `block_size=8`"
    assert str(caught.value) == message


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=6),
    st.sampled_from([0, 2, 3]),
    st.integers(4, 9),
)
def test_ids_are_stored_split_by_split(
    tmp_path_factory: pytest.TempPathFactory, contents: list[str], every: int, chunk: int
) -> None:
    folder, whole = tmp_path_factory.mktemp("ids"), "".join(map(unix_lines, contents))
    assume(whole and len([each for each in contents if each]) not in range(2, every))
    assume(len(whole) >= every)
    assume(not any("\0" in content for content in contents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CHUNK", chunk)
        text = JoinedText(sources_of(folder, *contents))
        measures = measure_text(text, training=len(contents))
        vocabulary, table = build_vocabulary(measures.counts)
        order = choose_split(measures.starts, len(contents), every)
        write_ids(text, table, order, folder / "ids", digest=measures.digest)
    ids = np.frombuffer((folder / "ids").read_bytes(), vocabulary.dtype)
    assert vocabulary == Vocabulary.from_text(whole)
    borders = itertools.pairwise([0, *order.borders, len(whole)])
    spans = [whole[first:last] for first, last in borders]
    assert vocabulary.decode(ids) == "".join(spans[::2] + spans[1::2])


def test_the_name_of_an_order_does_not_change_between_releases() -> None:
    division = choose_split((0, 3, 9, 11), 3, 2)
    assert division == SplitOrder(5, 0, (3, 9), "87a800bbe5086e37")


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 3000), st.integers(2, 9), st.integers(1, 40), st.integers(9, 50))
def test_every_nth_block_of_a_single_text_validates(
    characters: int, every: int, longest: int, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST_BLOCK", longest)
        patch.setattr(module, "MOST_BLOCKS", most)
        if characters < every:
            with pytest.raises(TextError):
                choose_split((0, characters), 1, every)
            return
        division = choose_split((0, characters), 1, every)
    block = division.block
    assert block >= 1
    assert characters // block <= most + most // 2 or block == 1
    val = [place for place in range(characters) if (place // block + 1) % every == 0]
    train = [place for place in range(characters) if (place // block + 1) % every]
    pairs = zip(*[iter(division.borders)] * 2, strict=True)
    assert [place for first, last in pairs for place in range(first, last)] == val
    assert division.boundary == len(train)


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a text in it; its data folder."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(TEXT)
    return tmp_path / "data"


def test_a_run_finds_its_text_encoded_or_else_encodes_it_again(working: Path) -> None:
    corpus = read_corpus(Texts(["book.txt"]), working, TrainConfig())
    run = manifest_of(corpus)
    Path("book.txt").rename("moved.txt")
    found = find_corpus(Texts(), working, run)
    assert (text_of(found), found.identity, found.notes) == (TEXT, corpus.identity, ())
    shutil.rmtree(working)
    with pytest.raises(TextError, match=r"^cannot read corpus 'book\.txt'"):
        find_corpus(Texts(), working, run)
    again = find_corpus(Texts(["moved.txt"]), working, run)
    assert again.identity.digest == corpus.identity.digest


@pytest.mark.parametrize(
    "options", [{"split": "other.txt"}, {"split": "every:3"}, {"separator": "--"}]
)
def test_resume_finds_the_same_validation_split(working: Path, options: dict[str, Any]) -> None:
    Path("other.txt").write_text(TEXT[:500])
    config, names = TrainConfig(**options), ["book.txt", "book.txt", "book.txt"]
    first = read_corpus(Texts(names), working, config)
    train, val = (part.tolist() for part in first.split(0.1, 4))
    assert bool(config.validation_file) == (first.vocabulary.decode(val) == TEXT[:500])
    for _ in ("from what is encoded", "from the texts"):
        found = find_corpus(Texts(), working, manifest_of(first, options))
        assert [part.tolist() for part in found.split(0.1, 4)] == [train, val]
        assert found.identity == first.identity
        shutil.rmtree(working)


def test_run_from_a_pipe_is_resumable_while_its_encoding_exists(working: Path) -> None:
    corpus = read_corpus(Texts(["-"], io.BytesIO(TEXT.encode())), working, TrainConfig())
    run = manifest_of(corpus)
    assert text_of(find_corpus(Texts(), working, run)) == TEXT
    shutil.rmtree(working)
    with pytest.raises(TextError, match=r"^the corpus came through a pipe and is no longer in "):
        find_corpus(Texts(), working, run)
    again = find_corpus(Texts(["-"], io.BytesIO(TEXT.encode())), working, run)
    assert again.identity == corpus.identity
