"""Reads what nanoGPT's train.py has saved, without torch.load: float32 tensors, dicts, lists, texts
and numbers.

No function that the file names is called, and a tensor is read only when its name and size are
known.
"""

from __future__ import annotations

import io
import math
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpt.errors import ForeignModelError
from gpt.exchange.importing.pickles import LONGEST, plain_value


@dataclass(frozen=True)
class StoredTensor:
    """A float32 tensor in a file, not yet read; it fills a record. shape: its sizes, all > 0."""

    path: Path
    record: zipfile.ZipInfo
    shape: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * torch.float32.itemsize

    def read(self) -> Tensor:
        """Reads the numbers. Raises ValueError, OSError."""
        data = bytearray(self.nbytes)
        with open(self.path, "rb") as file:
            file.seek(self.record.header_offset + 26)
            lengths = [int.from_bytes(file.read(2), "little") for _ in "ab"]  # name, padding
            file.seek(self.record.header_offset + 30 + sum(lengths))
            if file.readinto(data) < len(data) or zlib.crc32(data) != self.record.CRC:
                raise ValueError("it is damaged")
        return torch.frombuffer(data, dtype=torch.float32).view(self.shape)


def read_torch(path: Path, what: str) -> Any:
    """The content of a file. A float32 tensor that is stored whole becomes a StoredTensor, any
    other tensor None. what: the expected content, for errors.

    Raises ForeignModelError for a file of another format, for a damaged file, and for a file whose
    pickle would call a function that builds no tensor.
    """
    with reading(path, what):
        try:
            with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
                data, stored = _contents(path, archive)
        except (zipfile.BadZipFile, ValueError, RuntimeError, EOFError, LookupError) as error:
            raise ValueError("torch.save has not written it, or it is damaged") from error
        return plain_value(data, _known, stored)


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """A context that reads a file. Raises ForeignModelError unless it is one that can be read, and
    for a ValueError, which says why it is not `what`.
    """
    try:
        if not os.path.isfile(path):  # a pipe would block
            raise ForeignModelError(f"cannot read {path}: it is missing, or not a file")
        yield
    except OSError as error:
        raise ForeignModelError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise wrong_file_error(path, what, str(error)) from error


def wrong_file_error(path: Path, what: str, reason: str) -> ForeignModelError:
    """The error for a file that does not have the expected content."""
    return ForeignModelError(f"not {what}: {path} ({reason})")


class _Bounded(io.FileIO):
    """A file that refuses large reads: the table of a zip archive may claim any size."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(LONGEST + 1 if size is None or size < 0 else min(size, LONGEST + 1))


def _contents(path: Path, archive: zipfile.ZipFile) -> tuple[bytes, Callable[[Any], Any]]:
    """The pickle of an archive, and a function that returns its tensors for the pickle.

    Raises ValueError or LookupError for an archive that torch.save has not written. It compresses
    nothing, so nothing may be larger than the file.
    """
    entries, size = archive.infolist(), os.path.getsize(path)
    for each in entries:
        if each.compress_type or not 0 <= each.header_offset <= size - each.file_size:
            raise ValueError("compressed, or damaged")
    root = entries[0].filename.partition("/")[0]
    records = {each.filename.removeprefix(f"{root}/data/"): each for each in entries}

    def begin(name: str) -> bytes:
        with archive.open(f"{root}/{name}") as file:
            return file.read(LONGEST + 1)

    if f"{root}/byteorder" in records and begin("byteorder") != sys.byteorder.encode():
        raise ValueError("it has another byte order")

    def stored(about: Any) -> StoredTensor | None:
        _, dtype, name, _, _ = about
        if type(name) is not str:
            raise TypeError
        return StoredTensor(path, records[name]) if dtype is torch.float32 else None

    return begin("data.pkl"), stored


def _tensor(storage: Any, start: Any, shape: Any, strides: Any, *_: Any) -> StoredTensor | None:
    """torch._utils._rebuild_tensor_v2, without reading the numbers."""
    if type(storage) is not StoredTensor or type(shape) is not tuple or len(shape) > 4:
        return None
    if not all(type(number) is int and 0 < number < 2**40 for number in shape):
        return None
    whole = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    if any(n > 1 and own != it for n, own, it in zip(shape, strides, whole, strict=True)):
        return None
    tensor = replace(storage, shape=shape)
    is_record = type(start) is int and start == 0 and tensor.nbytes == storage.record.file_size
    return tensor if is_record else None


def _known(name: str) -> Any:
    """What stands for a function or type that torch.save names; None for unknown ones."""
    return _STAND_INS.get(name, _nothing if name.startswith("torch.") else None)


def _nothing(*_: Any) -> None: ...


_STAND_INS: dict[str, Any] = {
    "collections.OrderedDict": lambda: {},
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch.FloatStorage": torch.float32,
}
