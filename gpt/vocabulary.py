"""Characters <-> ids. A vocabulary is the sorted set of a corpus's characters, and nothing else.

If a model starts from another's weights, its vocabulary begins with the other's. Text is never
normalised: decoding the ids of a text gives the same text.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from gpt.checks import checks_methods
from gpt.config import Unknown
from gpt.errors import TextError
from gpt.words import some

Ids = npt.NDArray[np.integer[Any]]
#: The characters before a target and after it: those between and after the sides of a pair.
FIRST, LAST = "\t", "\n"

REPLACEMENT = "\ufffd"  # stands for rare characters

#: Characters that mean the same, and what they may become, the nearest first: quotation marks that
#: open, or do not open, by what is before them; dashes; spaces.
_SINGLE, _DOUBLE = "'’‘‚‛ʼ′´`", '"”“„‟″'
_FOLDS: tuple[tuple[str, str, str], ...] = (
    (_SINGLE, "‚‘'’", "’'‘"),
    (_DOUBLE, '„“"”', '”"“'),
    ("-‐‑−", "-‐‑–—", "-‐‑–—"),
    ("–", "—-", "—-"),
    ("—―", "—–-", "—–-"),
    ("".join(map(chr, (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000))), " ", " "),
)
_OPENING, _DASHES = "([{<¿¡", "-‐‑–—―"  # quotation marks after these open; after dashes, in words
_LONGEST = 32  # characters of a letter with its marks
_JAMO = range(0x1100, 0x1200)  # parts of Korean syllables


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """(characters,) code points; accepts lone surrogates, so that an error can show them."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def text_of(points: npt.NDArray[np.uint32]) -> str:
    """The text of (characters,) code points."""
    return points.tobytes().decode("utf-32-le", "surrogatepass")


@checks_methods
@dataclass(frozen=True)
class Vocabulary:
    """The distinct characters that a model knows; a character's index is its id.

    Those of a text are in code point order.
    """

    characters: str

    def __post_init__(self) -> None:
        points = self._points
        if not len(points) or len(np.unique(points)) < len(points):
            raise ValueError("a vocabulary is one or more distinct characters")

    @classmethod
    def from_text(cls, *texts: str) -> Vocabulary:
        """The distinct characters of the texts together."""
        return cls("".join(sorted(set().union(*texts))))

    def grown(self, text: str) -> Vocabulary:
        """Known characters keep their ids; those of the text that are new follow, sorted."""
        return Vocabulary(self.characters + self.unknown(text))

    def __len__(self) -> int:
        return len(self.characters)

    @cached_property
    def _points(self) -> npt.NDArray[np.uint32]:
        return code_points(self.characters)

    @cached_property
    def _id_of_point(self) -> npt.NDArray[np.int32]:
        """(largest code point + 2,) code point -> id, -1 if unknown; the last is for all larger
        ones.
        """
        table = np.full(int(self._points.max()) + 2, -1, dtype=np.int32)
        table[self._points] = np.arange(len(self), dtype=np.int32)
        return table

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer that holds every id."""
        return np.dtype(np.min_scalar_type(len(self) - 1))

    def encode(self, text: str, unknown: Unknown = "error") -> Ids:
        """(characters,) ids. For unknown characters see `Unknown`: `read` says what happened.

        Raises TextError with the first unknown character, its code point and position; TypeError
        for a text that is no str, ValueError for another `unknown`.
        """
        return self._ids_of(self.read(text, unknown))

    def read(self, text: str, unknown: Unknown = "fold") -> Reading:
        """The text as the model can read it; with "fold" and "error" it may still have unknown
        characters. Raises TypeError for a text that is no str, ValueError for another `unknown`.
        """
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, not {type(text).__name__}")
        if unknown not in get_args(Unknown):
            raise ValueError(f"unknown: {unknown!r} is not one of {', '.join(get_args(Unknown))}")
        if unknown == "error" or self.known(text).all():
            return Reading(text)
        found = fold(text, self)
        if unknown == "skip" and not (known := self.known(found.text)).all():
            points = code_points(found.text)
            kept, left_out = text_of(points[known]), text_of(points[~known])
            places = np.arange(len(text)) if found.places is None else found.places
            return Reading(kept, found.folded, left_out, places[known])
        return found

    def _ids_of(self, reading: Reading) -> Ids:
        """(characters,) ids of a text that was read. Raises TextError as `encode`."""
        ids = self._ids_or_none(reading.text)
        if not (known := ids >= 0).all():
            at = int(np.argmin(known))
            place = at if reading.places is None else int(reading.places[at])
            raise TextError(unknown_message(reading.text[at], place, self))
        return ids.astype(self.dtype)

    def _ids_or_none(self, text: str) -> npt.NDArray[np.int32]:
        """(characters,) ids, -1 for unknown characters."""
        return np.take(self._id_of_point, code_points(text), mode="clip")

    def known(self, text: str) -> npt.NDArray[np.bool_]:
        """(characters,) whether each is in the vocabulary."""
        return self._ids_or_none(text) >= 0

    def unknown(self, text: str) -> str:
        """The distinct characters of `text` that the vocabulary lacks, sorted."""
        return "".join(sorted(set(text) - set(self.characters)))

    @cached_property
    def folds(self) -> dict[str, tuple[str, str]]:
        """Unknown character -> the known one that means the same, where a quotation mark opens and
        elsewhere.
        """
        return {
            each: (first, other)
            for characters, opening, closing in _FOLDS
            for each in characters
            if each not in self.characters
            and (first := next((it for it in opening if it in self.characters), ""))
            and (other := next((it for it in closing if it in self.characters), first))
        }

    def row_of(self, ids: Ids | Iterable[int], name: str = "ids") -> Ids:
        """The (n,) ids as an array. name: what they are, for errors.

        Raises TypeError unless they are one row of whole numbers, ValueError unless the vocabulary
        has them all.
        """
        row = ids if isinstance(ids, np.ndarray) else np.array([*ids])
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            found = f"an array of {row.dtype} and shape {row.shape}"
            raise TypeError(f"{name}: expected a row of ids, not {found}")
        if row.size and not 0 <= row.min() <= row.max() < len(self):
            found = f"{row.min()} … {row.max()}"
            raise ValueError(f"{name}: {found} are not in 0 … {len(self) - 1}")
        return row

    def decode(self, ids: Ids | Iterable[int]) -> str:
        """The text of these ids. Raises as `row_of`."""
        points = self._points[self.row_of(ids).astype(np.intp)]
        return text_of(points)


@dataclass(frozen=True)
class Reading:
    """A text as a model can read it.

    folded: pairs of what was typed and what the model reads for it. left_out: unknown characters
    that the text no longer has. places (characters,): where each stood in the text; None: there.
    """

    text: str
    folded: tuple[tuple[str, str], ...] = ()
    left_out: str = ""
    places: npt.NDArray[np.integer[Any]] | None = None

    def notes(self, name: str = "") -> Iterator[str]:
        """Lines for the user. name: of the text, if there are several."""
        from gpt.characters import quoted  # imports rich

        def shown(text: str) -> str:  # a quotation mark in quotes would be hard to read
            marks = (unicodedata.category(each)[0] == "P" for each in text)
            pairs = zip(text, marks, strict=True)
            return " + ".join(each if mark else quoted(each) for each, mark in pairs)

        of = f"{name}: " if name else ""
        if self.folded:
            pairs = [f"{shown(new)} for {shown(old)}" for old, new in self.folded]
            yield f"note: {of}the model reads {some(pairs, 8, ', ')}"
        if self.left_out:
            missing = [quoted(each) for each in sorted(set(self.left_out))]
            count, total = len(self.left_out), len(self.text) + len(self.left_out)
            yield (
                f"note: {of}left out {count:,} of {total:,} characters, which the model does not "
                f"know: {some(missing, 8)}"
            )


def fold(text: str, vocabulary: Vocabulary) -> Reading:
    """The text with characters that the vocabulary has, for others that mean the same: quotation
    marks, dashes, spaces, and letters that are composed or decomposed (NFC, NFD).

    Known characters stay as they are. A letter that the vocabulary has in neither form is composed,
    so that it is one unknown character.
    """
    parts: list[str] = []
    places: list[npt.NDArray[np.intp]] = []
    folded: dict[tuple[str, str], None] = {}
    end = 0
    for at in np.flatnonzero(~vocabulary.known(text)).tolist():
        if at < end:
            continue
        first, last = at, at + 1
        while first > end and _joins(text, first) and at - first < _LONGEST:
            first -= 1
        while last < len(text) and _joins(text, last) and last - first < _LONGEST:
            last += 1
        old = text[first:last]
        forms = [unicodedata.normalize(form, old) for form in ("NFC", "NFD")]
        new = next((form for form in forms if not vocabulary.unknown(form)), forms[0])
        if vocabulary.unknown(new):
            opens = _opens(text, first)
            folds = ((each, vocabulary.folds.get(each)) for each in new)
            new = "".join(to[not opens] if to else each for each, to in folds)
        parts += text[end:first], new
        places += np.arange(end, first), np.minimum(np.arange(len(new)) + first, last - 1)
        if new != old and not vocabulary.unknown(new):
            folded[old, new] = None
        end = last
    parts.append(text[end:])
    places.append(np.arange(end, len(text)))
    return Reading("".join(parts), (*folded,), "", np.concatenate(places))


def _joins(text: str, at: int) -> bool:
    """Whether a character belongs to the letter before it: a mark, or a part of a syllable."""
    if ord(text[at]) in _JAMO:
        return at > 0 and ord(text[at - 1]) in _JAMO
    return unicodedata.category(text[at])[0] == "M"


def _opens(text: str, at: int) -> bool:
    """Whether a quotation mark at this position opens, by the characters around it."""
    first = at
    while first and text[first - 1] in _SINGLE + _DOUBLE:
        first -= 1
    before, after = text[max(0, first - 1) : first], text[at + 1 : at + 2]
    if before and before in _DASHES:
        return bool(after) and not after.isspace()
    return not before or before.isspace() or before in _OPENING


def log_note(line: str) -> None:
    """Logs a note or a warning; Python writes it to stderr."""
    logging.getLogger("gpt").warning("%s", line)


def known_text(
    vocabulary: Vocabulary, found: Reading, note: Callable[[str], object], name: str = ""
) -> Reading:
    """The text as it was read, all of whose characters are known; `note` receives lines that say
    what the model reads for what, and what is left out.

    name: the name of the text in the line and in errors, if there are several texts. Raises
    TextError for an unknown character.
    """
    try:
        vocabulary._ids_of(found)
    except TextError as error:
        raise TextError(f"{name}: {error}" if name else str(error)) from error
    for line in found.notes(name):
        note(line)
    return found


def unknown_message(character: str, position: int, vocabulary: Vocabulary) -> str:
    """The text of an error: the character, its position, and what to do. Names the character in
    the other case if the model knows that one.
    """
    name = unicodedata.name(character, "no name")
    shown = repr(character) if character.isprintable() else ascii(character)
    cased = character.swapcase()
    known = cased != character and not vocabulary.unknown(cased)
    return (
        f"{shown} (U+{ord(character):04X} {name}) at position {position} is not in this model's "
        f"vocabulary; {f'the model knows {cased!r}; ' * known}leave it out or pass `unknown='skip'`"
    )
