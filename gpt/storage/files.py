"""Writes files and folders as a whole or not at all, even if the power fails.

It takes four steps in the order of SQLite and LevelDB: write under a temporary name, flush the
bytes to the disk, rename, flush the folder. This module knows no file formats.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from gpt.errors import CheckpointError, StorageError

STALE = 24 * 3600.0  # seconds after which a temporary file counts as abandoned
TEMPORARY = ".tmp-gptx-"  # how the names of temporary files and folders begin
Write = Callable[..., None]  # a call writes `data` to an open file: (data) or (data, position)


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turns an OSError in the block into StorageError("cannot <doing>: <reason>")."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError) and doing.startswith("write "):
            reason = "its folder does not exist; make it first"
        raise StorageError(f"cannot {doing}: {reason}") from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Opens a file or folder, and closes it after the block. Raises OSError."""
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | memoryview, position: int | None = None) -> None:
    """Writes all bytes, in several calls if the system takes only some at once. position: where in
    the file to write the first byte; None: after the bytes written before.
    """
    if position is not None:
        os.lseek(descriptor, position, os.SEEK_SET)
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(descriptor, remaining) :]


@contextmanager
def _created(path: Path) -> Iterator[Write]:
    """Makes a file that the block writes in pieces; then flushes it to the disk. Raises OSError."""
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        yield partial(_write_all, descriptor)
        os.fsync(descriptor)


def write(path: Path, data: bytes) -> None:
    """Writes a new file and flushes it to the disk. Raises OSError."""
    with _created(path) as append:
        append(data)


def _sync_folder(path: Path) -> None:
    """Flushes a folder's list of names to the disk. Windows does this by itself."""
    if os.name != "nt":
        with _opened(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)


def discard(path: Path) -> None:
    """Deletes a file or a folder with its content; ignores errors."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """A new temporary path in the folder of `path`."""
    return path.with_name(f"{TEMPORARY}{os.urandom(8).hex()}-{path.name}")


@contextmanager
def replace_in_pieces(path: Path) -> Iterator[Write]:
    """Makes or replaces a file that the block writes in pieces. Readers see the old file or the
    whole new file. Raises OSError and any error of the block; the old file is then unchanged.
    """
    temporary = _temporary(path)
    try:
        with _created(temporary) as append:
            yield append
        with suppress(FileNotFoundError):
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    _sync_folder(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Makes or replaces a file, as replace_in_pieces does. Raises OSError."""
    with replace_in_pieces(path) as append:
        append(data)


def delete_abandoned(folder: Path, age: float = STALE) -> None:
    """Removes temporary files and folders that are older than `age` seconds."""
    with suppress(OSError):
        for path in folder.glob(f"{TEMPORARY}*"):
            if path.stat().st_mtime <= time.time() - age:
                discard(path)


def save(path: Path, data: bytes) -> Path:
    """Writes a file at a path that a user chose, and returns the path. Raises StorageError."""
    with storage_errors(f"write {path}"):
        path.write_bytes(data)
    return path


def append(path: Path, data: bytes) -> None:
    """Adds bytes to a file and flushes it to the disk. Raises OSError."""
    with _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
        _write_all(descriptor, data)
        os.fsync(descriptor)


def check_regular_file(path: Path) -> None:
    """Raises OSError for a pipe, which would block, and for a device, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")


def read(path: Path) -> bytes:
    """The bytes of a file. Raises CheckpointError if it is missing, unreadable or not regular."""
    try:
        check_regular_file(path)
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def commit_folder(target: Path, contents: Mapping[str, bytes]) -> None:
    """Makes the folder `target` with files (name -> content), or leaves nothing. Raises OSError,
    also if `target` is a folder with files.
    """
    temporary = _temporary(target)
    try:
        temporary.mkdir()
        for name, data in contents.items():
            write(temporary / name, data)
        _sync_folder(temporary)
        rename_folder(temporary, target)
    except BaseException:
        discard(temporary)
        raise


def rename_folder(path: Path, target: Path) -> None:
    """Renames a folder, and flushes its parent folder to the disk. Raises OSError."""
    os.rename(path, target)
    _sync_folder(path.parent)
