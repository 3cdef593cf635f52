"""The distribution of the next character: the model's own, and what each filter leaves of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Cell, Column, Legend, Note, Records, Table, Title, Tone, format_number
from gpt.characters import label
from gpt.checks import Result, TableResult
from gpt.config import Shaping
from gpt.config.fields import flag_of
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.counting.mixture import Mixture, counting_streams
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.sampler import probabilities, start_character, window_start
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

END = 40  # characters from the end of a text that a title quotes


@dataclass(frozen=True)
class Experts(Result):
    """Predictions of the next character: of the GPT, of counting, and of both together, the model's
    own.

    gpt, counting, both: (V,) probabilities. weights: (2,), the powers to which the probabilities of
    the GPT and of counting enter their product. The next four describe the longest history that
    counting knows. length: its characters; total: how often it was counted; kinds: how many
    distinct characters followed it; pairs: whether distinct pairs of a character before and one
    after it were counted instead of its occurrences, as Kneser–Ney does for all but the longest
    n-grams.
    """

    gpt: npt.NDArray[np.float64]
    counting: npt.NDArray[np.float64]
    both: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    length: int
    total: int
    kinds: int
    pairs: bool

    @property
    def mixed(self) -> list[str]:
        """How the gate mixed both experts, and which counts counting used."""
        gpt, counting = (format_number(weight) for weight in self.weights.tolist())
        mixed = f"expected = GPT^{gpt} × counting^{counting}, scaled to sum 1"
        if not self.length:
            return [mixed, "counting used no earlier character, only how common each character is"]
        history = "the last character"
        if self.length > 1:
            history = f"the last {counted(self.length, 'character')}"
        seen = counted(self.total, "time")
        if self.pairs:
            pairs = counted(self.total, "pair" if self.total == 1 else "different pair")
            seen = f"between {pairs} of characters (one before, one after)"
        followed = "always the same character"
        if self.kinds > 1:
            followed = f"{self.kinds} different characters"
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
    config: Shaping = field(default_factory=Shaping)
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
            rows.append([Cell(_character_name(self.characters, token)), *bars, *after])
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
        columns: dict[str, Any] = {}
        if self.characters:
            columns["character"] = [self.characters[token] for token in order]
        columns |= {"id": order, "expected": self.expected[order]}
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
            used = {"length": experts.length, "counted": experts.total, "kinds": experts.kinds}
            facts["history"] = used
        return Records(columns, facts)


def quoted_end(text: str) -> list[str]:
    """ "after “…the end of the text”", if the text is known."""
    end = "".join(label(each) if each in "\n\t\r" else each for each in text[-END:])
    return [f"after “{'…' * (len(text) > END)}{end}”"] * bool(text)


def next_character(
    reader: Reader,
    ids: Ids,
    config: Shaping,
    mixture: Mixture | None = None,
    vocabulary: Vocabulary | None = None,
) -> NextCharacter:
    """(n,) ids, n ≥ 1 -> the next character, in the window of `sample` (sampler.window_start).

    vocabulary: gives the result its characters. Raises ConfigError if `config.only` asks for a
    counting expert and the model has none.
    """
    seen = ids[window_start(len(ids), reader.config.block_size) :]
    logits = reader.logits(reader.forward(seen[None])[:, -1])  # (1, V)
    counting = counting_streams(mixture, ids, config.only)
    experts = None
    if mixture is not None and counting is not None:
        if config.only is None:
            experts = _experts(mixture, logits, ids)
        logits = counting.scores(logits)
    removed = np.full(logits.shape[1], -1)
    for place in range(len(DISTRIBUTION_OPTIONS)):
        later = DISTRIBUTION_OPTIONS[place + 1 :]  # filters not applied
        unset: dict[str, Any] = dict.fromkeys(later)
        filtered = probabilities(logits, replace(config, **unset))[0]
        removed[(filtered == 0) & (removed < 0)] = place
    expected = probabilities(logits, Shaping(temperature=1.0))[0]
    found = NextCharacter(expected, filtered, removed, experts, config)
    if vocabulary:
        return replace(found, characters=vocabulary.characters, text=vocabulary.decode(ids))
    return found


def next_of_text(
    reader: Reader,
    vocabulary: Vocabulary,
    text: str,
    config: Shaping,
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


def _experts(mixture: Mixture, logits: Array, ids: Ids) -> Experts:
    """(1, V) logits of the GPT, the (n,) ids so far -> the predictions of the next character."""
    trie = mixture.expert.trie
    histories = trie.histories_at(ids, np.array([len(ids)]), 1)  # (N, 1)
    predicted = mixture.predict(logits, histories)
    followers = [trie.counts[trie.starts[node] : trie.starts[node + 1]] for node in histories[:, 0]]
    length = max((n for n, counts in enumerate(followers) if counts.any()), default=0)
    return Experts(
        gpt=np.exp(predicted.gpt[0]),
        counting=np.exp(predicted.counting[0]),
        both=np.exp(predicted.both[0]),
        weights=predicted.weights[:, 0],
        length=length,
        total=int(followers[length].sum()),
        kinds=len(followers[length]),
        pairs=length + 1 < trie.orders,
    )


def _character_name(characters: str, token: int) -> str:
    """The label of a character; its id if the vocabulary is not known."""
    return label(characters[token]) if characters else f"id {token}"


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0
