"""Finds installed fonts for the characters of a figure; names fonts to install for the
others.

Uses the names of characters and matplotlib's list of fonts.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpt.characters import NAMED, PICTURES, SPACE, label
from gpt.words import first_few

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font


def drawable_label(character: str, ascii_only: bool) -> str:
    """The terminal's label of a character, written with characters that common fonts have."""
    name = label(character, ascii_only)
    if name == NAMED[" "][0]:
        return SPACE
    # Few fonts can draw the pictures of control characters.
    return fallback_label(character) if name in PICTURES else name


def label_characters(
    characters: Iterable[str], ascii_only: bool
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The label of each character, the file of a font for it, and the characters that no font can
    draw.
    """
    names = {each: drawable_label(each, ascii_only) for each in characters}
    fonts = find_fonts(frozenset(names.values()))
    missing = [each for each in names if names[each] not in fonts]
    names.update((each, fallback_label(each)) for each in missing)
    return names, {each: fonts.get(name, fonts[""]) for each, name in names.items()}, missing


def fallback_label(character: str) -> str:
    """A label for a character that no font can draw."""
    return f"U+{ord(character):04X}"


@cache
def find_fonts(names: frozenset[str]) -> Mapping[str, str]:
    """Name -> the file of a font that draws it, if there is one; "" -> matplotlib's default font.

    Tries matplotlib's own font first. If it lacks some characters, tries all installed fonts: first
    the font with most of the missing ones, then the font with most of the rest, and so on.
    """
    from matplotlib import font_manager

    ours = str(font_manager.findfont("DejaVu Sans"))
    found = dict.fromkeys(["", *_drawn_by(ours, names)], ours)
    missing = names - found.keys()
    if missing:
        # Matplotlib caches its list, which lacks fonts installed later.
        folders = font_manager.OSXFontDirectories if sys.platform == "darwin" else None
        files = {entry.fname for entry in font_manager.fontManager.ttflist}
        files.update(font_manager.findSystemFonts(folders))
        drawn = {file: _drawn_by(file, missing) for file in files}
        while missing:
            best = max(sorted(drawn), key=lambda file: (len(drawn[file] & missing), _plain(file)))
            if not drawn[best] & missing:
                break
            found.update(dict.fromkeys(drawn[best] & missing, best))
            missing -= drawn[best]
    return found


def _plain(file: str) -> tuple[bool, bool]:
    """Sort key that prefers plain fonts without serifs."""
    name = Path(file).stem.lower()
    styled = re.search("bold|black|heavy|light|thin|medium|italic|oblique|condensed", name)
    return not styled, not re.search("serif|mincho|song|ming|mono|math", name.replace("sans", ""))


def _drawn_by(file: str, names: Iterable[str]) -> frozenset[str]:
    """The names whose characters the font can all draw."""
    from matplotlib.ft2font import FT2Font

    if "lastresort" in Path(file).stem.lower():  # this font draws a box for every character
        return frozenset()
    try:
        font = FT2Font(file)
    except (OSError, RuntimeError):  # a font of pictures, or a damaged one
        return frozenset()
    return frozenset(name for name in names if all(_has_ink(font, sign) for sign in name))


def _has_ink(font: FT2Font, sign: str) -> bool:
    """Whether the font's glyph has outlines: glyphs of colour fonts have none and would be
    invisible.
    """
    if not font.get_char_index(ord(sign)):
        return False
    if sign == " ":
        return True
    try:
        font.set_size(10, 72)
        font.load_char(ord(sign))
    except RuntimeError:
        return False
    return len(font.get_path()[0]) > 0


def font_warning(missing: Sequence[str]) -> str:
    """A warning: characters without a font, their labels, and fonts to install."""
    shown = first_few([label(character) for character in missing], 8, ", ")
    remedies = dict.fromkeys(_remedy(character) for character in missing)
    return (
        f"no installed font draws {shown}: labelled like {fallback_label(missing[0])}; "
        f"install {', '.join(remedies)}"
    )


def _remedy(character: str) -> str:
    name = unicodedata.name(character, "")
    if re.match("CJK|HIRAGANA|KATAKANA|HANGUL|IDEOGRAPHIC|FULLWIDTH|BOPOMOFO", name):
        return "Noto Sans CJK"
    if unicodedata.category(character)[0] == "S":
        return "Noto Emoji (the one without colours) or Noto Sans Symbols"
    return f"the Noto Sans font for {name.split()[0].title()}" if name else "a font that has it"
