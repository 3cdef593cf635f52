"""Atomic files: whole or absent, flushed before renaming."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from gpt.errors import CheckpointError
from gpt.storage import files

CONTENTS = {"a": b"first", "b": b"second", "c": b"last"}


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, including hidden ones."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


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


def test_a_file_is_flushed_before_it_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    events = journal(monkeypatch)
    files.replace(tmp_path / "a", b"new")
    file, folder = os.stat(tmp_path / "a").st_ino, os.stat(tmp_path).st_ino
    assert events == [("flush", file), ("rename", file), ("flush", folder)]
    assert tree(tmp_path) == {"a": b"new"}


def test_a_folder_and_its_files_are_flushed_before_renaming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = journal(monkeypatch)
    target = tmp_path / "step-1"
    files.commit_folder(target, CONTENTS)
    inodes = [os.stat(target / name).st_ino for name in CONTENTS]
    folder, parent = os.stat(target).st_ino, os.stat(tmp_path).st_ino
    flushes = [("flush", inode) for inode in [*inodes, folder]]
    assert events == [*flushes, ("rename", folder), ("flush", parent)]
    before = tree(tmp_path)
    assert before == {f"step-1/{name}": data for name, data in CONTENTS.items()}
    with pytest.raises(OSError, match="not empty"):
        files.commit_folder(target, {"a": b"other"})
    assert tree(tmp_path) == before


def test_appended_bytes_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.append(tmp_path / "log", b"one\n")
    events = journal(monkeypatch)
    files.append(tmp_path / "log", b"two\n")
    assert tree(tmp_path) == {"log": b"one\ntwo\n"}
    assert events == [("flush", os.stat(tmp_path / "log").st_ino)]


def test_what_is_no_file_or_missing_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read(tmp_path / "a") == b"12345"
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("missing", "", "a/below", "endless"):
        with pytest.raises(CheckpointError, match=f"cannot read {tmp_path / name}: ") as caught:
            files.read(tmp_path / name)
        assert caught.value.exit_code == 4


def test_only_temporary_files_that_were_abandoned_are_removed(tmp_path: Path) -> None:
    with files.replace_in_pieces(tmp_path / "ids") as write:
        write(b"half")
        (mine,) = tmp_path.iterdir()
        old, foreign = mine.with_name(f"{mine.name}0"), tmp_path / ".tmp-mine"
        for path in (old, foreign):
            path.write_bytes(b"old")
            os.utime(path, (0, time.time() - 2 * files.STALE))
        files.delete_abandoned(tmp_path)
        assert {*tmp_path.iterdir()} == {mine, foreign}
    assert tree(tmp_path) == {"ids": b"half", ".tmp-mine": b"old"}
