"""Corpora: any UTF-8 text is encoded exactly and once, and split."""

from __future__ import annotations

import codecs
import errno
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, corpus_of, sources_of
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
    reopen_corpus,
    write_ids,
)
from gpt.corpus.sources import CODE_POINTS, JoinedText, measure_text, no_progress
from gpt.errors import StorageError, TextError
from gpt.vocabulary import Vocabulary, code_points, unix_lines

DELICATE = "\r\n\r\x85\u2028é e\u0301 👩\u200d🚀\ufeff\U0010ffff"
CHUNKS = st.integers(4, 9)


def encoded(folder: Path, *contents: bytes) -> Corpus:
    """Files of these bytes, 0.txt, 1.txt, …, as one corpus."""
    return encode_corpus(sources_of(folder, *contents), folder / "data")


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


def test_twenty_thousand_distinct_characters_work(tmp_path: Path) -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000))) * 2
    corpus = encoded(tmp_path, text.encode())
    assert (len(corpus.vocabulary), corpus.ids.dtype) == (20_000, np.dtype("u2"))
    assert text_of(corpus) == text


def test_split_file_validates_as_a_whole(tmp_path: Path) -> None:
    a, b, c = sources_of(tmp_path, TEXT, "the cat.", "the cat.\n")
    config = TrainConfig(split="2.txt")
    corpus = encode_corpus([a, b], tmp_path / "data", None, config, [c])
    for fraction in (0.1, 0.9):
        train, val = (corpus.vocabulary.decode(part) for part in corpus.split(fraction, 8))
        assert (train, val) == (TEXT + "the cat.\n", "the cat.\n")
    assert corpus.identity.sources == ("0.txt", "1.txt")
    assert corpus.identity.boundary == len(TEXT) + 9
    # The same text with another split is a different corpus.
    other = encode_corpus([a], tmp_path / "data", None, config, [b, c])
    assert (other.identity.digest, other.identity.boundary) == (corpus.identity.digest, len(TEXT))
    for each in (corpus, other):
        opened = reopen_corpus(each.identity, tmp_path / "data", each.vocabulary)
        assert opened is not None
        assert opened.identity == each.identity


def test_blocks_too_short_for_the_context_are_refused(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, TEXT)
    corpus = encode_corpus(sources, tmp_path / "data", None, TrainConfig(split="every:4"))
    assert corpus.block == len(TEXT) // 40 == 72
    assert corpus.longest_context(0.1) == 18
    corpus.split(0.1, 18)
    with pytest.raises(TextError, match=r"^`split='every:N'`: blocks of 72 .* `block_size=18`, or"):
        corpus.split(0.1, 19)


@pytest.mark.parametrize(("at", "split"), [(0.1, "last"), (0.8, "last"), (0.95, "every:3")])
def test_an_interrupted_encoding_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: float, split: str
) -> None:
    def impatient(share: float) -> None:
        if share >= at:
            raise KeyboardInterrupt

    monkeypatch.setattr(texts, "CHUNK", 100)
    config = TrainConfig(split=split)
    with pytest.raises(KeyboardInterrupt):
        encode_corpus(
            sources_of(tmp_path, TEXT), tmp_path / "data", None, config, progress=impatient
        )
    assert list((tmp_path / "data").glob("*")) == []


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
        encode_corpus([source], tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def spoil(path: Path, how: str) -> None:
    """Damages a file."""
    content = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        flipped = bytes([content[0] ^ 3]) + content[1:]  # of ids: another character
        made = {"flipped": flipped, "torn": content[:-1], "empty": b"", "longer": content + b"\0"}
        path.write_bytes(made[how])


@pytest.mark.parametrize(
    ("part", "how"),
    [
        *(("ids", how) for how in ("flipped", "torn", "longer", "gone")),
        *(("json", how) for how in ("flipped", "empty", "gone")),
    ],
)
def test_damaged_encoding_is_replaced(tmp_path: Path, part: str, how: str) -> None:
    identity = corpus_of(TEXT, tmp_path).identity
    (path,) = (tmp_path / "data").glob(f"*.{part}")
    spoil(path, how)
    assert reopen_corpus(identity, tmp_path / "data", Vocabulary.from_text(TEXT)) is None
    corpus = corpus_of(TEXT, tmp_path)
    assert (text_of(corpus), corpus.identity) == (TEXT, identity)


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


def test_encodings_of_a_text_with_several_vocabularies_do_not_replace_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, data, later = sources_of(tmp_path, TEXT), tmp_path / "data", Vocabulary("zt東")
    own = encode_corpus(sources, data)
    grown = encode_corpus(sources, data, later, grows=True)
    assert (own.vocabulary, grown.vocabulary) == (Vocabulary.from_text(TEXT), later.grown(TEXT))
    assert text_of(own) == text_of(grown) == TEXT
    assert grown.identity == own.identity
    monkeypatch.setattr(module, "write_ids", lambda *_: pytest.fail("encoded again"))
    for known, grows in ((None, False), (later, True), (grown.vocabulary, False)):
        again = encode_corpus(sources, data, known, grows=grows)
        expected = own if known is None else grown
        assert again.vocabulary == expected.vocabulary
        found = reopen_corpus(expected.identity, data, expected.vocabulary)
        assert found is not None
        assert text_of(found) == TEXT
    assert reopen_corpus(own.identity, data, later) is None


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
        write_ids(text, measures.digest, table, order, folder / "ids", no_progress)
    ids = np.frombuffer((folder / "ids").read_bytes(), vocabulary.dtype)
    assert vocabulary == Vocabulary.from_text(whole)
    borders = itertools.pairwise([0, *order.borders, len(whole)])
    spans = [whole[first:last] for first, last in borders]
    assert vocabulary.decode(ids) == "".join(spans[::2] + spans[1::2])


def test_full_disk_while_encoding_is_a_storage_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match=r"^cannot write .*data: No space left on device$"):
        encode_corpus(sources_of(tmp_path, "a" * 99), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_the_name_of_an_order_does_not_change_between_releases() -> None:
    division = choose_split((0, 3, 9, 11), 3, 2)
    assert division == SplitOrder(5, 0, (3, 9), "87a800bbe5086e37")


def moved(division: SplitOrder) -> list[int]:
    """The positions that are moved to the end."""
    pairs = zip(*[iter(division.borders)] * 2, strict=True)
    return [place for first, last in pairs for place in range(first, last)]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(2, 9))
def test_every_nth_text_validates(lengths: list[int], every: int) -> None:
    starts = [0, *itertools.accumulate(lengths)]
    texts = [list(range(*ends)) for ends in itertools.pairwise(starts)]
    texts = [text for text in texts if text]  # empty texts do not count
    assume(len(texts) >= 2)
    if len(texts) < every:
        with pytest.raises(TextError, match=rf"^`split='every:{every}'`: there are {len(texts)} "):
            choose_split(starts, len(lengths), every)
        return
    division = choose_split(starts, len(lengths), every)
    val = [place for n, text in enumerate(texts) if (n + 1) % every == 0 for place in text]
    train = [place for n, text in enumerate(texts) if (n + 1) % every for place in text]
    assert moved(division) == val
    assert (division.boundary, division.block) == (len(train), 0)


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
    assert moved(division) == val
    assert division.boundary == len(train)


@settings(deadline=None, max_examples=50)
@given(
    st.text("abz東", min_size=1),
    st.text("abcé東😀", min_size=1, max_size=30),
    st.text("acé", max_size=5),
)
def test_vocabulary_grows_by_the_new_characters(before: str, text: str, val: str) -> None:
    """Known characters keep their ids and may be only in the validation text; the grown vocabulary
    alone gives the same ids again.
    """
    known, new = Vocabulary.from_text(before), set(text + val) - set(before)
    counts = [np.bincount(code_points(part), minlength=CODE_POINTS) for part in (text, val)]
    if new - set(text):
        with pytest.raises(TextError, match="is only in the text that validates"):
            build_vocabulary(np.array(counts), known, grows=True)
        return
    vocabulary, table = build_vocabulary(np.array(counts), known, grows=True)
    assert vocabulary.characters == known.characters + "".join(sorted(new))
    assert table.dtype == vocabulary.dtype
    assert vocabulary.decode(table[code_points(text + val)]) == text + val
    again, table_again = build_vocabulary(np.array(counts), vocabulary)
    assert again == vocabulary
    np.testing.assert_array_equal(table_again, table)
