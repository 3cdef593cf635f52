"""Text -> ids, on all cores, although the vocabulary is known only at the end.

A first reading names the text and tells where each span of it begins, so that spans can be encoded
on their own: in provisional ids that begin with the characters of a sample. Where the sample had
all of them nothing is left to do; else a lookup follows, over the same file if ids keep their place
and width. Memory does not grow with the text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt import files
from gpt.errors import StorageError, TextError
from gpt.training.provisional import Numbers, TooMany, points_of, width_for
from gpt.training.texts import Span, Text, changed, span_size
from gpt.training.workers import Answer, Task, Workers, cores
from gpt.vocabulary import Ids, code_points

PLENTY = 16  # times after which a character need not be counted any more
SAMPLED = 2**21  # bytes of a text that is its own sample
SAMPLES = 16  # chunks of a longer one
AT_ONCE = 2**17  # ids that are looked up together
ALONE = 2**25  # bytes for which no process beside is worth its start
FLUSHED = 4  # parts after which a draft is flushed, so that little is left for the end
MOST_BESIDE = 7  # processes: each takes some memory

Progress = Callable[[float], object]  # takes the share that is done


def no_progress(_: float) -> None:
    """For those whom nobody watches."""


Checked = list[Any]  # the bytes of a part of a file, and their checksum


def bytes_of(ids: Ids) -> memoryview:
    """The bytes of an array that lie together, not copied."""
    return np.ascontiguousarray(ids).data.cast("B")


@dataclass(frozen=True)
class Part:
    """Spans in provisional ids. They go on from the characters that all parts know."""

    first: int  # its place in the text, in characters
    characters: int
    trains: bool
    new: str
    counts: npt.NDArray[np.int64]  # of the known characters and the new ones
    checksum: str  # of its ids


@dataclass(frozen=True)
class Draft:
    """A text in provisional ids, and what was learnt by reading it.

    known: the characters that all parts have the same ids for; often: those of them that came so
    often to train on that nobody counted them. Closing takes the file away, unless it was kept.
    """

    path: Path
    width: np.dtype[Any]
    known: str
    often: str
    parts: tuple[Part, ...]

    @cached_property
    def points(self) -> npt.NDArray[np.uint32]:
        """(ids,) the code point that each provisional id stands for; of no character twice."""
        new = "".join(sorted(set().union(*(part.new for part in self.parts))))
        return np.array(code_points(self.known + new))

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """(ids,) how often each came, or at least so often."""
        return self._counts(self.parts)

    @cached_property
    def in_training(self) -> npt.NDArray[np.int64]:
        """(ids,) the same, without the sources that only validate."""
        return self._counts([part for part in self.parts if part.trains])

    def _counts(self, parts: Sequence[Part]) -> npt.NDArray[np.int64]:
        counts = np.zeros(len(self.points), np.int64)
        counts[np.searchsorted(code_points(self.known), code_points(self.often))] = PLENTY
        for part in parts:
            counts[self._ids_of(part)] += part.counts
        return counts

    def _ids_of(self, part: Part) -> Ids:
        """A part's ids -> those that are the same in all parts."""
        known = len(self.known)
        new = np.searchsorted(self.points[known:], code_points(part.new))
        return np.append(np.arange(known), known + new)

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
                yield from looked_up(self._lookup(ids, first, count))
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
        tasks, wrong = [], []
        for number, part in enumerate(self.parts):
            ids = table[self._ids_of(part)]
            if not np.array_equal(ids, np.arange(len(ids))):
                wrong.append(number)
                task = self._lookup(ids, part.first, part.characters)
                tasks.append({**task, "table": ids.tolist()})
        for number, answer in zip(wrong, workers.do(look_up, tasks), strict=True):
            checks[number] = answer["checksum"]
        sizes = [part.characters * self.width.itemsize for part in self.parts]
        return [[size, check] for size, check in zip(sizes, checks, strict=True)]

    def _lookup(self, table: Ids, first: int, count: int) -> Task:
        return {
            "path": str(self.path),
            "first": first,
            "count": count,
            "width": self.width.name,
            "table": table,
            "to": table.dtype.name,
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
    """Writes a text down in `folder`, which is made. The first `training` sources are to train on.

    Characters are counted up to `plenty`, all if it is 0. `told` is called with how many bytes are
    done. Raises TextError and StorageError.
    """
    known, often = sample(text.spans, training)
    often = often if plenty else ""
    width = width_for(len(known))
    groups = list(_grouped(text, training))
    sizes = [sum(span.size for span, _ in group) for group in groups]
    characters = [sum(count for _, count in group) for group in groups]
    firsts, ends = [0, *accumulate(characters)], [*accumulate(sizes)]
    path = files.temporary(folder)

    def done(number: int) -> None:
        told(ends[number])
        if workers.beside and number % FLUSHED == FLUSHED - 1:  # here is nothing else to do
            with files.storage_errors(f"write {folder}"):
                files.flush(path)

    try:
        while True:
            tasks = [
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
            answers = workers.do(write_down, tasks, done)
            if all(answers):
                break
            width = width_for(np.iinfo(width).max)  # the sample had told too little
        parts = []
        for group, first, count, it in zip(groups, firsts, characters, answers, strict=False):
            trains, counts = group[0][0].source < training, np.array(it["counts"])
            parts.append(Part(first, count, trains, it["new"], counts, it["checksum"]))
        return Draft(path, width, known, often, tuple(parts))
    except BaseException:
        files.discard(path)
        raise


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
                counts = np.pad(counts, ((0, 0), (0, max(0, len(found) - counts.shape[1]))))
                counts[int(span.source >= training), : len(found)] += found
    known, often = np.flatnonzero(counts.sum(axis=0)), np.flatnonzero(counts[0] >= PLENTY)
    return "".join(map(chr, known)), "".join(map(chr, often))


def write_down(task: Task) -> Answer:
    """Spans in provisional ids, in their place in the draft; nothing if there are too many.

    Raises TextError and StorageError.
    """
    width, checksum = np.dtype(task["width"]), blake3()
    try:
        numbers = Numbers(task["known"], width, task["plenty"], task["often"])
        with _written(task, width) as append:
            for values, left in task["spans"]:
                span = Span(**values)
                for text in span.chunks():
                    ids = numbers.ids(text)
                    left -= len(ids)
                    if left < 0:
                        break
                    append(bytes_of(ids))
                    checksum.update(bytes_of(ids))
                if left:
                    raise changed(span.name)
    except TooMany:
        return {}
    new = numbers.characters[len(task["known"]) :]
    counts = numbers.counts.tolist()
    return {"new": new, "counts": counts, "checksum": checksum.hexdigest()}


def look_up(task: Task) -> Answer:
    """Final ids for provisional ones, in their place. Raises StorageError."""
    checksum = blake3()
    with _written(task, np.dtype(task["to"])) as append:
        for ids in looked_up(task):
            append(bytes_of(ids))
            checksum.update(bytes_of(ids))
    return {"checksum": checksum.hexdigest()}


def looked_up(task: Task) -> Iterator[Ids]:
    """Final ids for provisional ones, from a place on. Raises StorageError."""
    table, width = np.array(task["table"], task["to"]), np.dtype(task["width"])
    narrow = table.tobytes().ljust(256) if table.itemsize == width.itemsize == 1 else b""
    at, left = task["first"] * width.itemsize, task["count"] * width.itemsize
    with files.storage_errors(f"read {task['path']}"), open(task["path"], "rb", 0) as file:
        while left:
            file.seek(at)
            data = file.read(min(left, AT_ONCE * width.itemsize))
            if not data:
                raise StorageError(f"{task['path']} is shorter than it was written")
            if narrow:  # the same as below, and faster
                yield np.frombuffer(data.translate(narrow), np.uint8)
            else:
                yield np.take(table, np.frombuffer(data, width), mode="clip")
            at, left = at + len(data), left - len(data)


@contextmanager
def _written(task: Task, width: np.dtype[Any]) -> Iterator[files.Write]:
    """Writes ids into the draft, from a task's place on. Raises StorageError."""
    path = Path(task["path"])
    with (
        files.storage_errors(f"write {path.parent}"),
        files.writing_at(path, task["first"] * width.itemsize) as append,
    ):
        yield append
