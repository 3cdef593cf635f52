"""The text that the gate is fitted to: pieces of the training split that the GPT does not learn.

n-grams predict counted text far too well, and so does a GPT a text that it has read several times.
Text just before and after a piece is similar, too: names and subjects repeat, more than in new
text. So the counts with which the gate is fitted leave out the pieces and a margin around each. The
counts used later to predict include everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.tables import MOST_CHARACTERS
from gpt.vocabulary import Ids

PIECES = 8  # evenly spread, so that the fit does not depend on one place in the text
MOST = 2**14  # characters in all pieces together
SHARE = 1 / 20  # of the text, at most
MARGIN = 1 / 100  # of the text, before and after each piece
MOST_NUMBERS = 2**22  # probabilities of each expert that are kept for the fit


@dataclass(frozen=True)
class HeldOut:
    """Pieces of `length` characters in the middle of each `period`; the first begins at `start`."""

    start: int
    period: int
    length: int
    end: int

    @staticmethod
    def of(characters: int, vocab_size: int) -> HeldOut:
        """The held-out pieces of a training split of so many characters, in its counted part."""
        start = max(0, characters - MOST_CHARACTERS)
        counted = characters - start
        held = min(MOST, int(SHARE * counted), MOST_NUMBERS // vocab_size)
        return HeldOut(start, max(1, counted // PIECES), held // PIECES, characters)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the pieces begin; empty if the text is too short for them."""
        return self._first + self.period * np.arange(PIECES if self.length else 0)

    @property
    def _first(self) -> int:
        return self.start + (self.period - self.length) // 2

    @property
    def share(self) -> float:
        """The share of the split that is held out."""
        return self.length * PIECES / self.end

    def contains(self, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Whether each place of the split is held out."""
        after = places - self._first
        inside: npt.NDArray[np.bool_] = (after >= 0) & (after % self.period < self.length)
        return inside & (after < PIECES * self.period)

    def apart(self, ids: Ids) -> Ids:
        """The counted part of the split without the pieces and their margins."""
        counted = np.asarray(ids[self.start : self.end])
        margin = int(MARGIN * len(counted))
        away = np.ones(len(counted), np.bool_)
        for first in (self.starts - self.start).tolist():
            away[max(0, first - margin) : first + self.length + margin] = False
        return counted[away]
