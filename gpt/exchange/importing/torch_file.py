"""Reads what torch.save has written without running code: tensors, dicts, texts and numbers."""

from __future__ import annotations

import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

from gpt.errors import ForeignModelError

#: Among the first bytes of a file that torch has written before release 1.6.
BEFORE_1_6 = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
LONGEST_PICKLE = 16 * 2**20  # bytes; the tensors are stored apart from it


def read_torch(path: Path, what: str) -> Any:
    """The content of a file, with its tensors mapped into memory. what: it should be, for errors.

    Raises ForeignModelError for a file of another format, for a damaged one, and for one whose
    pickle would call a function that builds no tensor.
    """
    import torch

    _check_archive(path, what)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about its own formats
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged file can raise almost anything
        called = re.search(r"GLOBAL ([\w.]+)", str(error))
        damaged = "it is damaged, or has more than tensors, dicts, texts and numbers"
        reason = f"it would call {called[1]}" if called else damaged
        raise refused(path, what, reason) from error


def refused(path: Path, what: str, reason: str) -> ForeignModelError:
    """The error for a file that is not what it should be."""
    return ForeignModelError(f"not {what}: {path} ({reason})")


def _check_archive(path: Path, what: str) -> None:
    """Raises ForeignModelError unless a file is a zip archive as torch writes it: uncompressed, so
    that nothing in it is larger than the file.
    """
    try:
        with open(path, "rb") as file:
            old = BEFORE_1_6 in file.read(32)
        if old:
            raise refused(
                path,
                what,
                "torch has written it before release 1.6; load it with torch and save it again",
            )
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except OSError as error:
        raise ForeignModelError(f"cannot read {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
        raise refused(path, what, "torch.save has not written it, or it is damaged") from error
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise refused(path, what, "it is compressed, and files of torch.save are not")
    if sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise refused(path, what, "it is damaged")
    pickles = [each.file_size for each in entries if each.filename.endswith(".pkl")]
    if not pickles or max(pickles) > LONGEST_PICKLE:
        raise refused(path, what, "torch.save has not written it")
