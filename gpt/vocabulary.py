"""Characters <-> ids. A vocabulary is the sorted set of a corpus's characters.

On a side of pairs whose symbols are separated by spaces, such as phonemes, a symbol of several
characters (t͡s, bː) takes the place of a character. If a model starts from another model's weights,
its vocabulary begins with the vocabulary of that model. Text is never normalised: decoding the ids
of a text gives the same text, except for the number of spaces between symbols.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from gpt.checks import checks_methods, require_texts
from gpt.config import Side, Unknown
from gpt.errors import TextError
from gpt.words import counted, first_few

Ids = npt.NDArray[np.integer[Any]]
#: A text as a sequence of symbols; the symbols of a str are its characters.
Symbols: TypeAlias = str | tuple[str, ...]
#: The characters before and after a target, which are also those that separate sides and pairs.
FIRST, LAST = "\t", "\n"
SPACE = " "  # separates two symbols

REPLACEMENT = "\ufffd"  # replaces rare characters

#: Characters with the same meaning, and what each may become, the nearest first: dashes; spaces;
#: quotation marks, where the character before them decides whether they open.
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
_JAMO = range(0x1100, 0x1200)  # the parts of Korean syllables


def code_points(text: str) -> npt.NDArray[np.uint32]:
    """(characters,) code points; accepts lone surrogates, so that an error can show them."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


@checks_methods
@dataclass(frozen=True)
class Vocabulary:
    """The distinct characters that a model knows; a character's index is its id.

    The characters of a text are in code point order. spaced: the sides of pairs in which spaces
    separate the symbols; if there are any, `characters` is a tuple of symbols. unread: the symbols
    that occur only in targets. The model has not read them in a source, so they are unknown there.
    unwritten: the symbols that occur only in sources, which no target that the model writes
    contains.
    """

    characters: Symbols
    spaced: tuple[Side, ...] = ()
    unread: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        symbols = set(self.characters)
        whole = all(len(each) == 1 or not {FIRST, LAST, SPACE} & {*each} for each in symbols)
        if not symbols or len(symbols) < len(self.characters) or "" in symbols or not whole:
            raise ValueError("a vocabulary is one or more distinct characters or symbols")
        of_sides = {*self.unread, *self.unwritten}
        if isinstance(self.characters, str) == bool(self.spaced) or not symbols >= of_sides:
            raise ValueError("the characters of a vocabulary contradict its sides")

    @classmethod
    def from_text(cls, *texts: str) -> Vocabulary:
        """A vocabulary of the distinct characters of the texts together."""
        return cls("".join(sorted(set().union(*texts))))

    def grown(self, symbols: Iterable[str]) -> Vocabulary:
        """A vocabulary with new symbols: known ones keep their ids, new ones follow, sorted."""
        new: Any = self.unknown(symbols)  # has the same type
        return replace(self, characters=self.characters + new)

    def __len__(self) -> int:
        return len(self.characters)

    @cached_property
    def _points(self) -> npt.NDArray[np.uint32]:
        return code_points("".join(self.characters))

    @cached_property
    def _id_of_point(self) -> npt.NDArray[np.int32]:
        """(largest code point + 2,) code point -> id, −1 if unknown; the last item: all larger."""
        table = np.full(int(self._points.max()) + 2, -1, dtype=np.int32)
        table[self._points] = np.arange(len(self), dtype=np.int32)
        return table

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {symbol: number for number, symbol in enumerate(self.characters)}

    @cached_property
    def _is_unread(self) -> npt.NDArray[np.bool_]:
        """(vocabulary + 1,) whether each id is in `unread`; the last item is for −1."""
        return np.array([*(each in self.unread for each in self.characters), False])

    @cached_property
    def letters(self) -> dict[Side, Vocabulary]:
        """The single characters that each side may have."""
        every = [each for each in self.characters if len(each) == 1]
        read = (each for each in every if each not in self.unread)
        return {"source": Vocabulary("".join(read)), "target": Vocabulary("".join(every))}

    def id_of(self, symbol: str) -> int:
        """The id of a character or symbol, -1 if it is unknown."""
        return self._ids.get(symbol, -1)

    def split(self, text: str) -> Symbols:
        """Splits a source, or lines "source TAB target" as in a file, into symbols."""
        return (*symbols_of(text, self.spaced),) if self.spaced else text

    def _join(self, symbols: Iterable[str], side: Side = "source") -> str:
        """Joins symbols into text, the inverse of `split`. side: the side of the first symbol."""
        if not self.spaced:
            return "".join(symbols)
        parts, begins = list[str](), True
        for symbol in symbols:
            ends = symbol in (FIRST, LAST)
            if not (ends or begins) and side in self.spaced:
                parts.append(SPACE)
            if ends:
                side = "target" if symbol == FIRST else "source"
            parts.append(symbol)
            begins = ends
        return "".join(parts)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer that holds every id."""
        return np.dtype(np.min_scalar_type(len(self) - 1))

    def encode(self, text: str, unknown: Unknown = "error") -> Ids:
        """(characters,) ids. `Unknown` says what may happen to unknown characters; `read` reports
        it.

        Raises TextError with the first unknown character, its code point and position; TypeError
        for a text that is not a str, ValueError for another `unknown`.
        """
        return self._ids_of(self.read(text, unknown))

    def read(self, text: str, unknown: Unknown = "fold") -> Reading:
        """The text as the model can read it; with "fold" and "error" it may still have unknown
        characters. Raises TypeError for a text that is not a str, ValueError for another `unknown`.
        """
        if unknown not in get_args(Unknown):
            raise ValueError(f"unknown: {unknown!r} is not one of {', '.join(get_args(Unknown))}")
        sides = bool(self.spaced or self.unread)
        if "\r" in text and "\r" not in self._ids and (sides or unknown != "error"):
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if unknown == "error" or self.known(self.split(text)).all():
            return Reading(text)
        found = self._fold_sides(text) if sides else fold(text, self)
        symbols = self.split(found.text)
        if unknown == "skip" and not (known := self.known(symbols)).all():
            kept, left_out = (compress(symbols, it.tolist()) for it in (known, ~known))
            places = found.places if found.places is None else found.places[known]
            of = counted(len(symbols), "symbol" if self.spaced else "character")
            return Reading(self._join(kept), found.folded, (*left_out,), places, of)
        return found

    def _fold_sides(self, text: str) -> Reading:
        """`fold` with the letters of each side. A symbol becomes NFC or NFD if that is known."""
        parts, places, at = list[str](), list[npt.NDArray[np.integer[Any]]](), 0
        folded = dict[tuple[str, str], None]()
        for side, part in sides_of(text):
            found = Reading(part, places=np.arange(len(part)))
            if side in self.spaced:
                new = {old: self._form(old, side) for old in part.split(SPACE)}
                pairs = (pair for pair in new.items() if len({*pair}) > 1)
                found = Reading(SPACE.join(map(new.__getitem__, part.split(SPACE))), (*pairs,))
            elif side is not None:
                found = fold(part, self.letters[side])
            folded |= dict.fromkeys(found.folded)
            parts.append(found.text)
            if found.places is not None:
                places.append(at + found.places)
            at += len(part)
        return Reading("".join(parts), (*folded,), (), None if self.spaced else np.hstack(places))

    def _form(self, symbol: str, side: Side | None) -> str:
        forms = (symbol, *(unicodedata.normalize(form, symbol) for form in ("NFC", "NFD")))
        unread = self.unread if side == "source" else ()
        known = (form for form in forms if form in self._ids and form not in unread)
        return next(known, symbol)

    def _ids_of(self, reading: Reading) -> Ids:
        """(characters,) ids of a text after `read`. Raises TextError like `encode`."""
        symbols = self.split(reading.text)
        ids = self._ids_or_none(symbols)
        if not (known := ids >= 0).all():
            at = int(np.argmin(known))
            before = len(self._join(symbols[: at + 1])) - len(symbols[at])
            place = before if reading.places is None else int(reading.places[at])
            raise TextError(unknown_message(symbols[at], place, self))
        return ids.astype(self.dtype)

    def _ids_or_none(self, symbols: Symbols) -> npt.NDArray[np.int32]:
        """(symbols,) ids, -1 for unknown ones."""
        if self.spaced:
            ids = np.array([self.id_of(symbol) for symbol in symbols], np.int32)
        else:
            ids = np.take(self._id_of_point, code_points("".join(symbols)), mode="clip")
        if self.unread and (unread := self._is_unread[ids]).any():
            sources = in_sources(ids, self.id_of(FIRST), self.id_of(LAST))
            ids = np.where(unread & sources, -1, ids)
        return ids

    def known(self, symbols: Symbols) -> npt.NDArray[np.bool_]:
        """(symbols,) whether the model knows each symbol on its side."""
        if not isinstance(symbols, str):
            require_texts("symbols", symbols)
        return self._ids_or_none(symbols) >= 0

    def unknown(self, symbols: Iterable[str]) -> Symbols:
        """The distinct characters or symbols that the vocabulary lacks, sorted."""
        if not isinstance(symbols, str):
            require_texts("symbols", symbols)
        return sorted_symbols(set(symbols) - set(self.characters), self.spaced)

    @cached_property
    def folds(self) -> dict[str, tuple[str, str]]:
        """Unknown character -> the known ones with the same meaning: the first for places where a
        quotation mark opens, the second for other places.
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
        """The (n,) ids as an array. name: what the ids are, for errors.

        Raises TypeError unless they are one row of whole numbers, ValueError for an id that the
        vocabulary does not have.
        """
        row = ids if isinstance(ids, np.ndarray) else np.array([*ids])
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            found = f"an array of {row.dtype} and shape {row.shape}"
            raise TypeError(f"{name}: expected a row of ids, not {found}")
        if row.size and not 0 <= row.min() <= row.max() < len(self):
            found = f"{row.min()} … {row.max()}"
            raise ValueError(f"{name}: {found} are not in 0 … {len(self) - 1}")
        return row

    def symbols(self, ids: Ids | Iterable[int]) -> Symbols:
        """The symbols with these ids; without a spaced side, a str. Raises like `row_of`."""
        row = self.row_of(ids).astype(np.intp)
        if self.spaced:
            return tuple(self.characters[each] for each in row.tolist())
        return self._points[row].tobytes().decode("utf-32-le", "surrogatepass")

    def decode(self, ids: Ids | Iterable[int], side: Side = "source") -> str:
        """The text of these ids. side: the side of the first id. Raises like `row_of`."""
        return self._join(self.symbols(ids), side)

    def written(self, ids: Ids | Iterable[int], side: Side) -> Symbols:
        """The symbols of one side, a str if it is not spaced. Raises like `row_of`."""
        symbols = self.symbols(ids)
        return symbols if side in self.spaced else "".join(symbols)


def in_sources(ids: Ids, tab: int, newline: int) -> npt.NDArray[np.bool_]:
    """(n,) ids of lines -> (n,) whether each id is before the first TAB of its line."""
    marks = np.flatnonzero((ids == tab) | (ids == newline))
    lengths = np.diff(np.append(marks, len(ids) - 1), prepend=-1)  # up to each mark, and the rest
    return np.repeat(np.append(True, ids[marks] != tab), lengths)


def sides_of(text: str) -> Iterator[tuple[Side | None, str]]:
    """The parts of a source, or of lines "source TAB target"; TAB and NEWLINE have no side."""
    side: Side = "source"
    for part in re.split(f"([{FIRST}{LAST}])", text):
        if part in (FIRST, LAST):
            side = "target" if part == FIRST else "source"
            yield None, part
        else:
            yield side, part


def symbols_of(text: str, spaced: Container[Side]) -> Iterator[str]:
    """The symbols of a source, or of lines "source TAB target". spaced: the sides in which spaces
    separate symbols; on other sides each character is a symbol.
    """
    for side, part in sides_of(text):
        yield from filter(None, part.split(SPACE)) if side in spaced else part


def sorted_symbols(symbols: Iterable[str], spaced: Container[Side]) -> Symbols:
    """The distinct symbols, sorted, for a vocabulary with these spaced sides."""
    distinct = sorted({*symbols})
    return (*distinct,) if spaced else "".join(distinct)


def join_symbols(symbols: Symbols, shown: Callable[[str], str] = str) -> str:
    """Symbols of one side as a text; spaces separate those of a tuple. shown: a symbol's text."""
    return ("" if isinstance(symbols, str) else SPACE).join(map(shown, symbols))


@dataclass(frozen=True)
class Reading:
    """A text as a model can read it.

    folded: pairs of a typed text and what the model reads in its place. left_out: unknown
    characters that were removed, of: how many there were in all. places (characters,): the position
    of each character in the typed text; None: unknown, or unchanged.
    """

    text: str
    folded: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    places: npt.NDArray[np.integer[Any]] | None = None
    of: str = ""

    def notes(self, name: str = "") -> Iterator[str]:
        """Notes for the user. name: the text's name, if there are several texts."""
        from gpt.characters import quoted  # imports rich

        def shown(text: str) -> str:  # quotation marks within quotes would be hard to read
            marks = (unicodedata.category(each)[0] == "P" for each in text)
            pairs = zip(text, marks, strict=True)
            return " + ".join(each if mark else quoted(each) for each, mark in pairs)

        of = f"{name}: " if name else ""
        if self.folded:
            pairs = [f"{shown(new)} for {shown(old)}" for old, new in self.folded]
            yield f"note: {of}the model reads {first_few(pairs, 8, ', ')}"
        if self.left_out:
            missing = [quoted(each) for each in sorted(set(self.left_out))]
            count = len(self.left_out)
            yield (
                f"note: {of}left out {count:,} of {self.of}, which the model does not know: "
                f"{first_few(missing, 8)}"
            )


def fold(text: str, vocabulary: Vocabulary) -> Reading:
    """The text with unknown characters replaced by known ones with the same meaning: quotation
    marks, dashes, spaces, and letters in composed or decomposed form (NFC, NFD).

    Known characters stay as they are. A letter that the vocabulary has in neither form is composed,
    so that it counts as one unknown character.
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
    return Reading("".join(parts), (*folded,), (), np.concatenate(places))


def _joins(text: str, at: int) -> bool:
    """Whether a character belongs to the letter before it: a mark, or a part of a syllable."""
    if ord(text[at]) in _JAMO:
        return at > 0 and ord(text[at - 1]) in _JAMO
    return unicodedata.category(text[at])[0] == "M"


def _opens(text: str, at: int) -> bool:
    """Whether a quotation mark at this position opens a quotation, by the characters around it."""
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
    """The text after reading it, with known characters only; `note` receives lines that say what
    the model reads in place of unknown characters, and what is left out.

    name: the text's name in notes and errors, if there are several texts. Raises TextError for an
    unknown character.
    """
    try:
        vocabulary._ids_of(found)
    except TextError as error:
        raise TextError(f"{name}: {error}" if name else str(error)) from error
    for line in found.notes(name):
        note(line)
    return found


def unknown_message(character: str, position: int, vocabulary: Vocabulary) -> str:
    """The message for an unknown character: the character, its position, and what to do. It
    suggests the other case of the letter if the model knows that one.
    """
    shown = repr(character) if character.isprintable() else ascii(character)
    if len(character) == 1:
        shown += f" (U+{ord(character):04X} {unicodedata.name(character, 'no name')})"
    cased = character.swapcase()
    known = cased != character and bool(vocabulary.known((cased,)).all())
    what = "is not in this model's vocabulary"
    if character in vocabulary.unread:
        what = "stands only in targets: this model never read it in a source"
    elif len(character) > 1:
        sides = " and a ".join(vocabulary.spaced)
        what = f"is no symbol that this model knows; spaces separate the symbols of a {sides}"
    return (
        f"{shown} at position {position} {what}; {f'the model knows {cased!r}; ' * known}leave it "
        "out or pass `unknown='skip'`"
    )
