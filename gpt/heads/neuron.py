"""One unit of a feed-forward layer: where it is strongest, which logits it changes directly, and a
text coloured by it.

Tensor names: N texts, T time, V vocab_size, C n_embd.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpt.blocks import Block, Cell, Column, Fold, Note, Passage, Records, Table, Title
from gpt.blocks import number as in_words
from gpt.characters import quoted
from gpt.checks import Result, TableResult
from gpt.config import ModelConfig, NeuronsConfig
from gpt.errors import ConfigError
from gpt.heads.ablation import Texts
from gpt.heads.neurons import Neurons, forwards, neurons, values_of
from gpt.heads.places import head_name
from gpt.reading.gpt import CROSS, Reader
from gpt.reading.layers import EPSILON, Array
from gpt.vocabulary import Symbols, Vocabulary

PASSAGES = 8
BEFORE, AFTER = 40, 12  # characters of a passage around its strongest place
LOW = 0.1  # least share of the largest value from which negative ones have passages, too
LOGITS = 6  # characters whose logits are shown
#: The norms of a layer with post_norm, and the two stages of whose sum each is.
SUMS = (
    ("norm1", "resid_pre", "proj"),
    ("cross_norm", "resid_mid", CROSS + "proj"),
    ("norm2", CROSS + "resid_mid", "ffn_out"),
)


@dataclass(frozen=True, repr=False)
class Coloured(Result):
    """A text, and the (n,) values of a unit after each of its characters. full: the value that has
    the strongest colour; values of the other sign have none.
    """

    text: Symbols
    values: Array
    full: float

    def passage(self, scale: bool = True) -> Passage:
        """The text in colours. scale: whether their scale stands below it."""
        eighths = 8 * np.maximum(0, self.values / (self.full or 1))
        unit = f"eighths of {in_words(self.full)}, the unit's strongest value on the measured text"
        hints = [in_words(value) for value in self.values.tolist()]
        return Passage(self.text, eighths.tolist(), unit, hints=hints, scale=scale)


@dataclass(frozen=True, repr=False)
class Neuron(TableResult):
    """One unit. survey: the measures of all units, on the same text. passages: the strongest first;
    those with values below 0 come last.

    logits: (V,), what the unit adds to each where it is strongest, directly: the means and scales
    of later norms stay as they are there. labels: of the characters, by id. text: coloured by the
    unit, if one was given.
    """

    layer: int
    unit: int
    survey: Neurons
    passages: tuple[Coloured, ...]
    logits: Array
    labels: tuple[str, ...]
    text: Coloured | None = None

    @property
    def place(self) -> str:
        """ "L1N37" """
        return head_name(self.layer, self.unit, self.survey.letter)

    @property
    def name(self) -> str:
        """The name that it earns, or ""."""
        return self.survey.names[self.layer][self.unit]

    def __repr__(self) -> str:
        return f"<Neuron {self.place}: {self.name or 'no name'}, on {self.survey.measured}>"

    def blocks(self) -> list[Block]:
        """Its measures, strongest passages, the logits that it changes, and the text."""
        at, shown = (self.layer, self.unit), self.survey.shown()
        rows = [[Cell(each.title), each.cell(*at), Cell(each.random(*at))] for each in shown]
        columns = [Column("measure", left=True), Column(self.place), Column("random")]
        notes = [*(each.meaning for each in shown), self.survey.rule]
        passages = [
            each.passage(scale=each.full not in [later.full for later in self.passages[n + 1 :]])
            for n, each in enumerate(self.passages)
        ]
        about = "the logits that it changes most at its strongest place, later norms held"
        return [
            Title(f"neuron {self.place}", [self.name or "no name", self.survey.measured]),
            Table(columns, rows),
            Fold("what these are", [Note(each) for each in notes]),
            *passages,
            Note(about if passages else "its value is 0 everywhere"),
            *([self._changes()] if passages else []),
            *([self.text.passage()] if self.text else []),
        ]

    def _changes(self) -> Table:
        """The characters whose logits it raises and lowers most."""
        order = np.argsort(-self.logits, kind="stable")
        rows = [
            [
                Cell(text)
                for id in pair
                for text in (quoted(self.labels[id]), f"{self.logits[id]:+.2f}")
            ]
            for pair in zip(order[:LOGITS], order[::-1][:LOGITS], strict=True)
        ]
        titles = ("raises", "", "lowers", "")
        return Table([Column(title, left=bool(title)) for title in titles], rows)

    def records(self) -> Records:
        """A row for each passage; the facts have the measures, the logits and the text."""
        facts = {"unit": self.place, "name": self.name, **self.survey.facts}
        columns, at = self.survey.columns(), self.layer * len(self.survey.names[0]) + self.unit
        facts["values"] = {name: values.tolist()[at] for name, values in columns.items()}
        facts["logits"] = dict(zip(self.labels, self.logits.tolist(), strict=True))
        if self.text:
            facts["on"] = {"text": [*self.text.text], "values": self.text.values.tolist()}
        passages: dict[str, list[Any]] = {
            "passage": ["".join(each.text) for each in self.passages],
            "values": [each.values.tolist() for each in self.passages],
        }
        return Records(passages, facts)


def place_of(unit: str, config: ModelConfig) -> tuple[int, int]:
    """ "L1N37" -> (1, 37). Raises ConfigError."""
    found = re.fullmatch(r"[Ll](\d{1,4})[Nn](\d{1,7})", unit.strip())
    layer, number = map(int, found.groups()) if found else (-1, -1)
    if not found or layer >= config.n_layer or number >= config.ffn_hidden:
        last = f"L{config.n_layer - 1}N{config.ffn_hidden - 1}"
        raise ConfigError("unit", f"{unit!r} is not one of L0N0 … {last}")
    return layer, number


def neuron(
    reader: Reader,
    vocabulary: Vocabulary,
    texts: Texts,
    asked: NeuronsConfig,
    at: tuple[int, int],
    on: Texts | None = None,
    name: str = "a text",
    done: Callable[[float], object] = lambda share: None,
) -> Neuron:
    """One unit, (layer, unit), on texts, whose name is `name`. on: a text to colour. Raises as
    `neurons`.
    """
    survey = neurons(reader, texts, vocabulary.characters, asked, name, done, [at])
    values = np.where(texts.read, values_of(forwards(reader, texts), *at), 0)
    places, passages = [*_peaks(values, 1), *_peaks(values, -1)], list[Coloured]()
    for n, t, full in places:
        part = slice(max(0, t - BEFORE), min(t + 1 + AFTER, int(texts.read[n].sum())))
        passages.append(Coloured(vocabulary.symbols(texts.ids[n, part]), values[n, part], full))
    n, t, full = max(places, key=lambda place: abs(place[2]), default=(0, 0, 0.0))
    logits, text = _added(reader, texts.part(slice(n, n + 1)), at, t), None
    if on is not None:
        shown = values_of(forwards(reader, on), *at)[on.read]
        text = Coloured(vocabulary.symbols(on.ids[on.read]), shown, full)
    return Neuron(*at, survey, tuple(passages), logits, (*vocabulary.characters,), text)


def _peaks(values: Array, sign: int) -> list[tuple[int, int, float]]:
    """The largest of (N, T) values of a sign, apart from each other: text, place, and the largest
    of all; none if they are near 0 beside those of the other sign.
    """
    left, least = sign * values.astype(np.float64), LOW * np.abs(values).max()
    full, found = float(left.max()), list[tuple[int, int, float]]()
    while len(found) < PASSAGES and full > least and left.max() > 0:
        n, t = np.unravel_index(left.argmax(), left.shape)
        found.append((int(n), int(t), sign * full))
        left[n, max(0, t - BEFORE) : t + AFTER + 1] = 0
    return found


def _added(reader: Reader, text: Texts, unit: tuple[int, int], place: int) -> Array:
    """(V,) what a unit adds to the logits after one place of a text, in float64, if the mean and
    scale of every later norm stay as they are there (as in contributions.py).
    """
    exact, kept, config = reader.in_float64(), dict[tuple[str, int], Array](), reader.config
    wanted = {"ffn_hidden", "resid_mid", "resid_post", *(name for each in SUMS for name in each)}
    (layer, number), memory = unit, dict[str, Any]()
    if text.sources is not None:
        memory["memory"] = exact.encode(text.sources, text.seen)

    def keep(name: str, at: int, stage: Array) -> Array:
        if name in wanted:
            kept[name, at] = stage[0, place]
        return stage

    layers = range(config.n_layer)
    exact.blocks(exact.embed(text.ids), layers, keep, **memory)
    weight, _ = exact.linear(f"blocks.{layer}.feed_forward.down")  # (C, U)
    added = kept["ffn_hidden", layer][number] * weight[:, number]
    norms = [("norm", kept["resid_post", layers[-1]])]
    if config.post_norm:
        every = [(at, *each) for at in layers[layer:] for each in SUMS if (each[2], at) in kept]
        first = [each[:2] for each in every].index((layer, "norm2"))
        norms = [
            (
                f"blocks.{at}.{norm}",
                kept.get((x, at), kept[x.removeprefix(CROSS), at]) + kept[y, at],
            )
            for at, norm, x, y in every[first:]
        ]
    for norm, x in norms:
        centred, moved = (each - each.mean() * (config.norm == "layer") for each in (x, added))
        scale = np.sqrt((centred * centred).mean() + EPSILON)
        added = moved / scale * exact.tensors.get(f"{norm}.weight", 1.0)
    return exact.logits(added)
