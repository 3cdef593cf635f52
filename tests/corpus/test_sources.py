"""Sources of texts: files, folders, a pipe, a known name or the default; and errors."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import string
import threading
from collections.abc import Sequence
from contextlib import chdir, closing
from dataclasses import fields
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

from gpt.config import ModelConfig, TrainConfig
from gpt.corpus import sources
from gpt.corpus.corpus import read_corpus
from gpt.corpus.repeats import LENGTHS, RECIPE, TIMES, repeats
from gpt.corpus.sources import (
    EMBEDDED,
    KNOWN,
    Download,
    Source,
    corpus_name,
    discard_spooled,
    find_sources,
    is_pairs,
    recipe_of,
)
from gpt.errors import StorageError, TextError
from gpt.words import printable

PIPE = io.BytesIO()


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with some texts and some other files."""
    for name in ("b.txt", "a.MD", "deep/c.rst", "deep/d.text", "picture.png", ".hidden.txt"):
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "texts" / ".git").mkdir()
    (tmp_path / "texts" / ".git" / "e.txt").write_text("not a text of the user's")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*names: str, data: Path = Path("data")) -> list[tuple[str, str]]:
    """Each source's path and name."""
    return [(source.path.as_posix(), source.name) for source in find_sources(names, data, PIPE)]


def test_files_keep_their_order_and_folders_are_sorted_without_hidden_files(texts: Path) -> None:
    folder = ["texts/a.MD", "texts/b.txt", "texts/deep/c.rst", "texts/deep/d.text"]
    names = ["texts/picture.png", *folder, "texts/b.txt"]
    expected = [(name, name) for name in names]
    assert found("texts/picture.png", "texts", "texts/b.txt") == expected


PASTED = "this is a text, not the name of a file; save it in a file, or pipe it"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the name is empty"),
        ("a\0b", "the name has a NUL character"),
        ("To be, or not to be", PASTED),
        ("To be,\nor not", PASTED),
        ("word " * 2000, PASTED),
        ("n" * 300, PASTED),
        ("no such file.txt", "no such file or folder"),
        ("texts/b.txt/c", "no such file or folder"),
    ],
)
def test_an_impossible_name_is_refused_with_the_reason(
    texts: Path, name: str, problem: str
) -> None:
    with pytest.raises(TextError, match=f"cannot read corpus '.*': {problem}") as refused:
        find_sources([name], Path("data"), PIPE)
    assert len(str(refused.value)) < 250


def test_copy_of_stdin_is_deleted_if_another_text_is_missing(texts: Path) -> None:
    with pytest.raises(TextError, match=r"nope\.txt"):
        find_sources(["-", "nope.txt"], Path("data"), io.BytesIO(b"text"))
    assert not list(Path("data").iterdir())


def test_interrupted_copy_of_stdin_is_deleted(texts: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise KeyboardInterrupt
            return super().read(2)

    with pytest.raises(KeyboardInterrupt):
        find_sources(["-"], Path("data"), Broken(b"text"))
    assert not list(Path("data").iterdir())


def test_pipes_in_a_folder_are_skipped(texts: Path) -> None:
    before = found("texts")
    os.mkfifo("texts/waits.txt")
    assert found("texts") == before


def test_error_names_an_unreadable_folder(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def refusing(path: str) -> object:
        if Path(path).name == "deep":
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(TextError, match=r"cannot read corpus 'texts/deep': Permission denied"):
        find_sources(["texts"], Path("data"), PIPE)


def test_hidden_folder_is_read_if_named(texts: Path) -> None:
    assert found("texts/.git") == [("texts/.git/e.txt", "texts/.git/e.txt")]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "missing.txt",
            r"'missing\.txt': no such file or folder \(known names: .*, repeats, dates\)",
        ),
        ("\x1b[2J", r"'\\x1b\[2J': no such file"),
        ("empty", r"empty: no text in this folder \(looked for \*\.txt, "),
        ("texts/b.txt/c", "no such file or folder"),
    ],
)
def test_a_text_that_cannot_be_found_is_named(texts: Path, name: str, message: str) -> None:
    with pytest.raises(TextError, match=f"^cannot read corpus .*{message}") as caught:
        find_sources([name], texts / "data", PIPE)
    assert caught.value.exit_code == 3
    assert not (texts / "data").exists()


def test_pipe_is_copied_to_a_file_that_is_deleted_later(tmp_path: Path) -> None:
    data, content = tmp_path / "data", b"\xef\xbb\xbfany \x00 bytes" * 99_999
    (source,) = found_sources = find_sources(["-"], data, io.BytesIO(content))
    for _ in range(2):
        with sources.opened(source) as file:
            assert (source.name, file.read()) == ("-", content)
    assert list(data.iterdir()) == []  # the file has no name: it goes with the process
    sources.discard_spooled(found_sources)
    assert source.spooled
    assert source.spooled.closed


def test_only_the_copy_of_a_pipe_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    sources.discard_spooled([Source(tmp_path / "mine.txt", "mine.txt")])
    assert (tmp_path / "mine.txt").exists()


def test_default_corpus_is_the_python_language_reference(tmp_path: Path) -> None:
    for content in (None, "damaged"):
        if content:
            (tmp_path / f"{EMBEDDED}.txt").write_text(content)
        (source,) = find_sources([], tmp_path, PIPE)
        text = source.path.read_bytes().decode()
        assert len(text) > 400_000
        assert "lambda" in text
        assert source == Source(tmp_path / f"{EMBEDDED}.txt", EMBEDDED)
    assert find_sources([EMBEDDED], tmp_path, PIPE) == [source]


@pytest.mark.parametrize("error", [URLError("no network"), TimeoutError("timed out")])
@pytest.mark.parametrize("before", [None, b"half a download"])
def test_failed_download_of_a_known_corpus_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, before: bytes | None
) -> None:
    known = KNOWN["shakespeare"]
    assert isinstance(known, Download)

    def download(url: str) -> bytes:
        assert url == known.url
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "_download", download)
    if before:
        (tmp_path / "shakespeare.txt").write_bytes(before)
    with pytest.raises(TextError, match=r"^cannot fetch 'shakespeare' ") as caught:
        find_sources(["shakespeare"], tmp_path, PIPE)
    for part in (str(error), "Offline?", known.url, "needs no network"):
        assert part in str(caught.value)


def test_known_corpus_is_downloaded_once_and_a_file_of_that_name_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def download(url: str) -> bytes:
        fetched.append(url)
        return b"abc"

    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(KNOWN, "tiny", Download("https://example.invalid/tiny", sha256))
    monkeypatch.setattr(sources, "_download", download)
    for _ in range(2):
        assert found("tiny") == [("data/tiny.txt", "tiny")]
    assert fetched == ["https://example.invalid/tiny"]
    Path("tiny").write_text("my own")
    assert found("tiny") == [("tiny", "tiny")]


def test_a_download_must_have_the_known_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses the real download, from a server on this machine."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "tiny").write_bytes(b"abc")
    handler = partial(SimpleHTTPRequestHandler, directory=str(served))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/tiny"
        sha256 = hashlib.sha256(b"abc").hexdigest()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(KNOWN, "tiny", Download(url, "0" * 64))
        with pytest.raises(TextError, match="another text"):
            found("tiny")
        assert not Path("data/tiny.txt").exists()
        monkeypatch.setitem(KNOWN, "tiny", Download(url, sha256))
        assert found("tiny") == [("data/tiny.txt", "tiny")]
        monkeypatch.setitem(KNOWN, "none", Download(f"{url}-none", sha256))
        with pytest.raises(TextError, match="404"):
            found("none")
        server.shutdown()
    assert Path("data/tiny.txt").read_bytes() == b"abc"


def test_repeats_has_the_same_bytes_everywhere_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_download", None)
    monkeypatch.chdir(tmp_path)
    assert found("repeats") == [("data/repeats.txt", "repeats")]
    written = Path("data/repeats.txt").read_bytes()
    sha256 = "0c251608050470d263bf30f275ff13512daa3762aa40b04923463ff35a1e89f5"
    assert hashlib.sha256(written).hexdigest() == sha256
    Path("data/repeats.txt").write_bytes(b"another text")
    assert found("repeats") == [("data/repeats.txt", "repeats")]
    assert Path("data/repeats.txt").read_bytes() == written


def test_each_line_of_repeats_repeats_one_word_of_independent_letters() -> None:
    lines = repeats().decode().splitlines()
    lengths, spaced, doubled, kinds = [], 0, 0, 0
    for line in lines:
        spaced += " " in line
        joined = line.replace(" ", "")
        word = joined[: len(joined) // TIMES]
        assert line == (" " if " " in line else "").join([word] * TIMES)
        doubled += len(set(word)) < len(word)
        kinds += len(set(word))
        assert set(word) <= set(string.ascii_lowercase)
        lengths.append(len(word))
    counts = np.bincount(lengths)
    expected = sum(26 * (1 - (25 / 26) ** n) for n in lengths)  # of independent letters
    assert kinds == pytest.approx(expected, rel=0.01)
    assert doubled > 0.6 * len(lines)
    assert set(np.flatnonzero(counts)) == set(LENGTHS)
    assert counts.max() < 1.25 * len(lines) / len(LENGTHS)  # no distance prevails
    assert 0.45 < spaced / len(lines) < 0.55


def test_recipe_applies_to_the_known_name_not_to_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe_of(["repeats"]) == RECIPE
    for corpus in ([], ["shakespeare"], ["repeats", "more.txt"], ["data/repeats.txt"], ["-"]):
        assert recipe_of(corpus) == {}
    options = {each.name for config in (ModelConfig, TrainConfig) for each in fields(config)}
    assert options > set(RECIPE)
    Path("repeats").write_text("my own")
    assert recipe_of(["repeats"]) == {}


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ([], False),
        (["-"], False),
        (["a.txt", "books/"], False),
        (["repeats"], False),
        (["dates"], True),
        (["a.tsv"], True),
        (["dates", "A.TSV", "b/c.Tsv"], True),
        (["./dates"], False),
        (["tsv"], False),
    ],
)
def test_pairs_are_files_named_tsv_and_known_names_of_pairs(
    texts: Path, corpus: Sequence[str], expected: bool
) -> None:
    assert is_pairs(corpus) is expected


def test_pairs_and_other_texts_are_not_mixed(texts: Path) -> None:
    message = r"^a\.tsv has pairs, texts is a text; give only pairs \(files \*\.tsv, lines of"
    with pytest.raises(TextError, match=message):
        is_pairs(["texts", "a.tsv"])
    with pytest.raises(TextError, match=r"^dates has pairs, - is a text; "):
        is_pairs(["dates", "-"])
    Path("dates").write_text("my own")
    assert not is_pairs(["dates"])


@pytest.mark.parametrize("names", [[], ["-"], ["shakespeare"], ["repeats"]])
def test_data_folder_that_cannot_be_created_is_a_storage_error(
    tmp_path: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"^cannot write file.data.*: Not a directory$"):
        find_sources(names, Path("file/data"), io.BytesIO(b"text"))


@pytest.mark.parametrize(
    ("corpus", "name"),
    [([], EMBEDDED), (["-"], "stdin"), (["books/war.txt", "b.txt"], "war"), (["books/"], "books")],
)
def test_run_is_named_after_its_corpus(corpus: list[str], name: str) -> None:
    assert corpus_name(corpus) == name


def test_files_in_hidden_folders_are_skipped(tmp_path: Path) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/hooks/README.md").write_text("no")
    (tmp_path / "yes.md").write_text("yes")
    found = find_sources([str(tmp_path)], tmp_path / "data", io.BytesIO())
    assert [source.path.name for source in found] == ["yes.md"]


def test_user_files_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / ".spool-1.txt").write_text("mine")
    discard_spooled(find_sources([str(tmp_path / ".spool-1.txt")], tmp_path, io.BytesIO()))
    assert (tmp_path / ".spool-1.txt").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipe_is_copied_to_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"through a pipe",))
    writer.start()
    (source,) = find_sources([str(pipe)], tmp_path / "data", io.BytesIO())
    writer.join()
    with sources.opened(source) as file:
        assert file.read() == b"through a pipe"
    discard_spooled([source])


def test_a_name_that_is_not_utf8_is_escaped() -> None:
    assert printable(os.fsdecode(b"caf\xe9.txt")) == "caf\\xe9.txt"


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="twice"):
        find_sources(["-", "-"], tmp_path, io.BytesIO(b"text"))


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs devices")
def test_only_files_of_a_folder_are_read_and_devices_end(tmp_path: Path) -> None:
    folder, data = tmp_path / "texts", tmp_path / "data"
    folder.mkdir()
    for name in ("zero", "urandom", "full", "tty"):
        (folder / f"{name}.txt").symlink_to(f"/dev/{name}")
    os.mkfifo(folder / "pipe.txt")
    (folder / "loop.txt").symlink_to(folder)
    with closing(socket.socket(socket.AF_UNIX)) as listening, chdir(folder):
        listening.bind("socket.txt")
    with pytest.raises(TextError, match="no text in this folder"):
        find_sources([str(folder)], data, PIPE)
    (folder / "text.txt").write_text("a text")
    assert [each.path.name for each in find_sources([str(folder)], data, PIPE)] == ["text.txt"]
    for name in (
        "/dev/zero",
        "/dev/urandom",
        "/dev/full",
        "/dev/null",
        "/dev/ptmx",
        str(folder / "socket.txt"),
    ):
        with pytest.raises(TextError):
            read_corpus([name], data, PIPE)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom"])
def test_endless_standard_input_that_is_no_text_is_refused_at_once(
    tmp_path: Path, name: str
) -> None:
    with open(name, "rb") as endless, pytest.raises(TextError, match=r"^-[: ]"):
        find_sources(["-"], tmp_path, endless)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["pipe", "zero", "folder"])
def test_a_known_text_is_read_from_a_regular_file_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "repeats.txt"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "zero":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
        with pytest.raises(StorageError, match=r"^cannot write .*: Is a directory$"):
            find_sources(["repeats"], tmp_path, PIPE)
        return
    (source,) = find_sources(["repeats"], tmp_path, PIPE)
    assert source.path.is_file()
    assert not source.path.is_symlink()
