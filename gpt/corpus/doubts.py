"""Finds reasons to doubt a loss: the text that is evaluated also stands in a training text, or the
validation text is unlike the rest of the corpus.

The time for comparing ids depends only on the length of the training text.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus, find_encoded_corpora, release_pages, reopen_corpus
from gpt.corpus.formats import find_separator
from gpt.storage.checkpoint_files import Doubts, Manifest
from gpt.vocabulary import Ids, Vocabulary

#: If a larger share of the validation text stands in the training text, the user is told. In
#: manuals and programs, the share is .06 to .08; in prose, 0 (benchmarks/LOG.md).
MOST_COPIED = 0.1
#: If the loss on the last tenth exceeds the highest loss on another tenth by more nats, the user is
#: told. This difference is below .1 in prose and lists. It is .26 or more if the text ends in a
#: licence or in a text by another author (benchmarks/LOG.md).
MOST_UNLIKE = 0.2
MOST_SEARCHED = 2**22  # ids of the training text; in a longer text, only some blocks are searched
MOST_LINES = 2**20  # most characters of a list whose lines are compared
PLACES = 32  # pieces of a sample
TENTHS, ORDER = 10, 4  # parts of a text; characters of an n-gram
SCORED = 2 * 10**5  # most characters that are scored, in IN_TENTH pieces of every tenth
IN_TENTH = 4
FEWEST_SCORED = 2 * 10**4  # characters; the tenths of a shorter text differ by chance
BACK_OFF = 5.0  # weight of a shorter history, in characters

SHORTEST = 100  # fewest characters of a copied passage; 2 * BLOCK - 1 contain a whole block
BLOCK = 48  # characters; a multiple of 8, so a block is a whole number of 64-bit words
PIECES, LONGEST = 16, 4096  # of a longer text, PIECES pieces of LONGEST ids are searched for
AT_ONCE = 2**18 // BLOCK * BLOCK  # ids that are hashed at a time
TABLE_BITS = 22
#: Limits for a text that repeats itself: MOST blocks with a likely match, MOST_COMPARED comparisons
#: in all, and AT_START comparisons at one start. MOST_COMPARED is also the largest number of ids of
#: the validation text that are searched for.
MOST, MOST_COMPARED, AT_START = 2**21, 2**13, 2**8


def share_learned(text: str, run: str, manifest: Manifest, data: Path) -> float:
    """Returns the share of a text that the weights of the run named `run` have learned. It is 1 if
    the text is a training text of the run or of a parent. Otherwise it is the largest share of the
    text's characters that stands in one of these training texts, if their ids are in `data`.
    """
    digest = blake3(text.encode("utf-8", "surrogatepass")).hexdigest()
    if digest in {learned.digest for learned in manifest.trained_texts(run)}:
        return 1.0
    learned = list[tuple[Vocabulary, Ids]]()
    for parent in manifest.parent.texts if manifest.parent else ():
        for corpus in find_encoded_corpora(data, parent.digest):
            learned.append((corpus.vocabulary, corpus.parts(parent.val_fraction)[0]))
    if trained := reopen_corpus(manifest.corpus, data, manifest.vocabulary):
        learned.append((trained.vocabulary, trained.parts(manifest.train.val_fraction)[0]))
    shares = [copied_share(vocabulary.encode(text, "skip"), ids) for vocabulary, ids in learned]
    return max(shares, default=0)


def copied_share(text: Ids, other: Ids, every: int = 1) -> float:
    """Returns the share of a text's characters in passages that the other text has, too. Passages
    have SHORTEST characters or more. every=N: reads only every N-th block of the other text.

    This compares hashes of the other text's blocks with hashes at every position of `text` (Karp &
    Rabin 1987), then the passages around equal hashes. It may miss passages if a text repeats
    itself very often.
    """
    text = _sample(text, PIECES * LONGEST, PIECES)
    if min(len(text), len(other)) < SHORTEST:
        return 0.0
    text = text.astype(other.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(text, BLOCK)
    hashes = _hashes(windows)
    table = np.zeros(2**TABLE_BITS, bool)
    table[hashes >> np.uint64(64 - TABLE_BITS)] = True
    # Of the blocks of the other text that are likely in `text`: hashes, places and their number.
    blocks, places, count = [], [], 0
    for first in range(0, len(other), AT_ONCE):
        part = other[first : first + AT_ONCE]
        of_part = _hashes(part[: len(part) // BLOCK * BLOCK].reshape(-1, BLOCK)[::every])
        likely = np.flatnonzero(table[of_part >> np.uint64(64 - TABLE_BITS)])[: MOST - count]
        blocks.append(of_part[likely])
        places.append(first + likely * every * BLOCK)
        count += len(likely)
        release_pages(other)
    order = np.concatenate(blocks).argsort(kind="stable")
    block, place = np.concatenate(blocks)[order], np.concatenate(places)[order]
    lower, upper = (np.searchsorted(block, hashes, side) for side in ("left", "right"))
    covered, end, left = 0, 0, MOST_COMPARED  # end: where the last passage ends
    for start in np.flatnonzero(lower < upper).tolist():
        if start + BLOCK <= end:
            continue
        longest = (0, 0)  # the length of the longest match: the part before `start`, and all of it
        for at in place[lower[start] : upper[start]][: min(left, AT_START)].tolist():
            left -= 1
            after = _common(text[start:], other[at : at + len(text)])
            before = _common(text[:start][::-1], other[max(0, at - start) : at][::-1])
            longest = max(longest, (before, before + after), key=lambda run: run[1])
        if longest[1] >= SHORTEST:
            begin = start - longest[0]
            covered += begin + longest[1] - max(end, begin)
            end = begin + longest[1]
    return covered / len(text)


def _hashes(blocks: Ids) -> npt.NDArray[np.uint64]:
    """Hashes (N, BLOCK) ids -> (N,) hashes."""
    words = np.ascontiguousarray(blocks).view(np.uint64)
    hashes = np.zeros(len(words), np.uint64)
    for column in words.T:
        hashes = (hashes ^ column) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _common(first: Ids, second: Ids) -> int:
    """Counts the equal ids at the start of both texts."""
    shorter = min(len(first), len(second))
    unlike = first[:shorter] != second[:shorter]
    return int(unlike.argmax()) if unlike.any() else shorter


def find_doubts(corpus: Corpus, train: TrainConfig) -> Doubts:
    """Finds the reasons to doubt losses on the validation split of a corpus."""
    before, val = corpus.parts(train.val_fraction)
    share = copied_validation_share(before, val, corpus.vocabulary)
    nats = 0.0  # loss of 4-gram counting on the last tenth, minus the highest on another tenth
    if train.split == "last" and len(corpus.ids) >= FEWEST_SCORED:
        losses = losses_of_tenths(corpus.ids, len(corpus.vocabulary))
        nats = float(losses[-1] - losses[:-1].max())
    return Doubts(
        copied=share if share > MOST_COPIED else 0.0, unlike=nats if nats > MOST_UNLIKE else 0.0
    )


def copied_validation_share(train: Ids, val: Ids, vocabulary: Vocabulary) -> float:
    """Returns the share of the validation text that stands in the training text, as passages or, in
    a list with an item on every line, as whole lines.
    """
    if find_separator(vocabulary.decode(val[: 2**14])) == "\n":
        parts = (_sample(part, MOST_LINES) for part in (train, val))
        learned, lines = (vocabulary.decode(part).split("\n") for part in parts)
        distinct, lines = {*learned}, [line for line in lines if line]
        return sum(line in distinct for line in lines) / max(1, len(lines))
    return copied_share(_sample(val, MOST_COMPARED), train, max(1, len(train) // MOST_SEARCHED))


def _sample(ids: Ids, most: int, pieces: int = PLACES) -> Ids:
    """Returns at most `most` ids, in evenly distributed pieces."""
    if len(ids) <= most:
        return ids
    length = most // pieces
    starts = np.linspace(0, len(ids) - length, pieces).astype(int)
    return np.concatenate([ids[start : start + length] for start in starts])


def losses_of_tenths(ids: Ids, vocab_size: int) -> npt.NDArray[np.float64]:
    """Returns (10,) losses in nats per character, one for every tenth of a text, which is predicted
    by n-grams of the other nine tenths. Of a long text, only some pieces are used.

    The prediction from the next shorter history has the weight of BACK_OFF occurrences (MacKay &
    Peto 1995).
    """
    length = min(SCORED, len(ids)) // (TENTHS * IN_TENTH)
    starts = np.linspace(0, len(ids) - length, TENTHS * IN_TENTH).astype(int)
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
    """Returns (n,) numbers, equal for equal codes, and (n,) how often a code is in other tenths."""
    distinct, numbers = np.unique(codes, return_inverse=True)
    cells = numbers * TENTHS + tenth
    in_own = np.bincount(cells, minlength=len(distinct) * TENTHS)
    total = in_own.reshape(-1, TENTHS).sum(axis=1)
    return numbers, total[numbers] - in_own[cells]
