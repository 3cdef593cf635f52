"""Chooses the validation split, as an order of the characters: training characters come first.

So training reads one array, however the corpus is split. Uses only numbers of characters, no text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from gpt.errors import TextError

LONGEST_BLOCK = 2**16  # characters: hundreds of contexts, so that few windows cross a border
FEWEST_BLOCKS = 10  # fewest validation blocks of a single text, however short they become
MOST_BLOCKS = 10**5
SHORTEST_IN_CONTEXTS = 4  # shortest block, in contexts; in shorter ones most windows cross a border


@dataclass(frozen=True)
class SplitOrder:
    """The order in which the characters of a text are stored.

    boundary: number of training characters, None if a share of the text decides it; block:
    characters of each moved piece of a single text, 0 if whole texts are moved; borders: where the
    pieces that are moved to the end begin and end in the text, in turn; order: a name of the order,
    empty if nothing is moved.
    """

    boundary: int | None = None
    block: int = 0
    borders: tuple[int, ...] = ()
    order: str = ""


def choose_split(starts: Sequence[int], training: int, every: int) -> SplitOrder:
    """Divides texts that begin at `starts`, whose last item is the end of the last text.

    The first `training` texts are for training, others for validation. If all are for training,
    every `every`-th text is for validation; if there is a single text, every `every`-th block of
    it. every = 0: no text is for validation. Empty texts do not count. Raises TextError.
    """
    characters = starts[-1]
    if training < len(starts) - 1:
        return SplitOrder(starts[training])
    if not every:
        return SplitOrder()
    starts, block = [*dict.fromkeys(starts)], 0
    if len(starts) == 2:
        block = min(LONGEST_BLOCK, characters // (FEWEST_BLOCKS * every))
        block = max(1, block, characters // MOST_BLOCKS)
        starts = [*range(0, characters, block), characters]
    texts = len(starts) - 1
    if texts < every:
        what = "blocks" if block else "texts"
        raise TextError(
            f"`split='every:{every}'`: there are {texts:,} {what}, so none would validate; use "
            f"every:{texts} or less, or `split='last'`"
        )
    val = [*pairwise(starts)][every - 1 :: every]
    train = [  # each piece: all training texts between two validation texts
        (starts[first], starts[min(first + every - 1, texts)]) for first in range(0, texts, every)
    ]
    boundary = sum(last - first for first, last in train)
    order = hashlib.sha256(repr((*train, *val)).encode()).hexdigest()[:16]
    return SplitOrder(boundary, block, tuple(chain.from_iterable(val)), order)
