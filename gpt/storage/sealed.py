"""Seals files with a digest of all their bytes, and opens the JSON in them.

The digest (BLAKE3: O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020) stands in the file's JSON.
It is that of the file with BLANK in its place.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from blake3 import blake3

from gpt.errors import CheckpointError

SCHEMA = 1  # of manifests, model files, states and records of encoded texts
BLANK = "0" * 64  # stands for the digest until it is known
_DIGEST = re.compile(rb"digest\W+([0-9a-f]{64})")
Kind = TypeVar("Kind")


class _Schema(msgspec.Struct):
    schema: int


def to_json(values: Any, indent: int | None = None) -> str:
    """BLANK and the schema, then the values of a dataclass or dict, as JSON. Raises ValueError for
    NaN.
    """
    sealed = {"digest": BLANK, "schema": SCHEMA, **msgspec.to_builtins(values)}
    return json.dumps(sealed, ensure_ascii=False, indent=indent, allow_nan=False)


def seal(data: bytes) -> bytes:
    """The file with its digest in the place of the first BLANK."""
    return data.replace(BLANK.encode(), blake3(data).hexdigest().encode(), 1)


def find_digest(data: bytes, source: Path) -> str:
    """The digest in a sealed file. Raises CheckpointError if it has none."""
    match = _DIGEST.search(data)
    if match is None:
        raise CheckpointError(f"damaged, or not a gptx checkpoint: {source}")
    return match[1].decode()


def check_seal(data: bytes, source: Path) -> str:
    """The digest of a sealed file. Raises CheckpointError if a byte has changed."""
    digest, view = find_digest(data, source), memoryview(data)
    place = data.index(digest.encode())
    hashed = blake3(view[:place])
    hashed.update(BLANK.encode())
    hashed.update(view[place + len(BLANK) :])
    if hashed.hexdigest() != digest:
        raise CheckpointError(f"damaged: {source} has changed since it was written")
    return digest


def decode(text: bytes, kind: type[Kind], source: Path) -> Kind:
    """The values in the JSON of a sealed file. Raises CheckpointError for another schema, and
    unless they have the types of `kind`.
    """
    try:
        schema = msgspec.json.decode(text, type=_Schema).schema
        if schema == SCHEMA:
            return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"damaged: {source} ({error!s:.300})") from error
    raise CheckpointError(f"{source} has the unknown schema {schema}; this gptx reads {SCHEMA}")


def seal_json(values: Any) -> bytes:
    """A dataclass as a sealed JSON file."""
    return seal(to_json(values, indent=1).encode())


def open_json(data: bytes, kind: type[Kind], source: Path) -> Kind:
    """The dataclass in a sealed JSON file. Raises CheckpointError."""
    check_seal(data, source)
    return decode(data, kind, source)
