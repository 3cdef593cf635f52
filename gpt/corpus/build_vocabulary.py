"""Which characters a corpus's vocabulary has, and which of the rare ones become another.

Knows how often each came, not where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpt.corpus.encoding import Draft
from gpt.errors import TextError
from gpt.vocabulary import Ids, Vocabulary


@dataclass(frozen=True)
class Numbering:
    """A vocabulary, how often each of its characters comes, and what became of the others.

    table: provisional id -> id, of the vocabulary's dtype. folded: character -> how often it came.
    """

    vocabulary: Vocabulary
    table: Ids
    counts: npt.NDArray[np.int64]
    folded: Mapping[str, int] = field(default_factory=dict)


def number(
    draft: Draft, known: Vocabulary | None = None, min_count: int = 0, replacement: str = "\ufffd"
) -> Numbering:
    """The sorted characters of the text, but those that came less often than `min_count`.

    Also folded is what only the validating sources have: what no training can teach. A known
    vocabulary says itself what is folded: what it lacks, if it has the replacement. It is taken if
    it has every character that is left.

    Raises TextError: validating sources have characters of their own, or the replacement is one.
    """
    order = np.argsort(draft.points)
    order = order[draft.counts[order] > 0]
    characters, counts = _characters(draft.points[order]), draft.counts[order]
    if known is None:
        folds = draft.in_training[order] == 0
        if folds.any() and min_count <= 1:
            missing = characters[int(np.argmax(folds))]
            raise TextError(
                f"{missing!a} (U+{ord(missing):04X}) is only in the text that validates, so "
                "training cannot teach it; leave it out there, or fold such characters: "
                "--min-count 2"
            )
        folds |= (counts < min_count) & (min_count > 1)
    else:
        unknown = set(known.unknown(characters))
        foldable = min_count > 1 and not known.unknown(replacement)
        folds = np.array([foldable and each in unknown for each in characters], np.bool_)
    folded = {characters[at]: int(counts[at]) for at in np.flatnonzero(folds)}
    if folded and replacement in characters:
        times = int(counts[characters.index(replacement)])
        raise TextError(
            f"{replacement!a} (U+{ord(replacement):04X}) was to stand for rare characters, but the "
            f"text has it itself ({times:,} ×); choose another one: --replacement"
        )
    shown = "".join(replacement if each in folded else each for each in characters)
    vocabulary = Vocabulary.from_text(shown)
    if known is not None and not known.unknown(vocabulary.characters):
        vocabulary = known
    ids = vocabulary.encode(shown)
    table = np.zeros(len(draft.points), vocabulary.dtype)
    table[order] = ids
    of_ids = np.zeros(len(vocabulary), np.int64)
    np.add.at(of_ids, ids, counts)
    return Numbering(vocabulary, table, of_ids, folded)


def _characters(points: npt.NDArray[np.uint32]) -> str:
    return points.astype("<u4").tobytes().decode("utf-32-le")
