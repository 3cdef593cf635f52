"""Gives each symbol of several characters in pairs a code above those of Unicode.

So a text is counted, split and encoded like any other, with codes in place of code points.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.config.train import Side
from gpt.errors import TextError
from gpt.vocabulary import symbols_of

FIRST_CODE = 0x110000  # after the last code point of Unicode
MOST = 2**16  # most different symbols of several characters


class SymbolCodes(dict[str, int]):
    """Symbol -> its code; a new one gets the next code. spaced: sides with spaces between them."""

    def __init__(self, spaced: tuple[Side, ...]) -> None:
        super().__init__()
        self.spaced = spaced
        self._symbols: list[str] = []

    def __missing__(self, symbol: str) -> int:
        if len(symbol) == 1:
            code = ord(symbol)
        elif len(self._symbols) == MOST:
            raise TextError(
                f"spaces separate more than {MOST:,} different symbols, so they are words, not "
                "symbols; leave out `target_symbols` and `source_symbols`"
            )
        else:
            code = FIRST_CODE + len(self._symbols)
            self._symbols.append(symbol)
        self[symbol] = code
        return code

    def of(self, text: str) -> npt.NDArray[np.uint32]:
        """(symbols,) the codes in whole lines. Raises TextError for more than MOST symbols."""
        return np.array([*map(self.__getitem__, symbols_of(text, self.spaced))], np.uint32)

    def symbol(self, code: int) -> str:
        """The symbol of a code."""
        return chr(code) if code < FIRST_CODE else self._symbols[code - FIRST_CODE]
