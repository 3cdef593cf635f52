"""The fields of option classes: annotations declare their types, help texts and checks.

An option class is a frozen dataclass based on `Options`. This is how a class declares two options:

    n_layer: Annotated[int, Meta(ge=1, le=500), option("Transformer blocks.")] = 4
    top_k: Annotated[Count | None, option("Keep only the k likeliest characters.")] = None

The name of a field is also its flag, its keyword and its key in TOML. msgspec checks the type, the
choices and the range of a value whenever a constructor or `dataclasses.replace` makes an object. A
field with a `Meta` but without `option` is checked, but has no flag. A field without `Meta` is not
checked. Every number has finite bounds, so NaN and infinity are refused.
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

LARGEST_WHOLE = 2**63 - 1  # msgspec accepts no larger bound
LARGEST = 1e100  # the square of a larger number may overflow

#: The types of numeric options.
Whole = Annotated[int, Meta(ge=0, le=LARGEST_WHOLE)]
Count = Annotated[int, Meta(ge=1, le=LARGEST_WHOLE)]
Amount = Annotated[float, Meta(ge=0, le=LARGEST)]
Share = Annotated[float, Meta(ge=0, lt=1)]


def option(help: str, shown: str | None = None) -> Meta:
    """Makes a field an option. shown: the default in the help; None: the field's own default."""
    return Meta(description=help, extra={"shown": shown})


@dataclass(frozen=True)
class Field:
    """One field of an option class.

    type: int, float, bool, str, Path or a Literal. default: MISSING if the field has none. notes:
    the `Meta` objects of the annotation. choices: the values of a Literal. help: "" for a field
    that is no option. shown: the text that the help shows as the default; None: `default`.
    """

    name: str
    type: Any
    default: Any
    annotation: Any
    notes: tuple[Meta, ...]
    choices: tuple[str, ...]
    help: str
    shown: str | None

    def convert(self, value: Any) -> Any:
        """Converts a value to the field's type. Raises ConfigError, which names the field."""
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
    """Converts a text to a path. msgspec calls this for every type that it does not know."""
    if "\0" in str(value):
        raise ValueError("a file's name has no NUL character")
    return kind(value)


class Options:
    """The base of option classes. Their constructors raise ConfigError if a field does not accept
    its value, or if `_check` finds a contradiction.
    """

    def __post_init__(self) -> None:
        kind: type = type(self)
        for field in fields_of(kind).values():
            object.__setattr__(self, field.name, field.convert(getattr(self, field.name)))
        self._check()

    def _check(self) -> None:
        """Raises ConfigError if two options contradict each other."""


@cache  # evaluating annotations takes time
def fields_of(kind: type) -> Mapping[str, Field]:
    """Returns name -> field for all fields of an option class, in order."""
    hints = get_type_hints(kind, include_extras=True)
    of_class = [_field(field.name, field.default, hints[field.name]) for field in fields(kind)]
    return MappingProxyType({field.name: field for field in of_class})


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
    """Returns name -> field for the fields of a class that are options."""
    return {name: field for name, field in fields_of(kind).items() if field.help}


def only_fields(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values whose names are fields of a class."""
    return {name: value for name, value in values.items() if name in fields_of(kind)}


def require(condition: bool, field: str, reason: str) -> None:
    """Raises ConfigError(field, reason) unless the condition holds."""
    if not condition:
        raise ConfigError(field, reason)


def suggest(name: str, names: Collection[str]) -> str:
    """Returns "; did you mean n_layer?" with the name that is most similar, or ""."""
    from difflib import get_close_matches

    close = get_close_matches(name, names, 1)
    return f"; did you mean {close[0]}?" if close else ""


def flag_of(field: str) -> str:
    """Returns a field's flag on the command line: "--n-layer", "-n"."""
    return f"-{field}" if len(field) == 1 else f"--{field.replace('_', '-')}"


def error_with_flags(error: GptxError) -> str:
    """Returns the text of an error for the command line, with options as flags: "--n-layer: …"."""
    if not isinstance(error, ConfigError):
        return with_flags(str(error))
    field, space, value = error.field.partition(" ")
    begin = f"{flag_of(field)}{space}{value}: " if field else ""
    return begin + with_flags(error.reason)


def with_flags(text: str) -> str:
    """Replaces the options in a text by flags: "`steps=5`" becomes "--steps 5"."""
    return _OPTION.sub(_as_flag, text)


_OPTION = re.compile(r"`([a-z_]+)(?:='?([^`']*)'?)?`")


def _as_flag(option: re.Match[str]) -> str:
    if option[2] == "False":
        return f"--no-{flag_of(option[1])[2:]}"
    return flag_of(option[1]) + (f" {option[2]}" if option[2] else "")


def keywords_from(
    kind: Callable[Keywords, Kind],
) -> Callable[[Callable[[Owner, Kind], Result]], Callable[Concatenate[Owner, Keywords], Result]]:
    """Decorates a method that takes an object of an option class: callers pass the fields of this
    class as keywords instead. The decorated method raises ConfigError for a wrong value and
    TypeError for a wrong keyword.
    """

    def decorate(method: Callable[[Owner, Kind], Result]) -> Any:
        def call(owner: Owner, /, *args: Any, **keywords: Any) -> Result:
            return method(owner, kind(*args, **keywords))

        return _with_keywords(method, call, kind, {})

    return decorate


def passed_keywords_from(
    kind: Callable[Keywords, object], defaults: Mapping[str, object]
) -> Callable[[Callable[[dict[str, Any]], Result]], Callable[Keywords, Result]]:
    """Decorates a function like `keywords_from`, but passes it only the values that its caller has
    set, so that presets can set the others. defaults: name -> the default that help() shows.
    """

    def decorate(function: Callable[[dict[str, Any]], Result]) -> Any:
        def call(*args: Any, **keywords: Any) -> Result:
            bound, checks = inspect.signature(kind).bind(*args, **keywords), fields_of(kind)
            values = bound.arguments.items()
            return function({name: checks[name].convert(value) for name, value in values})

        return _with_keywords(function, call, kind, defaults)

    return decorate


def _with_keywords(
    function: Callable[..., Any],
    call: Callable[..., Any],
    kind: Any,
    defaults: Mapping[str, object],
) -> Any:
    """Returns `call` with the name and the docstring of `function`. The fields of an option class
    replace the last parameter in the signature, and their help texts end the docstring. An error
    about a misspelt keyword suggests the most similar one.
    """
    all_fields, hints = fields_of(kind), get_type_hints(kind)

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        for name in keywords.keys() - all_fields.keys():
            advice = suggest(name, all_fields) or f". It takes: {', '.join(all_fields)}"
            raise TypeError(f"{function.__name__}() has no keyword {name!r}{advice}")
        return call(*args, **keywords)

    signature, lines = inspect.signature(function), [inspect.cleandoc(function.__doc__ or ""), ""]
    *parameters, _ = signature.parameters.values()
    for parameter in inspect.signature(kind).parameters.values():
        field = all_fields[parameter.name]
        default = defaults.get(field.name, field.shown or parameter.default)
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
