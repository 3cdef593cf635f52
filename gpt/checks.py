"""Checks: of errors against bounds, and of numbers of layers and heads. Read-only arrays."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt


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
        return {name: all_read_only(item) for name, item in value.items()}
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


class Arrays:
    """Base of frozen dataclasses: their arrays are read-only, also after copying and unpickling."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(all_read_only(state))

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Name -> array."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class Check:
    """A check: `error` must be at most `bound`, which must be finite; without a bound, the error is
    measured, and only has to be finite.

    detail: only the long form of a result names it, unless it failed.
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
    def record(self) -> dict[str, Any]:
        """The check for JSON."""
        return {"name": self.name, "error": self.error, "bound": self.bound, "passed": self.passed}
