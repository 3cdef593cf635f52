"""Computes the distribution of the next character, and why the model expects a character.

`predict_next` returns the distribution, before and after the filters of sampling. `why` returns a
character's logit, or the difference of two logits, as an exact sum of what parts of the GPT add
(contributions.py). The sum explains the GPT alone, also in a model with counting.
Tensor names: P parts, S characters that a head attends to, K one or two characters, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ExplanationOptions, FilterOptions
from gpt.config.fields import flag_of, require
from gpt.config.model import DISTRIBUTION_OPTIONS
from gpt.counting.mixture import Mixture, counting_streams
from gpt.errors import TextError
from gpt.heads.attention_map import require_fits_context
from gpt.heads.contributions import Part, contributions
from gpt.heads.measures import head_name
from gpt.reading.gpt import Array, Reader
from gpt.reading.sampler import probabilities, start_character, window_start
from gpt.show.result import Check, Column, ReadOnlyArrays, Result, short_number, signed_number
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import NAMED, label, pluralize, quoted_label, text_with_labels

END = 40  # characters at the end of a text that a title quotes
SHOWN = 8  # characters in the short form
PARTS = 5  # parts in the short form
LIKELY = 0.5  # from this probability on, a title says that a character comes
MOST_SOURCES = 3  # characters that a row names in the long form
SUMS = ("head", "ffn")  # kinds of parts that have sources (contributions.Contributions)
KINDS = {"embedding": "last character", "ffn": "feed-forward", "ffn_bias": "feed-forward bias"}


@dataclass(frozen=True)
class ExpertPredictions(ReadOnlyArrays):
    """The two predictions from which a model with counting makes its own.

    gpt, counting: (V,) probabilities. weights: (2,) the exponents a and b of the model's prediction
    gptᵃ · countingᵇ, scaled to sum 1.
    """

    gpt: npt.NDArray[np.float64]
    counting: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class NextCharacter(ReadOnlyArrays, Result):
    """The distribution of the next character, before and after the filters of sampling.

    expected: (V,) the model's probabilities. filtered: (V,) the probabilities after temperature and
    filters, from which `sample` draws. removed: (V,) indices in DISTRIBUTION_OPTIONS of the options
    that removed the characters, or −1. characters: the vocabulary, id -> character. text: the text
    that is continued. experts: only if GPT and counting both predict. config: the filters.
    """

    expected: npt.NDArray[np.float64]
    filtered: npt.NDArray[np.float64]
    removed: npt.NDArray[np.int64]
    characters: str
    text: str = ""
    experts: ExpertPredictions | None = None
    config: FilterOptions = field(default_factory=FilterOptions)

    @property
    def changed(self) -> bool:
        """Whether temperature or a filter changed any probability."""
        return not np.allclose(self.expected, self.filtered, rtol=1e-9, atol=0)

    @property
    def entropies(self) -> tuple[float, float]:
        """The entropies in bits of the distributions `expected` and `filtered`."""
        return _bits(self.expected), _bits(self.filtered)

    @property
    def order(self) -> npt.NDArray[np.intp]:
        """The ids of all characters, the likeliest first."""
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

    def table_rows(self, all: bool = False) -> list[dict[str, Any]]:
        """Returns a row for each of the likeliest characters, and one for all others together."""
        rows = self.rows if all else self.rows[:SHOWN]
        for row in rows:
            name = row["character"]
            row["character"] = label(name) + (f" {NAMED[name][2]}" if name in NAMED else "")
            row["after"] = short_number(row["after_filters"], 3)
            if row["removed_by"]:
                row["after"] = f"removed by {_option(row['removed_by'])}"
        if (others := self.order[len(rows) :]).size:
            row = {
                "character": pluralize(others.size, "other"),
                "expected": float(self.expected[others].sum()),
                "after": short_number(float(self.filtered[others].sum()), 3),
            }
            rows.append(dict.fromkeys(rows[0]) | row)
        return rows

    def sentence(self, all: bool = False) -> str:
        before, after = (2**entropy for entropy in self.entropies)
        uncertain = f"as uncertain as among {before:.1f} equally likely characters"
        if self.changed:
            uncertain += f" (after: {after:.1f})"
        if all:
            removed = pluralize(int((self.removed >= 0).sum()), "character")
            return f"{uncertain}; {removed} removed by filters"
        return f"{uncertain} · all: --all"

    @property
    def rows(self) -> list[dict[str, Any]]:
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
    """Returns the end of a text for a title: after “…the end of the text”."""
    return f"after “{'…' if len(text) > END else ''}{text_with_labels(text[-END:])}”"


def predict_next(
    reader: Reader,
    vocabulary: Vocabulary,
    text: str,
    config: FilterOptions,
    mixture: Mixture | None = None,
) -> NextCharacter:
    """Predicts the character after a text, of which the model reads the same window as `sample`.
    Raises the same errors as TrainedGPT.next.
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
            experts = ExpertPredictions(gpt, expert, predicted.weights[:, 0])
        logits = counting.scores(logits)
    removed = np.full(logits.shape[1], -1)
    for place in range(len(DISTRIBUTION_OPTIONS)):
        later = DISTRIBUTION_OPTIONS[place + 1 :]  # filters that are not applied yet
        unset: dict[str, Any] = dict.fromkeys(later)
        filtered = probabilities(logits, replace(config, **unset))[0]
        removed[(filtered == 0) & (removed < 0)] = place
    return NextCharacter(
        expected=probabilities(logits, FilterOptions(temperature=1.0))[0],
        filtered=filtered,
        removed=removed,
        characters=vocabulary.characters,
        text=vocabulary.decode(ids),
        experts=experts,
        config=config,
    )


def ids_to_continue(vocabulary: Vocabulary, text: str) -> Ids:
    """Returns the ids of a text, or of `start_character` for an empty text. Raises TextError."""
    return vocabulary.encode(text or start_character(vocabulary))


def _option(name: str) -> str:
    return flag_of(name).removeprefix("--")


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0


@dataclass(frozen=True, repr=False)
class Why(ReadOnlyArrays, Result):
    """What the parts of a GPT add to a character's logit, or to the difference of two logits.

    parts: the P parts, in the order of computation. values: (P,) what they add, in float64. They
    sum to `logit`. sources: an array for every part of the kinds "head" and "ffn": (S,) what the
    head adds by attending to a character, or (U,) what a unit adds. The array sums to the
    part's value. scale: the number by which the last norm divides. characters: the explained
    character, or K = 2 characters whose logits are compared. probabilities: (K,) as the GPT
    predicts them. same: −ln of the sum of exp(logit) over all characters. text: what the GPT has
    read. checks: whether the values sum to the logit, and how far the float32 logits are from it.
    """

    parts: tuple[Part, ...]
    values: Array
    sources: tuple[Array, ...]
    logit: float
    scale: float
    characters: tuple[str, ...]
    probabilities: Array
    same: float
    checks: tuple[Check, ...]
    text: str

    COLUMNS = (
        Column("part", "part"),
        Column("adds", "adds", lambda value: signed_number(value, 3), right=True),
        Column("reads", "from"),
    )

    @property
    def title(self) -> str:
        """The next character, and the part that adds most to its logit."""
        pairs = zip(self.characters, self.probabilities.tolist(), strict=True)
        chances = [f"{quoted_label(name)} ({short_number(chance)})" for name, chance in pairs]
        comes = " comes" if self.probabilities[0] >= LIKELY else ","
        begin = f"{quoted_end(self.text)}{comes} {' rather than '.join(chances)}"
        sign = -1 if len(self.characters) == 2 and self.logit < 0 else 1
        best = int((sign * self.values).argmax())
        name = part_name(self.parts[best])
        reads = ""
        if self.parts[best].kind == "head":
            reads = self._described(int((sign * self._sources(best)).argmax()))
        if reads and self.probabilities[0] >= LIKELY:
            return f"{begin} because {name} looks at {reads}"
        verb = "adds" if sign > 0 else "subtracts"
        return f"{begin}: {name} {verb} most" + (f", from {reads}" if reads else "")

    def table_rows(self, all: bool = False) -> list[dict[str, Any]]:
        """Returns rows: the parts with the largest values, the others together, and the sum."""
        ranking = np.argsort(-np.abs(self.values), kind="stable").tolist()
        listed = ranking if all else ranking[:PARTS]
        logits = " − ".join(f"logit of {quoted_label(character)}" for character in self.characters)
        lines = [(part_name(self.parts[n]), self.values[n], self._reads(n, all)) for n in listed]
        if others := ranking[len(listed) :]:
            lines.append((pluralize(len(others), "other part"), self.values[others].sum(), ""))
        lines.append(("sum", self.values.sum(), f"{logits}, in nats"))
        return [{"part": part, "adds": float(adds), "reads": reads} for part, adds, reads in lines]

    def sentence(self, all: bool = False) -> str:
        if not all:
            return "every part: --all"
        return (
            f"the last norm divides by {self.scale:.4f} in this text; without a part, this number "
            "and all later parts would change"
        )

    def list_checks(self) -> tuple[Check, ...]:
        return self.checks

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for every part, or for every character that a head attends to."""
        rows = []
        for number, (part, value) in enumerate(zip(self.parts, self.values.tolist(), strict=True)):
            places: list[tuple[Any, ...]] = [(None, None, value)]
            if part.kind == "head":
                sources = self._sources(number).tolist()
                places = [*zip(range(len(sources)), self.text, sources, strict=True)]
            for position, character, adds in places:
                place = {"position": position, "character": character, "adds": adds}
                rows.append({**part._asdict(), **place})
        return rows

    def record(self) -> dict[str, Any]:
        return {
            "characters": self.characters,
            "logit": self.logit,
            "last_norm_divides_by": self.scale,
            "probabilities": self.probabilities,
            "same_for_every_character": self.same,
            "checks": [check.record for check in self.checks],
        }

    def _sources(self, number: int) -> Array:
        return self.sources[sum(part.kind in SUMS for part in self.parts[:number])]

    def _reads(self, number: int, all: bool) -> str:
        """Says which character adds most through a head; with `all`, what several of them add."""
        if self.parts[number].kind != "head":
            return ""
        values = self._sources(number)
        order = np.argsort(-np.abs(values), kind="stable").tolist()
        if not all:
            return self._described(order[0])
        items = [
            f"{place} {quoted_label(self.text[place])} {signed_number(values[place], 3)}"
            for place in order[:MOST_SOURCES]
        ]
        if others := order[MOST_SOURCES:]:
            items.append(f"others {signed_number(values[others].sum(), 3)}")
        return " · ".join(items)

    def _described(self, place: int) -> str:
        """Says in words which character a head reads."""
        text, last = self.text, len(self.text) - 1
        name = quoted_label(text[place])
        if place == last:
            return f"the last character, {name}"
        if place and text[place - 1] == text[last]:
            return f"the {name} after an earlier {quoted_label(text[last])}"
        return f"the {name} {pluralize(last - place, 'character')} before"


def why(reader: Reader, vocabulary: Vocabulary, text: str, config: ExplanationOptions) -> Why:
    """Explains the next character's logit. Raises the same errors as TrainedGPT.why."""
    ids = ids_to_continue(vocabulary, text)
    ids = ids[-reader.config.block_size :] if config.truncate else ids
    require_fits_context(reader.config, len(ids))
    logits = reader.logits(reader.forward(ids[None])[:, -1])  # (1, V)
    expected = probabilities(logits, FilterOptions(temperature=1.0))[0]
    tokens = _characters_of(vocabulary, config, int(expected.argmax()))
    exact = reader.in_float64()
    layers = exact.stages(ids)
    parts = contributions(exact, layers, np.tile(tokens, (len(ids), 1)))
    scores = exact.logits(exact.final_norm(layers[-1].resid_post))[-1]  # (V,)
    rounding = float(np.abs(scores[tokens] - logits[0, tokens]).max())
    return Why(
        parts=parts.parts,
        values=_difference(parts.values[-1]),
        sources=tuple(map(_difference, parts.sources)),
        logit=float(_difference(parts.logits[-1])),
        scale=parts.scale,
        characters=tuple(vocabulary.characters[token] for token in tokens),
        probabilities=expected[tokens],
        same=-float(np.logaddexp.reduce(scores)),
        checks=(parts.check, Check("the same in float32", rounding)),
        text=vocabulary.decode(ids),
    )


def _characters_of(vocabulary: Vocabulary, config: ExplanationOptions, likeliest: int) -> list[int]:
    """Returns the ids of the one or two characters to explain. Raises ConfigError, TextError."""
    tokens = [likeliest] if config.char is None else []
    for name, character in (("char", config.char), ("against", config.against)):
        if character is not None:
            token = vocabulary.id_of(vocabulary.adapt(character, "fold").text)
            require(token >= 0 or len(character) == 1, name, f"{character!r} is not one character")
            if token < 0:
                raise TextError(f"`{name}`: the model does not know {character!r}")
            tokens.append(token)
    differ = len(set(tokens)) == len(tokens)
    require(differ, "against", "this is the same character as `char`; give another one")
    return tokens


def _difference(values: Array) -> Array:
    """(K, …) -> (…). Returns the first row, minus the second row if K is 2."""
    first: Array = values[0]
    return first - values[1] if len(values) > 1 else first


def part_name(part: Part) -> str:
    """Returns a name such as "L1H2", "L0 feed-forward" or "embedding"."""
    if part.kind == "head":
        return head_name(part.layer or 0, part.head or 0)
    if part.kind == "bias":
        return "bias of the last norm" if part.layer is None else f"L{part.layer} bias"
    name = KINDS[part.kind]
    return name if part.layer is None else f"L{part.layer} {name}"
