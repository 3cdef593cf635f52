"""How well a model predicts targets from sources, and how often it writes the right ones.

For a model with an encoder, and for a decoder-only model of lines of pairs, which reads the source
before the target.
Tensor names: N pairs, B of them at once, T characters, C n_embd, M target characters of all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpt.checks import TableResult
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.pairs.answers import before_target, encoded
from gpt.reading.parallel import on_cores
from gpt.reading.score import Score, surprises, windows_at_once
from gpt.vocabulary import Ids, code_points
from gpt.words import counted

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class PairScores(TableResult):
    """Of N pairs in the order of their text: lines, (N,) their line numbers from 1, sources and
    targets; written: what the model wrote for each source.

    nats: (M,) −ln p of each target character, pair after pair, the end of each target included.
    distances: (N,) edit distance of what it wrote to the nearest target that the text lists for
    the source; nearest: (N,) characters of that target. A source counts once, at its first pair.
    """

    lines: Integers
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    written: tuple[str, ...]
    nats: npt.NDArray[np.float64]
    distances: Integers
    nearest: Integers

    def __repr__(self) -> str:
        return (
            f"<PairScores of {counted(len(self.lines), 'pair')}: "
            f"{self.score.nats:.4f} nats a target character, "
            f"{100 * self.exact:.2f} % of {int(self.firsts.sum()):,} sources exact, "
            f"character error rate {100 * self.error_rate:.2f} %>"
        )

    @property
    def score(self) -> Score:
        """The mean over all target characters and ends."""
        return Score(float(self.nats.mean()), len(self.nats))

    @property
    def exact(self) -> float:
        """Share of the sources for which the model wrote a target that the text lists."""
        return float((self.distances[self.firsts] == 0).mean())

    @property
    def error_rate(self) -> float:
        """Character error rate: over all sources, the sum of edit distances to the nearest listed
        target, divided by the sum of these targets' lengths. It can be above 1.
        """
        first = self.firsts
        return float(self.distances[first].sum() / self.nearest[first].sum())

    @cached_property
    def firsts(self) -> npt.NDArray[np.bool_]:
        """(N,) whether a pair is the first one of its source."""
        places = {source: place for place, source in reversed([*enumerate(self.sources)])}
        return np.isin(np.arange(len(self.sources)), [*places.values()])

    @property
    def ends(self) -> Integers:
        """(N,) the end of each pair in `nats`."""
        return np.cumsum([len(target) + 1 for target in self.targets])

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """(N,) nats per target character of each pair, its end included."""
        starts = np.concatenate([[0], self.ends[:-1]])
        return np.add.reduceat(self.nats, starts) / (self.ends - starts)  # type: ignore[no-any-return]


def surprises_of_targets(
    reader: Reader, pairs: Sequence[tuple[Ids, Ids]], first: int, last: int
) -> npt.NDArray[np.float64]:
    """(source, target) ids of N pairs -> (M,) −ln p of each target's characters and its end.

    first, last: ids of answers.FIRST and LAST. Batches have pairs of similar lengths; no result
    depends on their padding.
    """
    order = sorted(range(len(pairs)), key=lambda number: (*map(len, reversed(pairs[number])),))
    most = windows_at_once(reader.config)
    groups = [order[begin : begin + most] for begin in range(0, len(order), most)]

    def work(group: Sequence[int]) -> list[Array]:
        return _surprises(reader, [pairs[number] for number in group], first, last)

    found: list[Array] = [np.empty(0)] * len(pairs)
    for group, results in zip(groups, on_cores(work, groups), strict=True):
        for number, each in zip(group, results, strict=True):
            found[number] = each
    return np.concatenate([np.empty(0), *found])


def _surprises(
    reader: Reader, pairs: Sequence[tuple[Ids, Ids]], first: int, last: int
) -> list[Array]:
    """B pairs -> for each (T + 1,) surprises, of its target's characters and its end."""
    before = [before_target(reader, source, first, last) for source, _ in pairs]
    read = [[*start, *target.tolist()] for start, (_, target) in zip(before, pairs, strict=True)]
    lengths = np.array([len(each) for each in read])
    places = np.arange(lengths.max())
    ids = np.zeros((len(pairs), len(places)), np.int64)
    ids[places < lengths[:, None]] = np.concatenate(read)
    memory = encoded(reader, [source for source, _ in pairs]) if reader.encoder else None
    starts = np.array([len(each) - 1 for each in before])
    predicts = (places >= starts[:, None]) & (places < lengths[:, None])  # (B, T)
    logits = reader.logits(reader.forward(ids, memory)[predicts])  # (M, vocab_size)
    expected = np.concatenate([[*target.tolist(), last] for _, target in pairs])
    nats = surprises(logits.astype(np.float64), expected)
    return np.split(nats, np.cumsum(lengths - starts)[:-1])


def pair_scores(
    lines: Sequence[int],
    sources: Sequence[str],
    targets: Sequence[str],
    written: Mapping[str, str],
    nats: npt.NDArray[np.float64],
) -> PairScores:
    """Scores of N pairs from what the model wrote for each source, and the (M,) nats; see
    PairScores. Of listed targets that are equally near, the first one counts.
    """
    texts, others = (
        [code_points(text) for text in side]
        for side in ([written[source] for source in sources], targets)
    )
    nearest: dict[str, tuple[int, int]] = {}
    for source, target, distance in zip(
        sources, targets, edit_distances(texts, others).tolist(), strict=True
    ):
        if source not in nearest or distance < nearest[source][0]:
            nearest[source] = distance, len(target)
    distances, lengths = np.array([nearest[source] for source in sources]).T
    sides = tuple(sources), tuple(targets), tuple(written[source] for source in sources)
    return PairScores(np.array(lines), *sides, nats, distances, lengths)


def edit_distances(texts: Sequence[Ids], others: Sequence[Ids]) -> Integers:
    """(N,) the fewest characters to insert, delete or replace that turn a text into the other
    (Levenshtein 1966), for N pairs of texts at once.
    """
    if not len(texts):
        return np.empty(0, np.int64)
    lengths, widths = (np.array([len(each) for each in side]) for side in (texts, others))
    rows, every = np.arange(len(texts)), np.arange(widths.max() + 1)
    columns = np.full((len(others), len(every)), -1)  # the others' characters, from column 1 on
    columns[(every > 0) & (every <= widths[:, None])] = np.concatenate(others)
    distances = np.tile(every, (len(texts), 1))  # from the text's first characters to the other's
    found: Integers = distances[rows, widths]
    for length in range(1, int(lengths.max()) + 1):
        same = np.array([text[length - 1] if length <= len(text) else -2 for text in texts])
        replaced = distances[:, :-1] + (columns[:, 1:] != same[:, None])
        distances = distances + 1  # deleted
        distances[:, 1:] = np.minimum(distances[:, 1:], replaced)
        distances = np.minimum.accumulate(distances - every, axis=1) + every  # inserted
        found = np.where(lengths == length, distances[rows, widths], found)
    return found
