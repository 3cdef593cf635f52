"""Atomic files: whole or absent, flushed before renaming; links are not followed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from gpt.errors import CheckpointError, StorageError
from gpt.storage import files

CONTENTS = [("a", b"first"), ("b", b"second"), ("c", b"last")]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, including hidden ones."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def failing_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> None:
    """Lets the `call`-th call of an os function fail as on a full disk."""
    real, calls = getattr(os, name), 0

    def maybe(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, maybe)


def journal(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Records the flushes and renames from now on, in order, by inode."""
    events: list[tuple[str, int]] = []
    fsync = os.fsync

    def flush(descriptor: int) -> None:
        events.append(("flush", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def renames(real: Any) -> Any:
        def rename(source: Path, target: Path) -> None:
            events.append(("rename", os.stat(source).st_ino))
            real(source, target)

        return rename

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "rename", renames(os.rename))
    monkeypatch.setattr(os, "replace", renames(os.replace))
    return events


def test_exclusive_write_refuses_an_existing_file(tmp_path: Path) -> None:
    files.write(tmp_path / "a", b"\x00\xff")
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "a", b"other")
    assert tree(tmp_path) == {"a": b"\x00\xff"}


def test_replacing_a_file_flushes_before_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    events = journal(monkeypatch)
    files.replace(tmp_path / "a", b"new")
    file, folder = os.stat(tmp_path / "a").st_ino, os.stat(tmp_path).st_ino
    assert events == [("flush", file), ("rename", file), ("flush", folder)]
    assert tree(tmp_path) == {"a": b"new"}


def test_folder_and_its_files_are_flushed_before_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = journal(monkeypatch)
    target = tmp_path / "step-1"
    files.commit_folder(target, CONTENTS)
    inodes = [os.stat(target / name).st_ino for name, _ in CONTENTS]
    folder, parent = os.stat(target).st_ino, os.stat(tmp_path).st_ino
    flushes = [("flush", inode) for inode in [*inodes, folder]]
    assert events == [*flushes, ("rename", folder), ("flush", parent)]
    assert tree(tmp_path) == {f"step-1/{name}": data for name, data in CONTENTS}


def test_renaming_of_a_removed_folder_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.commit_folder(tmp_path / "step-1", CONTENTS)
    folder, parent = os.stat(tmp_path / "step-1").st_ino, os.stat(tmp_path).st_ino
    events = journal(monkeypatch)
    files.remove_folder(tmp_path / "step-1")
    assert events == [("rename", folder), ("flush", parent)]
    assert tree(tmp_path) == {}


def test_leftovers_of_a_crash_are_replaced(tmp_path: Path) -> None:
    for leftover in (".tmp-step-1", ".trash-step-1"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "a").write_bytes(b"half")
    files.commit_folder(tmp_path / "step-1", CONTENTS)
    files.remove_folder(tmp_path / "step-1")
    assert list(tmp_path.iterdir()) == []


def test_appended_line_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.append_line(tmp_path / "log", "één")
    events = journal(monkeypatch)
    files.append_line(tmp_path / "log", "two")
    assert tree(tmp_path) == {"log": "één\ntwo\n".encode()}
    assert events == [("flush", os.stat(tmp_path / "log").st_ino)]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "cannot save: No space left on device"),
        (OSError("odd"), "cannot save: odd"),
    ],
)
def test_an_os_error_becomes_a_storage_error(error: OSError, message: str) -> None:
    with pytest.raises(StorageError, match=f"^{message}$") as caught, files.storage_errors("save"):
        raise error
    assert caught.value.exit_code == 6


def test_file_above_the_size_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert files.read(path, limit=5) == b"12345"
    with pytest.raises(CheckpointError, match=r"damaged: .*5 bytes, more than it can need"):
        files.read(path, limit=4)


def test_special_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder", "missing", "file/below"):
        with pytest.raises(CheckpointError, match=f"cannot read .*{name}: ") as caught:
            files.read(tmp_path / name, limit=100)
        assert caught.value.exit_code == 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["step", ".tmp-step", ".trash-step"])
def test_pipe_in_place_of_a_folder_is_replaced(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    files.commit_folder(tmp_path / "step", [("a", b"1")])
    files.commit_folder(tmp_path / "step", [("a", b"2")])
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    assert (tmp_path / "step" / "a").read_bytes() == b"2"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        files.read(tmp_path / "pipe", limit=10)


def test_output_keeps_permissions_and_links_of_an_existing_file(tmp_path: Path) -> None:
    there, other, link = (tmp_path / name for name in ("there", "other", "link"))
    there.write_bytes(b"the old text, which is longer")
    there.chmod(0o600)
    os.link(there, other)
    link.symlink_to(there)
    files.write_output(link, b"new")
    assert link.is_symlink()
    assert there.stat().st_mode & 0o777 == 0o600
    assert other.read_bytes() == there.read_bytes() == b"new"
    files.write_output(there, b"longer than before")
    assert other.read_bytes() == b"longer than before"


def test_new_output_file_appears_complete(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "new")
    files.write_output(link, b"text")
    assert tree(tmp_path) == {"link": b"text", "new": b"text"}
    assert link.is_symlink()
    with pytest.raises(FileNotFoundError):
        files.write_output(tmp_path / "no" / "folder", b"text")


@pytest.mark.parametrize("call", ["open", "posix_fallocate"])
def test_failed_output_keeps_the_old_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    there.write_bytes(b"old")
    with monkeypatch.context() as patch:
        failing_at(patch, call, 1)
        with pytest.raises(OSError, match="No space left"):
            files.write_output(there, b"much longer")
    assert tree(tmp_path) == {"there": b"old"}


def test_output_works_on_a_disk_without_preallocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    there = tmp_path / "there"
    there.write_bytes(b"old")
    files.write_output(there, b"much longer")
    assert there.read_bytes() == b"much longer"
