"""Symbols of several characters in the text of pairs: each gets a code after those of Unicode.

So a text is counted, split and encoded like any other, with codes in place of code points.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.config.train import Side
from gpt.errors import TextError
from gpt.vocabulary import symbols_of

FIRST_CODE = 0x110000  # after the last code point
MOST = 2**16  # different symbols of several characters


class Codes:
    """The codes of a text's symbols. spaced: the sides in which spaces separate them."""

    def __init__(self, spaced: tuple[Side, ...]) -> None:
        self.spaced = spaced
        self._codes: dict[str, int] = {}
        self._symbols: list[str] = []

    def of(self, text: str) -> npt.NDArray[np.uint32]:
        """(symbols,) the codes of whole lines. Raises TextError for more than MOST symbols."""
        return np.array([self._code(each) for each in symbols_of(text, self.spaced)], np.uint32)

    def _code(self, symbol: str) -> int:
        if len(symbol) == 1:
            return ord(symbol)
        if (code := self._codes.get(symbol)) is None:
            if len(self._symbols) == MOST:
                raise TextError(
                    f"spaces separate more than {MOST:,} different symbols, so they are words, "
                    "not symbols; leave out `target_symbols` and `source_symbols`"
                )
            code = self._codes[symbol] = FIRST_CODE + len(self._symbols)
            self._symbols.append(symbol)
        return code

    def symbol(self, code: int) -> str:
        """The symbol of a code."""
        return chr(code) if code < FIRST_CODE else self._symbols[code - FIRST_CODE]
