"""What a head does, in numbers: where it looks, beside what looking evenly would give."""

from __future__ import annotations

from dataclasses import dataclass

from gpt.reading.reader import Array


@dataclass(frozen=True)
class Measure:
    """One property of every head, averaged over `windows` texts.

    values (L, H) are means, errors (L, H) their standard errors (NaN for one text), uniform the
    value of a head that looks evenly at all it may see (NaN where that means nothing).
    """

    name: str
    title: str
    explained: str
    values: Array
    errors: Array
    uniform: float
    windows: int
