"""Text -> ids, on all cores, although the vocabulary is known only at the end.

A first reading names the text and tells where each span of it begins, so that spans can be encoded
on their own: in provisional ids that begin with the characters of a sample. Where the sample had
all of them nothing is left to do; else a lookup follows, over the same file if ids keep their place
and width. Memory does not grow with the text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import asdict, dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.corpus.draft_ids import TooMany, points_of, width_for
from gpt.corpus.encode_task import look_up, look_up_again, looked_up, write_down
from gpt.corpus.texts import Span, Text, span_size
from gpt.corpus.workers import Task, Workers, cores
from gpt.errors import TextError
from gpt.storage import files
from gpt.vocabulary import Ids, code_points

PLENTY = 16  # times after which a character need not be counted any more
SAMPLED = 2**21  # bytes of a text that is its own sample
SAMPLES = 16  # chunks of a longer one
MOST_TABLES = 16  # that are kept for parts with the same new characters
ALONE = 2**25  # bytes for which no process beside is worth its start
FLUSHED = 4  # parts after which a draft is flushed, so that little is left for the end
MOST_BESIDE = 7  # processes: each takes some memory

Progress = Callable[[float], object]  # takes the share that is done


def no_progress(_: float) -> None:
    """For those whom nobody watches."""


Checked = list[Any]  # the bytes of a part of a file, and their checksum


@dataclass(frozen=True)
class Part:
    """Spans in provisional ids. They go on from the characters that all parts know."""

    first: int  # its place in the text, in characters
    characters: int
    new: str
    checksum: str  # of its ids
    task: Task  # what to write down for it


@dataclass(frozen=True)
class Draft:
    """A text in provisional ids, and what was learnt by reading it.

    known: how many characters all parts have the same ids for. points (ids,): the code point that
    each provisional id stands for, of no character twice; counts (ids,): how often it came, or at
    least so often; in_training (ids,): the same, without the sources that only validate. Closing
    takes the file away, unless it was kept.
    """

    path: Path
    width: np.dtype[Any]
    known: int
    parts: tuple[Part, ...]
    points: npt.NDArray[np.uint32]
    counts: npt.NDArray[np.int64]
    in_training: npt.NDArray[np.int64]

    def _ids_of(self, part: Part) -> Ids:
        """A part's ids -> those that are the same in all parts."""
        new = np.searchsorted(self.points[self.known :], code_points(part.new))
        return np.append(np.arange(self.known), self.known + new)

    def looked_up(self, table: Ids, spans: Sequence[tuple[int, int]]) -> Iterator[Ids]:
        """What the table has for each provisional id, span after span of characters.

        Raises StorageError.
        """
        firsts = [part.first for part in self.parts]
        at, ids = -1, table  # the part that was read last, and its ids -> what the table has
        for first, last in spans:
            while first < last:
                here = bisect_right(firsts, first) - 1
                part = self.parts[here]
                if here != at:
                    at, ids = here, table[self._ids_of(part)]
                count = min(last, part.first + part.characters) - first
                yield from looked_up(self._lookup(ids, table.dtype, first, count))
                first += count

    def rewritten(
        self, table: Ids, spans: Sequence[tuple[int, int]], workers: Workers
    ) -> list[Checked] | None:
        """Looks up where the ids lie, if they keep their place and width; None if they do not.

        Then the file holds the final ids. Raises StorageError.
        """
        whole = [(0, sum(part.characters for part in self.parts))]
        if list(spans) != whole or table.dtype != self.width:
            return None
        checks = [part.checksum for part in self.parts]
        tables: dict[str, list[int]] = {}  # by what is new in a part: often nothing

        def table_of(part: Part) -> list[int]:
            if part.new not in tables:
                if len(tables) > MOST_TABLES:
                    tables.clear()
                tables[part.new] = table[self._ids_of(part)].tolist()
            return tables[part.new]

        wrong = [n for n, part in enumerate(self.parts) if not _is_in_order(table_of(part))]
        tasks = (
            {
                **self._lookup(table_of(part), table.dtype, part.first, part.characters),
                "checksum": part.checksum,
                "task": part.task,
            }
            for part in (self.parts[number] for number in wrong)
        )
        for number, answer in zip(wrong, workers.do(look_up, tasks, look_up_again), strict=True):
            checks[number] = answer["checksum"]
        sizes = [part.characters * self.width.itemsize for part in self.parts]
        return [[size, check] for size, check in zip(sizes, checks, strict=True)]

    def _lookup(self, table: Ids | list[int], to: np.dtype[Any], first: int, count: int) -> Task:
        return {
            "path": str(self.path),
            "first": first,
            "count": count,
            "width": self.width.name,
            "table": table,
            "to": to.name,
        }

    def close(self) -> None:
        """The ids are gone, unless they were kept; what was learnt stays."""
        files.discard(self.path)


def draft(
    text: Text,
    training: int,
    folder: Path,
    workers: Workers,
    plenty: int = PLENTY,
    told: Callable[[int], object] = lambda _: None,
) -> Draft:
    """Writes a text, not empty, down in `folder`, which is made.

    The first `training` sources are to train on. Characters are counted up to `plenty`, all if it
    is 0. `told` is called with how many bytes are done. Raises TextError and StorageError.
    """
    known, often = sample(text.spans, training)
    often = often if plenty else ""
    width = width_for(len(known))
    groups = list(_grouped(text, training))
    firsts = accumulate((sum(count for _, count in group) for group in groups), initial=0)
    path = files.temporary(folder)
    tasks: list[Task] = [
        {
            "spans": [(asdict(span), count) for span, count in group],
            "first": first,
            "path": str(path),
            "known": known,
            "often": often,
            "plenty": plenty,
            "width": width.name,
        }
        for group, first in zip(groups, firsts, strict=False)
    ]
    trains = [group[0][0].source < training for group in groups]
    try:
        while True:
            with suppress(TooMany):
                return _written(path, tasks, trains, workers, told)
            width = width_for(np.iinfo(width).max)  # the sample had told too little
            tasks = [{**task, "width": width.name} for task in tasks]
    except BaseException:
        files.discard(path)
        raise


def _written(
    path: Path,
    tasks: Sequence[Task],
    trains: Sequence[bool],
    workers: Workers,
    told: Callable[[int], object],
) -> Draft:
    """Raises TooMany if characters are more than ids of this width can tell apart."""
    known, often = (code_points(tasks[0][name]) for name in ("known", "often"))
    counts = np.zeros((2, len(known)), np.int64)  # to train on; to validate
    of_new: dict[str, list[int]] = {}
    parts: list[Part] = []
    size = 0
    with closing(workers.do(write_down, tasks)) as answers:
        for task, training, answer in zip(tasks, trains, answers, strict=True):
            if not answer:
                raise TooMany
            kind, new = int(not training), answer["new"]
            counts[kind] += answer["counts"][: len(known)]
            for character, count in zip(new, answer["counts"][len(known) :], strict=True):
                of_new.setdefault(character, [0, 0])[kind] += count
            characters = sum(count for _, count in task["spans"])
            parts.append(Part(task["first"], characters, new, answer["checksum"], task))
            size += sum(span["stop"] - span["start"] for span, _ in task["spans"])
            told(size)
            if workers.beside and len(parts) % FLUSHED == 0:  # here is nothing else to do
                with files.storage_errors(f"write {path.parent}"):
                    files.flush(path)
    counts[0, np.searchsorted(known, often)] = PLENTY
    new_counts = np.array([of_new[each] for each in sorted(of_new)], np.int64).reshape(-1, 2)
    counts = np.concatenate((counts, new_counts.T), axis=1)
    points = np.append(known, code_points("".join(sorted(of_new))))
    width = np.dtype(tasks[0]["width"])
    return Draft(path, width, len(known), tuple(parts), points, counts.sum(axis=0), counts[0])


def _grouped(text: Text, training: int) -> Iterator[list[tuple[Span, int]]]:
    """Spans that are written down together, each with its number of characters: short ones as many
    as make a long one, and none that train with others that validate.
    """
    group: list[tuple[Span, int]] = []
    size, most = 0, span_size(sum(span.size for span in text.spans))
    for span, count in zip(text.spans, text.counts, strict=True):
        ends = group and (group[0][0].source < training) != (span.source < training)
        if group and (ends or size + span.size > most):
            yield group
            group, size = [], 0
        group.append((span, count))
        size += span.size
    if group:
        yield group


def _is_in_order(table: list[int]) -> bool:
    return table == list(range(len(table)))


def worth_while(size: int) -> int:
    """How many processes beside this one are worth their start for so many bytes of text."""
    return min(MOST_BESIDE, cores() - 1, size // ALONE)


def sample(spans: Sequence[Span], training: int) -> tuple[str, str]:
    """The characters of a text, or of what lies evenly spread in a long one; and which of them come
    often in the first `training` sources. Raises TextError.
    """
    long = sum(span.size for span in spans) > SAMPLED
    chosen = spans[:: -(-len(spans) // SAMPLES)] if long else spans
    counts = np.zeros((2, 0), np.int64)  # to train on, to validate; by code point
    for span in chosen:
        chunks = islice(span.chunks(), SAMPLES // len(chosen) if long else None)
        with suppress(TextError) if long else nullcontext():  # it would not be the first one
            for text in chunks:
                found = np.bincount(points_of(text))
                if len(found) > counts.shape[1]:
                    counts = np.pad(counts, ((0, 0), (0, len(found) - counts.shape[1])))
                counts[int(span.source >= training), : len(found)] += found
    known, often = np.flatnonzero(counts.sum(axis=0)), np.flatnonzero(counts[0] >= PLENTY)
    return "".join(map(chr, known)), "".join(map(chr, often))
