"""Wrong values of every option of a class, made from its fields: out of range, of another type,
NaN, infinite, and of 400 digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from msgspec import Meta

from gpt.config.fields import Field, options_of

LARGE = 10**400
OF_ANOTHER_TYPE: dict[Any, list[Any]] = {
    int: ["1", 1.5, True, [1], LARGE, -LARGE],
    float: ["1", True, [1.0], math.nan, math.inf, -math.inf, LARGE],
    bool: [0, 1, "true"],
    str: [1, True, b"last"],
    Path: [1, True, [1]],
    tuple[str, ...]: ["x", 1, [1], [["x"]]],
}


def wrong_values(option: Field) -> Iterator[Any]:
    """Values that the option does not accept."""
    yield object()
    if NoneType not in get_args(get_args(option.annotation)[0]):
        yield None
    yield from ["other", "", 1] if option.choices else OF_ANOTHER_TYPE[option.type]
    limits = next((note for note in option.notes if (note.ge, note.gt) != (None, None)), Meta())
    step = 1 if option.type is int else 1e-9
    if limits.ge is not None:
        yield limits.ge - step
    if limits.gt is not None:
        yield limits.gt
    if limits.lt is not None:
        yield limits.lt
    if limits.le is not None:
        yield limits.le + 1 if option.type is int else limits.le * 1.1


def wrong_options(kind: type) -> list[tuple[str, Any]]:
    """Name and wrong value, for every option of the class."""
    return [
        (name, value) for name, option in options_of(kind).items() for value in wrong_values(option)
    ]
