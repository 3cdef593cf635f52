"""The cache of encoded texts: which files are used without reading them again, and which never."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, corpus_of, sources_of

from gpt.config import TrainConfig
from gpt.corpus import corpus as cache
from gpt.corpus.corpus import encode_corpus, read_corpus, reopen_corpus
from gpt.errors import StorageError
from gpt.storage import files


@pytest.mark.parametrize("piece", [7, cache.FEW])
@pytest.mark.parametrize("at", [0, 8, len(TEXT) - 1])
def test_ids_are_checked_at_every_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, piece: int
) -> None:
    monkeypatch.setattr(cache, "FEW", piece)
    corpus = corpus_of(TEXT, tmp_path)
    (path,) = (tmp_path / "data").glob("*.ids")
    before, data = path.stat(), path.read_bytes()
    assert reopen_corpus(corpus.identity, tmp_path / "data", corpus.vocabulary) is not None
    changed = bytes([data[at] ^ 3])  # another character of the vocabulary
    path.write_bytes(data[:at] + changed + data[at + 1 :])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reopen_corpus(corpus.identity, tmp_path / "data", corpus.vocabulary) is None


@pytest.mark.parametrize("changed", [{"separator": "--"}, {"split": "every:2"}])
def test_other_encoding_options_give_another_corpus(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    sources = sources_of(tmp_path, *(TEXT + name for name in "abc"))
    plain = encode_corpus(sources, tmp_path / "data")
    config = TrainConfig(**changed)
    other = encode_corpus(sources, tmp_path / "data", None, config)
    assert plain.ids.tolist() != other.ids.tolist()
    for how, corpus in ((TrainConfig(), plain), (config, other)):
        again = encode_corpus(sources, tmp_path / "data", None, how)
        assert again.ids.tolist() == corpus.ids.tolist()
        opened = reopen_corpus(corpus.identity, tmp_path / "data", corpus.vocabulary)
        assert opened is not None
        assert (opened.identity, opened.vocabulary) == (corpus.identity, corpus.vocabulary)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_released_pages_of_a_file_can_be_read_again(tmp_path: Path) -> None:
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
    cache.release_pages(ids[7:])  # a split is a part of the file
    assert pages() - before < size // 4
    assert int(ids.sum(dtype=np.int64)) == total
    cache.release_pages(np.zeros(3))  # only files are deleted


@pytest.mark.parametrize("what", ["file", "pipe", "link to a device"])
def test_a_data_folder_that_is_none_is_one_error(tmp_path: Path, what: str) -> None:
    data, source = tmp_path / "data", tmp_path / "text.txt"
    source.write_text(TEXT)
    if what == "file":
        data.write_text("a file")
    elif what == "pipe":
        os.mkfifo(data)
    else:
        data.symlink_to("/dev/zero")
    with pytest.raises(StorageError, match=r"^cannot write "):
        read_corpus([str(source)], data, io.BytesIO())


def test_abandoned_temporary_files_are_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    corpus_of(TEXT, tmp_path)
    old = data / f"{files.TEMPORARY}1"
    old.write_text("half")
    os.utime(old, (0, time.time() - 2 * files.STALE))
    read_corpus([str(tmp_path / "text.txt")], data, io.BytesIO())
    assert {path.suffix for path in data.iterdir()} == {".ids", ".json"}
