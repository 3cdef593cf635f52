"""All measures of a model's heads: on the windows of a text, on synthetic texts, by ablation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import Arrays
from gpt.config import HeadsConfig
from gpt.config.fields import require
from gpt.devices import cores, require_memory
from gpt.errors import TextError
from gpt.heads.ablation import Done, Texts, ablate
from gpt.heads.attention_map import AttentionMap
from gpt.heads.measures import (
    RULE,
    Measure,
    induction,
    job,
    measure_heads,
    name_heads,
    strengths,
)
from gpt.heads.places import head_name
from gpt.reading.gpt import MATRICES, Reader
from gpt.show.result import Column, Result, short_number, signed_number
from gpt.storage import files
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted, layers_and_heads

MOST_SHOWN = 14  # heads in the short form
SHORTEST = 3  # characters in a text: a query with two keys, and the next character
FILE_FORMS = ("svg", "png", "pdf", "csv", "json")


@dataclass(frozen=True)
class HeadRow:
    """A head as people see it. weight: on what it looks at. rise: of the loss without it, nats."""

    head: str
    looks_at: str
    weight: float | None = None
    rise: float | None = None
    began: str = ""


@dataclass(frozen=True)
class MeasureRow:
    """A measure of a head, with its standard error and its value for uniform attention."""

    head: str
    measure: str
    value: float
    error: float
    uniform: float


@dataclass(frozen=True, repr=False)
class Survey(Arrays, Result):
    """The measures of all heads, on `windows` windows of `characters` characters each.

    text: the name of the text. set_heads: how many heads of the first layer began on a previous
    character, because gptx sets their first weights so (docs/heads.md): head h on the character
    h + 1 places before.
    """

    measures: tuple[Measure, ...]
    windows: int
    characters: int
    text: str = "a text"
    set_heads: int = 0

    COLUMNS = (
        Column("head", "head"),
        Column("looks_at", "looks at"),
        Column("weight", "weight there", short_number, bar=True),
        Column("rise", "loss without it", signed_number, right=True),
        Column("began", ""),
    )
    MEASURES = (
        Column("head", "head"),
        Column("measure", "measure"),
        Column("value", "value", lambda value: short_number(value, 4), right=True),
        Column("error", "error", lambda value: short_number(value, 4), right=True),
        Column("uniform", "uniform", lambda value: short_number(value, 4), right=True),
    )

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Measure -> (L, H) values."""
        return {measure.name: measure.values for measure in self.measures}

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

    def of(self, name: str) -> list[tuple[int, int]]:
        """(layer, head) of the heads with this name: induction, duplicate, previous, "2 back", …,
        sink, or "" for no name; those that matter most first.
        """
        return [place for place in self.ranking() if self._name(place) == name]

    @property
    def measured(self) -> str:
        """Which text was measured, and how much of it."""
        return f"{counted(self.windows, 'window')} of {self.characters} characters of {self.text}"

    def ranking(self) -> list[tuple[int, int]]:
        """(layer, head) of every head: by how much the loss rises under ablation, if measured, else
        by how near a head is to a named kind.
        """
        values = self.to_numpy().get("ablation", strengths(self.measures))
        order = np.argsort(-np.nan_to_num(values, nan=-np.inf), axis=None, kind="stable")
        return [divmod(place, values.shape[1]) for place in order.tolist()]

    def weight(self, place: tuple[int, int]) -> float | None:
        """The weight of a head on what its name says; None without a name."""
        name = self._name(place)
        measure = "back" if name == "previous" or name.endswith(" back") else name
        return float(self.to_numpy()[measure][place]) if name else None

    def _name(self, place: tuple[int, int]) -> str:
        return self.names[place[0]][place[1]]

    def _rise(self, place: tuple[int, int]) -> float | None:
        ablation = self.to_numpy().get("ablation")
        return None if ablation is None else float(ablation[place])

    def _began(self, place: tuple[int, int]) -> str:
        """Whether gptx's own first weights made the head do what it does."""
        layer, head = place
        first = "previous" if head == 0 else f"{head + 1} back"
        is_set = layer == 0 and head < self.set_heads
        return "began so" if is_set and self._name(place) == first else ""

    def columns(self, all: bool = False) -> Sequence[Column]:
        return self.MEASURES if all else self.COLUMNS

    def shown(self, all: bool = False) -> Sequence[Any]:
        """A row for each head with a name, and one for all others; for `all`, one for each measure
        of each head.
        """
        if all:
            return [
                MeasureRow(
                    head_name(*place),
                    measure.title if measure.offsets is None else job(_back(measure, place)),
                    value=float(measure.values[place]),
                    error=float(measure.errors[place]),
                    uniform=float(measure.uniform_values[place]),
                )
                for place in self.ranking()
                for whole in self.measures
                for measure in whole.every
            ]
        others = self.of("")
        listed = [place for place in self.ranking() if self._name(place) or len(others) == 1]
        rows = [
            HeadRow(
                head_name(*place),
                job(self._name(place)),
                self.weight(place),
                self._rise(place),
                self._began(place),
            )
            for place in listed[:MOST_SHOWN]
        ]
        if len(listed) > MOST_SHOWN:
            rows.append(HeadRow(f"{len(listed) - MOST_SHOWN} more", "at one of these"))
        if len(others) > 1:
            most = f"most: {head_name(*others[0])}"
            rise = self._rise(others[0])
            note = "" if rise is None else most
            rows.append(HeadRow(f"{len(others)} heads", job(""), None, rise, note))
        return rows

    def facts(self, all: bool = False) -> dict[str, str]:
        if not all:
            return {}
        meanings = {
            part.title: part.explained
            for measure in self.measures
            for part in measure.every
            if part.explained
        }
        return {**meanings, "error": "standard error", "names": RULE}

    def sentence(self, all: bool = False) -> str:
        layer, head = self.ranking()[0]
        parts = [f"{counted(self.windows, 'window')} of {self.text}"]
        if "ablation" in self.to_numpy():
            parts.append("loss in nats")
        if not all:
            see = f"see one: gptx attn TEXT --layer {layer} --head {head}"
            parts += [see, "errors, measures: --all"]
        return " · ".join(parts)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each head with every measure, in the order of `ranking`."""
        columns: dict[str, npt.NDArray[Any]] = {}
        for measure in self.measures:
            columns |= measure.columns()
        return [
            {
                "layer": place[0],
                "head": place[1],
                "kind": self._name(place),
                **{name: values[place].item() for name, values in columns.items()},
                "began": self._began(place) or None,
            }
            for place in self.ranking()
        ]

    def record(self) -> dict[str, Any]:
        """What was measured, and what the measures are."""
        every = [part for measure in self.measures for part in measure.every]
        return {
            "text": self.text,
            "windows": self.windows,
            "characters": self.characters,
            "rule": RULE,
            "measures": {m.name: {"title": m.title, "explained": m.explained} for m in every},
        }

    def save(self, path: str | Path) -> Path:
        """Writes a figure (.svg, .pdf or .png: bars of each head's weight on what it looks at, and
        of the loss without it), or the rows (.csv, .json). Raises ConfigError for another ending
        and without matplotlib, StorageError.
        """
        target = Path(path)
        form = target.suffix.lower().removeprefix(".")
        require(
            form in FILE_FORMS, "path", f"{target.name} does not end in {', '.join(FILE_FORMS)}"
        )
        if form in ("csv", "json"):
            data = (self.to_csv() if form == "csv" else self.to_json()).encode()
        else:
            data = self.figure(form)
        with files.storage_errors(f"write {target}"):
            target.write_bytes(data)
        return target

    def figure(self, form: str) -> bytes:
        """The figure as a file's content. form: svg, pdf or png. Raises ConfigError."""
        from gpt.show.figure import bars_figure

        ranking = self.ranking()
        labels = [f"{head_name(*place)}  {job(self._name(place))}" for place in ranking]
        bars = {"weight there": [self.weight(place) for place in ranking]}
        if "ablation" in self.to_numpy():
            bars["loss without it (nats)"] = [self._rise(place) for place in ranking]
        return bars_figure(labels, bars, f"heads on {self.measured}", form)


def _back(measure: Measure, place: tuple[int, int]) -> str:
    """The name of a head that attends a fixed number of characters back."""
    assert measure.offsets is not None
    offset = int(measure.offsets[place])
    return "previous" if offset == 1 else f"{offset} back"


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
    set_heads = min(H, config.previous_heads)
    return Survey(tuple(measures), len(windows), length, text, set_heads)


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
