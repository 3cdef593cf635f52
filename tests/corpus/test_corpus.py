"""Corpora: any UTF-8 text is encoded exactly and once, and split."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, corpus_of, sources_of
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.corpus import corpus as module
from gpt.corpus import text as texts
from gpt.corpus.corpus import Corpus, encode_corpus, reopen_corpus
from gpt.corpus.encodings import unix_lines
from gpt.corpus.sources import Source
from gpt.errors import TextError
from gpt.storage.manifest import CorpusId
from gpt.vocabulary import Vocabulary

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


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, codecs.BOM_UTF8 + b"a\xef\xbb\xbfb\n", codecs.BOM_UTF8 + b"c")
    assert text_of(corpus) == "a\ufeffb\nc"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (
            gzip.compress(TEXT.encode(), mtime=0),
            "is gzip, not plain text; .*gzip -dc < 1.txt > 1.txt.txt$",
        ),
        (b"\x89PNG\r\n\x1a\n", "is a PNG picture, not plain text$"),
        (b"PK\x03\x04", "is a zip archive, not plain text; convert it: unzip 1.txt$"),
        (b"%PDF-1.7", "is a PDF, .*convert it: pdftotext -layout 1.txt 1.txt.txt$"),
    ],
)
def test_a_file_that_is_not_text_is_rejected_with_its_format(
    tmp_path: Path, content: bytes, what: str
) -> None:
    with pytest.raises(TextError, match=rf"^1\.txt {what}") as caught:
        encoded(tmp_path, b"a text", content)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("contents", [[b""], [codecs.BOM_UTF8], [b"", b""]])
def test_an_empty_corpus_is_rejected(tmp_path: Path, contents: list[bytes]) -> None:
    names = ", ".join(f"{number}.txt" for number in range(len(contents)))
    with pytest.raises(TextError, match=f"^corpus is empty: {names}$"):
        encoded(tmp_path, *contents)


def test_error_names_an_unreadable_text(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(TextError, match=r"^cannot read corpus here: "):
            encode_corpus([Source(path, "here")], tmp_path / "data")


def test_one_distinct_character_works_with_a_note(tmp_path: Path) -> None:
    corpus = encoded(tmp_path, b"aaaa")
    assert corpus.ids.tolist() == [0, 0, 0, 0]
    assert corpus.notes == ("the corpus has one distinct character: there is nothing to predict",)


def test_twenty_thousand_distinct_characters_work(tmp_path: Path) -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000))) * 2
    corpus = encoded(tmp_path, text.encode())
    assert (len(corpus.vocabulary), corpus.ids.dtype) == (20_000, np.dtype("u2"))
    assert text_of(corpus) == text


@settings(deadline=None, max_examples=60)
@given(
    contents=st.lists(st.text("abé東\n", max_size=30), min_size=1, max_size=6),
    every=st.integers(2, 4),
    chunk=CHUNKS,
)
def test_every_nth_text_or_block_validates_and_no_text_is_lost(
    tmp_path_factory: pytest.TempPathFactory, contents: list[str], every: int, chunk: int
) -> None:
    whole = "".join(
        content + "\n" * (not content.endswith("\n") and any(contents[n + 1 :]))
        for n, content in enumerate(contents)
        if content
    )
    counting = [content for content in contents if content]
    assume(len(whole) >= every and (len(counting) == 1 or len(counting) >= every))
    config = TrainConfig(split=f"every:{every}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "CHUNK", chunk)
        folder = tmp_path_factory.mktemp("corpus")
        sources = sources_of(folder, *contents)
        plain = encode_corpus(sources, folder / "data")
        corpus = encode_corpus(sources, folder / "data", None, config)
    assert text_of(plain) == whole
    assert corpus.identity.digest == plain.identity.digest  # the same text, in another order
    train, val = (corpus.vocabulary.decode(part) for part in corpus.parts(0.1))
    if len(counting) > 1:
        ends = [content + "\n" * (not content.endswith("\n")) for content in counting]
        ends[-1] = counting[-1]
        kept = [
            "".join(e for n, e in enumerate(ends) if bool((n + 1) % every) == t) for t in (1, 0)
        ]
        assert [train, val] == kept
    else:
        blocks = [whole[at : at + corpus.block] for at in range(0, len(whole), corpus.block)]
        assert val == "".join(blocks[every - 1 :: every])
        assert len(train) + len(val) == len(whole)
    opened = reopen_corpus(corpus.identity, folder / "data", corpus.vocabulary)
    assert opened is not None
    assert (opened.identity, opened.block) == (corpus.identity, corpus.block)
    assert opened.ids.tolist() == corpus.ids.tolist()


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


def test_other_text_boundaries_give_another_order(tmp_path: Path) -> None:
    config, made = TrainConfig(split="every:2", separator=""), []
    for cuts in (("ab", "cd", "ef", "gh"), ("abcd", "ef", "", "gh"), ("abc", "d", "e", "fgh")):
        sources = sources_of(tmp_path / cuts[0], *cuts)
        made.append(encode_corpus(sources, tmp_path / "data", None, config))
    assert [text_of(each) for each in made] == ["abefcdgh", "abcdghef", "abcedfgh"]
    assert [each.identity.boundary for each in made] == [4, 6, 4]
    for each in made:
        opened = reopen_corpus(each.identity, tmp_path / "data", each.vocabulary)
        assert opened is not None
        assert text_of(opened) == text_of(each)


def test_blocks_too_short_for_the_context_are_refused(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, TEXT)
    corpus = encode_corpus(sources, tmp_path / "data", None, TrainConfig(split="every:4"))
    assert corpus.block == len(TEXT) // 40 == 72
    assert corpus.longest_context(0.1) == 18
    corpus.split(0.1, 18)
    with pytest.raises(TextError, match=r"^`split='every:N'`: blocks of 72 .* `block_size=18`, or"):
        corpus.split(0.1, 19)


def test_progress_never_decreases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "CHUNK", 100)
    progress: list[float] = []
    encode_corpus(sources_of(tmp_path, TEXT), tmp_path / "data", progress=progress.append)
    assert progress == sorted(progress)
    assert len(progress) > 20
    assert progress[-1] == 1


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
    lost = part == "ids" and how == "gone"  # this file did not exist, so nothing was damaged
    ids = path.with_suffix(".ids")
    assert corpus.notes == (() if lost else (f"{ids} was damaged and has been made again",))


@pytest.mark.parametrize("characters", [20, 21, 29, 1_115_394])
def test_split_equals_nanogpts_split(characters: int) -> None:
    ids = np.arange(characters)
    corpus = Corpus(ids, Vocabulary("ab"), CorpusId("", characters, ()))
    train, val = corpus.split(0.1, block_size=1)
    assert np.array_equal(train, ids[: int(0.9 * characters)])
    assert np.array_equal(val, ids[int(0.9 * characters) :])


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


def test_text_too_short_for_any_block_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="even `block_size=1` needs two characters in each split"):
        corpus_of("abc" * 3, tmp_path).split(0.1, block_size=1)


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


def test_text_whose_characters_extend_a_vocabulary_in_order_is_encoded_once(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, "abcd" * 9)
    corpus = encode_corpus(sources, tmp_path / "data", Vocabulary("ab"), grows=True)
    assert encode_corpus(sources, tmp_path / "data").vocabulary == corpus.vocabulary
    assert len(list((tmp_path / "data").glob("*.ids"))) == 1
