"""Simulates a disk that fails, or a process that is killed, at a chosen operation.

Every operation below a folder, other than reading a file, goes through `Disk`, which numbers them.
What a power failure could take is read off the list of operations: `unflushed`. Linux only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any, NamedTuple


class Killed(BaseException):
    """No operation comes after this."""


class Operation(NamedTuple):
    """One operation: its name, the path below the root, and the new name or the number of bytes."""

    name: str
    path: str
    other: str = ""
    size: int = 0


class Disk:
    """Counts the operations below `root`; the operation with number `at` has the fault."""

    def __init__(self, root: Path, at: int | None = None, fault: str = "") -> None:
        self.root, self.at, self.fault = root.resolve(), at, fault
        self.log: list[Operation] = []
        self._is_dead = False
        self._paths: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in _NAMES}

    @contextmanager
    def watching(self) -> Iterator[Disk]:
        """Every operation of the block goes through this disk."""
        for name in _NAMES:
            setattr(os, name, getattr(self, f"_{name}"))
        try:
            yield self
        finally:
            for name, real in self._real.items():
                setattr(os, name, real)

    def _below(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path from the root, if it lies below it."""
        text = os.fsdecode(path)
        if dir_fd is not None:
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        text = os.path.abspath(text)
        inside = text == str(self.root) or text.startswith(f"{self.root}{os.sep}")
        return os.path.relpath(text, self.root) if inside else None

    def _do(self, operation: Operation, real: Callable[[], Any]) -> Any:
        fault = self.fault if len(self.log) == self.at else ""
        if fault == "killed" or self._is_dead:
            self._is_dead = True
            raise Killed
        self.log.append(operation)
        if fault == "ENOSPC":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real()

    def _write(self, descriptor: int, data: Any) -> int:
        if descriptor not in self._paths:
            return int(self._real["write"](descriptor, data))
        fault = self.fault if len(self.log) == self.at else ""
        if fault in ("short", "torn", "cut"):
            data = bytes(data)[: len(data) // 2]
        operation = Operation("write", self._paths[descriptor], size=len(data))
        written: int = self._do(operation, lambda: self._real["write"](descriptor, data))
        if fault == "torn":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault == "cut":
            self._is_dead = True
            raise Killed
        return written

    def _open(self, path: Any, flags: int, *rest: Any, dir_fd: int | None = None) -> int:
        def real() -> int:
            return int(self._real["open"](path, flags, *rest, dir_fd=dir_fd))

        below = self._below(path, dir_fd)
        is_reading = flags & (os.O_WRONLY | os.O_RDWR) == 0
        if below is None or (is_reading and not os.path.isdir(self.root / below)):
            return real()
        is_new = flags & os.O_CREAT and not os.path.exists(self.root / below)
        descriptor: int = self._do(Operation("create" if is_new else "open", below), real)
        self._paths[descriptor] = below
        return descriptor

    def _fsync(self, descriptor: int) -> None:
        if descriptor in self._paths:  # a real flush would be slow
            self._do(Operation("fsync", self._paths[descriptor]), lambda: None)

    def _close(self, descriptor: int) -> None:
        self._real["close"](descriptor)  # Linux closes it even if close fails, or the process dies
        path = self._paths.pop(descriptor, None)
        if path is not None and not self._is_dead:
            self._do(Operation("close", path), lambda: None)

    def _of_path(self, name: str, path: Any, *rest: Any, dir_fd: int | None = None) -> None:
        def real() -> None:
            self._real[name](path, *rest, dir_fd=dir_fd)

        below = self._below(path, dir_fd)
        if below is None:
            real()
        else:
            self._do(Operation(name, below), real)

    _mkdir = partialmethod(_of_path, "mkdir")
    _unlink = partialmethod(_of_path, "unlink")
    _rmdir = partialmethod(_of_path, "rmdir")

    def _rename(self, source: Any, target: Any) -> None:
        old, new = self._below(source), self._below(target)
        if old is None or new is None:
            self._real["replace"](source, target)
        else:
            operation = Operation("rename", old, other=new)
            self._do(operation, lambda: self._real["replace"](source, target))

    _replace = _rename


_NAMES = ("open", "write", "fsync", "close", "mkdir", "unlink", "rmdir", "rename", "replace")


def fault_points(log: list[Operation]) -> Iterator[tuple[int, str]]:
    """Each operation with each fault that it can have: the disk is full; the process is killed
    before it, or halfway through a write (cut); a write stores half of its data without an error
    (short) or with one (torn).
    """
    for number, operation in enumerate(log):
        yield number, "ENOSPC"
        if operation.name != "close":  # it changes nothing on the disk
            yield number, "killed"
        if operation.name == "write" and operation.size > 1:
            for fault in ("short", "torn", "cut"):
                yield number, fault


def unflushed(log: list[Operation]) -> list[str]:
    """What a power failure could take: data and names that were not flushed before their file or
    folder got its name, and new names that were not flushed before something was deleted or at the
    end.
    """
    data, names, lost = set[str](), set[str](), list[str]()
    for operation in log:
        path, folder = operation.path, os.path.dirname(operation.path) or "."
        if operation.name in ("create", "write"):
            data.add(path)
        if operation.name in ("create", "mkdir"):
            data.add(folder)
        if operation.name == "fsync":
            data.discard(path)
            names.discard(path)
        if operation.name == "rename":
            lost += [name for name in data if name == path or name.startswith(f"{path}/")]
            names.add(os.path.dirname(operation.other) or ".")
        if operation.name in ("unlink", "rmdir"):
            lost += sorted(names)
    return lost + sorted(names)
