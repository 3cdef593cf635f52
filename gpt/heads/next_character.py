"""The distribution of the next character, as the model computes it and after each sampling filter.

Also the logit lens (nostalgebraist 2020): what the model would predict if it stopped after a layer.
The lens is a heuristic: only the last depth is the model's prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.blocks import Block, Cell, Column, Legend, Note, Records, Table, Title, Tone, format_number
from gpt.characters import label
from gpt.checks import TableResult, check_number
from gpt.config import SampleConfig
from gpt.config.fields import flag_of
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.counting.mixture import Mixture, counting_streams
from gpt.counting.tables import Numbers
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array, softmax
from gpt.reading.sampler import probabilities, start_character, window_start
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

END = 40  # characters from the end of a text that a title quotes


@dataclass(frozen=True, repr=False)
class Experts(TableResult):
    """Predictions at T positions: of the GPT, of counting, and of both together, the model's
    own.

    gpt, counting, both: (T, V) probabilities. weights: (T, 2), the powers to which the
    probabilities of the GPT and of counting enter their product. The next four describe the longest
    history that counting knows. lengths: (T,) its characters; totals: (T,) how often it was
    counted; kinds: (T,) how many distinct characters followed it; pairs: (T,) whether distinct
    pairs of a character before and one after it were counted instead of its occurrences, as
    Kneser–Ney does for all but the longest n-grams. `at` gives one position, without the axis T.
    text: the T characters; characters: the vocabulary, id -> character; empty if not known.
    """

    gpt: npt.NDArray[np.float64]
    counting: npt.NDArray[np.float64]
    both: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.integer[Any]]
    totals: npt.NDArray[np.float64]
    kinds: npt.NDArray[np.integer[Any]]
    pairs: npt.NDArray[np.bool_]
    text: str = ""
    characters: str = ""

    def __repr__(self) -> str:
        gpt, counting = np.atleast_2d(self.weights).mean(axis=0)
        places = len(np.atleast_1d(self.lengths))
        return (
            f"<Experts at {counted(places, 'position')}: mean weight of the GPT "
            f"{gpt:.2f}, of counting {counting:.2f}>"
        )

    def at(self, position: int) -> Experts:
        arrays = {name: each[position] for name, each in self.to_numpy().items()}
        return replace(self, **arrays, text=self.text[position : position + 1])

    def blocks(self) -> list[Block]:
        """A row for each position: the likeliest character by each expert, and the weights."""
        weights = np.atleast_2d(self.weights)
        every = [np.atleast_2d(each) for each in (self.gpt, self.counting, self.both)]
        lengths, totals = np.atleast_1d(self.lengths), np.atleast_1d(self.totals)
        rows = []
        for place, mixed in enumerate(weights.tolist()):
            guesses, comes = [], self.text[place + 1 : place + 2]
            for each in every:
                best = each[place].argsort(kind="stable")[::-1][:1]
                guesses.append(guess_cell(best, each[place][best], self.characters, comes))
            counts = f"{int(lengths[place])}", f"{int(totals[place]):,}"
            numbers = map(Cell, (*map(format_number, mixed), *counts))
            rows.append([_after(self.text, place), *guesses, *numbers])
        titles = ["GPT", "counting", "both", "weight GPT", "weight counting", "history", "seen"]
        meaning = (
            "Each cell: the likeliest next character and its probability; bold if the text "
            "continues with it. both = GPT^weight × counting^weight, scaled to sum 1. history: "
            "characters before it that counting used; seen: how often these were counted."
        )
        columns = [Column("after", left=True), *map(Column, titles)]
        return [
            Title("experts", [counted(len(weights), "position")]),
            Table(columns, rows),
            Note(meaning),
            Legend(self.text),
        ]

    def records(self) -> Records:
        """A row for each position."""
        weights = np.atleast_2d(self.weights)
        columns: dict[str, Any] = {"position": np.arange(len(weights))}
        if self.text:
            columns["text"] = list(self.text)
        for name in ("gpt", "counting", "both"):
            each = np.atleast_2d(getattr(self, name))
            best = character_columns(self.characters, each.argmax(axis=-1))
            columns |= {f"{name}_{key}": values for key, values in best.items()}
            columns[f"{name}_probability"] = each.max(axis=-1)
        columns |= {"gpt_weight": weights[:, 0], "counting_weight": weights[:, 1]}
        for name in ("lengths", "totals", "kinds", "pairs"):
            columns[name] = np.atleast_1d(getattr(self, name))
        return Records(columns)

    @property
    def mixed(self) -> list[str]:
        """How the gate mixed both experts at one position, and which counts counting used."""
        gpt, counting = (format_number(weight) for weight in self.weights.tolist())
        mixed = f"expected = GPT^{gpt} × counting^{counting}, scaled to sum 1"
        length, total, kinds = int(self.lengths), f"{int(self.totals):,}", int(self.kinds)
        if not length:
            return [mixed, "counting used no earlier character, only how common each character is"]
        history = f"the last {counted(length, 'character')}" if length > 1 else "the last character"
        pair = "pair" if self.totals == 1 else "different pair"
        pairs = f"between {counted(total, pair)} of characters (one before, one after)"
        seen = pairs if self.pairs else counted(total, "time")
        followed = f"{kinds} different characters" if kinds > 1 else "always the same character"
        return [mixed, f"counting used {history}, seen {seen} · {followed} followed"]


@dataclass(frozen=True, repr=False)
class NextCharacter(TableResult):
    """For every character of the vocabulary, (V,): its probability before and after the
    filters.

    expected: the model's probabilities; filtered: the probabilities after temperature and filters,
    from which sampling draws. removed: the index in DISTRIBUTION_OPTIONS of the option that removed
    the character, or −1. experts: in a model with counting, the predictions at this position, if
    both predict. config: the filters; characters: the vocabulary, id -> character; text: the text
    before the character; empty if not known.
    """

    expected: npt.NDArray[np.float64]
    filtered: npt.NDArray[np.float64]
    removed: npt.NDArray[np.int64]
    experts: Experts | None = None
    config: SampleConfig = field(default_factory=SampleConfig)
    characters: str = ""
    text: str = ""

    def __repr__(self) -> str:
        best = int(self.expected.argmax())
        name = repr(self.characters[best]) if self.characters else f"id {best}"
        return (
            f"<NextCharacter: the next of {len(self.expected)} characters; likeliest {name} "
            f"{self.expected[best]:.3f}, entropy {self.entropies[0]:.2f} bits>"
        )

    @property
    def changed(self) -> bool:
        """Whether temperature or a filter changed any probability."""
        return not np.allclose(self.expected, self.filtered, rtol=1e-9, atol=0)

    @property
    def entropies(self) -> tuple[float, float]:
        """Entropy in bits of the expected and of the filtered distribution."""
        return _bits(self.expected), _bits(self.filtered)

    @property
    def order(self) -> npt.NDArray[np.intp]:
        """The characters' ids, the likeliest first."""
        return np.argsort(-self.expected, kind="stable")

    def blocks(self, most: int = 12) -> list[Block]:
        """The `most` likeliest characters with bars; what the filters removed is red.

        More columns show the predictions of the GPT and of counting alone, if the model counts, and
        the probabilities after temperature and filters, if these change any.
        """
        shown, rest = self.order[:most].tolist(), self.order[most:]
        chances = {"expected": self.expected}
        if self.experts is not None:
            chances |= {"GPT": self.experts.gpt, "counting": self.experts.counting}
        columns = [Column(left=True), *(Column(name, bars=True) for name in chances)]
        columns += [Column("after", left=True)] * self.changed
        rows = []
        for token in shown:
            tone: Tone = "gone" if self.removed[token] >= 0 else ""
            values = [float(each[token]) for each in chances.values()]
            tones: list[Tone] = [tone, "dim", "dim"]
            bars = [Cell(format_number(v, 3), v, t) for v, t in zip(values, tones, strict=False)]
            after = [Cell(self._after(token), tone="dim" if tone else "")] * self.changed
            rows.append([Cell(character_name(self.characters, token)), *bars, *after])
        before, left = self.entropies
        facts = ["a bar of full width is 1", f"{before:.2f} bits expected"]
        expected = format_number(self.expected[rest].sum(), 3)
        left_over = [f"rest: {counted(rest.size, 'character')} {expected} expected"]
        if self.changed:
            left_over.append(f"{format_number(self.filtered[rest].sum(), 3)} after")
            facts.append(f"{left:.2f} bits after")
            facts.append(f"{(self.filtered > 0).sum()} of {len(self.expected)} characters left")
        notes = [*(self.experts.mixed if self.experts is not None else [])]
        notes += [" · ".join(left_over)] * bool(rest.size)
        return [
            Title("next character", [*quoted_end(self.text), *self._settings()]),
            Table(columns, rows),
            *map(Note, [*notes, " · ".join(facts)]),
            Legend([self.characters[token] for token in shown if self.characters]),
        ]

    def _settings(self) -> list[str]:
        """ "temperature 0.8", "top-k 5"; "temperature 1", "no change"."""
        given = [(name, getattr(self.config, name)) for name in DISTRIBUTION_OPTIONS]
        words = [f"{flag_of(name)[2:]} {value:g}" for name, value in given if value is not None]
        return words if self.changed else [*words, "no change"]

    def _after(self, token: int) -> str:
        """A character's probability after the filters, or the filter that removed it."""
        if (removed := self.removed[token]) >= 0:
            return f"removed by {flag_of(DISTRIBUTION_OPTIONS[removed])[2:]}"
        return format_number(self.filtered[token], 3)

    def records(self) -> Records:
        """A row for each character, the likeliest first."""
        order, experts = self.order, self.experts
        columns = {**character_columns(self.characters, order), "expected": self.expected[order]}
        if experts is not None:
            columns |= {"gpt": experts.gpt[order], "counting": experts.counting[order]}
        removed = [
            DISTRIBUTION_OPTIONS[each] if each >= 0 else None
            for each in self.removed[order].tolist()
        ]
        columns |= {"after_filters": self.filtered[order], "removed_by": removed}
        before, after = self.entropies
        facts: dict[str, Any] = {name: getattr(self.config, name) for name in DISTRIBUTION_OPTIONS}
        facts["bits"] = {"expected": before, "after_filters": after}
        facts |= {"weights": None, "history": None}
        if experts is not None:
            facts["weights"] = experts.weights
            used = {"length": experts.lengths, "counted": experts.totals, "kinds": experts.kinds}
            facts["history"] = {name: int(each) for name, each in used.items()}
        return Records(columns, facts)


def quoted_end(text: str) -> list[str]:
    """ "after “…the end of the text”", if the text is known."""
    end = "".join(label(each) if each in "\n\t\r" else each for each in text[-END:])
    return [f"after “{'…' * (len(text) > END)}{end}”"] * bool(text)


def next_character(
    reader: Reader,
    ids: Ids,
    config: SampleConfig,
    mixture: Mixture | None = None,
    vocabulary: Vocabulary | None = None,
) -> NextCharacter:
    """(n,) ids, n ≥ 1 -> the next character, in the window of `sample` (sampler.window_start).

    vocabulary: gives the result its characters. Raises ConfigError if `config.only` asks for a
    counting expert and the model has none.
    """
    seen = ids[window_start(len(ids), reader.config.block_size) :]
    logits = reader.logits(reader.forward(seen[None])[:, -1])  # (1, V)
    counting = counting_streams(mixture, ids, replace(config, n=1))
    experts = None
    if mixture is not None and counting is not None:
        if config.only is None:
            experts = _experts(mixture, logits, counting.histories).at(0)
        logits = counting.scores(logits)
    removed = np.full(logits.shape[1], -1)
    for place in range(len(DISTRIBUTION_OPTIONS)):
        later = DISTRIBUTION_OPTIONS[place + 1 :]  # filters not applied
        unset: dict[str, Any] = dict.fromkeys(later)
        filtered = probabilities(logits, replace(config, **unset))[0]
        removed[(filtered == 0) & (removed < 0)] = place
    expected = probabilities(logits, SampleConfig(temperature=1.0))[0]
    found = NextCharacter(expected, filtered, removed, experts, config)
    if vocabulary:
        return replace(found, characters=vocabulary.characters, text=vocabulary.decode(ids))
    return found


def next_of_text(
    reader: Reader,
    vocabulary: Vocabulary,
    text: str,
    config: SampleConfig,
    mixture: Mixture | None = None,
) -> NextCharacter:
    """The next character of a text; see TrainedGPT.next, which raises the same errors."""
    ids = ids_to_continue(vocabulary, text)
    return next_character(reader, ids, config, mixture, vocabulary)


def ids_to_continue(vocabulary: Vocabulary, text: str) -> Ids:
    """The ids of the text; for an empty one, of the character that `sample` begins after.

    Raises TextError.
    """
    return vocabulary.encode(text or start_character(vocabulary))


def all_experts(reader: Reader, attention: AttentionMap, mixture: Mixture) -> Experts:
    """Predictions of the GPT, of counting and of both after each character of the map's text.

    Counting uses only the characters of this text as histories.
    """
    logits = reader.logits(reader.final_norm(attention.layers[-1].resid_post[None]))[0]  # (T, V)
    histories = mixture.expert.trie.histories(attention.ids)[:, 1:]
    found = _experts(mixture, logits, histories)
    return replace(found, text=attention.text, characters=attention.characters)


def _experts(mixture: Mixture, logits: Array, histories: Numbers) -> Experts:
    """(T, V) logits of the GPT, (N, T) histories -> the predictions at T positions."""
    found = mixture.predict(logits, histories)
    gpt, counting, both = (np.exp(each) for each in (found.gpt, found.counting, found.both))
    depth, total, kinds = found.counted.depth, found.counted.total, found.counted.kinds
    pairs = depth < mixture.expert.trie.orders
    return Experts(gpt, counting, both, found.weights.T, depth - 1, total, kinds, pairs)


@dataclass(frozen=True, repr=False)
class Lens(TableResult):
    """The K likeliest next characters at each of S = n_layer + 1 depths and T positions.

    Depth 0 is the embedding alone, the last is the model's own prediction. ids, probabilities:
    (S, T, K), likeliest first. text: the T characters; characters: the vocabulary, id ->
    character; empty if not known.
    """

    ids: npt.NDArray[np.int64]
    probabilities: Array
    text: str = ""
    characters: str = ""

    def __repr__(self) -> str:
        depths, places, _ = self.ids.shape
        mean = float(self.probabilities[-1, :, 0].mean())
        return (
            f"<Lens: {counted(places, 'position')} at {depths} depths; the model's "
            f"likeliest character has {mean:.3f} on average>"
        )

    def blocks(self, positions: Sequence[int] | None = None) -> list[Block]:
        """A row for each position, a column for each depth; cells show the likeliest next
        character.

        positions: which rows to show; None: all.
        """
        depths, T, _ = self.ids.shape
        chosen = range(T) if positions is None else positions
        places, rows = [check_number("positions", each, T) for each in chosen], []
        for place in places:
            depth_by_depth = zip(self.ids[:, place], self.probabilities[:, place], strict=True)
            known = self.characters, self.text[place + 1 : place + 2]
            guesses = (guess_cell(*each, *known) for each in depth_by_depth)
            rows.append([_after(self.text, place), *guesses])
        titles = ["embedded", *(f"layer {layer}" for layer in range(depths - 1))]
        columns = [Column("after", left=True), *map(Column, titles)]
        meaning = (
            "Each cell: the likeliest next character if the model stopped after this layer, and "
            "its probability; bold if the text continues with it. A heuristic: only the last "
            "column is the model."
        )
        facts = [counted(len(places), "position"), "rows = position, columns = depth"]
        return [Title("logit lens", facts), Table(columns, rows), Note(meaning), Legend(self.text)]

    def save(self, path: str | Path) -> Path:
        """Draws the likeliest character at each depth and position into a .svg, .pdf or .png file;
        needs matplotlib. Raises ConfigError for another ending, StorageError.
        """
        found: Path = showing.renderer().save_lens(self, path)
        return found

    def records(self) -> Records:
        """A row for each depth, position and rank."""
        depths, positions, ranks = (each.ravel() for each in np.indices(self.ids.shape))
        columns: dict[str, Any] = {"depth": depths, "position": positions, "rank": ranks}
        columns |= character_columns(self.characters, self.ids.ravel())
        return Records(columns | {"probability": self.probabilities.ravel()})


def logit_lens(reader: Reader, attention: AttentionMap, most: int = 8) -> Lens:
    """Applies unembed(norm(stream)) at every depth; the `most` likeliest characters of each."""
    start = reader.embed(attention.ids[None])[0]
    streams = np.stack([start, *(layer.resid_post for layer in attention.layers)])  # (S, T, C)
    chances = softmax(reader.logits(reader.final_norm(streams)))  # (S, T, vocab_size)
    ids = np.argsort(-chances, axis=-1, kind="stable")[..., :most]
    probabilities = np.take_along_axis(chances, ids, axis=-1)
    return Lens(ids, probabilities, attention.text, attention.characters)


def character_name(characters: str, token: int) -> str:
    """The label of a character; its id if the vocabulary is not known."""
    return label(characters[token]) if characters else f"id {token}"


def character_columns(characters: str, ids: npt.NDArray[Any]) -> dict[str, Any]:
    """Ids, and their characters if the vocabulary is known, as columns."""
    names = {"character": [characters[token] for token in ids]} if characters else {}
    return {**names, "id": ids}


def guess_cell(
    ids: npt.NDArray[Any], chances: npt.NDArray[Any], characters: str, next_one: str
) -> Cell:
    """The likeliest next character and its probability, the next ones as a hint; shaded if the text
    continues with it. ids, chances: (K,), likeliest first.
    """
    names = [
        f"{character_name(characters, token)} {format_number(chance)}"
        for token, chance in zip(ids.tolist()[:4], chances.tolist(), strict=False)
    ]
    right = bool(next_one) and characters[ids[0] : ids[0] + 1] == next_one
    tone: Tone = "good" if right else "dim"
    return Cell(names[0], float(chances[0]) if right else None, tone, hint="  ".join(names))


def _after(text: str, place: int) -> Cell:
    """The position, and its character if the text is known."""
    return Cell(f"{place} {label(text[place])}" if text else str(place))


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0
