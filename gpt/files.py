"""Files that survive: whole or not at all, even if the power goes.

Every byte that a run must not lose goes through these few operations: write, flush to the disk,
then rename into place, then flush the folder (the order of SQLite and LevelDB). Knows no formats.
"""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpt.errors import CheckpointError, StorageError


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turns an OSError inside the block into StorageError "cannot <doing>: <reason>"."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"cannot {doing}: {reason}") from error


def write(path: Path, data: bytes) -> None:
    """Writes a file that does not exist yet, through to the disk. Raises OSError."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes) -> None:
    """Writes or replaces a file; readers see the old bytes or the new, nothing between."""
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        write(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def commit_folder(target: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Makes the folder `target` with these files, whole or not at all. Raises OSError.

    The files are written in order, so the last one can vouch for the others. A folder that already
    has the name is set aside first.
    """
    temporary = target.with_name(f".tmp-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        for name, data in contents:
            write(temporary / name, data)
        sync_folder(temporary)
        _take_place(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(target.parent)


def _take_place(new: Path, target: Path) -> None:
    """Renames `new` to `target`; what had the name goes, or comes back if that fails."""
    if not target.exists():
        os.rename(new, target)
        return
    old = _trash(target)
    os.rename(target, old)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _trash(path: Path) -> Path:
    trash = path.with_name(f".trash-{path.name}")
    shutil.rmtree(trash, ignore_errors=True)
    return trash


def remove_folder(path: Path) -> None:
    """Takes a folder away: out of sight by one rename, then deleted."""
    trash = _trash(path)
    os.rename(path, trash)
    shutil.rmtree(trash, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Flushes a folder's entries; systems that cannot open folders (Windows) do it themselves."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, line: str) -> None:
    """Adds one line to a log and flushes it to the disk. Raises OSError.

    A last line that a crash has torn is ended first, so that it spoils nothing but itself.
    """
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes, never through a link.

    Raises CheckpointError when it is missing, a link, too large or unreadable.
    """
    try:
        flags = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
        descriptor = os.open(path, os.O_RDONLY | sum(flags))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"cannot read {path}: not a file")
            size = status.st_size
            if size > limit:
                raise CheckpointError(f"damaged: {path} has {size:,} bytes, more than it can need")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
