"""The cache of encoded texts: which files are used without reading them again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, corpus_of

from gpt.config import TrainConfig
from gpt.corpus import cache
from gpt.corpus import corpus as corpus_module
from gpt.corpus import text as texts
from gpt.corpus.cache import fingerprint, ids_path
from gpt.corpus.corpus import encode, reopen
from gpt.corpus.sources import Source, find_sources
from gpt.storage import files
from gpt.vocabulary import Vocabulary

LONG_AGO = 10**18  # nanoseconds


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every text counts as large."""
    monkeypatch.setattr(cache, "TRUSTED_FROM", 1)


def flip(path: Path, keep_time: bool) -> None:
    """Changes a byte; keep_time: without changing the file's time."""
    before = path.stat()
    data = path.read_bytes()
    with open(path, "r+b") as file:
        file.write(bytes([data[0] ^ 1]))
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def old(path: Path) -> Source:
    """A source that has not changed for a long time."""
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return Source(path, path.name)


def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "measured", lambda *_: pytest.fail("read again"))


def test_small_ids_are_always_checked(tmp_path: Path) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    (path,) = (tmp_path / "data").glob("*.ids")
    flip(path, keep_time=True)
    assert reopen(corpus.identity, tmp_path / "data", corpus.vocabulary) is None


def test_large_ids_are_not_checked_while_their_stamp_is_unchanged(
    large: None, tmp_path: Path
) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    (path,) = (tmp_path / "data").glob("*.ids")
    flip(path, keep_time=True)  # not detected, as documented
    assert reopen(corpus.identity, tmp_path / "data", corpus.vocabulary) is not None
    flip(path, keep_time=True)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))  # a new time: read, verified, trusted again
    assert reopen(corpus.identity, tmp_path / "data", corpus.vocabulary) is not None
    flip(path, keep_time=False)
    os.utime(path)
    assert reopen(corpus.identity, tmp_path / "data", corpus.vocabulary) is None


def test_copied_cache_is_checked_once(large: None, tmp_path: Path) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    shutil.copytree(tmp_path / "data", tmp_path / "copy", copy_function=shutil.copy)
    (record,) = (tmp_path / "copy").glob("*.json")
    before = json.loads(record.read_bytes())
    opened = reopen(corpus.identity, tmp_path / "copy", corpus.vocabulary)
    assert opened is not None
    after = json.loads(record.read_bytes())
    assert after["stamp"] != before["stamp"]
    assert {**after, "stamp": 0} == {**before, "stamp": 0}


def test_unchanged_large_text_is_not_read_again(
    large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    source = old(tmp_path / "text.txt")
    first = encode([source], tmp_path / "data")
    with monkeypatch.context() as patch:
        unread(patch)
        again = encode([source], tmp_path / "data")
    assert (again.identity, again.notes, again.vocabulary) == (
        first.identity,
        first.notes,
        first.vocabulary,
    )
    source.path.write_text(TEXT.upper())
    assert encode([old(source.path)], tmp_path / "data").identity != first.identity


def test_the_encoding_of_another_text_in_its_place_is_rejected(tmp_path: Path) -> None:
    one, other = corpus_of(TEXT, tmp_path / "one"), corpus_of(TEXT.upper(), tmp_path / "other")
    for suffix in (".ids", ".json"):
        places = [
            ids_path(tmp_path / name / "data", corpus.identity, TrainConfig()).with_suffix(suffix)
            for name, corpus in (("other", other), ("one", one))
        ]
        shutil.copy(*places)
    again = corpus_of(TEXT, tmp_path / "one")
    assert again.vocabulary.decode(again.ids) == TEXT


def test_an_invalid_record_is_ignored(large: None, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, content in (("a", "null"), ("b", "3"), ("c", '"text_sha256"'), ("d", "{")):
        (tmp_path / f"data/{name}.json").write_text(content)
    (tmp_path / "text.txt").write_text(TEXT)
    for _ in range(2):
        corpus = encode([old(tmp_path / "text.txt")], tmp_path / "data")
        assert corpus.vocabulary.decode(corpus.ids) == TEXT


def test_large_text_is_recognised_with_its_own_vocabulary_and_a_runs(
    large: None, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    source, wider = old(tmp_path / "text.txt"), Vocabulary.from_text(TEXT + "XYZ")
    for known in (wider, None, wider, wider, None, None):
        corpus = encode([source], tmp_path / "data", known)
        assert corpus.vocabulary == (known or Vocabulary.from_text(TEXT))
        assert corpus.vocabulary.decode(corpus.ids) == TEXT


@pytest.mark.parametrize(
    "changed",
    [
        {"separator": "--"},
        {"split": "every:2"},
        {"min_count": 100},
        {"min_count": 100, "replacement": "_"},
    ],
)
def test_other_encoding_options_give_another_corpus(
    large: None, tmp_path: Path, changed: dict[str, Any]
) -> None:
    sources = []
    for name in "abc":
        (tmp_path / name).write_text(TEXT + name)
        sources.append(old(tmp_path / name))
    plain = encode(sources, tmp_path / "data")
    config = TrainConfig(**changed)
    other = encode(sources, tmp_path / "data", None, config)
    assert plain.ids.tolist() != other.ids.tolist()
    for how, corpus in ((TrainConfig(), plain), (config, other)):
        again = encode(sources, tmp_path / "data", None, how)
        assert again.ids.tolist() == corpus.ids.tolist()
        opened = reopen(corpus.identity, tmp_path / "data", corpus.vocabulary, how)
        assert opened is not None
        assert (opened.identity, opened.vocabulary) == (corpus.identity, corpus.vocabulary)


def test_small_or_recently_changed_text_is_always_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    source = old(tmp_path / "text.txt")
    assert fingerprint([source], 1, TrainConfig()) is None
    monkeypatch.setattr(cache, "TRUSTED_FROM", 1)
    assert fingerprint([source], 1, TrainConfig()) is not None
    os.utime(source.path)
    assert fingerprint([source], 1, TrainConfig()) is None
    assert fingerprint([Source(tmp_path / "missing", "missing")], 1, TrainConfig()) is None


def test_a_text_that_changes_while_it_is_read_is_read_again(
    large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    source, real = old(tmp_path / "text.txt"), texts.measured

    def touching(*arguments: Any) -> Any:
        try:
            return real(*arguments)
        finally:
            os.utime(source.path)

    with monkeypatch.context() as patch:
        patch.setattr(corpus_module, "measured", touching)
        encode([source], tmp_path / "data")
    (record,) = (tmp_path / "data").glob("*.json")
    assert "known_by" not in json.loads(record.read_bytes())


def test_cache_of_an_earlier_release_opens_and_is_checked(tmp_path: Path) -> None:
    corpus = corpus_of(TEXT, tmp_path, "sha256")
    path = ids_path(tmp_path / "data", corpus.identity, TrainConfig())
    digest = hashlib.sha256(corpus.vocabulary.characters.encode() + path.read_bytes())
    record = {
        "text_sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
        "sha256": digest.hexdigest(),
        "characters": corpus.vocabulary.characters,
    }
    for _ in range(2):  # as the old release wrote it, then as updated
        path.with_suffix(".json").write_text(json.dumps(record))
        opened = reopen(corpus.identity, tmp_path / "data", corpus.vocabulary)
        assert opened is not None
        assert opened.ids.tolist() == corpus.ids.tolist()
        assert opened.counts.tolist() == [TEXT.count(each) for each in sorted(set(TEXT))]
        record = json.loads(path.with_suffix(".json").read_bytes())
        assert "parts" in record
    path.with_suffix(".json").write_text(json.dumps({**record, "seal": 1}))
    assert reopen(corpus.identity, tmp_path / "data", corpus.vocabulary) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_released_pages_of_a_large_file_can_be_read_again(large: None, tmp_path: Path) -> None:
    def pages() -> int:
        """Bytes of files that this process has in memory; of files on tmpfs, too."""
        status = Path("/proc/self/status").read_text()
        return sum(int(size) * 1024 for size in re.findall(r"Rss(?:File|Shmem):\s+(\d+)", status))

    size = 2**25
    np.arange(size, dtype=np.uint8).tofile(tmp_path / "ids")
    ids = np.memmap(tmp_path / "ids", np.uint8, mode="r")
    before = pages()
    total = int(ids.sum(dtype=np.int64))
    assert pages() - before > size // 2
    cache.forget(ids[7:])  # a split is a part of the file
    assert pages() - before < size // 4
    assert int(ids.sum(dtype=np.int64)) == total
    cache.forget(np.zeros(3))  # only files are deleted


def test_old_temporary_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with files.replacing(data / "ids"):
        (temporary,) = data.iterdir()
    (data / "ids").rename(temporary)
    fresh = data / f".tmp-{'0' * 32}"
    spooled = find_sources(["-"], data, io.BytesIO(b"text"))[0].path
    foreign = [
        data / name for name in (".tmp-mine", ".spool-1.txt", "mine.txt", ".tmp-" + "0" * 33)
    ]
    for path in (fresh, *foreign):
        path.write_text("foreign")
    for path in (temporary, spooled, *foreign):
        os.utime(path, (0, time.time() - 2 * cache.STALE))
    corpus_of(TEXT, tmp_path)
    left = {path for path in data.iterdir() if path.suffix not in (".ids", ".json")}
    assert left == {fresh, *foreign}
