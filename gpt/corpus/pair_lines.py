"""Lines of pairs, or of sources, for a trained model, with its vocabulary and window.

pairs.py finds the pairs of a text to train on; here each line is checked by itself, so that an
error names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpt.config import Side, Unknown
from gpt.errors import TextError
from gpt.vocabulary import Ids, Vocabulary

TAB, NEWLINE, RETURN = "\t", "\n", "\r"
LINE_FORMAT = "each line is SOURCE, one TAB, TARGET"
QUOTED = 40  # most characters of a line that an error shows


@dataclass(frozen=True, eq=False)
class Line:
    """A pair: the number of its line, from 1, and the ids of its sides."""

    number: int
    source: Ids
    target: Ids


@dataclass(frozen=True)
class Window:
    """How long lines may be. joined: whether source and target share one window, as in a
    decoder-only model, with a NEWLINE before and a TAB between; else each side has its own. spaced:
    the spaced sides of the vocabulary.
    """

    block_size: int
    joined: bool = False
    spaced: tuple[Side, ...] = ()

    def problem(self, source: int, target: int | None = None) -> str | None:
        """Why sides of these lengths do not fit, or None. target: None for a source alone."""
        most = self.block_size
        if self.joined:
            whole = source + 2 + (target or 0)
            return None if whole <= most else f"has {whole} characters, the model takes {most}"
        for side, count, fits in (("source", source, most), ("target", target or 0, most - 1)):
            if count > fits:
                unit = "symbols" if side in self.spaced else "characters"
                return f"has a {side} of {count} {unit}, the model takes {fits}"
        return None


def no_pair(tabs: int, source: bool, line: str) -> str:
    """The message for a line that is no pair. tabs: how many it has. source: whether there is a
    source before the first TAB. line: the part to show, and one more character.
    """
    problem = f"has an empty {'target' if source else 'source'}"
    if tabs != 1:
        problem = f"has {'several TABs' if tabs else 'no TAB'}"
    shown = f"{line[:QUOTED]!r}" + "…" * (len(line) > QUOTED)
    return f"{problem}: {shown}; {LINE_FORMAT}; correct the line or delete it"


def pair_lines(text: str, vocabulary: Vocabulary, window: Window | None = None) -> list[Line]:
    """The pairs of a text of lines `source TAB target`; blank lines are ignored.

    Raises TextError with the number of the first line that is no pair, has an unknown character, or
    is longer than the window, if one is given.
    """
    found = []
    for number, line in enumerate(text.split(NEWLINE), 1):
        line = line.removesuffix(RETURN)
        symbols, tabs, problem = vocabulary.split(line), line.count(TAB), None
        if not symbols:
            continue
        source_length = symbols.index(TAB) if tabs else len(symbols)
        target_length = len(symbols) - source_length - 1
        if tabs != 1 or source_length == 0 or target_length == 0:
            problem = no_pair(tabs, source_length > 0, line)
        elif too_long := window and window.problem(source_length, target_length):
            problem = f"{too_long}; shorten the line or delete it"
        if problem:
            raise TextError(f"line {number:,} {problem}")
        ids = _encoded(line, f"line {number:,}", vocabulary)
        found.append(Line(number, ids[:source_length], ids[source_length + 1 :]))
    if not found:
        raise TextError(f"there are only blank lines; {LINE_FORMAT}")
    return found


def fitting_pairs(text: str, vocabulary: Vocabulary, block_size: int) -> list[Line]:
    """The pairs whose sides both fit a context. Raises TextError for none, and as `pair_lines`."""
    window = Window(block_size)
    pairs = pair_lines(text, vocabulary)
    fitting = [it for it in pairs if not window.problem(len(it.source), len(it.target))]
    if not fitting:
        raise TextError("the text has no pair that fits the model's context")
    return fitting


def source_lines(
    lines: Iterable[str],
    vocabulary: Vocabulary,
    window: Window,
    start: int = 1,
    name: str = "line",
    bad: Callable[[TextError], object] | None = None,
    unknown: Unknown = "fold",
) -> list[Ids]:
    """The ids of sources, one a line, without line ends. start: the number of the first one.

    A source that is empty, has a TAB or an unknown character, or is longer than the window is an
    error with its line number. bad: a list that receives these errors, and the source gets no ids;
    None: the first error is raised, a TextError. name: what the number counts, for errors.
    """
    found = []
    for number, line in enumerate(lines, start):
        line, problem = vocabulary.read(line.removesuffix(RETURN), unknown).text, None
        if not (length := len(vocabulary.split(line))):
            problem = "is empty; give at least one character"
        elif TAB in line:
            problem = "has a TAB; give the source alone, without its target"
        elif too_long := window.problem(length):
            problem = f"{too_long}; shorten it"
        try:
            if problem:
                raise TextError(f"{name} {number:,} {problem}")
            found.append(_encoded(line, f"{name} {number:,}", vocabulary))
        except TextError as error:
            if bad is None:
                raise
            bad(error)
            found.append(vocabulary.encode(""))
    return found


def _encoded(line: str, name: str, vocabulary: Vocabulary) -> Ids:
    try:
        return vocabulary.encode(line)
    except TextError as error:
        raise TextError(f"{name}: {error}") from None
