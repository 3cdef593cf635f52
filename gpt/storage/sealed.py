"""Seals files with a digest of all their bytes, and opens the JSON in them.

The digest (BLAKE3: O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020) stands in the file's JSON.
It is that of the file with BLANK in its place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from blake3 import blake3

from gpt.errors import CheckpointError, SchemaError

SCHEMA = 1  # of manifests, model files, states and records of encoded texts
BLANK = "0" * 64  # stands for the digest until it is known
Kind = TypeVar("Kind")


class Seal(msgspec.Struct):
    """How the JSON of a sealed file begins."""

    digest: str
    schema: int


def to_json(values: Any, indent: int | None = None) -> str:
    """A seal with BLANK, then the values of a dataclass or dict, as JSON. Raises ValueError for
    NaN.
    """
    sealed = {"digest": BLANK, "schema": SCHEMA, **msgspec.to_builtins(values)}
    return json.dumps(sealed, ensure_ascii=False, indent=indent, allow_nan=False)


def seal(data: bytes) -> bytes:
    """The file with its digest in the place of the first BLANK."""
    place = data.index(BLANK.encode())
    return b"".join((data[:place], blake3(data).hexdigest().encode(), data[place + len(BLANK) :]))


def check_seal(data: bytes, text: bytes, source: Path) -> str:
    """The digest of a file with this JSON text in it. Raises CheckpointError if a byte has changed,
    SchemaError for another schema.
    """
    found = decode(text, Seal, source)
    view, place = memoryview(data), data.find(found.digest.encode())
    hashed = blake3(view[:place])
    hashed.update(BLANK.encode())
    hashed.update(view[place + len(BLANK) :])
    if hashed.hexdigest() != found.digest:
        raise CheckpointError(f"damaged: {source} has changed since it was written")
    if found.schema != SCHEMA:
        raise SchemaError(
            f"{source} has the unknown schema {found.schema}; this gptx reads {SCHEMA}"
        )
    return found.digest


def decode(text: bytes, kind: type[Kind], source: Path) -> Kind:
    """The values in a JSON text. Raises CheckpointError unless they have the types of `kind`."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"damaged: {source} ({error!s:.300})") from error


def seal_json(values: Any) -> bytes:
    """A dataclass as a sealed JSON file."""
    return seal(to_json(values, indent=1).encode())


def open_json(data: bytes, kind: type[Kind], source: Path) -> Kind:
    """The dataclass in a sealed JSON file. Raises SchemaError, CheckpointError."""
    check_seal(data, data, source)
    return decode(data, kind, source)
