"""Files that survive: whole or not at all, even if the power goes.

Every byte that a run must not lose goes through these few operations: write, flush to the disk,
then rename into place, then flush the folder (the order of SQLite and LevelDB). Knows no formats.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from gpt.errors import CheckpointError, StorageError


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turns an OSError inside the block into StorageError "cannot <doing>: <reason>".

    The ValueError that Python raises for a name with a NUL character becomes one as well.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"cannot {doing}: {reason}") from error
    except ValueError as error:
        if "embedded null" not in str(error):
            raise
        raise StorageError(f"cannot {doing}: the name has a NUL character") from error


Write = Callable[[bytes | memoryview], None]


def _temporary(folder: Path) -> Path:
    return folder / f".tmp-{uuid.uuid4().hex}"


def temporary(folder: Path) -> Path:
    """A new file to be filled with `writing_at` and kept with `keep`, in a folder that is made.

    Raises StorageError.
    """
    with storage_errors(f"write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        path = _temporary(folder)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        return path


@contextmanager
def writing_at(path: Path, position: int) -> Iterator[Write]:
    """Overwrites a part of a file in pieces; nothing is flushed. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
    try:
        os.lseek(descriptor, position, os.SEEK_SET)
        yield partial(_write_all, descriptor)
    finally:
        os.close(descriptor)


def discard(path: Path) -> None:
    """Takes a temporary file away, if that can be done; a later encoding sweeps up what stays."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """What was written so far is on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep(temporary: Path, path: Path) -> None:
    """Flushes a file to the disk and gives it another's place. Raises OSError."""
    flush(temporary)
    os.replace(temporary, path)
    sync_folder(path.parent)


@contextmanager
def created(path: Path) -> Iterator[Write]:
    """A file that does not exist yet, to be written in pieces; at the end it is on the disk.

    Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        yield partial(_write_all, descriptor)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Every byte, although the system may take fewer at a time."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def write(path: Path, data: bytes) -> None:
    """Writes a file that does not exist yet, through to the disk. Raises OSError."""
    with created(path) as append:
        append(data)


@contextmanager
def replacing(path: Path) -> Iterator[Write]:
    """Writes or replaces a file in pieces; readers see the old bytes or the new, nothing between.

    Raises OSError, and what the block raises; then the old file is as it was.
    """
    temporary = _temporary(path.parent)
    try:
        with created(temporary) as append:
            yield append
        os.replace(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    sync_folder(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Writes or replaces a file in one piece. Raises OSError."""
    with replacing(path) as append:
        append(data)


def output(path: Path, data: bytes) -> None:
    """Writes an output file that the user named, as a shell's `>` does. Raises OSError.

    A new file appears whole. An existing file keeps its permissions, owner, hard links and the
    links to it; a device or a pipe is written to. An existing file does not change if permission
    or disk space is missing.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        replace(Path(os.path.realpath(path)), data)
        return
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _reserve(descriptor, len(data))
            _write_all(descriptor, data)
            os.ftruncate(descriptor, len(data))
        else:
            _write_all(descriptor, data)
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, size: int) -> None:
    """Reserves disk space for `size` bytes before any old byte is overwritten.

    Raises OSError if the disk is full; does nothing if the system or disk cannot reserve space.
    """
    before = os.fstat(descriptor).st_size
    if size <= before or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(descriptor, before, size - before)
    except OSError as error:
        os.ftruncate(descriptor, before)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise


def commit_folder(target: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Makes the folder `target` with these files, whole or not at all. Raises OSError.

    The files are written in order, so the last one can vouch for the others. A folder that already
    has the name is set aside first.
    """
    temporary = target.with_name(f".tmp-{target.name}")
    _remove(temporary)
    try:
        temporary.mkdir()
        for name, data in contents:
            write(temporary / name, data)
        sync_folder(temporary)
        old = _take_place(temporary, target)
    except BaseException:
        _remove(temporary)
        raise
    sync_folder(target.parent)
    if old is not None:
        _remove(old)


def _take_place(new: Path, target: Path) -> Path | None:
    """Renames `new` to `target`; what had the name comes back if that fails.

    Returns where the old folder is now, if there was one.
    """
    if not os.path.exists(target):
        os.rename(new, target)
        return None
    old = _trash(target)
    os.rename(target, old)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(old, target)
        raise
    return old


def _trash(path: Path) -> Path:
    trash = path.with_name(f".trash-{path.name}")
    _remove(trash)
    return trash


def _remove(path: Path) -> None:
    """Removes a folder, or whatever has its name: rmtree would wait for a pipe. Ignores errors."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        discard(path)


def remove_folder(path: Path) -> None:
    """Takes a folder away: out of sight by one rename, then deleted.

    The new name is flushed first: after a power failure, no half of it stands under the old one.
    """
    trash = _trash(path)
    os.rename(path, trash)
    sync_folder(path.parent)
    _remove(trash)


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
    """Adds one line to a log and flushes it to the disk. Raises OSError, also for a link.

    A last line that a crash has torn is ended first, so that it spoils nothing but itself.
    """
    descriptor = _open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        os.lseek(descriptor, max(0, size - 1), os.SEEK_SET)
        torn = os.read(descriptor, 1) not in (b"", b"\n")
        _write_all(descriptor, b"\n" * torn + line.encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_note(path: Path, text: str) -> None:
    """Overwrites a short, unimportant file in place. Raises OSError, also for a link."""
    descriptor = _open_plain(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.ftruncate(descriptor, 0)
        _write_all(descriptor, text.encode())
    finally:
        os.close(descriptor)


def read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes, never through a link.

    Raises CheckpointError when it is missing, a link, too large or unreadable.
    """
    try:
        descriptor = _open_plain(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            if size > limit:
                raise CheckpointError(f"damaged: {path} has {size:,} bytes, more than it can need")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def check_plain(path: Path) -> None:
    """Raises OSError if `path` exists and is not a regular file, for example a link."""
    with suppress(FileNotFoundError):
        os.close(_open_plain(path, os.O_RDONLY))


def _open_plain(path: Path, flags: int) -> int:
    """Opens a regular file; does not follow a link or wait for a pipe. Raises OSError.

    A run may come from somebody else: a link in it could point to any file of the user.
    """
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and gptx opens no links in a run") from None
        if error.errno == errno.ENXIO:  # a pipe without a reader
            raise OSError(errno.EINVAL, "it is not a regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return descriptor
