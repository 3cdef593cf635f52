"""The next character: its distribution, what each filter leaves of it, and why the model expects a
character: its logit, or the difference of two, as an exact sum of parts.

`contributions` computes the parts (direct logit attribution, Elhage et al. 2021). They explain the
GPT alone, also in a model with counting.
Tensor names: P parts, S characters that a head attends to, K one or two characters, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import FilterOptions, WhyConfig
from gpt.config.fields import flag_of, require
from gpt.config.model import DISTRIBUTION_OPTIONS
from gpt.counting.mixture import Mixture, counting_streams
from gpt.errors import TextError
from gpt.heads.attention_map import require_fits
from gpt.heads.contributions import Part, contributions
from gpt.heads.measures import head_name
from gpt.reading.gpt import Array, Reader
from gpt.reading.sampler import probabilities, start_character, window_start
from gpt.show.result import Arrays, Check, Column, Result, short_number, signed_number
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import NAMED, counted, in_line, label, quoted

END = 40  # characters from the end of a text that a title quotes
SHOWN = 8  # characters in the short form
PARTS = 5  # parts in the short form
LIKELY = 0.5  # a character with this probability comes next
MOST_SOURCES = 3  # characters that a row names in the long form
SUMS = ("head", "ffn")  # parts that are sums themselves
KINDS = {"embedding": "last character", "ffn": "feed-forward", "ffn_bias": "feed-forward bias"}


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
    config: FilterOptions = field(default_factory=FilterOptions)

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
    config: FilterOptions,
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
        expected=probabilities(logits, FilterOptions(temperature=1.0))[0],
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
    return flag_of(name).removeprefix("--")


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0


@dataclass(frozen=True, repr=False)
class Why(Arrays, Result):
    """What each of P parts adds to a character's logit, or to the difference of two logits.

    parts: in the order of computation. values: (P,), computed in float64; they sum to `logit`.
    sources: for each part of the kinds "head" and "ffn", (S,) what each character that the head
    attends to adds, or (U,) what each unit adds; they sum to the part. scale: the number by which
    the last norm divides, which is held. characters: the K = 1 or 2 characters that are compared.
    probabilities: (K,), as the GPT predicts them. same: minus the logarithm of the sum of
    exp(logit) over all characters. text: what the GPT has read. checks: whether the sum is right,
    and how far the logits of the float32 model are from those shown.
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
        """What follows, and which part of the model decides it most."""
        pairs = zip(self.characters, self.probabilities.tolist(), strict=True)
        chances = [f"{quoted(name)} ({short_number(chance)})" for name, chance in pairs]
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

    def shown(self, all: bool = False) -> list[dict[str, Any]]:
        """The parts that add or subtract most, the others together, and the sum."""
        ranking = np.argsort(-np.abs(self.values), kind="stable").tolist()
        listed = ranking if all else ranking[:PARTS]
        logits = " − ".join(f"logit of {quoted(character)}" for character in self.characters)
        lines = [(part_name(self.parts[n]), self.values[n], self._reads(n, all)) for n in listed]
        if others := ranking[len(listed) :]:
            lines.append((counted(len(others), "other part"), self.values[others].sum(), ""))
        lines.append(("sum", self.values.sum(), f"{logits}, in nats"))
        return [{"part": part, "adds": float(adds), "reads": reads} for part, adds, reads in lines]

    def sentence(self, all: bool = False) -> str:
        if not all:
            return "every part: --all"
        return (
            f"the last norm divides by {self.scale:.4f}, as for this text; without a part, that "
            "and all later parts may change, too"
        )

    def checked(self) -> tuple[Check, ...]:
        return self.checks

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each part, or for each character that a head attends to; `adds` sums to the
        logit.
        """
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
        """The character from which a head takes most; for `all`, what several of them add."""
        if self.parts[number].kind != "head":
            return ""
        values = self._sources(number)
        order = np.argsort(-np.abs(values), kind="stable").tolist()
        if not all:
            return self._described(order[0])
        items = [
            f"{place} {quoted(self.text[place])} {signed_number(values[place], 3)}"
            for place in order[:MOST_SOURCES]
        ]
        if rest := order[MOST_SOURCES:]:
            items.append(f"rest {signed_number(values[rest].sum(), 3)}")
        return " · ".join(items)

    def _described(self, place: int) -> str:
        """A character that a head reads, in words."""
        text, last = self.text, len(self.text) - 1
        name = quoted(text[place])
        if place == last:
            return f"the last character, {name}"
        if place and text[place - 1] == text[last]:
            return f"the {name} after an earlier {quoted(text[last])}"
        return f"the {name} {counted(last - place, 'character')} before"


def why(reader: Reader, vocabulary: Vocabulary, text: str, config: WhyConfig) -> Why:
    """What each part adds to the next character's logit; see TrainedGPT.why, which raises the same
    errors.
    """
    ids = ids_to_continue(vocabulary, text)
    ids = ids[-reader.config.block_size :] if config.truncate else ids
    require_fits(reader.config, len(ids))
    logits = reader.logits(reader.forward(ids[None])[:, -1])  # (1, V)
    expected = probabilities(logits, FilterOptions(temperature=1.0))[0]
    asked = _asked(vocabulary, config, int(expected.argmax()))
    exact = reader.in_float64()
    layers = exact.stages(ids)
    parts = contributions(exact, layers, np.tile(asked, (len(ids), 1)))
    scores = exact.logits(exact.final_norm(layers[-1].resid_post))[-1]  # (V,)
    rounding = float(np.abs(scores[asked] - logits[0, asked]).max())
    return Why(
        parts=parts.parts,
        values=_difference(parts.values[-1]),
        sources=tuple(map(_difference, parts.sources)),
        logit=float(_difference(parts.logits[-1])),
        scale=parts.scale,
        characters=tuple(vocabulary.characters[token] for token in asked),
        probabilities=expected[asked],
        same=-float(np.logaddexp.reduce(scores)),
        checks=(parts.check, Check("the same in float32", rounding)),
        text=vocabulary.decode(ids),
    )


def _asked(vocabulary: Vocabulary, config: WhyConfig, likeliest: int) -> list[int]:
    """The ids of the one or two characters. Raises ConfigError, TextError."""
    tokens = [likeliest] if config.char is None else []
    for name, character in (("char", config.char), ("against", config.against)):
        if character is not None:
            token = vocabulary.id_of(vocabulary.read(character, "fold").text)
            require(token >= 0 or len(character) == 1, name, f"{character!r} is not one character")
            if token < 0:
                raise TextError(f"`{name}`: the model does not know {character!r}")
            tokens.append(token)
    differ = len(set(tokens)) == len(tokens)
    require(differ, "against", "this is `char` itself; name another one")
    return tokens


def _difference(values: Array) -> Array:
    """(K, …) -> (…): the first row, minus the second one if there is one."""
    first: Array = values[0]
    return first - values[1] if len(values) > 1 else first


def part_name(part: Part) -> str:
    """ "L1H2", "L0 feed-forward", "embedding"."""
    if part.kind == "head":
        return head_name(part.layer or 0, part.head or 0)
    if part.kind == "bias":
        return "biases of norms" if part.layer is None else f"L{part.layer} bias"
    name = KINDS[part.kind]
    return name if part.layer is None else f"L{part.layer} {name}"
