"""Which characters a corpus's vocabulary has, which rare ones become another, and the ids on disk.

A first reading (text.py) has counted the characters; the second one, here, writes their ids, and
makes sure that it has read the same text. Memory does not grow with the text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.corpus.split import Division
from gpt.corpus.text import Chunk, Measured, Piece, Progress, algorithm_of, changed, read_through
from gpt.errors import TextError
from gpt.storage import files
from gpt.vocabulary import Ids, Vocabulary


@dataclass(frozen=True)
class Numbering:
    """A vocabulary, how often each of its characters comes, and what became of the others.

    table: code point -> id, of the vocabulary's dtype. folded: character -> how often it came.
    """

    vocabulary: Vocabulary
    table: Ids
    counts: npt.NDArray[np.int64]
    folded: Mapping[str, int]


def build_vocabulary(
    counts: npt.NDArray[np.int64],
    known: Vocabulary | None = None,
    min_count: int = 0,
    replacement: str = "\ufffd",
) -> Numbering:
    """The sorted characters of the text, but those that came less often than `min_count`.

    counts (2, code points): in the text that trains, and in that which validates. Also folded is
    what only the latter has: what no training can teach. A known vocabulary says itself what is
    folded: what it lacks, if it has the replacement. It is taken if it has every character that is
    left.

    Raises TextError: only the validating text has a character, or the text has the replacement.
    """
    points = np.flatnonzero(counts.sum(axis=0))
    times = counts[:, points].sum(axis=0)
    characters = "".join(map(chr, points.tolist()))
    if known is None:
        folds = counts[0, points] == 0
        if folds.any() and min_count <= 1:
            missing = characters[int(np.argmax(folds))]
            raise TextError(
                f"{missing!a} (U+{ord(missing):04X}) is only in the text that validates, so "
                "training cannot teach it; leave it out there, or fold such characters: "
                "--min-count 2"
            )
        folds |= (times < min_count) & (min_count > 1)
    else:
        folds = ~known.known(characters) & (min_count > 1 and not known.unknown(replacement))
    folded = {characters[at]: int(times[at]) for at in np.flatnonzero(folds)}
    if folded and replacement in characters:
        count = int(times[characters.index(replacement)])
        raise TextError(
            f"{replacement!a} (U+{ord(replacement):04X}) was to stand for rare characters, but the "
            f"text has it itself ({count:,} ×); choose another one: --replacement"
        )
    shown = "".join(replacement if each in folded else each for each in characters)
    vocabulary = Vocabulary.from_text(shown)
    if known is not None and not known.unknown(vocabulary.characters):
        vocabulary = known
    ids = vocabulary.encode(shown)
    table = np.zeros(max(256, int(points[-1]) + 1), vocabulary.dtype)
    table[points] = ids
    of_ids = np.zeros(len(vocabulary), np.int64)
    np.add.at(of_ids, ids, times)
    return Numbering(vocabulary, table, of_ids, folded)


def write_ids(
    pieces: Sequence[Piece],
    text: Measured,
    table: Ids,
    division: Division,
    draft: Path,
    progress: Progress,
) -> list[Any]:
    """Writes a text's ids into an existing file, in the order of its division.

    Returns the bytes of each part of the file, and their checksum. Raises StorageError, and
    TextError, also if the text has changed since it was measured.
    """
    at, borders = 0, division.borders
    checksums, sizes = (blake3(), blake3()), [0, 0]  # what trains, and what was moved to the end
    begins = (0, (division.boundary or 0) * table.itemsize)

    def write(chunk: Chunk) -> None:
        nonlocal at
        ids = look_up(table, chunk)
        first, last = bisect_right(borders, at), bisect_left(borders, at + len(ids))
        parts = np.split(ids, [border - at for border in borders[first:last]])
        at += len(ids)
        for part in (0, 1):
            if mine := parts[(part - first) % 2 :: 2]:
                data = np.concatenate(mine).data.cast("B")
                appends[part](data)
                checksums[part].update(data)
                sizes[part] += len(data)

    with ExitStack() as stack:
        stack.enter_context(files.storage_errors(f"write {draft.parent}"))
        appends = [stack.enter_context(files.writing_at(draft, begin)) for begin in begins]
        digest = read_through(pieces, algorithm_of(text.digest), write, progress)
    if digest != text.digest:
        raise changed(list(dict.fromkeys(piece.name for piece in pieces)))
    found = zip(sizes, checksums, strict=True)
    return [[size, checksum.hexdigest()] for size, checksum in found if size]


def look_up(table: Ids, chunk: Chunk) -> Ids:
    """(characters,) the ids of a chunk."""
    if isinstance(chunk.text, bytes) and table.itemsize == 1:  # the same as below, and faster
        return np.frombuffer(chunk.text.translate(table[:256].tobytes()), np.uint8)
    # Only a text that has changed has what the table lacks; `clip` spares the check.
    return np.take(table, chunk.points, mode="clip")
