"""Builds the vocabulary of a corpus, replaces its rare characters, and writes its ids to the disk.

The first reading of the text (text.py) has counted the characters. The second one, here, writes
their ids, and checks that it has read the same text. Memory does not grow with the text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.corpus.split import Division
from gpt.corpus.text import Piece, Progress, changed, read
from gpt.errors import TextError
from gpt.storage import files
from gpt.vocabulary import REPLACEMENT, Ids, Vocabulary


@dataclass(frozen=True)
class Numbering:
    """A vocabulary, and the characters it replaces.

    table: code point -> id, of the vocabulary's dtype. folded: replaced character -> its count.
    """

    vocabulary: Vocabulary
    table: Ids
    folded: Mapping[str, int]


def build_vocabulary(
    counts: npt.NDArray[np.int64],
    known: Vocabulary | None = None,
    min_count: int = 0,
    grows: bool = False,
) -> Numbering:
    """The sorted characters of the text; REPLACEMENT stands for those that occur less than
    `min_count` times.

    counts (2, code points): occurrences in the training text, and in the validation text. If rare
    characters are replaced, so are those that occur only in the validation text, as they cannot be
    learned. With a known vocabulary that has REPLACEMENT, the characters that it lacks are
    replaced. The known vocabulary is used if it has every remaining character. grows: instead, it
    gets the new characters at its end, and only new characters are replaced.

    Raises TextError if a character is only in the validation text, or if the text has the
    replacement.
    """
    points = np.flatnonzero(counts.sum(axis=0))
    times = counts[:, points].sum(axis=0)
    characters = "".join(map(chr, points.tolist()))
    rare = (counts[0, points] == 0) | ((times < min_count) & (min_count > 1))
    folds = rare if known is None else ~known.known(characters)
    if known is None or grows:
        folds = folds & rare
        if folds.any() and min_count <= 1:
            missing = characters[int(np.argmax(folds))]
            raise TextError(
                f"{missing!r} (U+{ord(missing):04X}) is only in the text that validates, so "
                "training cannot teach it; leave it out there, or fold such characters: "
                "`min_count=2`"
            )
    elif min_count <= 1 or known.unknown(REPLACEMENT):
        folds = np.zeros_like(rare)
    folded = {characters[at]: int(times[at]) for at in np.flatnonzero(folds)}
    if folded and REPLACEMENT in characters:
        count = int(times[characters.index(REPLACEMENT)])
        raise TextError(
            f"{REPLACEMENT!r} (U+{ord(REPLACEMENT):04X}) stands for rare characters, but the text "
            f"has it itself ({count:,} ×); replace it in the text"
        )
    shown = "".join(REPLACEMENT if each in folded else each for each in characters)
    vocabulary = Vocabulary.from_text(shown)
    if known is not None and (grows or not known.unknown(shown)):
        vocabulary = known.grown(shown)
    table = np.zeros(int(points[-1]) + 1, vocabulary.dtype)
    table[points] = vocabulary.encode(shown)
    return Numbering(vocabulary, table, folded)


def write_ids(
    pieces: Sequence[Piece],
    digest: str,
    table: Ids,
    division: Division,
    path: Path,
    progress: Progress,
) -> tuple[tuple[int, str], ...]:
    """Writes all ids of the text with this digest into a file, or no file; the training split is
    first.

    Returns the size in bytes and the checksum of each part: what stays, and what was moved to the
    end. Raises OSError, and TextError, also if the text has changed since it was measured.
    """
    hashed, at, borders = blake3(), 0, division.borders
    begins, sizes = (0, (division.boundary or 0) * table.itemsize), [0, 0]
    checksums = blake3(), blake3()
    with files.replacing(path) as write:
        for _, data, points in read(pieces, progress):
            hashed.update(data)
            # Only a changed text has characters outside the table; `clip` is faster than a check.
            ids = np.take(table, points, mode="clip")
            first, last = bisect_right(borders, at), bisect_left(borders, at + len(ids))
            parts = np.split(ids, [border - at for border in borders[first:last]])
            at += len(ids)
            for part in (0, 1):
                if mine := parts[(part - first) % 2 :: 2]:
                    encoded = np.concatenate(mine).data.cast("B")
                    write(encoded, begins[part] + sizes[part])
                    checksums[part].update(encoded)
                    sizes[part] += len(encoded)
        if digest != hashed.hexdigest():
            raise changed(pieces)
    found = zip(sizes, checksums, strict=True)
    return tuple((size, checksum.hexdigest()) for size, checksum in found if size)
