"""Ids on disk: exact, in the order of the split; failures leave no file."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from conftest import sources_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpt.corpus import text as texts
from gpt.corpus.corpus import build_vocabulary, encode_corpus, write_ids
from gpt.corpus.encodings import unix_lines
from gpt.corpus.split import choose_split
from gpt.corpus.text import JoinedText, measure_text, no_progress
from gpt.errors import StorageError, TextError
from gpt.storage import files
from gpt.vocabulary import Vocabulary

MANY = "".join(chr(point) for point in range(0x3400, 0x3400 + 300))  # too many for one byte
MORE = "".join(chr(point) for point in range(0x10000, 0x10000 + 66_000))  # too many for two


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=60), min_size=1, max_size=6),
    st.sampled_from([0, 2, 3]),
    st.integers(4, 9),
)
def test_ids_are_stored_split_by_split_each_with_a_checksum(
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
        parts = write_ids(text, measures.digest, table, order, folder / "ids", no_progress)
    data = (folder / "ids").read_bytes()
    ids = np.frombuffer(data, vocabulary.dtype)
    assert vocabulary == Vocabulary.from_text(whole)
    borders = itertools.pairwise([0, *order.borders, len(whole)])
    spans = [whole[first:last] for first, last in borders]
    assert vocabulary.decode(ids) == "".join(spans[::2] + spans[1::2])
    for size, checksum in parts:
        part, data = data[:size], data[size:]
        assert blake3(part).hexdigest() == checksum
    assert data == b""


@pytest.mark.parametrize(("text", "size"), [("abc" * 50, 1), (MANY, 2), ("a" + MORE + "a", 4)])
@pytest.mark.parametrize("chunk", [50, 2**18])
def test_ids_take_one_byte_up_to_256_characters_and_two_above(
    tmp_path: Path, text: str, size: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "CHUNK", chunk if size < 4 else 2**18)
    whole = "once upon a time " * 70 + text + "a time"
    corpus = encode_corpus(sources_of(tmp_path, whole), tmp_path / "data")
    assert corpus.ids.itemsize == size
    assert corpus.vocabulary.decode(corpus.ids) == whole


def test_full_disk_while_encoding_is_a_storage_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match=r"^cannot write .*data: No space left on device$"):
        encode_corpus(sources_of(tmp_path, "a" * 99), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_text_that_becomes_invalid_while_it_is_read_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = sources_of(tmp_path, "a" * 99)
    real = files.replace_in_pieces

    @contextmanager
    def meanwhile(path: Path) -> Iterator[files.Write]:
        sources[0].path.write_bytes(b"a" * 98 + b"\xff")
        with real(path) as write:
            yield write

    monkeypatch.setattr(files, "replace_in_pieces", meanwhile)
    with pytest.raises(TextError, match=r"^0\.txt: byte 98 is not UTF-8;"):
        encode_corpus(sources, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_ids_that_the_disk_changed_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def spoilt(descriptor: int, data: memoryview) -> int:
        record = data[:1] == b"{"
        return real(descriptor, data if record else bytes([data[0] ^ 1]) + data[1:])

    monkeypatch.setattr(os, "write", spoilt)
    with pytest.raises(StorageError, match="is not what was written; check the disk"):
        encode_corpus(sources_of(tmp_path, "abd" * 50), tmp_path / "data")
