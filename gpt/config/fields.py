"""Fields of the configurations: their types, help texts and checks."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from gpt.errors import ConfigError, GptxError
from gpt.words import short_repr

Note = TypeVar("Note")

LARGEST = 1e100  # largest number allowed: the square of a larger one may overflow
LARGEST_WHOLE = 2**63
#: Type of a field -> what its values are called in errors.
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True)
class Range:
    """The range of a number: `least` or more, or only more than `least`; `most` or less, or only
    less than `most`. None: no limit. It stands beside the help in an option's annotation.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def check(self, name: str, value: float) -> None:
        """Raises ConfigError with the option's name if the number is outside the range."""
        outside = (
            (self.least is not None and value < self.least)
            or (self.above is not None and value <= self.above)
            or (self.most is not None and value > self.most)
            or (self.below is not None and value >= self.below)
        )
        require(not outside, name, f"{value} is {self._outside}")

    @property
    def _outside(self) -> str:
        """ "not in [0, 1)", "less than 1", "not above 0" """
        if self.most is None and self.below is None:
            return f"not above {self.above}" if self.least is None else f"less than {self.least}"
        begin = f"({self.above}" if self.least is None else f"[{self.least}"
        end = f"{_plain(self.below)})" if self.most is None else f"{_plain(self.most)}]"
        return f"not in {begin}, {end}"


def _plain(number: float | None) -> str:
    """A number as a text; a large power of two as 2^N."""
    power = isinstance(number, int) and number.bit_count() == 1 and number.bit_length() - 1
    return f"2^{power}" if power and power >= 20 else f"{number:,}"


def require(condition: bool, field: str, reason: str) -> None:
    """Raises ConfigError(field, reason) unless the condition holds."""
    if not condition:
        raise ConfigError(field, reason)


def flag_of(field: str) -> str:
    """A field's name on the command line: "--n-layer", "-n"."""
    return f"-{field}" if len(field) == 1 else f"--{field.replace('_', '-')}"


def error_with_flags(error: GptxError) -> str:
    """The error's text for the command line, its options written as flags: "--n-layer: …"."""
    if not isinstance(error, ConfigError):
        return with_flags(str(error))
    field, space, value = error.field.partition(" ")
    begin = f"{flag_of(field)}{space}{value}: " if field else ""
    return begin + with_flags(error.reason)


def with_flags(text: str) -> str:
    """A text with its options written as flags: "`steps=5`" becomes "--steps 5"."""
    return _OPTION.sub(_as_flag, text)


_OPTION = re.compile(r"`([a-z_]+)(?:='?([^`']*)'?)?`")


def _as_flag(option: re.Match[str]) -> str:
    if option[2] == "False":
        return f"--no-{flag_of(option[1])[2:]}"
    return flag_of(option[1]) + (f" {option[2]}" if option[2] else "")


class Checked:
    """Base of configurations: checks type, choices and range of every field when one is made;
    numbers must be finite. Raises ConfigError.
    """

    def __post_init__(self) -> None:
        of: type = type(self)
        ranges = field_ranges(of)
        for name, kind in field_types(of).items():
            value = getattr(self, name)
            if type(None) in get_args(kind):
                if value is None:
                    continue
                kind = get_args(kind)[0]
            if get_origin(kind) is Literal:
                choices = get_args(kind)
                problem = f"{short_repr(value)} is not one of {', '.join(choices)}"
                require(value in choices, name, problem)
            elif kind in KINDS:
                good = type(value) is kind or (kind is float and type(value) is int)
                require(good, name, f"{short_repr(value)} is not {KINDS[kind]}")
                check_size(name, value)
            elif kind is Path:
                require(isinstance(value, str | os.PathLike), name, f"{value!r} is not a path")
            if name in ranges:
                ranges[name].check(name, value)


def check_size(name: str, value: object) -> None:
    """Raises ConfigError for NaN and for a number that is too large to compute with."""
    if type(value) is int:
        require(abs(value) <= LARGEST_WHOLE, name, "this number is too large")
    elif type(value) is float:
        require(abs(value) < math.inf, name, f"{value!r} is not a finite number")
        require(abs(value) < LARGEST, name, "this number is too large")


@cache  # configurations are checked whenever one is made, and evaluating type hints takes time
def field_types(config: type) -> Mapping[str, Any]:
    """Field -> type without its help text; `X | None` stays."""
    hints = get_type_hints(config)
    return MappingProxyType({field.name: hints[field.name] for field in fields(config)})


def _notes(config: type, kind: type[Note]) -> dict[str, list[Note]]:
    """Field -> the notes of this type in its annotation, for the fields that have any."""
    found = {
        name: [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, kind)]
        for name, hint in get_type_hints(config, include_extras=True).items()
    }
    return {name: notes for name, notes in found.items() if notes}


@cache
def field_ranges(config: type) -> Mapping[str, Range]:
    """Field -> the range of its numbers, for the fields that have one."""
    return MappingProxyType({name: found for name, (found,) in _notes(config, Range).items()})


def field_help(config: type, flags: bool = True) -> dict[str, str]:
    """Field -> help text, for the fields that are options. flags: write options as flags."""
    spell = with_flags if flags else str
    return {name: spell(help) for name, (help, *_) in field_notes(config).items()}


@cache
def field_notes(config: type) -> Mapping[str, list[str]]:
    """Field -> its help text and, if the help shows another default than the dataclass has, the
    text that the help shows; for the fields that are options.
    """
    return MappingProxyType(_notes(config, str))


def only_fields(config: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `values` that belongs to one dataclass."""
    names = {field.name for field in fields(config)}
    return {name: value for name, value in values.items() if name in names}
