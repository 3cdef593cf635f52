"""Features of a text that units of a model may follow; computed from the characters alone.

They need no language: Unicode's categories tell brackets, quotation marks, letters and capitals.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator

#: name -> (title, explanation). Each single character is a feature, too: `character`.
FEATURES = {
    "quotes": ("in quotes", "inside quotation marks, from the opening one on; 1 or 0"),
    "brackets": ("in brackets", "inside brackets, from the opening one on; 1 or 0"),
    "line": ("place in line", "characters since the last newline"),
    "newline": ("after newline", "the character is the first of a line; 1 or 0"),
    "capital": ("capital next", "the next character is a capital letter; 1 or 0"),
    "word": ("place in word", "letters and digits of the word so far; 0 outside words"),
}
#: An opening quotation mark -> the marks that close it.
QUOTES = {
    **{'"': '"', "'": "'", "“": "”", "”": "”", "„": "“”", "‘": "’", "’": "’", "‚": "‘’"},
    **{"«": "»", "»": "«»", "‹": "›", "›": "‹›", "「": "」", "『": "』", "｢": "｣"},
    **{"〝": "〞〟", "\uff02": "\uff02"},
}
MARKS = {*QUOTES, *"".join(QUOTES.values())}


def features(characters: str) -> dict[str, list[float]]:
    """T + 1 characters -> the features of the first T of them: name -> (T,) values.

    A value says what is known after a character was read; `capital` looks at the next one. The
    place in the first line is unknown, NaN, as is whether it begins with the first character.
    """
    found = {
        "quotes": _in_quotes(characters),
        "brackets": _in_brackets(characters),
        "line": _since(map("\n".__ne__, characters), math.nan),
        "newline": [math.nan, *map("\n".__eq__, characters)],
        "capital": (each.isupper() for each in characters[1:]),
        "word": _since(map(_in_word, characters), 0),
    }
    length = range(len(characters) - 1)
    return {
        name: [float(value) for _, value in zip(length, values, strict=False)]
        for name, values in found.items()
    }


def _since(goes_on: Iterable[bool], count: float) -> Iterator[float]:
    """Counts how many characters went on without a break. count: before the first one."""
    for each in goes_on:
        count = count + 1 if each else 0
        yield count


def _in_word(character: str) -> bool:
    """Whether the character is a letter or a digit, or a mark on one."""
    return character.isalnum() or unicodedata.category(character)[0] == "M"


def _in_brackets(characters: str) -> Iterator[bool]:
    depth = 0
    for each in characters:
        kind = "" if each in MARKS else unicodedata.category(each)
        depth = depth + 1 if kind == "Ps" else max(0, depth - (kind == "Pe"))
        yield depth > 0


def _in_quotes(characters: str) -> Iterator[bool]:
    """Marks that only open start a quotation anywhere, other marks at the start of a word only. The
    first mark that closes it ends it; an apostrophe's quotation also ends with the line.
    """
    opened, before = "", " "
    for each, after in zip(characters, [*characters[1:], " "], strict=True):
        if opened == "'" and each == "\n":
            opened = ""
        elif each in MARKS and not (before.isalnum() and after.isalnum()):
            starts = not (before.isalnum() or after.isspace())
            if opened:
                opened = "" if each in QUOTES[opened] else opened
            elif each in QUOTES and (starts or unicodedata.category(each) in ("Ps", "Pi")):
                opened = each
        before = each
        yield opened != ""
