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
from gpt.reading.sampler import probabilities, start_character, window_start
from gpt.show.result import Column, Result, short_number
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

END = 40  # characters from the end of a text that a title quotes
SHOWN = 8  # characters in the short form


@dataclass(frozen=True)
class Experts(Arrays):
    """Predictions of the next character: gpt and counting, (V,) probabilities. weights: (2,), the
    powers to which they enter their product, the model's own prediction.
    """

    gpt: npt.NDArray[np.float64]
    counting: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class NextCharacter(Arrays, Result):
    """For every character of the vocabulary, (V,): its probability before and after the filters.

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
        gpt, counting = (short_number(weight) for weight in self.experts.weights.tolist())
        return {"expected": f"GPT^{gpt} × counting^{counting}, scaled to sum 1"}

    def columns(self, all: bool = False) -> list[Column]:
        number = partial(short_number, digits=3)
        columns = [Column("character", ""), Column("expected", "expected", number, bar=True)]
        if self.changed:
            values = [(name, getattr(self.config, name)) for name in DISTRIBUTION_OPTIONS]
            settings = [f"{_option(name)} {value:g}" for name, value in values if value is not None]
            columns.append(Column("after", f"after {', '.join(settings)}"))
        if all and self.experts is not None:
            columns.append(Column("gpt", "the GPT alone", number, right=True))
            columns.append(Column("counting", "counting", number, right=True))
        return columns

    def shown(self, all: bool = False) -> list[dict[str, Any]]:
        """The likeliest characters, and all others together."""
        rows = self.rows if all else self.rows[:SHOWN]
        for row in rows:
            name = row["character"]
            row["character"] = label(name) + (f" {NAMED[name][2]}" if name in NAMED else "")
            row["after"] = short_number(row["after_filters"], 3)
            if row["removed_by"]:
                row["after"] = f"removed by {_option(row['removed_by'])}"
        if (rest := self.order[len(rows) :]).size:
            rest_row = {
                "character": counted(rest.size, "other"),
                "expected": float(self.expected[rest].sum()),
                "after": short_number(float(self.filtered[rest].sum()), 3),
            }
            rows.append(dict.fromkeys(rows[0]) | rest_row)
        return rows

    def sentence(self, all: bool = False) -> str:
        before, after = (2**entropy for entropy in self.entropies)
        uncertain = f"as uncertain as among {before:.1f} equal characters"
        if self.changed:
            uncertain += f", then {after:.1f}"
        if all:
            return f"{uncertain}; {int((self.removed >= 0).sum())} are removed"
        return f"{uncertain} · every one: --all"

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
        record["weights"] = None if self.experts is None else self.experts.weights
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
    window = ids[window_start(len(ids), reader.config.block_size) :]
    logits = reader.logits(reader.forward(window[None])[:, -1])  # (1, V)
    counting = counting_streams(mixture, ids, config.only)
    experts = None
    if mixture is not None and counting is not None:
        if config.only is None:
            histories = mixture.expert.trie.histories_at(ids, np.array([len(ids)]), 1)  # (N, 1)
            predicted = mixture.predict(logits, histories)
            gpt, expert = np.exp(predicted.gpt[0]), np.exp(predicted.counting[0])
            experts = Experts(gpt, expert, predicted.weights[:, 0])
        logits = counting.scores(logits)
    removed = np.full(logits.shape[1], -1)
    for place in range(len(DISTRIBUTION_OPTIONS)):
        later = DISTRIBUTION_OPTIONS[place + 1 :]  # filters not applied
        unset: dict[str, Any] = dict.fromkeys(later)
        filtered = probabilities(logits, replace(config, **unset))[0]
        removed[(filtered == 0) & (removed < 0)] = place
    return NextCharacter(
        expected=probabilities(logits, Shaping(temperature=1.0))[0],
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


def _option(name: str) -> str:
    """ "top-k"."""
    return flag_of(name).removeprefix("--")


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0
