"""Checks arguments against their annotations and computed numbers against bounds; has the base
classes of results.

An error names the argument. `checks_arguments` knows common types, and classes of gptx by their
names; each function checks other types itself.
"""

from __future__ import annotations

import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from numbers import Real
from types import FunctionType, NoneType
from typing import Any, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from gpt import showing

Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])
LARGEST = 2**63  # numbers must be below it
MARK = "_checks_arguments"  # set on functions that check their arguments
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

#: A name in an annotation -> the types that an argument may have, or the name of a class.
_TYPES: dict[str, Any] = {
    "None": NoneType,
    **dict.fromkeys(("str", "Stage", "DrawnStage", "Unknown"), str),
    "bool": bool,
    "int": SupportsIndex,
    "float": Real,
    "Path": os.PathLike,
    "PathLike": (str, os.PathLike),
    "Corpus": (str, os.PathLike, Iterable, NoneType),
    **dict.fromkeys(("Texts", "Ids", "Iterable", "Sequence"), Iterable),
    "Mapping": Mapping,
    "Callable": Callable,
    **{name: name for name in ("SampleConfig", "AttentionMap", "TrainedGPT", "Run")},
}


def checks_arguments(function: Function, options: Sequence[str] = ()) -> Function:
    """Decorates a function so that it raises TypeError for an argument that does not have the
    annotated type, TypeError with the nearest name for an unknown keyword, and ValueError for NaN
    and for a whole number that is too large. options: the keywords that its `**options` takes;
    none: any keyword.
    """
    own = inspect.signature(inspect.unwrap(function)).parameters.values()
    known = [each.name for each in own if each.kind in _NAMED and each.name != "self"] + [*options]
    any_keyword = not options and any(each.kind == each.VAR_KEYWORD for each in own)
    kinds = {each.name: _types(str(each.annotation)) for each in own if each.kind in _NAMED}
    shown = {each.name: each.annotation for each in own}
    places = [each.name for each in own if each.kind == each.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        for name in () if any_keyword else keywords:
            if name not in known:
                raise TypeError(_unexpected_keyword(function.__name__, name, known))
        for name, value in (*zip(places, args, strict=False), *keywords.items()):
            if name not in kinds:
                continue
            if kinds[name] and not _is_one(value, kinds[name]):
                found = type(value).__name__
                raise TypeError(f"{name}: expected {shown[name]}, not {found}")
            if isinstance(value, int) and abs(value) >= LARGEST:
                raise ValueError(f"{name}: this number is too large")
            if isinstance(value, float) and value != value:
                raise ValueError(f"{name}: nan is not a number")
        return function(*args, **keywords)

    setattr(checked, MARK, True)
    return checked  # type: ignore[return-value]


def _unexpected_keyword(function: str, name: str, known: list[str]) -> str:
    """The message for an unknown keyword; it names the nearest known one."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return f"{function}() has no keyword {name!r}{meant} It takes: {', '.join(known)}"


def checks_methods(of: Class) -> Class:
    """Decorates a class: its public methods, inherited ones included, check their arguments."""
    for name in dir(of):
        method = inspect.getattr_static(of, name)
        if name[0] != "_" and isinstance(method, FunctionType) and not vars(method).get(MARK):
            setattr(of, name, checks_arguments(method))
    return of


def _types(annotation: str) -> list[Any]:
    """The types of _TYPES that an annotation names; none if it also names another type."""
    while annotation != (plain := re.sub(r"\[[^][]*\]", "", annotation)):
        annotation = plain
    names = [name.strip() for name in annotation.split("|")]
    return [_TYPES[name] for name in names] if _TYPES.keys() >= {*names} else []


def _is_one(value: Any, kinds: list[Any]) -> bool:
    if isinstance(value, bool | bytes):  # Python treats bool as int, and bytes as a sequence of int
        return type(value) in kinds
    names = {base.__name__ for base in type(value).__mro__}
    return any(
        kind in names if isinstance(kind, str) else isinstance(value, kind) for kind in kinds
    )


def require_texts(name: str, texts: Iterable[object]) -> None:
    """Raises TypeError for one text in place of a list, and for an item that is not a text."""
    if isinstance(texts, str):
        raise TypeError(f"{name}: expected a list of texts, not one text; use [{texts!r:.40}]")
    for each in texts:
        if not isinstance(each, str):
            raise TypeError(f"{name}: expected texts, not {type(each).__name__}")


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def all_read_only(value: Any) -> Any:
    """The value; arrays are made read-only, also within a dictionary or tuple."""
    if isinstance(value, np.ndarray):
        return read_only(value)
    if isinstance(value, dict):
        return {name: all_read_only(each) for name, each in value.items()}
    if type(value) is tuple:
        return tuple(map(all_read_only, value))
    return value


def check_number(what: str, number: SupportsIndex, count: int, lowest: int = 0) -> int:
    """The number of a layer or head. what: "layer" or "head", for errors. Raises IndexError unless
    it is in lowest … count − 1, TypeError unless it is a whole number.
    """
    if not isinstance(number, SupportsIndex):
        raise TypeError(f"{what}: expected a whole number, not {type(number).__name__}")
    at = operator.index(number)
    if not lowest <= at < count:
        raise IndexError(f"{what} {at} is not in {lowest} … {count - 1}")
    return at


class Displayable:
    """Base of objects that a notebook shows as HTML. Their public methods check their arguments."""

    def __init_subclass__(cls) -> None:
        checks_methods(cls)

    def _repr_html_(self) -> str | None:
        html: str | None = showing.renderer().html_of(self)
        return html


class Result(Displayable):
    """Base of frozen dataclasses: their arrays are read-only, also after copying and unpickling."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(all_read_only(state))

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Name -> array."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: each for name, each in values.items() if isinstance(each, np.ndarray)}


class TableResult(Result):
    """Base of results that can be shown as a table."""

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame. Raises ImportError if pandas is not installed."""
        return showing.renderer().to_pandas(self)


@dataclass(frozen=True)
class Check:
    """A check: `error` must be at most `bound`, which must be finite; without a bound, the error is
    measured, and only has to be finite.

    detail: not in the short line of checks that passed.
    """

    name: str
    error: float
    bound: float | None = None
    detail: bool = False

    @property
    def passed(self) -> bool:
        if self.bound is None:
            return math.isfinite(self.error)
        return self.error <= self.bound < math.inf  # False for NaN

    def __str__(self) -> str:
        """ "rows sum to 1 ±1e-7"; if it failed, the error and what is allowed."""
        error = f"{self.error:.1g}".replace("e-0", "e-")
        if self.passed:
            return f"{self.name} ±{error}" if self.error else self.name
        allowed = "" if self.bound is None else f", allowed {self.bound:.1g}".replace("e-0", "e-")
        return f"{self.name} (error {error}{allowed})"

    @property
    def short(self) -> str:
        """The name, with the error only if it has no bound."""
        return self.name if self.bound is not None else str(self)

    @property
    def record(self) -> dict[str, Any]:
        """The check for JSON."""
        return {"name": self.name, "error": self.error, "bound": self.bound, "passed": self.passed}
