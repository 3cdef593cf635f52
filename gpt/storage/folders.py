"""Creates and deletes folders as a whole, even if the power fails."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path

from gpt.storage import files


def commit(target: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """Makes the folder `target` with all of these files, or not at all. Raises OSError.

    The files are written in order, so if the last one is there, so are the others. A folder that
    already has the name is renamed first.
    """
    temporary = target.with_name(f".tmp-{target.name}")
    discard(temporary)
    try:
        temporary.mkdir()
        for name, data in contents:
            files.write(temporary / name, data)
        files.sync_folder(temporary)
        old = _take_place(temporary, target)
    except BaseException:
        discard(temporary)
        raise
    files.sync_folder(target.parent)
    if old is not None:
        discard(old)


def fill(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Writes or replaces these files of a folder, which is made if it does not exist; others stay.

    All are written under temporary names first: if one cannot be written, nothing changes. Raises
    OSError.
    """
    if not os.path.lexists(folder):
        commit(folder, contents.items())
        return
    for name in contents:
        if os.path.isdir(folder / name):
            raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
    written: list[tuple[Path, Path]] = []
    try:
        for name, data in contents.items():
            written.append((folder / f".tmp-{uuid.uuid4().hex}", folder / name))
            files.write(written[-1][0], data)
        for temporary, path in written:
            os.replace(temporary, path)
    except BaseException:
        for temporary, _ in written:
            files.discard(temporary)
        raise
    files.sync_folder(folder)


def _take_place(new: Path, target: Path) -> Path | None:
    """Renames `new` to `target`; if that fails, an older folder of that name keeps it.

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
    discard(trash)
    return trash


def discard(path: Path) -> None:
    """Removes a folder, or a file of that name: rmtree would wait for a pipe. Ignores errors."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        files.discard(path)


def rename(path: Path, target: Path) -> None:
    """Renames a folder to TARGET or, if that exists, TARGET-2, TARGET-3, … Raises OSError."""
    free, others = target, (target.with_name(f"{target.name}-{n}") for n in count(2))
    while os.path.lexists(free):
        free = next(others)
    os.rename(path, free)
    files.sync_folder(path.parent)


def remove(path: Path) -> None:
    """Removes a folder: renames it, then deletes it. Raises OSError.

    The renaming is flushed to the disk first, so that a power failure leaves no partial folder
    under the old name.
    """
    trash = _trash(path)
    os.rename(path, trash)
    files.sync_folder(path.parent)
    discard(trash)
