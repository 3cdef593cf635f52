"""Reads JSON that is not trusted: checks syntax, types, checksum and schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from blake3 import blake3

from gpt.config.fields import LARGEST, field_types
from gpt.errors import CheckpointError, SchemaError
from gpt.words import short_repr

#: Errors that a value of another type or size than gptx writes may cause.
_WRONG = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@contextmanager
def parsing(source: Path) -> Iterator[None]:
    """Turns errors about a file's values into CheckpointError."""
    try:
        yield
    except _WRONG as error:
        raise CheckpointError(f"damaged: {source} ({error!s:.300})") from error


def parse_value(kind: Any, value: Any, name: str) -> Any:
    """Converts a value from JSON into the type `kind`: lists become tuples, objects become
    dataclasses. Whole numbers must not be negative, and numbers must be finite.

    Raises ValueError, which names the value, for another type and for an unknown name; TypeError
    for a missing one.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        for each in arguments:
            with suppress(ValueError):
                return parse_value(each, value, name)
    elif is_dataclass(kind) and isinstance(value, dict):
        kinds = field_types(kind)  # type: ignore[arg-type]
        if unknown := [key for key in value if key not in kinds]:
            raise ValueError(f"{name}: unknown {', '.join(map(short_repr, unknown[:3]))}")
        values = {key: parse_value(kinds[key], each, key) for key, each in value.items()}
        return kind(**values)  # type: ignore[operator]
    elif origin is dict and isinstance(value, dict):
        return {key: parse_value(arguments[1], each, name) for key, each in value.items()}
    elif origin is tuple and isinstance(value, list | tuple):
        items = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(items) == len(value):
            return tuple(parse_value(*each, name) for each in zip(items, value, strict=True))
    elif origin is Literal:
        if type(value) is str and value in arguments:
            return value
    elif kind is int:
        if type(value) is int and 0 <= value < 2**63:
            return value
    elif kind is float:
        if type(value) in (int, float) and abs(value) < LARGEST:
            return float(value)
    elif kind in (Any, type(value)):
        return value
    raise ValueError(
        f"{name}: {short_repr(value)} is not of the type {getattr(kind, '__name__', kind)}"
    )


SCHEMA = 1  # of manifests, model files and states


def check_schema(values: dict[str, Any], source: Path) -> None:
    """Raises SchemaError for a file with another schema, CheckpointError for one without."""
    schema = values.get("schema")
    if type(schema) is not int:
        raise CheckpointError(
            f"damaged: {source} (schema: {short_repr(schema)} is not of the type int)"
        )
    if schema != SCHEMA:
        raise SchemaError(
            f"{source} has the unknown schema {short_repr(schema)}; this gptx reads {SCHEMA}"
        )


MOST_VALUES = 2**19  # values in a JSON text; more would take seconds, and hundreds of MB
_END = b"\n}"


def add_checksum(body: bytes) -> bytes:
    """Adds a line to a JSON object of several lines: the BLAKE3 of all other lines."""
    digest = blake3(body).hexdigest()
    return body.removesuffix(_END) + f',\n "digest": "{digest}"'.encode() + _END


def has_valid_checksum(data: bytes) -> bool:
    """Whether the last line is the checksum of the other lines."""
    body, found, _ = data.rpartition(b',\n "digest": ')
    return bool(found) and add_checksum(body + _END) == data


def load_json(data: bytes, **hooks: Any) -> Any:
    """Like json.loads; ValueError, too, for more than MOST_VALUES of "{", "[" and ","."""
    if sum(map(data.count, (b"{", b"[", b","))) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    return json.loads(data, **hooks)


def read_json_object(data: bytes, source: Path) -> dict[str, Any]:
    """Strict JSON: no duplicate keys, no NaN, no deep nesting, no lone surrogates, few values.

    Raises CheckpointError.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise ValueError("duplicate keys")
        return dict(pairs)

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    with parsing(source):
        value = load_json(data, object_pairs_hook=unique, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()  # a UnicodeEncodeError is a ValueError
    if not isinstance(value, dict):
        raise CheckpointError(f"damaged: {source} (not a JSON object)")
    return value
