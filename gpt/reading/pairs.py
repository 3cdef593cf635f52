"""Writes the targets of sources (greedily, drawn, or by beam search), and scores pairs.

With an encoder, the decoder reads FIRST, then the target so far; LAST ends a target, and FIRST
never occurs in one. A decoder-only model, trained on the same lines, also reads LAST and the source
before FIRST. Sources are encoded once, in batches of similar lengths; a stream is no longer decoded
when its target has ended.
Tensor names: B sources, n targets of each source, K hypotheses of each, V vocab_size, T characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpt.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Fold,
    Legend,
    Passage,
    Records,
    Table,
    Title,
    Tone,
    format_number,
)
from gpt.checks import TableResult
from gpt.config import SampleConfig
from gpt.counting.mixture import log_softmax
from gpt.reading.decode import CachedDecoder, map_on_cores
from gpt.reading.edits import CONFIDENCE, RESAMPLES, SEED, Edit, Integers, bootstrap, find_edits
from gpt.reading.gpt import Memory, Reader
from gpt.reading.layers import Array
from gpt.reading.sampler import draw, probabilities, uniforms
from gpt.reading.score import WORST, Score, surprisals, windows_at_once
from gpt.vocabulary import FIRST, LAST, SPACE, Ids, Symbols, join_symbols
from gpt.words import bits, counted

Item = TypeVar("Item", bound=Sized)
Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class WrittenTarget:
    """A target that a model wrote.

    ids: (T,) without LAST. ended: whether LAST followed; if not, the target has the maximal length.
    nats: −ln of the model's probability of these characters, and of LAST if it followed;
    temperature and filters do not change it.
    """

    ids: Ids
    nats: float
    ended: bool = True

    @property
    def log_probability(self) -> float:
        """The natural logarithm of the target's probability: −nats, but 0.0 instead of −0.0."""
        return round(-self.nats, 9) + 0.0


def encode_sources(reader: Reader, sources: Sequence[Ids]) -> Memory | None:
    """B sources of (S,) ids, S ≥ 1 -> what cross-attention reads; None without an encoder."""
    if not reader.encoder:
        return None
    ids, seen = pad_rows(sources)
    return reader.encode(ids, None if seen.all() else seen)


def pad_rows(rows: Sequence[Ids]) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """B rows of one or more ids -> (B, T) ids, and (B, T) False for padding, whose id is 0."""
    lengths = np.array([len(row) for row in rows])
    seen = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(seen.shape, np.int64)
    ids[seen] = np.concatenate(rows)
    return ids, seen


def before_target(reader: Reader, source: Ids, first: int, last: int) -> list[int]:
    """The ids that the decoder reads before a target."""
    return [first] if reader.encoder else [last, *source.tolist(), first]


def _started(
    reader: Reader, sources: Sequence[Ids], memory: Memory | None, first: int, last: int
) -> tuple[CachedDecoder, Array, int]:
    """A decoder that has read what comes before B targets, its (B, V) logits, and how many
    characters a target may have. memory: the encoded sources.
    """
    decoder = CachedDecoder(reader)
    ids = np.array([before_target(reader, source, first, last) for source in sources])
    return decoder, decoder.start(ids, memory), reader.config.block_size - ids.shape[1]


def sample_targets(
    reader: Reader,
    sources: Sequence[Ids],
    first: int,
    last: int,
    config: SampleConfig,
    never: Sequence[int] = (),
) -> list[list[WrittenTarget]]:
    """Draws targets of at most config.length characters, character by character: config.n for each
    source.

    Temperature 0 takes the likeliest character (greedy). Sample number s uses the random numbers of
    `uniforms(seed, s)` for every source, so a target does not depend on the other sources. never:
    ids that no target contains, besides `first`.
    """
    n, at_once = config.n, windows_at_once(reader.config)

    def work(group: Sequence[Ids]) -> list[list[WrittenTarget]]:
        memory = encode_sources(reader, group)
        parts = []
        for begin in range(0, n, at_once):
            started = _started(reader, group, memory, first, last)
            numbers = range(n)[begin : begin + at_once]
            parts.append(_drawn(*started, [first, *never], last, config, numbers))
        return [[target for part in parts for target in part[row]] for row in range(len(group))]

    return _in_groups(work, sources, max(1, at_once // n), equal=not reader.encoder)


def _drawn(
    decoder: CachedDecoder,
    logits: Array,
    room: int,
    never: Sequence[int],
    last: int,
    config: SampleConfig,
    samples: range,
) -> list[list[WrittenTarget]]:
    """Draws the samples with these numbers for each of the B texts that the decoder has read.

    never: ids that are not drawn. last: the id that ends a target.
    """
    (B, V), n, most = logits.shape, len(samples), min(config.length, room)
    hidden = np.isin(np.arange(V), never)
    if n > 1:
        streams = np.repeat(np.arange(B), n)
        decoder.keep(streams)
        logits = logits[streams]
    generators = [uniforms(config.seed, sample) for sample in samples]
    ids = np.zeros((B * n, most + 1), np.int64)
    nats, lengths = np.zeros(B * n), np.full(B * n, most)
    ended, live = np.zeros(B * n, np.bool_), np.arange(B * n)  # live: streams still decoded
    for at in range(most + 1):
        chances = np.array([next(each) for each in generators])[live % n]
        drawn = draw(probabilities(np.where(hidden, -np.inf, logits), config), chances)
        ends = drawn == last
        counts = ends | (at < most)  # a target of maximal length can end, but not go on
        nats[live] += np.where(counts, surprisals(logits.astype(np.float64), drawn), 0)
        ids[live, at] = drawn
        lengths[live[ends]], ended[live[ends]] = at, True
        live = live[~ends]
        if not len(live) or at == most:
            break
        decoder.keep(np.flatnonzero(~ends))
        logits = decoder.step(drawn[~ends])
    found = zip(ids, lengths.tolist(), nats.tolist(), ended.tolist(), strict=True)
    targets = [WrittenTarget(row[:length], cost, end) for row, length, cost, end in found]
    return [targets[row * n : (row + 1) * n] for row in range(B)]


def beam_search(
    reader: Reader,
    sources: Sequence[Ids],
    first: int,
    last: int,
    width: int,
    n: int = 1,
    length: int | None = None,
    never: Sequence[int] = (),
) -> list[list[WrittenTarget]]:
    """Beam search: for each source the n likeliest targets that it finds, best first, n ≤ width.

    It keeps the `width` likeliest beginnings of every length. One that has ended keeps its place
    until likelier ones push it out (Graves 2012, Sutskever et al. 2014). Targets are ordered by the
    log-probability of the whole target, not divided by the length: for most tasks on characters,
    the source nearly determines the length, and only wide beams prefer targets that are too short
    (Stahlberg & Byrne 2019). Width 1 is greedy. length: characters of the longest target; None:
    block_size − 1. never: see `sample_targets`.
    """
    most = reader.config.block_size if length is None else length

    def work(group: Sequence[Ids]) -> list[list[WrittenTarget]]:
        memory = encode_sources(reader, group)
        decoder, logits, room = _started(reader, group, memory, first, last)
        return _searched(decoder, logits, min(most, room), [first, *never], last, width, n)

    at_once = max(1, windows_at_once(reader.config) // width)
    return _in_groups(work, sources, at_once, equal=not reader.encoder)


def _searched(
    decoder: CachedDecoder,
    logits: Array,
    most: int,
    never: Sequence[int],
    last: int,
    width: int,
    n: int,
) -> list[list[WrittenTarget]]:
    """Beam search for each of the B texts that the decoder has read. never: ids that are not
    written. last: the id that ends a target.
    """
    (B, V), K = logits.shape, width
    scores = np.full((B, K), -np.inf)  # ln p of each hypothesis; −inf: an empty place
    scores[:, 0] = 0
    ended, live = np.zeros((B, K), np.bool_), np.arange(B) * K  # live: streams still decoded
    ids, lengths = np.zeros((B, K, most + 1), np.int64), np.zeros((B, K), np.int64)
    rows = np.arange(B)[:, None]
    for at in range(most + 1):
        logs = log_softmax(logits)  # (streams, V)
        logs[:, never] = -np.inf
        if at == most:  # the target must end here
            logs[:, np.arange(V) != last] = -np.inf
        grown = np.full((B * K, V + 1), -np.inf)  # last column: ended before
        grown[live, :V] = scores.ravel()[live, None] + logs
        grown[:, V] = np.where(ended, scores, -np.inf).ravel()
        candidates = grown.reshape(B, -1)
        best = np.argsort(-candidates, axis=1, kind="stable")[:, :K]
        scores = np.take_along_axis(candidates, best, axis=1)
        parents, tokens = best // (V + 1), best % (V + 1)  # (B, K)
        new = tokens < V
        ids, lengths = ids[rows, parents], lengths[rows, parents] + new
        ids[new, at] = tokens[new]
        ended = ~new | (tokens == last)
        found = np.isfinite(scores)
        done = (ended | ~found)[:, :n].all(axis=1)
        goes_on = (found & ~ended & ~done[:, None]).ravel()
        if not goes_on.any():
            break
        places = np.zeros(B * K, np.int64)  # each hypothesis's stream
        places[live] = np.arange(len(live))
        live = np.flatnonzero(goes_on)
        decoder.keep(places[(rows * K + parents).ravel()[live]])
        logits = decoder.step(tokens.ravel()[live])
    return [
        [
            WrittenTarget(ids[row, k, : lengths[row, k] - 1], -float(scores[row, k]))
            for k in range(n)
            if np.isfinite(scores[row, k])
        ]
        for row in range(B)
    ]


def _in_groups(
    work: Callable[[Sequence[Item]], Sequence[Found]],
    items: Sequence[Item],
    most: int,
    lengths: Callable[[Item], Any] = len,
    equal: bool = False,
) -> list[Found]:
    """The results of `work` for the items, in their order.

    It gets at most `most` items of similar lengths at once; equal: of equal lengths.
    """
    order = sorted(range(len(items)), key=lambda number: lengths(items[number]))
    alike = groupby(order, key=lambda number: equal and lengths(items[number]))
    groups = [
        each[begin : begin + most]
        for each in (list(numbers) for _, numbers in alike)
        for begin in range(0, len(each), most)
    ]
    results = map_on_cores(lambda group: work([items[each] for each in group]), groups)
    found = zip(chain(*groups), chain(*results), strict=True)
    return [result for _, result in sorted(found, key=itemgetter(0))]


@dataclass(frozen=True, repr=False)
class PairScores(TableResult):
    """Scores of N pairs in the order of their text. lines: (N,) their line numbers from 1; sources
    and targets; written: what the model wrote for each source. A target is a str of characters, or
    a tuple of symbols; "character" then means symbol.

    nats: (M,) −ln p of each target character, pair after pair, with the end of each target.
    nearest: among the targets that the text lists for a source, the one with the fewest edits to
    what the model wrote; edits: these edits (edits.py). A source counts once, at its first pair.
    """

    lines: Integers
    sources: tuple[str, ...]
    targets: tuple[Symbols, ...]
    written: tuple[Symbols, ...]
    nats: npt.NDArray[np.float64]
    nearest: tuple[Symbols, ...]
    edits: tuple[tuple[Edit, ...], ...]

    def __repr__(self) -> str:
        return (
            f"<PairScores of {counted(len(self.lines), 'pair')}: "
            f"{self.score.nats:.4f} nats a target {self.unit}, "
            f"{100 * self.exact:.2f} % of {len(self.firsts):,} sources exact, "
            f"{self.unit} error rate {100 * self.error_rate:.2f} %>"
        )

    @property
    def unit(self) -> str:
        """What a target consists of: "character" or "symbol"."""
        return "character" if isinstance(self.targets[0], str) else "symbol"

    @property
    def score(self) -> Score:
        """The mean over all target characters and target ends."""
        return Score(float(self.nats.mean()), len(self.nats))

    @property
    def exact(self) -> float:
        """Share of the sources for which the model wrote one of the listed targets."""
        return float((self.distances[self.firsts] == 0).mean())

    @property
    def error_rate(self) -> float:
        """Character or symbol error rate: the sum, over all sources, of the edit distances to the
        nearest listed target, divided by the sum of these targets' lengths. It can be above 1.
        """
        return float(self.distances[self.firsts].sum() / self.symbols.sum())

    @property
    def word_error_rate(self) -> float:
        """Share of the sources for which the model wrote no listed target."""
        return 1 - self.exact

    @cached_property
    def distances(self) -> Integers:
        """(N,) the number of edits of each pair."""
        return np.array([len(each) for each in self.edits])

    @property
    def symbols(self) -> Integers:
        """(sources,) the length of each source's nearest target."""
        return np.array([len(self.nearest[place]) for place in self.firsts])

    @cached_property
    def confusions(self) -> Counter[Edit]:
        """How often each edit occurs; each source counts once."""
        return Counter(edit for place in self.firsts for edit in self.edits[place])

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """The 95 % intervals of both error rates, by bootstrap over the sources; see edits.py."""
        distances = self.distances[self.firsts]
        return {
            "word_error_rate": bootstrap((distances > 0).astype(int), np.ones_like(distances)),
            "error_rate": bootstrap(distances, self.symbols),
        }

    @cached_property
    def firsts(self) -> list[int]:
        """The number of each source's first pair, in order."""
        places = {source: place for place, source in reversed([*enumerate(self.sources)])}
        return sorted(places.values())

    @property
    def ends(self) -> Integers:
        """(N,) where each pair ends in `nats`."""
        return np.cumsum([len(target) + 1 for target in self.targets])

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """(N,) mean nats per target character of each pair, its end included."""
        starts = np.concatenate([[0], self.ends[:-1]])
        return np.add.reduceat(self.nats, starts) / (self.ends - starts)  # type: ignore[no-any-return]

    @property
    def each(self) -> list[npt.NDArray[np.float64]]:
        """The nats of each pair."""
        return np.split(self.nats, self.ends[:-1])

    @property
    def worst(self) -> npt.NDArray[np.intp]:
        """(N,) numbers of the pairs, those with the most nats per target character first."""
        return np.argsort(-self.means, kind="stable")

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers for programs. exact and the rates are shares of 1. The rates of
        substitutions, insertions and deletions are shares of `symbols`, the length of the nearest
        targets, and sum to error_rate.
        """
        symbols, kinds = int(self.symbols.sum()), count_kinds(self.confusions)
        about = {"confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": SEED}
        common = self.confusions.most_common()
        return {
            **self.score.numbers,
            "pairs": len(self.lines),
            "sources": len(self.firsts),
            "exact": self.exact,
            "word_error_rate": self.word_error_rate,
            "error_rate": self.error_rate,
            "symbols": symbols,
            **kinds,
            "rates": {name: count / symbols for name, count in kinds.items()},
            "intervals": {**self.intervals, **about, "words": len(self.firsts)},
            "confusions": [{"target": t, "written": w, "count": n} for (t, w), n in common],
        }

    def blocks(self, most: int = WORST, every: bool = False) -> list[Block]:
        """The loss, what the model wrote, and the `most` worst pairs. every: also all pairs, with
        target characters coloured by their surprisal.
        """
        score, sources = self.score, counted(len(self.firsts), "source")
        loss, unit = score.loss.replace("a character", f"a target {self.unit}"), self.unit
        symbols = int(self.symbols.sum())
        errors = [
            f"{counted(count, name.removesuffix('s'))} ({100 * count / symbols:.2f} %)"
            for name, count in count_kinds(self.confusions).items()
        ]
        facts = {
            "exact": f"{100 * self.exact:.2f} % of {sources}",
            "word error rate": self._rate(self.word_error_rate, "word_error_rate"),
            f"{unit} error rate": self._rate(self.error_rate, "error_rate"),
            "errors": f"{', '.join(errors)} of {counted(symbols, unit)}",
            "predicted": f"{counted(score.characters, unit)}, ends of targets included",
        }
        titles = ["nats", "line", "source", "target", "written", "edits", "changes"]
        columns = [Column(title, left=2 <= n < 5 or n == 6) for n, title in enumerate(titles)]
        shown: dict[tuple[str, Symbols], int] = {}  # shows a pair of several lines once
        for n in self.worst.tolist():
            shown.setdefault((self.sources[n], self.targets[n]), n)
        rows = [self._row(n) for n in [*shown.values()][: max(0, most)]]
        table = Fold(f"worst pairs · nats a target {unit}", [Table(columns, rows)], opened=True)
        return [
            Title("pairs", [loss, counted(len(self.lines), "pair")]),
            *[self._passage()] * every,
            *[table] * bool(rows),
            *self._confused(),
            Facts(facts),
        ]

    def _rate(self, rate: float, name: str) -> str:
        """ "29.80 %, 95 % interval 28.62 to 30.98 %, n = 5,811" """
        if (interval := self.intervals[name]) is None:
            return f"{100 * rate:.2f} %"
        low, high = (f"{100 * end:.2f}" for end in interval)
        return f"{100 * rate:.2f} %, 95 % interval {low} to {high} %, n = {len(self.firsts):,}"

    def _confused(self) -> list[Block]:
        """The most common edits: target symbol, what was written in its place, how often."""
        from gpt.characters import label  # imports rich

        common, total = self.confusions.most_common(WORST), self.confusions.total()
        rows = [
            [
                *(Cell(label(str(each))) if each else Cell("nothing", tone="dim") for each in edit),
                *(Cell(f"{count:,}"), Cell(f"{100 * count / total:.1f} %")),
            ]
            for edit, count in common
        ]
        if not rows:
            return []
        columns = [Column("target", left=True), Column("written", left=True)]
        table = Table([*columns, Column("count"), Column("of all errors")], rows)
        symbols = tuple(str(each) for edit, _ in common for each in edit if each is not None)
        return [Fold("commonest confusions", [table, Legend(symbols)], opened=True)]

    def _row(self, place: int) -> list[Cell]:
        right: Tone = "good" if self.distances[place] == 0 else ""
        return [
            Cell(format_number(float(self.means[place]))),
            Cell(f"{self.lines[place]:,}"),
            Cell(self.sources[place]),
            Cell(join_symbols(self.targets[place])),
            Cell(join_symbols(self.written[place]), tone=right),
            Cell(f"{self.distances[place]:,}"),
            Cell(" ".join(map(edit_label, self.edits[place]))),
        ]

    def _passage(self) -> Passage:
        """The pairs, one in each line; the characters of sources have no values."""
        text, nats = list[str](), list[float]()
        for source, target, surprisal in zip(self.sources, self.targets, self.each, strict=True):
            text += [*source, FIRST]
            nats += [np.nan] * (len(source) + len(FIRST))
            for place, (symbol, each) in enumerate(zip((*target, LAST), surprisal, strict=True)):
                space = self.unit == "symbol" and 0 < place < len(target)
                text += [*([SPACE] * space), symbol]
                nats += [*([np.nan] * space), float(each)]
        return Passage(tuple(text), bits(np.array(nats)), "bits of surprisal")

    def records(self, most: int | None = None, every: bool = False) -> Records:
        """A row for each pair, or for the `most` worst ones. every: with the nats of each target
        character and of its end.
        """
        order = np.arange(len(self.lines)) if most is None else self.worst[: max(0, most)]
        columns: dict[str, Any] = {"line": self.lines[order]}
        sides = {"source": self.sources, "target": self.targets, "written": self.written}
        for name, side in sides.items():
            columns[name] = [join_symbols(side[place]) for place in order]
        distances = self.distances[order]
        columns |= {"exact": distances == 0, "distance": distances, "nats": self.means[order]}
        columns["nearest"] = [join_symbols(self.nearest[place]) for place in order]
        counts = [count_kinds(Counter(self.edits[place])) for place in order]
        columns |= {name: [each[name] for each in counts] for name in count_kinds(Counter())}
        if every:
            parts = self.each
            columns["each"] = [parts[place].tolist() for place in order]
        return Records(columns, self.numbers)


def surprisals_of_targets(
    reader: Reader, pairs: Sequence[tuple[Ids, Ids]], first: int, last: int
) -> npt.NDArray[np.float64]:
    """(source, target) ids of N pairs -> (M,) −ln p of the characters of each target and of its
    end.

    first, last: the ids of TAB and NEWLINE. Pairs of similar lengths share a batch; no result
    depends on padding.
    """

    def work(batch: Sequence[tuple[Ids, Ids]]) -> list[Array]:
        before = [before_target(reader, source, first, last) for source, _ in batch]
        ids, seen = pad_rows(
            [np.append(start, target) for start, (_, target) in zip(before, batch, strict=True)]
        )
        memory = encode_sources(reader, [source for source, _ in batch])
        starts = np.array([len(each) - 1 for each in before])
        predicts = seen & (np.arange(ids.shape[1]) >= starts[:, None])  # (B, T)
        logits = reader.logits(reader.forward(ids, memory)[predicts])  # (M, vocab_size)
        expected = np.concatenate([np.append(target, last) for _, target in batch])
        nats = surprisals(logits.astype(np.float64), expected)
        return np.split(nats, np.cumsum(predicts.sum(axis=1))[:-1])

    def lengths(pair: tuple[Ids, Ids]) -> tuple[int, int]:
        return len(pair[1]), len(pair[0])

    each = _in_groups(work, pairs, windows_at_once(reader.config), lengths)
    return np.concatenate([np.empty(0), *each])


def pair_scores(
    lines: Sequence[int],
    sources: Sequence[str],
    targets: Sequence[Symbols],
    written: Mapping[str, Symbols],
    nats: npt.NDArray[np.float64],
) -> PairScores:
    """Scores of N pairs from what the model wrote for each source, and from the (M,) nats; see
    PairScores. If several listed targets are equally near, the first one counts.
    """
    nearest: dict[str, tuple[Symbols, tuple[Edit, ...]]] = {}
    for source, target in zip(sources, targets, strict=True):
        edits = find_edits(target, written[source])
        if source not in nearest or len(edits) < len(nearest[source][1]):
            nearest[source] = target, edits
    sides = tuple(sources), tuple(targets), tuple(written[source] for source in sources)
    best, changes = zip(*(nearest[source] for source in sources), strict=True)
    return PairScores(np.array(lines), *sides, nats, best, changes)


def count_kinds(edits: Counter[Edit]) -> dict[str, int]:
    """How many substitutions, insertions and deletions these edits are."""
    kinds = {"substitutions": 0, "insertions": 0, "deletions": 0}
    for (target, written), count in edits.items():
        replaced = "deletions" if written is None else "substitutions"
        kinds["insertions" if target is None else replaced] += count
    return kinds


def edit_label(edit: Edit) -> str:
    """ "ɛ→e" for e in place of ɛ, "+t" for an inserted t, "−h" for a missing h."""
    from gpt.characters import label  # imports rich

    target, written = (label(str(each)) if each else "" for each in edit)
    if target and written:
        return f"{target}→{written}"
    return f"−{target}" if target else f"+{written}"
