"""Writes files and folders whole or not at all, even if the power fails.

The order is that of SQLite and LevelDB: write, flush to the disk, rename into place, flush the
folder. Knows no file formats.
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
Write = Callable[..., None]  # _write_all for one descriptor: (data), or (data, position)


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turns an OSError inside the block into StorageError "cannot <doing>: <reason>"."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError) and doing.startswith("write "):
            reason = "its folder does not exist; make it first"
        raise StorageError(f"cannot {doing}: {reason}") from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """Opens a file or folder and closes its descriptor at the end. Raises OSError."""
    descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | memoryview, position: int | None = None) -> None:
    """Writes every byte; the system may take fewer at a time.

    position: where in the file to write the first byte; None: after what was written before.
    """
    if position is not None:
        os.lseek(descriptor, position, os.SEEK_SET)
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@contextmanager
def _created(path: Path) -> Iterator[Write]:
    """Opens a new file to write in pieces; at the end flushes it to the disk. Raises OSError."""
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        yield partial(_write_all, descriptor)
        os.fsync(descriptor)


def write(path: Path, data: bytes) -> None:
    """Writes a new file and flushes it to the disk. Raises OSError."""
    with _created(path) as append:
        append(data)


def _sync_folder(path: Path) -> None:
    """Flushes a folder's entries; systems that cannot open folders (Windows) do it themselves."""
    if os.name != "nt":
        with _opened(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)


def discard(path: Path) -> None:
    """Deletes a file or folder if possible."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """A new name in the same folder."""
    return path.with_name(f"{TEMPORARY}{os.urandom(8).hex()}-{path.name}")


@contextmanager
def replace_in_pieces(path: Path) -> Iterator[Write]:
    """Writes or replaces a file in pieces; readers see either the old bytes or the new ones.

    Raises OSError, and any error of the block; then the old file is unchanged.
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
    """Writes or replaces a file in one piece. Raises OSError."""
    with replace_in_pieces(path) as append:
        append(data)


def sweep(folder: Path, age: float = STALE) -> None:
    """Removes temporary files and folders that are older than `age` seconds."""
    with suppress(OSError):
        for path in folder.glob(f"{TEMPORARY}*"):
            if path.stat().st_mtime <= time.time() - age:
                discard(path)


def save(path: Path, data: bytes) -> Path:
    """Writes a file that a user has named, and returns its path. Raises StorageError."""
    with storage_errors(f"write {path}"):
        path.write_bytes(data)
    return path


def append(path: Path, data: bytes) -> None:
    """Adds bytes to a file and flushes it to the disk. Raises OSError."""
    with _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
        _write_all(descriptor, data)
        os.fsync(descriptor)


def check_regular(path: Path) -> None:
    """Raises OSError for a pipe, which would block, and for a device, which may never end."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")


def read(path: Path) -> bytes:
    """Raises CheckpointError if the file is missing, unreadable or no regular file."""
    try:
        check_regular(path)
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def commit_folder(target: Path, contents: Mapping[str, bytes]) -> None:
    """Makes the folder `target` with all of these files, or leaves nothing. Raises OSError, also if
    there is a folder with files at `target`.
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
    """Renames a folder and flushes the new name to the disk. Raises OSError."""
    os.rename(path, target)
    _sync_folder(path.parent)
