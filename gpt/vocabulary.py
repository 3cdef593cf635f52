"""Characters <-> ids. A vocabulary is the sorted set of a corpus's characters, and nothing else.

If a model starts from another's weights, its vocabulary begins with the other's. Text is never
normalised: decoding the ids of a text gives the same text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import checks_methods
from gpt.errors import TextError
from gpt.words import some

Ids = npt.NDArray[np.integer[Any]]
#: The characters before a target and after it: those between and after the sides of a pair.
FIRST, LAST = "\t", "\n"

REPLACEMENT = "\ufffd"  # stands for rare characters


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """(characters,) code points; accepts lone surrogates, so that an error can show them."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


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

    def encode(self, text: str, unknown: str = "error") -> Ids:
        """(characters,) ids. `unknown="skip"` leaves out unknown characters.

        Raises TextError with the first unknown character, its code point and position; TypeError
        for a text that is no str, ValueError for another `unknown`.
        """
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, not {type(text).__name__}")
        if unknown not in ("error", "skip"):
            raise ValueError(f"unknown: {unknown!r} is not one of error, skip")
        ids = self._ids_or_none(text)
        known = ids >= 0
        if not known.all():
            if unknown != "skip":
                position = int(np.argmin(known))
                raise TextError(unknown_message(text[position], position))
            ids = ids[known]
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
        return points.tobytes().decode("utf-32-le", "surrogatepass")


def known_text(
    vocabulary: Vocabulary,
    text: str,
    unknown: str,
    note: Callable[[str], object],
    name: str = "",
) -> str:
    """The text without characters outside the vocabulary; `note` receives a line that counts these.

    name: the name of the text in the line and in errors, if there are several texts. Raises
    TextError for such a character if unknown="error".
    """
    try:
        known = vocabulary.decode(vocabulary.encode(text, unknown))
    except TextError as error:
        raise TextError(f"{name}: {error}" if name else str(error)) from error
    if len(known) < len(text):
        from gpt.characters import quoted  # imports rich

        missing = [quoted(each) for each in vocabulary.unknown(text)]
        of = f"{name}: " if name else ""
        note(
            f"note: {of}left out {len(text) - len(known):,} of {len(text):,} characters, which the "
            f"model does not know: {some(missing, 8)}"
        )
    return known


def unknown_message(character: str, position: int) -> str:
    """The text of an error: the character, its position, and what to do."""
    name = unicodedata.name(character, "no name")
    shown = repr(character) if character.isprintable() else ascii(character)
    return (
        f"{shown} (U+{ord(character):04X} {name}) at position {position} is not in this model's "
        "vocabulary; leave it out or pass `unknown='skip'`"
    )
