"""Reasons to doubt the loss on a validation split: its text stands in the training text, or is of
another kind.

Compares ids. Both answers are pure functions of the split; their costs have a bound that does not
depend on the text's length.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus
from gpt.corpus.items import separator_of
from gpt.corpus.overlap import copied_share
from gpt.vocabulary import Ids, Vocabulary

#: Share of the validation text that may stand in the training text, unsaid; manuals and programs
#: repeat .06 to .08 of themselves, prose nothing (benchmarks/LOG.md).
MOST_COPIED = 0.1
#: Nats that the last tenth may lie above the worst other one, unsaid; in prose and lists it is
#: below .1, for a licence or another author .26 and more (benchmarks/LOG.md).
MOST_UNLIKE = 0.2
MOST_SEARCHED = 2**22  # ids of the training text; of a longer one, evenly distributed blocks
MOST_COMPARED = 2**14  # ids of the validation text that are searched for there
MOST_LINES = 2**20  # characters of a list whose lines are compared
PLACES = 32  # pieces of a longer text
TENTHS, ORDER = 10, 4
SCORED = 2 * 10**5  # characters that are scored, in PIECES pieces of each tenth
PIECES = 4
FEWEST_SCORED = 2 * 10**4  # in fewer characters, tenths differ by chance
BACK_OFF = 5.0  # characters that a shorter history weighs as much as


def doubts(corpus: Corpus, train: TrainConfig) -> Iterator[str]:
    """What the user should know about the validation split of this corpus, and what helps."""
    before, val = corpus.parts(train.val_fraction)
    share = copied(before, val, corpus.vocabulary)
    if share > MOST_COPIED:
        yield (
            f"{share:.0%} of the validation text stands in the training text, too, so its loss "
            "says little about new texts; leave out what the text has twice"
        )
    if train.split == "last":
        nats = unlike(corpus.ids, len(corpus.vocabulary))
        if nats > MOST_UNLIKE:
            yield (
                "the end of the text, which validates, is unlike the rest (a licence, another "
                f"author or language? {nats:.2f} nats above any other tenth); remove it, or "
                "validate on pieces of the whole text: `split='every:20'`"
            )


def copied(train: Ids, val: Ids, vocabulary: Vocabulary) -> float:
    """The share of the validation text that stands in the training text: passages of 100 characters
    or more; in a list with one item a line, whole lines.
    """
    start = vocabulary.decode(val[: 2**14])
    if separator_of(start) == "\n":
        parts = (_sample(part, MOST_LINES) for part in (train, val))
        return repeated_lines(*map(vocabulary.decode, parts))
    return copied_share(_sample(val, MOST_COMPARED), train, max(1, len(train) // MOST_SEARCHED))


def repeated_lines(train: str, val: str) -> float:
    """The share of lines of `val` that are lines of `train`, too."""
    known, lines = {*train.split("\n")}, [line for line in val.split("\n") if line]
    return sum(line in known for line in lines) / max(1, len(lines))


def _sample(ids: Ids, most: int) -> Ids:
    """At most so many ids, in evenly distributed pieces."""
    if len(ids) <= most:
        return ids
    length = most // PLACES
    starts = np.linspace(0, len(ids) - length, PLACES).astype(int)
    return np.concatenate([ids[start : start + length] for start in starts])


def unlike(ids: Ids, vocab_size: int) -> float:
    """How many nats the loss of 4-gram counting on the last tenth lies above the worst other tenth;
    0 for a text that is too short to say.
    """
    if len(ids) < FEWEST_SCORED:
        return 0.0
    losses = losses_of_tenths(ids, vocab_size)
    return float(losses[-1] - losses[:-1].max())


def losses_of_tenths(ids: Ids, vocab_size: int) -> npt.NDArray[np.float64]:
    """(10,) the loss on each tenth of a text, in nats per character, of n-grams that are counted in
    the other nine. Of a long text, evenly distributed pieces are counted and scored.

    Each order is mixed with the one below it as if that had been seen BACK_OFF times (additive
    smoothing with back-off; MacKay and Peto 1995).
    """
    length = min(SCORED, len(ids)) // (TENTHS * PIECES)
    starts = np.linspace(0, len(ids) - length, TENTHS * PIECES).astype(int)
    pieces = ids[starts[:, None] + np.arange(length)].astype(np.int64)  # (40, length)
    grams = np.lib.stride_tricks.sliding_window_view(pieces, ORDER, axis=1).reshape(-1, ORDER)
    tenth = np.arange(TENTHS).repeat(len(grams) // TENTHS)
    *before, target = grams.T
    history, chance = np.zeros_like(target), np.full(len(target), 1.0 / vocab_size)
    for character in (*reversed(before), None):
        history, times = _counted_elsewhere(history, tenth)
        _, times_together = _counted_elsewhere(history * vocab_size + target, tenth)
        chance = (times_together + BACK_OFF * chance) / (times + BACK_OFF)
        if character is not None:
            history = history * vocab_size + character
    losses = -np.log(chance).reshape(TENTHS, -1).mean(axis=1)
    return np.asarray(losses, np.float64)


def _counted_elsewhere(
    codes: npt.NDArray[np.int64], tenth: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(n,) numbers of the distinct codes, and how often each code occurs in the other tenths."""
    distinct, numbers = np.unique(codes, return_inverse=True)
    cells = numbers * TENTHS + tenth
    own = np.bincount(cells, minlength=len(distinct) * TENTHS)
    total = own.reshape(-1, TENTHS).sum(axis=1)
    return numbers, total[numbers] - own[cells]
