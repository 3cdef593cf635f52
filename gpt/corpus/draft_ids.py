"""Provisional ids: what characters are written down as before the vocabulary is known.

Some characters are known from the start, in the order of their code points; a new one gets the next
number when it first comes, one of its chunk after the other. Counting costs more than all the rest,
so it stops for a character that has come often: the highest bit of a number in the table says that
its character is still counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.vocabulary import Ids, code_points

WIDTHS = (np.uint8, np.uint16, np.uint32)


class TooMany(Exception):
    """More characters than ids of this width can tell apart."""


def width_for(characters: int) -> np.dtype[Any]:
    """The narrowest type that numbers so many characters, and leaves room for a few new ones."""
    needed = characters + characters // 8
    return np.dtype(next(width for width in WIDTHS if needed <= np.iinfo(width).max // 2))


class Numbers:
    """The characters of a text, and how often each came.

    Counted are the first `plenty` of each character, and not many more, and none of those that come
    `often`; all of all, if plenty is 0.
    """

    def __init__(self, known: str, width: np.dtype[Any], plenty: int = 0, often: str = "") -> None:
        self._points = np.array(code_points(known))  # (ids,) what each id stands for
        self._counts = np.zeros(len(known), np.int64)
        self._plenty, self._often = plenty, code_points(often)
        self._counted = 2 ** (8 * width.itemsize - 1)  # the bit of a character that is counted
        self._none = 2 * self._counted - 1
        self._table = np.full(0x110000, self._none, width)  # code point -> provisional id
        self._write_down()

    def _write_down(self) -> None:
        """The table says what is known now."""
        if len(self._points) > self._counted - 1:  # the last one would look like none
            raise TooMany
        scarce = self._counts < self._plenty
        self._table[self._points] = np.arange(len(self._points)) | scarce * self._counted
        self._table[self._often] &= self._counted - 1
        self._of_ascii = self._table[:128].tobytes().ljust(256) if self._none < 256 else b""

    @property
    def characters(self) -> str:
        """Those that were known, then the new ones."""
        return self._points.astype("<u4").tobytes().decode("utf-32-le")

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(characters,) how often each came, as far as that was counted."""
        return np.array(self._counts)

    def ids(self, text: str | bytes) -> Ids:
        """(characters,) of a text, never empty, or of ASCII. Raises TooMany."""
        ids = self._looked_up(text)
        if ids.max() >= self._counted:
            at = np.flatnonzero(ids >= self._counted)
            new = at[ids[at] == self._none]
            if len(new):
                self._meet(points_of(text)[new])
                ids = self._looked_up(text)
            if self._plenty:
                ids = self._with_counting(ids, at)
        if not self._plenty:
            self._counts += np.bincount(ids, minlength=len(self._counts))
        return ids

    def _looked_up(self, text: str | bytes) -> Ids:
        if self._of_ascii and isinstance(text, bytes):
            return np.frombuffer(text.translate(self._of_ascii), np.uint8)
        # Nothing is out of the table; `clip` spares the check, which takes half of the time.
        return np.take(self._table, points_of(text), mode="clip")

    def _meet(self, points: Ids) -> None:
        """Gives new characters their ids."""
        new = np.unique(points).astype(np.uint32)
        self._points = np.append(self._points, new)
        self._counts = np.append(self._counts, np.zeros(len(new), np.int64))
        self._write_down()

    def _with_counting(self, ids: Ids, at: Ids) -> Ids:
        """The same without the bit; those at these places have it and are counted."""
        counted = ids[at] & (self._counted - 1)
        before = np.count_nonzero(self._counts >= self._plenty)
        self._counts += np.bincount(counted, minlength=len(self._counts))
        if np.count_nonzero(self._counts >= self._plenty) > before:
            self._write_down()
        ids = ids.copy()
        ids[at] = counted
        return ids


def points_of(text: str | bytes) -> Ids:
    """(characters,) code points of a text, or of ASCII."""
    return np.frombuffer(text, np.uint8) if isinstance(text, bytes) else code_points(text)
