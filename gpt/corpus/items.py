"""Lists: texts of independent items, such as names, recipes or tweets, one a line or with a
separator between two. Recognised, and read so that windows begin at items.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import numpy.typing as npt

from gpt.vocabulary import Ids

FEWEST = 50  # items of a list
LONGEST = 60  # characters of 19 in 20 items of a list with one item a line
MOST_WORDS = 4  # in half of its items
DISTINCT = 0.02  # of its items at least; a list may repeat itself
#: Lines that separate items: signs only, or a mark such as <|endoftext|>.
SEPARATOR = re.compile(r"[%~*=+.@&$|-]{1,20}|<\|\w+\|>|(\* ?){3,}")


def separator_of(text: str) -> str:
    """What separates the items of a list: "\\n", or "\\n%\\n" for another sign; "" for another
    text. text: the text or a part of it; its last line is ignored, as it may be cut.
    """
    lines = text.split("\n")[:-1]
    if len(lines) < FEWEST:
        return ""
    ruled = Counter(line for line in lines if SEPARATOR.fullmatch(line))
    for line, times in ruled.most_common(1):
        if times >= FEWEST and times >= sum(ruled.values()) / 2:
            return f"\n{line}\n"
    lengths = np.array([len(line) for line in lines])
    words = np.array([len(line.split()) for line in lines])
    continued = np.mean([line[:1].isspace() or line[-1:] in ",;:({[" for line in lines])
    is_list = (
        lengths.all()  # no empty lines
        and np.quantile(lengths, 0.95) <= LONGEST
        and np.median(words) <= MOST_WORDS
        and len({*lines}) >= DISTINCT * len(lines)
        and continued < 0.02
    )
    return "\n" if is_list else ""


def begin_at_items(
    starts: npt.NDArray[np.int64], ids: Ids, separator: Ids, block_size: int
) -> npt.NDArray[np.int64]:
    """(B,) starts of windows, each moved to the next item, so that a window begins with one.

    A start stays if no item begins within a window's length after it, so that long items are read
    as a whole. separator (n,): the ids between two items.
    """
    places = starts[:, None] + np.arange(block_size)
    near = ids[places]  # (B, T)
    width = block_size - len(separator) + 1
    ends = np.ones((len(starts), max(0, width)), bool)
    for place, id in enumerate(separator):
        ends &= near[:, place : place + width] == id
    if not ends.size:
        return starts
    moved = starts + ends.argmax(axis=1) + len(separator)
    fits = ends.any(axis=1) & (moved < len(ids) - block_size)
    return np.where(fits, moved, starts)
