"""Fields of the option classes: their types, help texts and checks, read from annotations.

A class of options is a frozen dataclass based on `Options`. A field is an option:

    n_layer: Annotated[int, Meta(ge=1, le=500), option("Transformer blocks.")] = 4
    top_k: Annotated[Count | None, option("Keep only the k likeliest characters.")] = None

Its name is flag, keyword and key in TOML; msgspec checks its type, choices and range whenever an
object is made, by a constructor or by `dataclasses.replace`. A field with a Meta that is no option
is only checked; a field without Meta is not checked here. Every number has finite bounds, which
also refuse NaN and infinity.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache, wraps
from types import MappingProxyType, NoneType
from typing import (
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from gpt.errors import ConfigError, GptxError
from gpt.words import short_repr

Keywords = ParamSpec("Keywords")
Kind = TypeVar("Kind")
Owner = TypeVar("Owner")
Result = TypeVar("Result")

LARGEST_WHOLE = 2**63 - 1  # msgspec knows no larger ones
LARGEST = 1e100  # the square of a larger number may overflow

#: Numbers of options.
Whole = Annotated[int, Meta(ge=0, le=LARGEST_WHOLE)]
Count = Annotated[int, Meta(ge=1, le=LARGEST_WHOLE)]
Amount = Annotated[float, Meta(ge=0, le=LARGEST)]
Share = Annotated[float, Meta(ge=0, lt=1)]


def option(help: str, shown: str | None = None) -> Meta:
    """Makes a field an option. shown: what the help shows as the default, if not the field's."""
    return Meta(description=help, extra={"shown": shown})


@dataclass(frozen=True)
class Field:
    """One field of an option class.

    type: int, float, bool, str, Path or a Literal; choices: the values of a Literal. annotation:
    the field's, whole; notes: its Metas. help: "" for a field that is no option. shown: what the
    help shows as the default; None: `default`, which is MISSING for a field without one.
    """

    name: str
    type: Any
    default: Any
    annotation: Any
    notes: tuple[Meta, ...]
    choices: tuple[str, ...]
    help: str
    shown: str | None

    def checked(self, value: Any) -> Any:
        """The value, as the field's type. Raises ConfigError, which names the field."""
        if not self.notes:
            return value
        try:
            return msgspec.convert(value, self.annotation, dec_hook=_path)
        except msgspec.ValidationError as error:
            expected = str(error).replace(" | null", "").replace("`", "")
            if self.choices:
                expected = f"Expected one of {', '.join(self.choices)}"
            raise ConfigError(self.name, f"{short_repr(value)}: {expected}") from None


def _path(kind: type, value: Any) -> Any:
    """A path from a text: msgspec calls this for types that it does not know."""
    if "\0" in str(value):
        raise ValueError("a file's name has no NUL character")
    return kind(value)


class Options:
    """Base of the option classes, which are frozen dataclasses. Raises ConfigError when an object
    would have a value that its field does not accept, or when `_check` finds a contradiction.
    """

    def __post_init__(self) -> None:
        kind: type = type(self)
        for field in fields_of(kind).values():
            object.__setattr__(self, field.name, field.checked(getattr(self, field.name)))
        self._check()

    def _check(self) -> None:
        """Raises ConfigError if options contradict one another."""


@cache  # evaluating annotations takes time
def fields_of(kind: type) -> Mapping[str, Field]:
    """Name -> field of an option class, in order; also of fields that are no options."""
    hints = get_type_hints(kind, include_extras=True)
    known = [_field(field.name, field.default, hints[field.name]) for field in fields(kind)]
    return MappingProxyType({field.name: field for field in known})


def _field(name: str, default: Any, annotation: Any) -> Field:
    kind, notes = annotation, list[Meta]()
    while get_origin(kind) is Annotated or NoneType in get_args(kind):
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            notes += more
        else:
            kind = next(part for part in get_args(kind) if part is not NoneType)
    described = next((note for note in notes if note.description), Meta(description="", extra={}))
    return Field(
        name,
        kind,
        default,
        annotation,
        tuple(notes),
        choices=get_args(kind) if get_origin(kind) is Literal else (),
        help=described.description or "",
        shown=(described.extra or {}).get("shown"),
    )


def options_of(kind: type) -> dict[str, Field]:
    """Name -> field, for the fields that are options."""
    return {name: field for name, field in fields_of(kind).items() if field.help}


def only_fields(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `values` that belongs to one class."""
    return {name: value for name, value in values.items() if name in fields_of(kind)}


def require(condition: bool, field: str, reason: str) -> None:
    """Raises ConfigError(field, reason) unless the condition holds."""
    if not condition:
        raise ConfigError(field, reason)


def suggest(name: str, known: Collection[str]) -> str:
    """The end of an error about a misspelt name: "; did you mean n_layer?", or ""."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


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


def takes(
    kind: Callable[Keywords, Kind],
) -> Callable[[Callable[[Owner, Kind], Result]], Callable[Concatenate[Owner, Keywords], Result]]:
    """Gives a method of one object of an option class the fields of this class as keywords; help()
    lists them. Raises ConfigError for a wrong value, TypeError for a wrong keyword.
    """

    def decorate(method: Callable[[Owner, Kind], Result]) -> Any:
        def call(owner: Owner, /, *args: Any, **keywords: Any) -> Result:
            return method(owner, kind(*args, **keywords))

        return _with_keywords(method, call, kind, {})

    return decorate


def takes_given(
    kind: Callable[Keywords, object], shown: Mapping[str, object] = MappingProxyType({})
) -> Callable[[Callable[[dict[str, Any]], Result]], Callable[Keywords, Result]]:
    """Like `takes`, for a function that completes the options by presets: it gets those that its
    caller has given, each checked alone. shown: name -> the default that help() shows.
    """

    def decorate(function: Callable[[dict[str, Any]], Result]) -> Any:
        def call(*args: Any, **keywords: Any) -> Result:
            asked, known = inspect.signature(kind).bind(*args, **keywords), fields_of(kind)
            values = asked.arguments.items()
            return function({name: known[name].checked(value) for name, value in values})

        return _with_keywords(function, call, kind, shown)

    return decorate


def _with_keywords(
    function: Callable[..., Any], call: Callable[..., Any], kind: Any, shown: Mapping[str, object]
) -> Any:
    """Makes `call` the function, with the signature of an option class in place of its last
    parameter, and the help texts in its docstring. A misspelt keyword names the nearest one.
    """
    known, hints = fields_of(kind), get_type_hints(kind)

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        for name in keywords.keys() - known.keys():
            meant = suggest(name, known) or f". It takes: {', '.join(known)}"
            raise TypeError(f"{function.__name__}() has no keyword {name!r}{meant}")
        return call(*args, **keywords)

    signature, lines = inspect.signature(function), [inspect.cleandoc(function.__doc__ or ""), ""]
    *parameters, _ = signature.parameters.values()
    for parameter in inspect.signature(kind).parameters.values():
        field = known[parameter.name]
        default = shown.get(field.name, field.shown or parameter.default)
        if isinstance(default, str) and default not in (field.default, *field.choices):
            default = _Shown(default)
        annotation = hints[field.name] if field.notes else parameter.annotation
        parameters.append(parameter.replace(default=default, annotation=annotation))
        if field.help:
            lines.append(f"    {field.name}: {field.help}")
    checked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    checked.__doc__ = "\n".join(lines)
    return checked


class _Shown(str):
    """A default that help() shows without quotes."""

    __repr__ = str.__str__
