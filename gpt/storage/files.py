"""Writes files and folders whole or not at all, even if the power fails.

The order is that of SQLite and LevelDB: write, flush to the disk, rename into place, flush the
folder. Knows no file formats.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import stat
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

from gpt.errors import CheckpointError, StorageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STALE = 24 * 3600.0  # seconds after which a temporary file counts as abandoned
#: How the names of temporary files begin; the digits identify this machine.
TEMPORARY = f".tmp-{zlib.crc32(platform.node().encode()):08x}"
_LEFT_BEHIND = re.compile(r"\.tmp-[0-9a-f]{32}")


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turns an OSError inside the block into StorageError "cannot <doing>: <reason>".

    The ValueError that Python raises for a name with a NUL character becomes a StorageError, too.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError) and doing.startswith("write "):
            reason = "its folder does not exist; make it first"
        raise StorageError(f"cannot {doing}: {reason}") from error
    except ValueError as error:
        if "embedded null" not in str(error):
            raise
        raise StorageError(f"cannot {doing}: the name has a NUL character") from error


Write = Callable[..., None]  # _write_all for one descriptor: (data), or (data, position)


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


def discard(path: Path) -> None:
    """Deletes a temporary file if possible; otherwise a later encoding deletes it."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


@contextmanager
def create_file(path: Path) -> Iterator[Write]:
    """Opens a new file to write in pieces; at the end flushes it to the disk. Raises OSError."""
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        yield partial(_write_all, descriptor)
        os.fsync(descriptor)


def write(path: Path, data: bytes) -> None:
    """Writes a new file and flushes it to the disk. Raises OSError."""
    with create_file(path) as append:
        append(data)


@contextmanager
def replace_in_pieces(path: Path) -> Iterator[Write]:
    """Writes or replaces a file in pieces; readers see either the old bytes or the new ones.

    Raises OSError, and any error of the block; then the old file is unchanged.
    """
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex[8:]}")
    try:
        with create_file(temporary) as write:
            yield write
        os.replace(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    sync_folder(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Writes or replaces a file in one piece. Raises OSError."""
    with replace_in_pieces(path) as write:
        write(data)


def write_output(path: Path, data: bytes) -> None:
    """Writes an output file that the user named, as a shell's `>` does. Raises OSError.

    A new file appears only when it is complete. An existing file keeps its permissions, owner, hard
    links and symbolic links to it; a device or a pipe is written to. If permission or disk space is
    missing, an existing file does not change.
    """
    try:
        with _opened(path, os.O_WRONLY) as descriptor:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            if regular:
                _reserve(descriptor, len(data))
            _write_all(descriptor, data)
            if regular:
                os.ftruncate(descriptor, len(data))
    except FileNotFoundError:
        replace(Path(os.path.realpath(path)), data)


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


def sync_folder(path: Path) -> None:
    """Flushes a folder's entries; systems that cannot open folders (Windows) do it themselves."""
    if os.name != "nt":
        with _opened(path, os.O_RDONLY) as descriptor:
            os.fsync(descriptor)


def append_line(path: Path, line: str, flush: bool = True) -> None:
    """Adds one line to a log and, with `flush`, flushes the log to the disk. Raises OSError, also
    if the log is a link.

    If a crash left an incomplete last line, this line is ended first, so that the new line stays
    readable.
    """
    with _opened_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        os.lseek(descriptor, max(0, size - 1), os.SEEK_SET)
        torn = os.read(descriptor, 1) not in (b"", b"\n")
        _write_all(descriptor, b"\n" * torn + line.encode() + b"\n")
        if flush:
            os.fsync(descriptor)


def write_note(path: Path, text: str) -> None:
    """Overwrites a short, unimportant file in place. Raises OSError, also if it is a link."""
    with _opened_plain(path, os.O_WRONLY | os.O_CREAT) as descriptor:
        os.ftruncate(descriptor, 0)
        _write_all(descriptor, text.encode())


def read(path: Path, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; links are not followed.

    Raises CheckpointError if it is missing, a link, too large or unreadable.
    """
    try:
        with _opened_plain(path, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > limit:
                raise CheckpointError(f"damaged: {path} has {size:,} bytes, more than it can need")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error


def check_plain(path: Path) -> None:
    """Raises OSError if `path` exists and is not a regular file, for example a link."""
    with suppress(FileNotFoundError), _opened_plain(path, os.O_RDONLY):
        pass


@contextmanager
def _opened_plain(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of a regular file; does not follow links or wait for pipes. Raises OSError.

    A run may come from another person: a link in it could point to any file of the user.
    """
    for name in ("O_NOFOLLOW", "O_NONBLOCK"):
        flags |= getattr(os, name, 0)
    try:
        with _opened(path, flags) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            yield descriptor
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and gptx opens no links in a run") from None
        if error.errno == errno.ENXIO:  # a pipe without a reader
            raise OSError(errno.EINVAL, "it is not a regular file") from None
        raise


@contextmanager
def writing_folder(folder: Path) -> Iterator[None]:
    """Makes the folder; in the block, `sweep` keeps its temporary files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, wait=True):
        yield


def sweep(folder: Path) -> None:
    """Removes temporary files (see `replace_in_pieces`) that no process will finish; other files
    stay. Files of other machines count only if they are old; while a process writes here, all must
    be old.
    """
    old = time.time() - STALE
    with suppress(OSError), _locked(folder, wait=False) as alone:
        for path in folder.iterdir():
            mine = alone and path.name.startswith(TEMPORARY)
            if _LEFT_BEHIND.fullmatch(path.name) and (mine or path.lstat().st_mtime < old):
                discard(path)


@contextmanager
def _locked(folder: Path, wait: bool) -> Iterator[bool]:
    """Locks a folder and yields whether it could. wait: waits for a shared lock; otherwise tries at
    once to get an exclusive one. Yields False on systems and disks without such locks. Raises
    OSError.
    """
    if fcntl is None:
        yield False
        return
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except OSError:
            locked = False
        yield locked


def commit_folder(target: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Makes the folder `target` with all of these files, or leaves nothing. Raises OSError.

    The files are written in order, so if the last file is there, so are the others. An existing
    folder with this name is renamed first.
    """
    temporary = target.with_name(f".tmp-{target.name}")
    discard_folder(temporary)
    try:
        temporary.mkdir()
        for name, data in contents:
            write(temporary / name, data)
        sync_folder(temporary)
        old = _take_place(temporary, target)
    except BaseException:
        discard_folder(temporary)
        raise
    sync_folder(target.parent)
    if old is not None:
        discard_folder(old)


def fill_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes or replaces these files of a folder and makes the folder if needed; other files
    stay.

    All files are written under temporary names first: if one cannot be written, nothing changes.
    Raises OSError.
    """
    if not os.path.lexists(folder):
        commit_folder(folder, contents.items())
        return
    for name in contents:
        if os.path.isdir(folder / name):
            raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
    written: list[tuple[Path, Path]] = []
    try:
        for name, data in contents.items():
            written.append((folder / f".tmp-{uuid.uuid4().hex}", folder / name))
            write(written[-1][0], data)
        for temporary, path in written:
            os.replace(temporary, path)
    except BaseException:
        for temporary, _ in written:
            discard(temporary)
        raise
    sync_folder(folder)


def _take_place(new: Path, target: Path) -> Path | None:
    """Renames `new` to `target`; if that fails, an old folder at `target` stays there.

    Returns the new path of the old folder, if there was one.
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
    discard_folder(trash)
    return trash


def discard_folder(path: Path) -> None:
    """Removes a folder, or a file with this name: rmtree would wait for a pipe. Ignores errors."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        discard(path)


def rename_folder(path: Path, target: Path) -> None:
    """Renames a folder to TARGET or, if that exists, TARGET-2, TARGET-3, … Raises OSError."""
    free, others = target, (target.with_name(f"{target.name}-{n}") for n in count(2))
    while os.path.lexists(free):
        free = next(others)
    os.rename(path, free)
    sync_folder(path.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder: renames it, then deletes it. Raises OSError.

    The renaming is flushed to the disk first, so that a power failure leaves no partial folder
    under the old name.
    """
    trash = _trash(path)
    os.rename(path, trash)
    sync_folder(path.parent)
    discard_folder(trash)
