"""Simulates a disk that fails at a chosen operation.

Every operation below a folder, other than reading a file, goes through `Disk`, which numbers them:
it can kill the process before or after one, let it fail as a full or broken disk does, or write
only a part of the data. Its log can be replayed up to any operation, to get the folder after a
power failure: data that was never flushed is missing. For tests on Linux only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

KILLED = 137  # a shell's exit status for a process that SIGKILL ended

#: The faults of an operation. Only a write can be "torn" or "short".
FAULTS = ("kill before", "kill after", "ENOSPC", "EIO", "short", "torn", "torn and killed")
WRITES_ONLY = ("short", "torn", "torn and killed")


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
    """Counts the operations below `root`; the operation with number `at` fails.

    A fault of the kind "kill" ends the process, so use it in a child process.
    """

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
        if fault == "kill before":
            _die()
        if fault in ("ENOSPC", "EIO"):
            if operation.name == "close":  # Linux closes the descriptor even if close fails
                real()
            number = getattr(errno, fault)
            raise OSError(number, os.strerror(number))
        self.log.append(replace(operation, name=f"failed {operation.name}"))
        try:
            result = real()
            self.log[-1] = operation
            return result
        finally:
            if fault == "kill after":
                _die()

    def _write(self, descriptor: int, data: Any) -> int:
        path = self._open.get(descriptor)
        if path is None:
            return int(self._real["write"](descriptor, data))
        fault = self.fault if self._count == self.at else ""
        data = bytes(data)
        if fault in WRITES_ONLY:
            data = data[: len(data) // 2]
        operation = Operation("write", path, data=data, at=_position(descriptor))
        written: int = self._do(operation, lambda: self._real["write"](descriptor, data))
        if fault == "torn":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault == "torn and killed":
            _die()
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


def _die() -> NoReturn:
    sys.stdout.flush()
    os._exit(KILLED)


def in_child(action: Callable[[], int]) -> int:
    """The exit status of a forked process that runs the action; 99 if it raises."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = action()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def operations(root: Path, action: Callable[[], int]) -> list[Operation]:
    """The operations of the action without a fault. The action runs in this process."""
    with Disk(root).watching() as disk:
        assert action() == 0
    return disk.log


def fault_points(log: list[Operation]) -> Iterator[tuple[int, str]]:
    """Each operation with each fault that leaves another state of the disk.

    A process that dies before an operation leaves what one leaves that dies after the operation
    before it. An input/output error is raised as a full disk is, so writes are enough.
    """
    for number, operation in enumerate(log):
        writes = operation.name == "write"
        for fault in FAULTS:
            if fault == "kill before":
                possible = number == 0
            elif fault == "EIO":
                possible = writes
            else:
                possible = fault not in WRITES_ONLY or (writes and len(operation.data) > 1)
            if possible:
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


class PowerFailure:
    """The possible contents of a folder after a power failure: a model of a disk with a cache."""

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

    def outcomes(self, target: Path) -> Iterator[str]:
        """Makes `target` each folder that a power failure may leave now; yields its description.

        Content that was not flushed is lost. Names that were not flushed exist or not, in
        the folder itself and in those below it.
        """
        for top, below in product((True, False), repeat=2):
            shutil.rmtree(target, ignore_errors=True)
            self._write(self._root, target, top, below)
            yield f"names {'kept' if top else 'lost'}, below {'kept' if below else 'lost'}"

    def _write(self, folder: _Folder, path: Path, kept: bool, kept_below: bool) -> None:
        path.mkdir()
        for name, node in (folder.now if kept else folder.flushed).items():
            if isinstance(node, _Folder):
                self._write(node, path / name, kept_below, kept_below)
            else:
                (path / name).write_bytes(node.flushed)
