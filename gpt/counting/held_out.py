"""Which characters of the training split neither the GPT nor the counting expert learns from.

The gate is fitted to them: n-grams flatter the text that was counted, and so does a GPT the text
that it has read several times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.tables import MOST_CHARACTERS
from gpt.vocabulary import Ids

PIECES = 8  # evenly distributed, so that the fit does not depend on one place in the text
MOST = 2**14  # characters in all
SHARE = 1 / 20  # of the text, at most
MOST_NUMBERS = 2**23  # probabilities that are kept for the fit


@dataclass(frozen=True)
class HeldOut:
    """Pieces of `length` characters in the middle of each `period`; the first begins at `start`."""

    start: int
    period: int
    length: int
    end: int

    @staticmethod
    def of(characters: int, vocab_size: int) -> HeldOut:
        """Of a training split of so many characters, from the part of it that is counted."""
        start = max(0, characters - MOST_CHARACTERS)
        counted = characters - start
        held = min(MOST, int(SHARE * counted), MOST_NUMBERS // vocab_size)
        return HeldOut(start, max(1, counted // PIECES), held // PIECES, characters)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the pieces begin; none, if the text is too short for them."""
        if not self.length:
            return np.zeros(0, np.int64)
        first = self.start + (self.period - self.length) // 2
        return first + self.period * np.arange(PIECES)

    @property
    def share(self) -> float:
        """The share of the split that is held out."""
        return self.length * PIECES / self.end

    def contains(self, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which places of the split are held out."""
        first = self.start + (self.period - self.length) // 2
        after = places - first
        inside: npt.NDArray[np.bool_] = (after >= 0) & (after % self.period < self.length)
        return inside & (after < PIECES * self.period)

    def rest(self, ids: Ids) -> Ids:
        """The counted part of the split without the pieces."""
        places = np.arange(self.start, self.end)
        return np.asarray(ids[self.start : self.end])[~self.contains(places)]
