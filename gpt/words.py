"""Formats numbers and lists as text: counts, times, losses."""

from __future__ import annotations

import math
import os
import reprlib
from collections.abc import Sequence
from typing import Any

INSTALL = "in the folder of gptx: pip install -c constraints.txt -e ."
#: Optional package -> the extra of pyproject.toml that has it.
EXTRAS = {"matplotlib": "plot", "tensorboardX": "tensorboard"}


def absent(package: str) -> str:
    """An optional package that is needed, and the commands that install it: the end of an error."""
    extra = EXTRAS.get(package)
    here = f"in the folder of gptx, pip install -e '.[{extra}]'; elsewhere, " if extra else ""
    return f"{package}, which is not installed: {here}pip install {package}"


def printable(name: str | os.PathLike[str]) -> str:
    """A file name in valid Unicode: bytes that are not UTF-8 appear as \\xe9."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def counted(count: int | str, what: str) -> str:
    """ "1 thread", "2 threads", "1,000 threads" """
    number = f"{count:,}" if isinstance(count, int) else count
    return f"{number} {what}" if number == "1" else f"{number} {what}s"


def layers_and_heads(layers: int, heads: int) -> str:
    """ "2 layers × 4 heads" """
    return f"{counted(layers, 'layer')} × {counted(heads, 'head')}"


def ordinal(number: int) -> str:
    """ "2nd", "10th", "21st" """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}" + ("th" if number % 100 in (11, 12, 13) else ending)


def millions(count: int) -> str:
    """ "0.80 M", "10.65 M", "812" """
    return f"{count / 1e6:.2f} M" if count >= 10_000 else f"{count:,}"


def duration(seconds: float) -> str:
    """ "8 s", "2 min 10 s", "3 h 5 min" """
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def bits(nats: Any) -> Any:
    """Converts nats to bits; takes a number or an array."""
    return nats / math.log(2)


def measured_on(characters: int, of: int) -> str:
    """ " (on 20,000 of 111,539)": how many characters of a split were read; "" if all were."""
    return f" (on {characters:,} of {of:,})" if characters < of else ""


def first_few(items: Sequence[str], most: int, joint: str = " ") -> str:
    """The first `most` items, joined; then how many more there are."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return joint.join(items[:most]) + more


def short_repr(value: object, most: int = 60) -> str:
    """The repr of any value for an error, in about `most` characters."""
    short = _Short()
    short.maxlevel, short.maxstring, short.maxother = 2, most, most
    text = short.repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 200 else f"a number of {x.bit_length():,} bits"
