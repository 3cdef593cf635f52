"""Converts characters to ids and back. A vocabulary has the characters of the model whose weights a
run starts with, if any, then the other characters of the corpus, sorted.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from gpt.config import Unknown
from gpt.errors import TextError
from gpt.words import first_few, pluralize

Ids = npt.NDArray[np.integer[Any]]

#: A row has characters with the same meaning, their replacements where a quotation mark opens, and
#: their replacements elsewhere, the most similar one first.
_SINGLE, _DOUBLE = "'’‘‚‛ʼ′´`", '"”“„‟″'
_SPACES = "".join(map(chr, (0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
_FOLDS = (
    (_SINGLE, "‚‘'’", "’'‘"),
    (_DOUBLE, '„“"”', '”"“'),
    ("-‐‑−", "-‐‑–—", "-‐‑–—"),
    ("–", "—-", "—-"),
    ("—―", "—–-", "—–-"),
    (_SPACES, " ", " "),
)
_OPENING, _DASHES = "([{<¿¡", "-‐‑–—―"  # after these, a quotation mark opens or may open
_JAMO = range(0x1100, 0x1200)  # the parts of Korean syllables


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """Returns (characters,) code points, also of lone surrogates, so that errors can show them."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def unix_lines(text: str) -> str:
    """Replaces CR LF and CR by LF, as Python does when it reads text files."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class Vocabulary:
    """The distinct characters that a model knows; a character's index is its id."""

    characters: str

    def __post_init__(self) -> None:
        if not self.characters or len(set(self.characters)) < len(self.characters):
            raise ValueError("a vocabulary is one or more distinct characters")

    @classmethod
    def from_text(cls, *texts: str) -> Vocabulary:
        """Makes a vocabulary of all distinct characters of the texts."""
        return cls("".join(sorted(set().union(*texts))))

    def __len__(self) -> int:
        return len(self.characters)

    @cached_property
    def _points(self) -> npt.NDArray[np.uint32]:
        return code_points(self.characters)

    @cached_property
    def _id_of_point(self) -> npt.NDArray[np.int32]:
        """(largest code point + 2,) code point -> id, or −1; the last item is for larger ones."""
        table = np.full(int(self._points.max()) + 2, -1, dtype=np.int32)
        table[self._points] = np.arange(len(self), dtype=np.int32)
        return table

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {character: number for number, character in enumerate(self.characters)}

    def id_of(self, character: str) -> int:
        """Returns the id of a character, or -1 if it is unknown."""
        return self._ids.get(character, -1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type of unsigned integers that holds every id."""
        return np.dtype(np.min_scalar_type(len(self) - 1))

    def encode(self, text: str, unknown: Unknown = "error") -> Ids:
        """Returns (characters,) ids of the text after `adapt`. Raises TextError, which names the
        first unknown character, its code point and its position.
        """
        return self._ids_of(self.adapt(text, unknown))

    def adapt(self, text: str, unknown: Unknown = "fold") -> AdaptedText:
        """Changes a text so that the model can read it. unknown: "fold" replaces unknown characters
        by known ones with the same meaning; "skip" also removes the others; "error" keeps the text.
        Raises ValueError for another `unknown`.
        """
        if unknown not in get_args(Unknown):
            raise ValueError(f"unknown: {unknown!r} is not one of {', '.join(get_args(Unknown))}")
        if unknown == "error":
            return AdaptedText(text)
        if self.unknown("\r"):
            text = unix_lines(text)
        if self.knows(text).all():
            return AdaptedText(text)
        adapted = fold(text, self)
        if unknown == "fold":
            return adapted
        is_known = self.knows(adapted.text)
        return replace(
            adapted,
            text="".join(compress(adapted.text, is_known)),
            left_out="".join(compress(adapted.text, ~is_known)),
            places=None if adapted.places is None else adapted.places[is_known],
        )

    def _ids_of(self, adapted: AdaptedText) -> Ids:
        """Returns (characters,) ids. Raises TextError, which may suggest a letter's other case."""
        ids = self._ids_or_none(adapted.text)
        if (ids < 0).any():
            at = int(np.argmin(ids >= 0))
            place = at if adapted.places is None else int(adapted.places[at])
            wrong = adapted.text[at]
            quoted = repr(wrong) if wrong.isprintable() else ascii(wrong)
            cased = wrong.swapcase()
            hint = "" if self.unknown(cased) else f"the model knows {cased!r}; "
            raise TextError(
                f"{quoted} (U+{ord(wrong):04X} {unicodedata.name(wrong, 'no name')}) at position "
                f"{place} is not in this model's vocabulary; {hint}leave it out or pass "
                "`unknown='skip'`"
            )
        return ids.astype(self.dtype)

    def _ids_or_none(self, text: str) -> npt.NDArray[np.int32]:
        """Returns (characters,) ids, -1 for unknown characters."""
        return np.take(self._id_of_point, code_points(text), mode="clip")

    def knows(self, text: str) -> npt.NDArray[np.bool_]:
        """Returns (characters,) whether the model knows each character."""
        return self._ids_or_none(text) >= 0

    def unknown(self, characters: str) -> str:
        """Returns the distinct characters that the vocabulary lacks, sorted."""
        return "".join(sorted(set(characters) - self._ids.keys()))

    @cached_property
    def folds(self) -> dict[str, tuple[str, str]]:
        """Unknown character -> two known characters with the same meaning: the first where a
        quotation mark opens, the second elsewhere.
        """
        folds = {}
        for characters, opening, closing in _FOLDS:
            first = next(filter(self._ids.__contains__, opening), "")
            if first:
                other = next(filter(self._ids.__contains__, closing), first)
                folds.update(dict.fromkeys(self.unknown(characters), (first, other)))
        return folds

    def row_of(self, ids: Ids | Iterable[int], name: str = "ids") -> Ids:
        """Returns the ids as an (n,) array. Raises TypeError unless they are one row of whole
        numbers, ValueError for an id that the vocabulary does not have. name: what errors call the
        ids.
        """
        row = ids if isinstance(ids, np.ndarray) else np.array([*ids])
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            kind = f"an array of {row.dtype} and shape {row.shape}"
            raise TypeError(f"{name}: expected a row of ids, not {kind}")
        if row.size and not 0 <= row.min() <= row.max() < len(self):
            span = f"{row.min()} … {row.max()}"
            raise ValueError(f"{name}: {span} are not in 0 … {len(self) - 1}")
        return row

    def decode(self, ids: Ids | Iterable[int]) -> str:
        """Returns the text of these ids. Raises the errors of `row_of`."""
        points = self._points[self.row_of(ids).astype(np.intp)]
        return points.tobytes().decode("utf-32-le", "surrogatepass")


@dataclass(frozen=True)
class AdaptedText:
    """The result of Vocabulary.adapt.

    folded: pairs of a part of the typed text and its replacement. left_out: unknown characters that
    were removed. places (characters,): the position of each character in the typed
    text; None: the text is unchanged.
    """

    text: str
    folded: tuple[tuple[str, str], ...] = ()
    left_out: str = ""
    places: npt.NDArray[np.integer[Any]] | None = None

    def notes(self, name: str = "") -> Iterator[str]:
        """Yields notes for the user. name: the name of the text, if there are several."""
        from gpt.words import quoted_label, text_with_labels  # imports rich

        begin = f"note: {name}: " if name else "note: "
        if self.folded:
            pairs = [
                f"{text_with_labels(new)} for {text_with_labels(old)}" for old, new in self.folded
            ]
            yield f"{begin}the model reads {first_few(pairs, 8, ', ')}"
        if self.left_out:
            missing = first_few(
                [quoted_label(character) for character in sorted(set(self.left_out))], 8
            )
            typed = pluralize(len(self.text) + len(self.left_out), "character")
            yield (
                f"{begin}left out {len(self.left_out):,} of {typed}, "
                f"which the model does not know: {missing}"
            )


def fold(text: str, vocabulary: Vocabulary) -> AdaptedText:
    """Replaces unknown characters of a text by known ones with the same meaning: quotation marks,
    dashes, spaces, and letters in composed or decomposed form (NFC, NFD). A letter that the
    vocabulary has in neither form is composed, so it counts as one unknown character.
    """
    parts: list[str] = []
    places: list[npt.NDArray[np.intp]] = []
    folded: dict[tuple[str, str], None] = {}
    folds, end = vocabulary.folds, 0
    for at in np.flatnonzero(~vocabulary.knows(text)).tolist():
        if at < end:
            continue
        first, last = at, at + 1
        while first > end and _joins(text, first):
            first -= 1
        while last < len(text) and _joins(text, last):
            last += 1
        old, other = text[first:last], not _opens(text, first)
        forms = [unicodedata.normalize(form, old) for form in ("NFC", "NFD")]
        letter = next((form for form in forms if not vocabulary.unknown(form)), forms[0])
        new = "".join(folds[part][other] if part in folds else part for part in letter)
        parts += text[end:first], new
        places += np.arange(end, first), np.minimum(np.arange(len(new)) + first, last - 1)
        if new != old and not vocabulary.unknown(new):
            folded[old, new] = None
        end = last
    parts.append(text[end:])
    places.append(np.arange(end, len(text)))
    return AdaptedText("".join(parts), (*folded,), places=np.concatenate(places))


def _joins(text: str, at: int) -> bool:
    """Whether a character belongs to the letter before it: a mark, or a part of a syllable."""
    if ord(text[at]) in _JAMO:
        return at > 0 and ord(text[at - 1]) in _JAMO
    return unicodedata.category(text[at])[0] == "M"


def _opens(text: str, at: int) -> bool:
    """Whether a quotation mark at this position opens a quotation, by the characters around it."""
    before = text[max(0, at - 9) : at].rstrip(_SINGLE + _DOUBLE)[-1:]
    if before and before in _DASHES:
        return text[at + 1 : at + 2].strip() != ""
    return before.strip() == "" or before in _OPENING


def log_note(line: str) -> None:
    """Logs a note or a warning, which Python writes to stderr."""
    logging.getLogger("gpt").warning("%s", line)


def check_adapted_text(vocabulary: Vocabulary, adapted: AdaptedText, name: str = "") -> AdaptedText:
    """Logs the notes of an adapted text, and returns the text. Raises TextError if it still has
    unknown characters. name: see AdaptedText.notes.
    """
    try:
        vocabulary._ids_of(adapted)
    except TextError as error:
        raise TextError(f"{name}: {error}" if name else str(error)) from error
    for line in adapted.notes(name):
        log_note(line)
    return adapted
