"""Sources of texts: files, folders, a pipe, a known name or the default; joined in chunks."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from blake3 import blake3
from conftest import sources_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.corpus import sources
from gpt.corpus.sources import (
    EMBEDDED,
    KNOWN,
    Download,
    JoinedText,
    Source,
    Texts,
    discard_spooled,
    measure_text,
)
from gpt.errors import TextError


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
    return [(source.path.as_posix(), source.name) for source in Texts(names).sources(data)]


def test_files_keep_their_order_and_folders_are_sorted_without_hidden_files(texts: Path) -> None:
    folder = ["texts/a.MD", "texts/b.txt", "texts/deep/c.rst", "texts/deep/d.text"]
    names = ["texts/picture.png", *folder, "texts/b.txt"]
    expected = [(name, name) for name in names]
    assert found("texts/picture.png", "texts", "texts/b.txt") == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "no such file or folder"),
        ("a\0b", "null byte"),
        ("n" * 300, "File name too long"),
        (
            "missing.txt",
            r"'missing\.txt': no such file or folder \(known names: .*, repeats\)",
        ),
        ("\x1b[2J", r"'\\x1b\[2J': no such file"),
        ("empty", r"empty: no text in this folder \(looked for \*\.txt, "),
    ],
)
def test_a_text_that_cannot_be_found_is_named(texts: Path, name: str, message: str) -> None:
    with pytest.raises(TextError, match=f"^cannot read corpus .*{message}"):
        Texts([name]).sources(texts / "data")
    assert not (texts / "data").exists()


def test_default_corpus_is_the_python_language_reference(tmp_path: Path) -> None:
    for content in (None, "damaged"):
        if content:
            (tmp_path / f"{EMBEDDED}.txt").write_text(content)
        (source,) = Texts().sources(tmp_path)
        text = source.path.read_bytes().decode()
        assert len(text) > 400_000
        assert "lambda" in text
        assert source == Source(tmp_path / f"{EMBEDDED}.txt", EMBEDDED)
    assert Texts([EMBEDDED]).sources(tmp_path) == [source]


def test_repeats_has_the_same_bytes_everywhere_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", None)
    monkeypatch.chdir(tmp_path)
    assert found("repeats") == [("data/repeats.txt", "repeats")]
    written = Path("data/repeats.txt").read_bytes()
    sha256 = "0c251608050470d263bf30f275ff13512daa3762aa40b04923463ff35a1e89f5"
    assert hashlib.sha256(written).hexdigest() == sha256
    Path("data/repeats.txt").write_bytes(b"another text")
    assert found("repeats") == [("data/repeats.txt", "repeats")]
    assert Path("data/repeats.txt").read_bytes() == written


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_only_files_of_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    (tmp_path / "loop.txt").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(TextError, match="no text in this folder"):
        found(str(tmp_path))
    (tmp_path / "text.txt").write_text("a text")
    assert found(str(tmp_path)) == [(f"{tmp_path}/text.txt",) * 2]


@pytest.mark.parametrize("how", ["standard input", "named pipe"])
def test_pipe_is_copied_to_a_file_that_is_deleted_later(tmp_path: Path, how: str) -> None:
    content, pipe = b"\xef\xbb\xbfany bytes" * 99_999, tmp_path / "pipe"
    if how == "named pipe":
        os.mkfifo(pipe)
        threading.Thread(target=pipe.write_bytes, args=(content,)).start()
    name = "-" if how == "standard input" else str(pipe)
    (source,) = found_sources = Texts([name], io.BytesIO(content)).sources(tmp_path / "data")
    for _ in range(2):
        with sources.open_source(source) as file:
            assert (source.name, file.read()) == ("-", content)
    assert list((tmp_path / "data").iterdir()) == []  # the file has no name
    discard_spooled(found_sources)
    assert source.spooled
    assert source.spooled.closed


def test_a_known_text_is_downloaded_once_and_must_have_the_known_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    served = tmp_path / "served"
    served.write_bytes(b"abc")
    sha256 = hashlib.sha256(b"abc").hexdigest()
    monkeypatch.setitem(KNOWN, "tiny", Download(served.as_uri(), "0" * 64))
    with pytest.raises(TextError, match="another text"):
        found("tiny")
    assert not Path("data/tiny.txt").exists()
    monkeypatch.setitem(KNOWN, "tiny", Download(served.as_uri(), sha256))
    assert found("tiny") == [("data/tiny.txt", "tiny")]
    served.unlink()
    assert found("tiny") == [("data/tiny.txt", "tiny")]  # it is not downloaded again
    Path("data/tiny.txt").write_bytes(b"half a download")
    offline = r"Offline\? Download .*served elsewhere .* needs no network"
    with pytest.raises(TextError, match=rf"^cannot fetch 'tiny' .*{offline}"):
        found("tiny")
    Path("tiny").write_text("my own")
    assert found("tiny") == [("tiny", "tiny")]


def joined(contents: Sequence[str], separator: str) -> str:
    """The texts that are not empty, with separators between them."""
    result, last = "", None
    for content in filter(None, contents):
        if last is not None and not last.endswith(separator):
            result += separator
        result, last = result + content, content
    return result


@settings(deadline=None, max_examples=120)
@given(
    contents=st.lists(st.text("a\n-é東😀", max_size=12), max_size=5),
    separator=st.sampled_from(["\n", "\n\n", "", "--", "é", "\n-\n", "😀"]),
    chunk=st.integers(4, 9),
    training=st.integers(0, 6),
)
@example(contents=["a\n", "b"], separator="\n\n", chunk=4, training=1)
@example(contents=["\n", "\n"], separator="\n\n", chunk=4, training=2)
def test_texts_are_separated_hashed_and_counted(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[str],
    separator: str,
    chunk: int,
    training: int,
) -> None:
    texts = sources_of(tmp_path_factory.mktemp("texts"), *contents)
    whole = joined(contents, separator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK", chunk)
        joined_text = JoinedText(texts, separator)
        chunks = list(joined_text.chunks())
        progress: list[float] = []
        text = measure_text(joined_text, training, progress.append)
    parts = ["".join(map(chr, points)) for _, _, points in chunks]
    assert "".join(parts) == whole
    assert [data.decode() for _, data, _ in chunks] == parts
    assert text.digest == blake3(whole.encode()).hexdigest()
    assert progress == sorted(progress)
    assert not whole or progress[-1] == 1
    places = [number for number, _, _ in chunks]
    assert places == sorted(places)
    assert (text.starts[0], text.starts[-1]) == (0, len(whole))
    for number, content in enumerate(contents):
        of_source = whole[text.starts[number] : text.starts[number + 1]]
        assert of_source in (content, content + separator)  # a final separator belongs to its text
        assert of_source == "".join(p for p, at in zip(parts, places, strict=True) if at == number)
    border = text.starts[min(training, len(contents))]
    for part, counts in zip((whole[:border], whole[border:]), text.counts, strict=True):
        assert {chr(n): int(counts[n]) for n in counts.nonzero()[0]} == Counter(part)


def test_a_pipe_that_is_no_text_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    class Endless(io.BytesIO):
        read_so_far = 0

        def read(self, size: int | None = -1) -> bytes:
            assert self.read_so_far == 0, "the rest is read, too"
            self.read_so_far += size or 0
            return bytes(size or 0)

    with pytest.raises(TextError, match="NUL character"):
        Texts(["-"], Endless()).sources(tmp_path / "data")
