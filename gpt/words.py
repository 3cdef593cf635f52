"""Formats counts, times, lists and characters for people, and makes texts safe for a terminal.

A label is the visible form of one character: ␠ stands for the space. A cell is the width of one
letter on a terminal. Importing this module imports neither numpy nor rich.
"""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

INSTALL = "in the folder of gptx: pip install -c constraints.txt -e ."
#: Optional package -> the extra in pyproject.toml that installs it.
EXTRAS = {"matplotlib": "plot", "tensorboardX": "tensorboard"}

#: Character -> its label, its label in ASCII, and its name.
NAMED = {" ": ("␠", "\\s", "space"), "\n": ("⏎", "\\n", "newline"), "\t": ("⇥", "\\t", "tab")}
DOTTED_CIRCLE = "◌"
SPACE = "␣"  # the space's label in browsers and pictures, because common fonts lack ␠

# Characters whose label is U+XXXX. Fillers, joiners and variation selectors are invisible.
# Terminals join regional indicators and skin tones to their neighbours.
_NAMELESS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]"
)

# Characters that are unsafe on a terminal. Control characters (C0 without tab and newline, DEL, C1)
# and bidirectional controls can move the cursor, change colours or reorder a line. The byte order
# mark is invisible. Lone surrogates stand for the bytes of a file name that are not UTF-8; UTF-8
# cannot encode them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

# Scripts without spaces between words, and punctuation that a space follows.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
MARKS = ".,;:!?…"

MOST_IN_CELL = (
    16  # characters that `cut` reads per cell; a family emoji has 7 characters in two cells
)
PICTURES = frozenset(map(chr, (*range(0x2400, 0x2420), 0x2421)))  # ␀ … ␡, labels of controls


def missing_package(package: str) -> str:
    """The end of an error about a missing optional package, with the commands that install it."""
    extra = EXTRAS.get(package)
    here = f"in the folder of gptx, pip install -e '.[{extra}]'; elsewhere, " if extra else ""
    return f"{package}, which is not installed: {here}pip install {package}"


def printable(name: str | os.PathLike[str]) -> str:
    """A file name as valid Unicode, in which a byte that is not UTF-8 appears as \\xe9."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def pluralize(count: int | str, noun: str) -> str:
    """ "1 thread", "2 threads", "1,000 threads" """
    number = f"{count:,}" if isinstance(count, int) else count
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"


def layers_and_heads(layers: int, heads: int) -> str:
    """ "2 layers × 4 heads" """
    return f"{pluralize(layers, 'layer')} × {pluralize(heads, 'head')}"


def ordinal(number: int) -> str:
    """ "2nd", "10th", "21st" """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}" + ("th" if number % 100 in (11, 12, 13) else ending)


def in_millions(count: int) -> str:
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


def nats_to_bits(nats: Any) -> Any:
    """Converts a number or an array from nats to bits."""
    return nats / math.log(2)


def first_few(items: Sequence[str], most: int, joint: str = " ") -> str:
    """The first `most` items, joined, and the number of the others: "a b and 3 more"."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return joint.join(items[:most]) + more


def short_repr(value: object, most: int = 60) -> str:
    """The repr of a value for an error message, in at most `most` characters."""
    short = _Short()
    short.maxlevel, short.maxstring, short.maxother = 2, most, most
    text = short.repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 200 else f"a number of {x.bit_length():,} bits"


def width_in_cells(text: str) -> int:
    """The width of a text on a terminal, in cells."""
    from rich.cells import cell_len

    return cell_len(text)


def escape(text: str) -> str:
    """Makes a text safe for a terminal: control characters become \\x1b or \\u202e."""
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Makes a text safe for a terminal, as `escape` does, and replaces newlines by \\n."""
    return escape(text).replace("\n", "\\n")


def to_json(value: Any) -> str:
    """Writes a value as JSON that is safe on a terminal. Reading the JSON gives the same value."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def label(character: str, ascii_only: bool = False) -> str:
    """The label of a character.

    Space is ␠, newline ⏎ and tab ⇥; other control characters have Unicode's pictures from U+2400
    on. A combining mark stands on ◌. A character without width or glyph is U+XXXX. With
    `ascii_only`, labels are \\s, \\n, \\t, \\xe9 and \\u3042.
    """
    if character in NAMED:
        return NAMED[character][ascii_only]
    if ascii_only:
        return ascii(character)[1:-1]
    point, category = ord(character), unicodedata.category(character)
    if point < 0x20 or point == 0x7F:
        return chr(0x2421 if point == 0x7F else 0x2400 + point)
    nameless = _NAMELESS.match(character)
    if category[0] == "M" and not nameless:
        return DOTTED_CIRCLE + character
    if category[0] in "CZ" or nameless or width_in_cells(character) == 0:
        return f"U+{point:04X}"
    return character


def text_with_labels(text: str) -> str:
    """A text as the labels of its characters, but with plain spaces."""
    return "".join(sign if sign == " " else label(sign) for sign in text)


def quoted_label(character: str) -> str:
    """The label of a character in quotes, for a sentence."""
    return f"'{label(character)}'"


def needs_space_between(before: str, after: str) -> bool:
    """Whether two texts need a space between them: between two letters or digits, or between one
    of MARKS and a letter, in a script that separates words by spaces.
    """
    if not (before and after):
        return False
    last, first = before[-1], after[0]
    meets = (last.isalnum() and first.isalnum()) or (last in MARKS and first.isalpha())
    scripts = (unicodedata.name(sign, "").startswith(UNSPACED) for sign in (last, first))
    return meets and not any(scripts)


def legend(text: Iterable[str], ascii_only: bool = False) -> list[str]:
    """An explanation of every special sign in the labels of `text`: ["␠ space", …]."""
    used = set(text)
    entries = [f"{label(sign, ascii_only)} {NAMED[sign][2]}" for sign in NAMED if sign in used]
    if not ascii_only:
        controls = sorted(sign for sign in used if label(sign) in PICTURES)
        entries += [f"{label(sign)} U+{ord(sign):04X}" for sign in controls]
    if any(label(sign, ascii_only)[0] == DOTTED_CIRCLE for sign in used):
        entries.append("◌ carries a combining mark")
    return entries


def pad(text: str, width: int, right: bool = False) -> str:
    """The text, filled with spaces to `width` cells. right: aligns the text to the right."""
    space = " " * max(0, width - width_in_cells(text))
    return space + text if right else text + space


def cut(text: str, width: int, mark: str = "…") -> str:
    """The start of `one_line(text)` that fits in `width` cells. A cut text ends with `mark`."""
    begin = one_line(text[: MOST_IN_CELL * width])
    if len(text) <= MOST_IN_CELL * width and width_in_cells(begin) <= width:
        return begin
    fitting = bisect_right(
        range(len(begin) + 1), width - 1, key=lambda end: width_in_cells(begin[:end])
    )
    return begin[: max(0, fitting - 1)] + mark


def text_name(name: str) -> str:
    """The name of a text file as results show it; "-" becomes "standard input"."""
    return "standard input" if name == "-" else printable(name)
