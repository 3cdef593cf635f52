"""The distribution of the next character: the model's own, and what each filter leaves of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.characters import NAMED, in_line, label
from gpt.checks import Arrays
from gpt.config import Shaping
from gpt.config.fields import flag_of
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.counting.mixture import Mixture, counting_streams
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.sampler import probabilities, start_character, window_start
from gpt.show.result import Column, Result, short_number
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

END = 40  # characters from the end of a text that a title quotes
SHOWN = 8  # characters in the short form


@dataclass(frozen=True)
class CharacterRow:
    """A character as people see it, with probabilities. after: what filters leave of it, or the one
    that removed it.
    """

    character: str
    expected: float
    after: str | None = None
    gpt: float | None = None
    counting: float | None = None


@dataclass(frozen=True)
class Experts(Arrays):
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
    def mixed(self) -> str:
        """How the gate mixed both experts."""
        gpt, counting = (short_number(weight) for weight in self.weights.tolist())
        return f"GPT^{gpt} × counting^{counting}, scaled to sum 1"

    @property
    def used(self) -> str:
        """Which counts counting used."""
        if not self.length:
            return "no earlier character, only how common each character is"
        history = counted(self.length, "character")
        seen = f"seen {counted(self.total, 'time')}"
        if self.pairs:
            seen = (
                f"seen between {self.total:,} different pairs of one character before and one after"
            )
        return f"the last {history}, {seen}; {counted(self.kinds, 'different character')} followed"


@dataclass(frozen=True, repr=False)
class NextCharacter(Arrays, Result):
    """For every character of the vocabulary, (V,): its probability before and after the
    filters.

    expected: the model's probabilities; filtered: the probabilities after temperature and filters,
    from which sampling draws. removed: the index in DISTRIBUTION_OPTIONS of the option that removed
    the character, or −1. characters: the vocabulary, id -> character. text: what stands before.
    experts: in a model with counting, the predictions at this position, if both predict. config:
    the filters.
    """

    expected: npt.NDArray[np.float64]
    filtered: npt.NDArray[np.float64]
    removed: npt.NDArray[np.int64]
    characters: str
    text: str = ""
    experts: Experts | None = None
    config: Shaping = field(default_factory=Shaping)

    def __repr__(self) -> str:
        best = int(self.expected.argmax())
        name = repr(self.characters[best])
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

    @property
    def title(self) -> str:
        return f"{quoted_end(self.text)} follows"

    def facts(self, all: bool = False) -> dict[str, str]:
        if not all or self.experts is None:
            return {}
        return {"expected": self.experts.mixed, "counting": f"used {self.experts.used}"}

    def columns(self, all: bool = False) -> list[Column]:
        number = partial(short_number, digits=3)
        columns = [Column("character", ""), Column("expected", "expected", number, bar=True)]
        if self.changed:
            columns.append(Column("after", f"after {', '.join(self._settings())}"))
        if all and self.experts is not None:
            columns.append(Column("gpt", "the GPT alone", number, right=True))
            columns.append(Column("counting", "counting", number, right=True))
        return columns

    def shown(self, all: bool = False) -> list[CharacterRow]:
        """The likeliest characters, and all others together."""
        count = len(self.order) if all else SHOWN
        rows, experts = [], self.experts
        for token in self.order[:count].tolist():
            row = CharacterRow(
                _character_name(self.characters[token]),
                float(self.expected[token]),
                self._after(token),
                None if experts is None else float(experts.gpt[token]),
                None if experts is None else float(experts.counting[token]),
            )
            rows.append(row)
        if (rest := self.order[count:]).size:
            after = short_number(float(self.filtered[rest].sum()), 3)
            expected = float(self.expected[rest].sum())
            rows.append(CharacterRow(counted(rest.size, "other"), expected, after))
        return rows

    def sentence(self, all: bool = False) -> str:
        before, after = (2**entropy for entropy in self.entropies)
        said = f"as uncertain as among {before:.1f} equal characters"
        if self.changed:
            said += f", then {after:.1f}"
        removed = int((self.removed >= 0).sum())
        return f"{said}; {removed} are removed" if all else f"{said} · every one: --all"

    def _settings(self) -> list[str]:
        """ "temperature 0.8", "top-k 5"."""
        given = [(name, getattr(self.config, name)) for name in DISTRIBUTION_OPTIONS]
        return [f"{flag_of(name)[2:]} {value:g}" for name, value in given if value is not None]

    def _after(self, token: int) -> str:
        """A character's probability after the filters, or the filter that removed it."""
        if (removed := self.removed[token]) >= 0:
            return f"removed by {flag_of(DISTRIBUTION_OPTIONS[removed])[2:]}"
        return short_number(self.filtered[token], 3)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each character, the likeliest first."""
        rows = []
        for token in self.order.tolist():
            row: dict[str, Any] = {"character": self.characters[token], "id": token}
            row["expected"] = float(self.expected[token])
            if self.experts is not None:
                row["gpt"] = float(self.experts.gpt[token])
                row["counting"] = float(self.experts.counting[token])
            row["after_filters"] = float(self.filtered[token])
            option = int(self.removed[token])
            row["removed_by"] = DISTRIBUTION_OPTIONS[option] if option >= 0 else None
            rows.append(row)
        return rows

    def record(self) -> dict[str, Any]:
        before, after = self.entropies
        record: dict[str, Any] = {name: getattr(self.config, name) for name in DISTRIBUTION_OPTIONS}
        record["bits"] = {"expected": before, "after_filters": after}
        record |= {"weights": None, "history": None}
        if (experts := self.experts) is not None:
            record["weights"] = experts.weights
            used = {"length": experts.length, "counted": experts.total, "kinds": experts.kinds}
            record["history"] = used
        return record


def quoted_end(text: str) -> str:
    """ "after “…the end of the text”"."""
    return f"after “{'…' if len(text) > END else ''}{in_line(text[-END:])}”"


def next_of_text(
    reader: Reader,
    vocabulary: Vocabulary,
    text: str,
    config: Shaping,
    mixture: Mixture | None = None,
) -> NextCharacter:
    """The next character of a text, in the window of `sample` (sampler.window_start); see
    TrainedGPT.next, which raises the same errors.
    """
    ids = ids_to_continue(vocabulary, text)
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
    return NextCharacter(
        expected=expected,
        filtered=filtered,
        removed=removed,
        characters=vocabulary.characters,
        text=vocabulary.decode(ids),
        experts=experts,
        config=config,
    )


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


def _character_name(character: str) -> str:
    """The label of a character, with its name if it has one."""
    name = f" {NAMED[character][2]}" if character in NAMED else ""
    return label(character) + name


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0
