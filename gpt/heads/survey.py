"""All measures of a model's heads: on the windows of a text, on synthetic texts, by ablation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Cell, Column, Fold, Note, Records, Table, Title
from gpt.checks import TableResult
from gpt.config import HeadsConfig
from gpt.devices import cores, require_memory
from gpt.errors import TextError
from gpt.heads.ablation import Done, Texts, ablate
from gpt.heads.attention_map import AttentionMap
from gpt.heads.measures import (
    RULE,
    Measure,
    head_columns,
    induction,
    measure_heads,
    name_heads,
    strengths,
)
from gpt.heads.places import head_name
from gpt.reading.gpt import MATRICES, Reader
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted, layers_and_heads

#: Measures that are shown without --all.
DEFAULT_MEASURES = (
    *("back", "duplicate", "induction", "induction_synthetic"),
    *("sink", "entropy", "distance", "ablation"),
)
NO_INDUCTION = (
    "no head gets the name induction; to train a model that has one, to its end: gptx train repeats"
)
CAVEAT = "weights show where a head looks, not what that causes"
SHORTEST = 3  # characters in a text: a query with two keys, and the next character


@dataclass(frozen=True, repr=False)
class Survey(TableResult):
    """The measures of all heads, on `windows` windows of `characters` characters each.

    text: the name of the text. For the same text and windows, the command and Python give equal
    surveys.
    """

    measures: tuple[Measure, ...]
    windows: int
    characters: int
    text: str = "a text"

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Measure -> (L, H) values."""
        return {each.name: each.values for each in self.measures}

    def __repr__(self) -> str:
        layers, heads = self.measures[0].values.shape
        names = [name for row in self.names for name in row if name]
        named = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        return (
            f"<Survey of {layers_and_heads(layers, heads)} on {self.measured}: "
            f"{named or 'no head of a named kind'}>"
        )

    @property
    def names(self) -> list[list[str]]:
        """(L, H) the name of each head, or ""."""
        return name_heads(self.measures)

    @property
    def measured(self) -> str:
        """Which text was measured, and how much of it."""
        return f"{counted(self.windows, 'window')} of {self.characters} characters of {self.text}"

    def ranking(self) -> list[tuple[int, int]]:
        """(layer, head) of every head: by how much the loss rises under ablation, if measured, else
        by how near a head is to a named kind.
        """
        by_name = {measure.name: measure.values for measure in self.measures}
        values = by_name["ablation"] if "ablation" in by_name else strengths(self.measures)
        order = np.argsort(-np.nan_to_num(values, nan=-np.inf), axis=None, kind="stable")
        return [divmod(place, values.shape[1]) for place in order.tolist()]

    def blocks(self, every: bool = False) -> list[Block]:
        """A row for each head and one for a uniform head, and what the columns mean.

        every: show all measures, not only DEFAULT_MEASURES.
        """
        names = self.names
        shown = [
            part
            for measure in self.measures
            if every or measure.name in DEFAULT_MEASURES
            for part in measure.every
        ]
        rows = [
            [
                Cell(head_name(layer, head)),
                Cell(names[layer][head] or "–"),
                *(measure.cell(layer, head) for measure in shown),
            ]
            for layer, head in self.ranking()
        ]
        rows.append([Cell("uniform", tone="dim"), Cell(""), *(m.uniform_cell() for m in shown)])
        columns = [Column("head", left=True), Column("kind", left=True)]
        columns += [Column(measure.title) for measure in shown]
        notes = [measure.meaning for measure in shown if measure.explained]
        notes.append("±: standard error" if self.windows > 1 else "one window: little evidence")
        return [
            Title("heads", [self.measured]),
            Table(columns, rows, labels=2),
            Fold("what the columns mean", [Note(note) for note in notes]),
            *(Note(remark) for remark in self._remarks),
        ]

    @property
    def _remarks(self) -> list[str]:
        """What one has to know to read the table."""
        remarks = [RULE]
        if not any("induction" in row for row in self.names):
            remarks.append(NO_INDUCTION)
        if any(measure.name == "ablation" for measure in self.measures):
            return [*remarks, CAVEAT]
        return [*remarks, f"{CAVEAT}; --ablate mean measures the effect"]

    def records(self) -> Records:
        """A row for each head, in the order of `ranking`; the facts say what was measured, and what
        the measures are.
        """
        shape = self.measures[0].values.shape
        columns = head_columns(shape) | {"kind": np.array(self.names).ravel()}
        for measure in self.measures:
            columns |= measure.columns()
        order = [layer * shape[1] + head for layer, head in self.ranking()]
        every = [part for measure in self.measures for part in measure.every]
        facts = {
            "text": self.text,
            "windows": self.windows,
            "characters": self.characters,
            "rule": RULE,
            "measures": {m.name: {"title": m.title, "explained": m.explained} for m in every},
        }
        return Records({name: values[order] for name, values in columns.items()}, facts)


def survey(
    reader: Reader,
    vocabulary: Vocabulary,
    ids: Ids,
    options: HeadsConfig,
    text: str = "a text",
    done: Done = lambda share: None,
) -> Survey:
    """(n,) ids of the text named `text` -> every measure over windows of block_size, spread over
    the text.

    Raises TextError if the text is too short.
    """
    config, ablation = reader.config, options.ablate
    windows = spread_windows(ids, config.block_size, options.windows)
    length, H = windows.shape[1] - 1, config.n_head
    # Four matrices for each head, and a layer's measures in float64; or the forward passes of an
    # ablation.
    ablated = MATRICES * cores() if ablation else 0
    matrices = max((4 * config.n_layer + 6.25) * H + 4, ablated * H)
    rows = 10 * config.n_layer * config.n_embd
    advice = "give a text of at most"
    require_memory("measuring", length, lambda n: 4 * n * (matrices * n + rows), advice)
    # The measures' share of the work: they cost two forward passes over all windows; on average,
    # the ablation of a head costs half of one.
    first = 2 / (2 + (config.n_layer * H / 2 if ablation else 0))

    def maps() -> Iterator[AttentionMap]:  # one at a time, as all stages of a window are large
        for number, window in enumerate(windows):
            yield AttentionMap("", window[:-1], reader.stages(window[:-1]), ())
            done(first * (number + 1) / len(windows))

    measures = measure_heads(maps())
    words = [n for n, character in enumerate(vocabulary.characters) if character.isalnum()]
    if found := induction(reader, windows[np.isin(windows, words)]):
        after = 1 + [measure.name for measure in measures].index("induction")
        measures.insert(after, found)
    if ablation:
        texts = Texts.of_windows(windows)
        measures.append(
            ablate(reader, texts, ablation, lambda share: done(first + share * (1 - first)))
        )
    return Survey(tuple(measures), len(windows), length, text)


def spread_windows(ids: Ids, length: int, most: int) -> npt.NDArray[np.integer[Any]]:
    """At most `most` windows of `length` + 1 ids, evenly over the text; no two share a target.

    A shorter text is one window. Raises TextError below SHORTEST characters.
    """
    if len(ids) < SHORTEST:
        raise TextError(f"the text is too short for measures: it needs {SHORTEST} characters")
    length = min(length, len(ids) - 1)
    count = min(most, (len(ids) - 1) // length)
    starts = np.linspace(0, len(ids) - 1 - length, count).astype(np.int64)
    return np.stack([ids[start : start + length + 1] for start in starts])
