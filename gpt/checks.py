"""Checks of computed numbers against bounds, and the base classes of results."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.arguments import checks_methods


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def all_read_only(value: Any) -> Any:
    """The value; if it is an array, or a dictionary or tuple of some, these are read-only."""
    if isinstance(value, np.ndarray):
        return read_only(value)
    if isinstance(value, dict):
        return {name: all_read_only(each) for name, each in value.items()}
    if type(value) is tuple:
        return tuple(map(all_read_only, value))
    return value


def numbered(what: str, number: SupportsIndex, count: int) -> int:
    """The number of a layer or head, what: its name. Raises IndexError unless it is in
    0 … count − 1, TypeError unless it is a whole number.
    """
    if not isinstance(number, SupportsIndex):
        raise TypeError(f"{what}: expected a whole number, not {type(number).__name__}")
    at = operator.index(number)
    if not 0 <= at < count:
        raise IndexError(f"{what} {at} is not in 0 … {count - 1}")
    return at


class Shown:
    """Base of objects that a notebook shows as HTML. Their public methods check their arguments."""

    def __init_subclass__(cls) -> None:
        checks_methods(cls)

    def _repr_html_(self) -> str | None:
        html: str | None = showing.renderer().html_of(self)
        return html


class Result(Shown):
    """Base of frozen dataclasses: makes their arrays read-only, in copies and pickles, too."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(all_read_only(state))

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by their names."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: each for name, each in values.items() if isinstance(each, np.ndarray)}


class TableResult(Result):
    """Base of results that are a table."""

    def to_pandas(self) -> Any:
        """The table as a pandas.DataFrame. Raises ImportError if pandas is not installed."""
        return showing.renderer().to_pandas(self)


@dataclass(frozen=True)
class Check:
    """A check: `error` must be at most `bound`, which must be finite.

    group: title of several checks, if any.
    """

    name: str
    error: float
    bound: float
    group: str = ""

    @property
    def passed(self) -> bool:
        return self.error <= self.bound < math.inf  # False for NaN
