"""The cache of encoded texts: which files are used without reading them again, and which never."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from conftest import TEXT, corpus_of, sources_of

from gpt.config import TrainConfig
from gpt.corpus import cache
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


def test_an_id_outside_the_vocabulary_is_found_in_every_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "FEW", 7)
    corpus_of(TEXT, tmp_path)
    (path,) = (tmp_path / "data").glob("*.ids")
    found = cache.read_encoding(path)
    assert found is not None
    data = path.read_bytes()
    for ids, opens in ((data, True), (data[:8] + b"\xff" + data[9:], False)):
        path.write_bytes(ids)
        parts = ((len(ids), blake3(ids).hexdigest()),)
        cache.write_record(path, replace(found[1], parts=parts))
        assert (cache.read_encoding(path) is not None) == opens


def test_the_encoding_of_another_text_in_its_place_is_rejected(tmp_path: Path) -> None:
    corpus_of(TEXT, tmp_path / "one")
    corpus_of(TEXT.upper(), tmp_path / "other")
    for suffix in (".ids", ".json"):
        places = [next((tmp_path / name / "data").glob(f"*{suffix}")) for name in ("other", "one")]
        shutil.copy(*places)
    again = corpus_of(TEXT, tmp_path / "one")
    assert again.vocabulary.decode(again.ids) == TEXT


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


def values_in(document: Any) -> list[tuple[Any, Any]]:
    """(container, key) of each value in a JSON document, the outermost ones first."""
    keys = list(document) if isinstance(document, dict) else range(len(document))
    found = [(document, key) for key in keys]
    inner = [document[key] for key in keys if isinstance(document[key], dict | list)]
    return found + [each for value in inner for each in values_in(value)]


def test_every_value_of_a_record_is_sealed(tmp_path: Path) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    (path,) = (tmp_path / "data").glob("*.json")
    whole = json.loads(path.read_bytes())
    for number in range(len(values_in(whole))):
        changed = json.loads(json.dumps(whole))
        container, key = values_in(changed)[number]
        container[key] = 7 if container[key] != 7 else 8
        path.write_text(json.dumps(changed, indent=1))
        assert reopen_corpus(corpus.identity, tmp_path / "data", corpus.vocabulary) is None
        again = corpus_of(TEXT, tmp_path)
        assert (again.block, again.ids.tolist()) == (corpus.block, corpus.ids.tolist())


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


def killed_while(data: Path, doing: str) -> None:
    """Runs Python in another process, which has `data`, and kills it when it waits."""
    script = f"from pathlib import Path; data = Path({str(data)!r})\n{doing}"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()


def test_abandoned_temporary_files_are_removed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    corpus_of(TEXT, tmp_path)
    old = data / f"{files.TEMPORARY}1"
    old.write_text("half")
    os.utime(old, (0, time.time() - 2 * files.STALE))
    read_corpus([str(tmp_path / "text.txt")], data, io.BytesIO())
    assert {path.suffix for path in data.iterdir()} == {".ids", ".json"}


SPOOLS = """
from gpt.corpus.sources import find_sources
class Endless:
    def read(self, size):
        print("waits", flush=True)
        return b"yes" * 1000
find_sources(["-"], data, Endless())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="uses SIGKILL")
def test_the_copy_of_a_pipe_goes_with_its_process(tmp_path: Path) -> None:
    killed_while(tmp_path / "data", SPOOLS)
    assert list((tmp_path / "data").iterdir()) == []
