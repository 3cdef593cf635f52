"""How commands read texts and print lines."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpt.commands import console
from gpt.errors import ConfigError, StorageError, TextError


@pytest.mark.parametrize("start", [4, 7, 2**20])
def test_a_text_is_read_whole_and_a_byte_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    monkeypatch.setattr(console, "START", start)
    path = tmp_path / "text.txt"
    for text in ("", "a\r\nb\rc\u0085", "Zażółć 東京 🙂👍🏽 e\u0301", "\ufeffafter\ufeff"):
        path.write_bytes(text.encode())
        expected = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        assert console.read_text(str(path)) == expected
    for data, position in ((b"caf\xe9 au", 3), ("é東".encode()[:-1], 2), (b"\x80", 0)):
        path.write_bytes(data)
        with pytest.raises(TextError, match=rf"text.txt: byte {position} is not UTF-8[;,]"):
            console.read_text(str(path))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_endless_devices_and_a_name_with_a_nul_are_refused() -> None:
    for name, problem in (
        ("/dev/zero", "/dev/zero: byte 0 is a NUL .* looks like binary data"),
        ("/dev/urandom", r"/dev/urandom: byte \d+ is .* looks like binary data"),
        ("a\0b", "embedded null byte"),
    ):
        with pytest.raises(TextError, match=problem):
            console.read_text(name)


@pytest.mark.parametrize("name", ["a\nb", "a\r\x1b[31mb", "a\u202eb"])
def test_control_characters_in_a_name_do_not_break_a_line_on_stderr(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    console.say(f"note: {name}")
    console.say_error(f"cannot read {name}")
    lines = capsys.readouterr().err.split("\n")
    assert len(lines) == 3
    assert "".join(lines).isprintable()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_text_without_control_characters_and_a_pipe_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    console.write("a\x1b[31mb\n")
    assert capsys.readouterr().out == ("a\\x1b[31mb\n" if terminal else "a\x1b[31mb\n")


def test_bytes_that_are_no_text_go_to_a_pipe_and_never_to_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    console.write_bytes(b"PK\xff")
    assert capfdbinary.readouterr().out == b"PK\xff"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(ConfigError, match="name a file with -o"):
        console.write_bytes(b"PK\xff")
    assert capfdbinary.readouterr().out == b""


@pytest.mark.parametrize("columns", [6, 10, 40])
@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_streamed_text_breaks_between_words_and_changes_nothing_that_was_written(
    columns: int, piece: int
) -> None:
    text = "  She wept, and  went.\n\n東京は 大阪。そして incomprehensibilities\nend "
    pieces = [text[at : at + piece] for at in range(0, len(text), piece)]
    lines = "".join(console.wrap_pieces(pieces, columns)).split("\n")
    for line in lines:
        assert cell_len(line.rstrip()) <= columns or " " not in line.strip()
    assert "".join("".join(lines).split()) == "".join(text.split())
    for word in ("wept,", "went.", "incomprehensibilities"):
        assert any(word in line for line in lines)
    assert "".join(console.wrap_pieces(pieces, 200)) == text


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "out.txt"
    console.write("older", path)
    path.chmod(0o600)
    console.write("old", path)
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        console.write("new", path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.txt", "old")]


def test_ctrl_c_keeps_the_lines_for_a_file(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield from ("a\n", "b\n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        console.write_lines(lines(), tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "a\nb\n"
