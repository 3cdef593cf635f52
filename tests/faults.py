"""Simulates a disk that fails at a chosen operation.

Every operation below a folder, other than reading a file, goes through `Disk`, which numbers them:
it can let one fail as a full or broken disk does, or write only a part of the data. Its log can be
replayed up to any operation, to get the folder as a killed process leaves it, or as a power failure
does: data that was never flushed is missing. For tests on Linux only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

#: How an operation fails: the disk is full (ENOSPC). A write may also fail (EIO), or store half of
#: its data, without an error (short) or with one (torn).
FAULTS = ("ENOSPC", "EIO", "short", "torn")


@dataclass(frozen=True)
class Operation:
    """One operation: its name, the path, and the new name or the data written."""

    name: str
    path: str
    other: str = ""
    data: bytes = b""
    at: int = 0  # position of the data in the file

    def __str__(self) -> str:
        to = f" -> {self.other}" if self.other else f" {len(self.data)} bytes" * bool(self.data)
        return f"{self.name} {self.path}{to}"


class Disk:
    """Counts the operations below `root`; the operation with number `at` fails."""

    def __init__(self, root: Path, at: int | None = None, fault: str = "") -> None:
        self.root, self.at, self.fault = root.resolve(), at, fault
        self.log: list[Operation] = []
        self._count = 0
        self._open: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in _NAMES}

    @contextmanager
    def watching(self) -> Iterator[Disk]:
        """Records every operation of the block."""
        for name in _NAMES:
            setattr(os, name, getattr(self, _NAMES[name]))
        try:
            yield self
        finally:
            for name, real in self._real.items():
                setattr(os, name, real)

    def _below(self, path: Any, dir_fd: int | None) -> str | None:
        """The path from the root, if it lies below it."""
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if dir_fd is not None:
            text = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), text)
        text = os.path.abspath(text)
        inside = text == str(self.root) or text.startswith(f"{self.root}{os.sep}")
        return os.path.relpath(text, self.root) if inside else None

    def _do(self, operation: Operation, real: Callable[[], Any]) -> Any:
        self._count += 1
        fault = self.fault if self._count - 1 == self.at else ""
        if fault in ("ENOSPC", "EIO"):
            if operation.name == "close":  # Linux closes the descriptor even if close fails
                real()
            number = getattr(errno, fault)
            raise OSError(number, os.strerror(number))
        self.log.append(replace(operation, name=f"failed {operation.name}"))
        result = real()
        self.log[-1] = operation
        return result

    def _write(self, descriptor: int, data: Any) -> int:
        path = self._open.get(descriptor)
        if path is None:
            return int(self._real["write"](descriptor, data))
        fault = self.fault if self._count == self.at else ""
        data = bytes(data)
        if fault in ("short", "torn"):
            data = data[: len(data) // 2]
        operation = Operation("write", path, data=data, at=_position(descriptor))
        written: int = self._do(operation, lambda: self._real["write"](descriptor, data))
        if fault == "torn":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    def _open_file(self, path: Any, flags: int, *rest: Any, dir_fd: int | None = None) -> int:
        def real() -> int:
            return int(self._real["open"](path, flags, *rest, dir_fd=dir_fd))

        below = self._below(path, dir_fd)
        reading = flags & (os.O_WRONLY | os.O_RDWR) == 0
        if below is None or (reading and not os.path.isdir(self.root / below)):
            return real()
        new = flags & os.O_CREAT and not os.path.exists(self.root / below)
        descriptor: int = self._do(Operation("create" if new else "open", below), real)
        self._open[descriptor] = below
        return descriptor

    def _of_descriptor(self, name: str, descriptor: int) -> None:
        def real() -> None:
            if name != "fsync":  # a real flush would be slow, and lost data is simulated
                self._real[name](descriptor)

        path = self._open.get(descriptor)
        if path is None:
            return real()
        if name == "close":
            del self._open[descriptor]
        self._do(Operation(name, path), real)
        return None

    def _fsync(self, descriptor: int) -> None:
        self._of_descriptor("fsync", descriptor)

    def _close(self, descriptor: int) -> None:
        self._of_descriptor("close", descriptor)

    def _of_path(self, name: str, path: Any, *rest: Any, dir_fd: int | None = None) -> None:
        def real() -> None:
            self._real[name](path, *rest, dir_fd=dir_fd)

        below = self._below(path, dir_fd)
        if below is None:
            real()
        else:
            self._do(Operation(name, below), real)

    def _mkdir(self, path: Any, *rest: Any, **options: Any) -> None:
        self._of_path("mkdir", path, *rest, **options)

    def _unlink(self, path: Any, **options: Any) -> None:
        self._of_path("unlink", path, **options)

    def _rmdir(self, path: Any, **options: Any) -> None:
        self._of_path("rmdir", path, **options)

    def _moved(self, name: str, source: Any, target: Any) -> None:
        def real() -> None:
            self._real[name](source, target)

        old, new = self._below(source, None), self._below(target, None)
        if old is None or new is None:
            real()
        else:
            self._do(Operation("rename", old, other=new), real)

    def _rename(self, source: Any, target: Any) -> None:
        self._moved("rename", source, target)

    def _replace(self, source: Any, target: Any) -> None:
        self._moved("replace", source, target)


#: Function of `os` -> method that stands in for it.
_NAMES = {
    "open": "_open_file",
    "write": "_write",
    "fsync": "_fsync",
    "close": "_close",
    "mkdir": "_mkdir",
    "unlink": "_unlink",
    "rmdir": "_rmdir",
    "rename": "_rename",
    "replace": "_replace",
}


def _position(descriptor: int) -> int:
    """The position of the next byte to be written."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
        return os.fstat(descriptor).st_size
    return os.lseek(descriptor, 0, os.SEEK_CUR)


def operations(root: Path, action: Callable[[], int]) -> list[Operation]:
    """The operations of the action without a fault. The action runs in this process."""
    with Disk(root).watching() as disk:
        assert action() == 0
    return disk.log


def fault_points(log: list[Operation]) -> Iterator[tuple[int, str]]:
    """Each operation with each fault that it can have.

    An input/output error is raised as a full disk is, so writes are enough.
    """
    for number, operation in enumerate(log):
        for fault in FAULTS:
            if fault == "ENOSPC" or (operation.name == "write" and len(operation.data) > 1):
                yield number, fault


@dataclass
class _File:
    now: bytes = b""
    flushed: bytes = b""

    def write(self, at: int, data: bytes) -> None:
        self.now = self.now[:at].ljust(at, b"\0") + data + self.now[at + len(data) :]


@dataclass
class _Folder:
    now: dict[str, _File | _Folder] = field(default_factory=dict)
    flushed: dict[str, _File | _Folder] = field(default_factory=dict)


class Cache:
    """The possible contents of a folder after a kill or a power failure: a disk with a cache."""

    def __init__(self, start: Path) -> None:
        self._root = self._read(start)

    def _read(self, path: Path) -> _Folder:
        folder = _Folder()
        for entry in path.iterdir():
            if entry.is_dir():
                folder.now[entry.name] = self._read(entry)
            else:
                folder.now[entry.name] = _File(entry.read_bytes(), entry.read_bytes())
        folder.flushed = dict(folder.now)
        return folder

    def _find(self, path: str) -> Any:
        node: Any = self._root
        for part in Path(path).parts:
            node = node.now[part]
        return node

    def _place(self, path: str) -> tuple[dict[str, _File | _Folder], str]:
        return self._find(os.path.dirname(path)).now, os.path.basename(path)

    def apply(self, operation: Operation) -> None:
        """Applies one operation to the cache."""
        if operation.name == "fsync":
            node = self._find(operation.path)
            node.flushed = dict(node.now) if isinstance(node, _Folder) else node.now
        elif operation.name == "write":
            self._find(operation.path).write(operation.at, operation.data)
        elif operation.name in ("create", "mkdir"):
            names, name = self._place(operation.path)
            names[name] = _File() if operation.name == "create" else _Folder()
        elif operation.name in ("unlink", "rmdir"):
            names, name = self._place(operation.path)
            del names[name]
        elif operation.name == "rename":
            names, name = self._place(operation.path)
            node = names.pop(name)
            names, name = self._place(operation.other)
            names[name] = node

    def outcomes(self, target: Path, operation: Operation) -> Iterator[str]:
        """Applies an operation, and makes `target` each folder that may be left then; yields its
        description.

        A kill keeps all, and may stop a write halfway. In a power failure, content that was not
        flushed is lost, and names that were not flushed exist or not, in the folder itself and in
        those below it.
        """
        if operation.name == "write":
            self.apply(replace(operation, data=operation.data[: len(operation.data) // 2]))
            self._make(target, True, True, killed=True)
            yield "killed halfway"
        self.apply(operation)
        self._make(target, True, True, killed=True)
        yield "killed"
        for top, below in product((True, False), repeat=2):
            self._make(target, top, below)
            names = [("lost", "kept")[flushed] for flushed in (top, below)]
            yield f"power failure, names {names[0]}, below {names[1]}"

    def _make(self, target: Path, top: bool, below: bool, killed: bool = False) -> None:
        shutil.rmtree(target, ignore_errors=True)
        self._write(self._root, target, top, below, killed)

    def _write(
        self, folder: _Folder, path: Path, kept: bool, kept_below: bool, killed: bool
    ) -> None:
        path.mkdir()
        for name, node in (folder.now if kept else folder.flushed).items():
            if isinstance(node, _Folder):
                self._write(node, path / name, kept_below, kept_below, killed)
            else:
                (path / name).write_bytes(node.now if killed else node.flushed)
