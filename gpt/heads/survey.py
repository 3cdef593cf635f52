"""Measures all heads of a model: on windows of a text, on synthetic texts, and by ablation.

Ablation measures how much the loss rises without a head (Michel et al. 2019). It replaces the
head's output, and computes this layer and the later ones again.
Tensor names: N windows, L layers, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from gpt.config import Ablation, ModelConfig, SurveyOptions
from gpt.devices import cores
from gpt.errors import TextError
from gpt.heads.attention_map import FigureForm, require_memory_for_map
from gpt.heads.measures import (
    RULE,
    Measure,
    describe_attention,
    greatest_strengths,
    head_name,
    measure_heads,
    name_heads,
    offset_names,
    standard_errors,
    synthetic_induction,
)
from gpt.reading.decode import map_on_cores
from gpt.reading.gpt import Array, Hook, Reader
from gpt.reading.score import surprisals, windows_at_once
from gpt.show.result import (
    Column,
    ReadOnlyArrays,
    Result,
    format_of_path,
    short_number,
    signed_number,
)
from gpt.storage import files
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import pluralize

MOST_SHOWN = 14  # heads in the short form
SHORTEST = 3  # characters in a text: a query with two keys, and the next character
Done = Callable[[float], object]  # gets the share of the work that is done

#: Option `ablate` -> what replaces a head's output.
REPLACED_BY = {
    "mean": "its mean",
    "zero": "0",
    "resample": "that of another window, drawn at random",
}


@dataclass(frozen=True, repr=False)
class Survey(ReadOnlyArrays, Result):
    """The measures of all heads on `windows` windows of `characters` characters each.

    text: the name of the text. set_heads: the number of heads in the first layer that gptx set
    before the training (docs/heads.md), so that head h looked at the character h + 1 places before.
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
        """Returns name of a measure -> (L, H) values."""
        return {measure.name: measure.values for measure in self.measures}

    def __repr__(self) -> str:
        return f"<Survey of heads on {self.measured_text}>"

    @property
    def names(self) -> list[list[str]]:
        """(L, H) names of the heads, "" for a head without a name."""
        return name_heads(self.measures)

    def heads_named(self, name: str) -> list[tuple[int, int]]:
        """Returns (layer, head) of the heads with a name, in the order of `ranking`. name:
        "induction", "duplicate", "previous", "2 back", …, "sink", or "" for no name.
        """
        return [place for place in self.ranking() if self._name(place) == name]

    @property
    def measured_text(self) -> str:
        """The measured text, and how much of it was measured."""
        return f"{pluralize(self.windows, 'window')} of {self.characters} characters of {self.text}"

    def ranking(self) -> list[tuple[int, int]]:
        """Returns (layer, head) of all heads, the most important ones first. With ablation, the
        importance of a head is the rise of the loss; otherwise, it is the head's greatest strength
        (measures.greatest_strengths).
        """
        values = self.to_numpy().get("ablation", greatest_strengths(self.measures))
        order = np.argsort(-np.nan_to_num(values, nan=-np.inf), axis=None, kind="stable")
        return [divmod(place, values.shape[1]) for place in order.tolist()]

    def _name(self, place: tuple[int, int]) -> str:
        return self.names[place[0]][place[1]]

    def _row(self, place: tuple[int, int]) -> dict[str, Any]:
        """Returns a row of the short form: what a head looks at, and the loss without it."""
        name, values = self._name(place), self.to_numpy()
        measure = "back" if name == "previous" or name.endswith(" back") else name
        return {
            "head": head_name(*place),
            "looks_at": describe_attention(name),
            "weight": float(values[measure][place]) if name else None,
            "rise": float(values["ablation"][place]) if "ablation" in values else None,
            "began": "(induction)" if name == "induction" else self._began(place),
        }

    def _began(self, place: tuple[int, int]) -> str:
        """Returns "began so" for a head that looks where gptx set it to look, otherwise ""."""
        layer, head = place
        is_set = layer == 0 and head < self.set_heads
        same = self._name(place) == offset_names(np.array(head + 1))
        return "began so" if is_set and same else ""

    def columns(self, all: bool = False) -> Sequence[Column]:
        return self.MEASURES if all else self.COLUMNS

    def table_rows(self, all: bool = False) -> Sequence[Any]:
        """Returns a row for every head with a name, and one row for all others. With `all`, returns
        a row for every measure of every head.
        """
        if all:
            return [
                self._measured(measure, place)
                for place in self.ranking()
                for measure in self.measures
            ]
        others = self.heads_named("")
        listed = [place for place in self.ranking() if self._name(place) or len(others) == 1]
        rows = [self._row(place) for place in listed[:MOST_SHOWN]]
        blank = dict.fromkeys(("weight", "rise", "began"))
        if len(listed) > MOST_SHOWN:
            more = f"{len(listed) - MOST_SHOWN} more"
            rows.append({"head": more, "looks_at": "at one of these"} | blank)
        if len(others) > 1:
            row = {"head": f"{len(others)} heads", "looks_at": describe_attention("")} | blank
            if "ablation" in self.to_numpy():
                row["rise"] = self._row(others[0])["rise"]
                row["began"] = f"most: {head_name(*others[0])}"
            rows.append(row)
        return rows

    def _measured(self, measure: Measure, place: tuple[int, int]) -> dict[str, Any]:
        """Returns a row of the long form: one measure of one head."""
        title = measure.title
        if measure.offsets is not None:
            title = describe_attention(str(offset_names(measure.offsets)[place]))
        return {
            "head": head_name(*place),
            "measure": title,
            "value": float(measure.values[place]),
            "error": float(measure.errors[place]),
            "uniform": float(measure.uniform_values[place]),
        }

    def facts(self, all: bool = False) -> dict[str, str]:
        if not all:
            return {}
        meanings = {measure.title: measure.explained for measure in self.measures}
        return {**meanings, "error": "standard error", "names": RULE}

    def sentence(self, all: bool = False) -> str:
        layer, head = self.ranking()[0]
        parts = [f"{pluralize(self.windows, 'window')} of {self.text}"]
        if "ablation" in self.to_numpy():
            parts.append("loss in nats")
        if any(map(self._began, self.ranking())):
            parts.append("began so: by gptx's first weights")
        if not all:
            see = f"see one: gptx attn TEXT --layer {layer} --head {head}"
            parts += [see, "errors, measures: --all"]
        return " · ".join(parts)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for every head with all measures, in the order of `ranking`."""
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
        return {
            "text": self.text,
            "windows": self.windows,
            "characters": self.characters,
            "rule": RULE,
            "measures": {
                measure.name: {"title": measure.title, "explained": measure.explained}
                for measure in self.measures
            },
        }

    def save(self, path: str | Path) -> Path:
        """Writes a figure (.svg, .pdf or .png) and returns its path. Bars show every head's weight
        on what it looks at, and the loss without it. Raises ConfigError for another ending and if
        matplotlib is missing. Raises StorageError if the file cannot be written.
        """
        target = Path(path)
        return files.save(target, self.figure(format_of_path(target, get_args(FigureForm))))

    def figure(self, form: str) -> bytes:
        """Returns the content of a figure's file. form: svg, pdf or png. Raises ConfigError."""
        from gpt.show.figure import bars_figure

        rows = [self._row(place) for place in self.ranking()]
        labels = [f"{row['head']}  {row['looks_at']}" for row in rows]
        bars = {"weight there": [row["weight"] for row in rows]}
        if "ablation" in self.to_numpy():
            bars["loss without it (nats)"] = [row["rise"] for row in rows]
        return bars_figure(labels, bars, f"heads on {self.measured_text}", form)


def survey(
    reader: Reader,
    vocabulary: Vocabulary,
    ids: Ids,
    options: SurveyOptions,
    *,
    text: str = "a text",
    done: Done = lambda share: None,
) -> Survey:
    """Computes all measures over windows of block_size from (n,) ids of the text named `text`.

    done: gets the share of the ablation that is done. Raises TextError if the text is too short.
    """
    config, ablation = reader.config, options.ablate
    windows = spread_windows(ids, config.block_size, options.windows)
    length = windows.shape[1] - 1
    require_memory_for_map(config, length)
    texts = (  # computed one at a time, because the stages are large
        (ids, [stages.weights for stages in reader.stages(ids)]) for ids in windows[:, :-1]
    )
    measures = measure_heads(texts)
    words = [n for n, character in enumerate(vocabulary.characters) if character.isalnum()]
    if synthetic := synthetic_induction(reader, windows[np.isin(windows, words)]):
        after = 1 + [measure.name for measure in measures].index("induction")
        measures.insert(after, synthetic)
    if ablation:
        measures.append(ablate(reader, windows, ablation, done))
    set_heads = min(config.n_head, config.previous_heads)
    return Survey(tuple(measures), len(windows), length, text, set_heads)


def spread_windows(ids: Ids, length: int, most: int) -> npt.NDArray[np.integer[Any]]:
    """Returns at most `most` windows of `length` + 1 ids, spread evenly over the text. No two
    windows predict the same character. A shorter text is one window. Raises TextError for a text of
    less than SHORTEST characters.
    """
    if len(ids) < SHORTEST:
        raise TextError(f"the text is too short for measures: it needs {SHORTEST} characters")
    length = min(length, len(ids) - 1)
    count = min(most, (len(ids) - 1) // length)
    starts = np.linspace(0, len(ids) - 1 - length, count).astype(np.int64)
    return np.stack([ids[start : start + length + 1] for start in starts])


def ablate(reader: Reader, windows: Ids, how: Ablation, done: Done = lambda share: None) -> Measure:
    """Measures how much the loss of (N, T + 1) windows rises without each head.

    The rise is in nats per character, and its standard error is that of the N rises. how: what
    replaces the head's output. "mean" is its mean over all characters of all windows, "zero" is 0,
    and "resample" is its output at the same position of another window (Chan et al. 2022), which is
    the same window for all heads. Raises TextError for "resample" with a single window.
    """
    parts = _replacement_parts(reader, windows, how)
    layers, heads = reader.config.n_layer, reader.config.n_head
    rises = np.zeros((len(windows), layers, heads))
    for layer, head in np.ndindex(layers, heads):
        rise = partial(_Part.rise, layer=layer, head=head)
        rises[:, layer, head] = np.concatenate(map_on_cores(rise, parts))
        done((layer * heads + head + 1) / (layers * heads))
    explained = (
        f"rise of the loss without the head (its output replaced by {REPLACED_BY[how]}), nats/char"
    )
    means, errors = rises.mean(axis=0), standard_errors(rises)
    return Measure("ablation", "Δloss", explained, means, errors, 0.0, len(rises))


def mean_contexts(reader: Reader, windows: Ids) -> Array:
    """Returns (L, H, D) mean outputs of the heads over all characters of (N, T + 1) windows."""
    return _mean([_Part(reader, part, False) for part in _divided(windows, reader.config)])


def draw_other_windows(N: int) -> Ids:
    """Returns (N,) numbers: for every window, the number of another window. Every number occurs
    once. The choice is random, with a fixed seed. Raises TextError if N is 1.
    """
    if N < 2:
        raise TextError("resample needs two windows; give a longer text or more `windows`")
    order = np.random.default_rng(0).permutation(N)
    others = np.empty_like(order)
    others[order] = np.roll(order, 1)
    return others


def _divided(windows: Ids, config: ModelConfig) -> list[Ids]:
    """Divides the windows into a part for every core, or into more parts if memory is short."""
    size = min(windows_at_once(config), math.ceil(len(windows) / cores()))
    return [windows[n : n + size] for n in range(0, len(windows), size)]


def _replacement_parts(reader: Reader, windows: Ids, how: Ablation) -> list[_Part]:
    """Divides the windows into parts, and computes what replaces the outputs of the heads there."""
    others = draw_other_windows(len(windows)) if how == "resample" else None
    parts = [_Part(reader, w, others is not None) for w in _divided(windows, reader.config)]
    ends = np.cumsum([len(part.ids) for part in parts])[:-1]
    for layer, mean in enumerate(_mean(parts)[:, :, None]):  # (H, 1, D)
        outputs: list[Array] = [mean if how == "mean" else np.zeros_like(mean)] * len(parts)
        if others is not None:
            outputs = np.split(np.concatenate([p.contexts[layer] for p in parts])[others], ends)
        for part, output in zip(parts, outputs, strict=True):
            part.replacements.append(output)
    return parts


def _mean(parts: Sequence[_Part]) -> Array:
    """Returns (L, H, D) mean outputs of the heads over all characters of all parts."""
    characters = sum(part.ids.size for part in parts)
    mean: Array = np.sum([part.sums for part in parts], axis=0) / characters
    return mean


class _Part:
    """B of the windows, and what the model computes for them with all heads.

    sums: for every layer, the (H, D) sums of the heads' outputs over all characters. contexts: for
    every layer, the (B, H, T, D) outputs, if `needed`. replacements: for every layer, an array that
    replaces the outputs and broadcasts to their shape.
    """

    def __init__(self, reader: Reader, windows: Ids, needed: bool) -> None:
        self.reader, self.ids, self._targets = reader, windows[:, :-1], windows[:, 1:]
        self.sums, self.contexts, self._streams = list[Array](), list[Array](), list[Array]()
        self.replacements = list[Array]()
        x = reader.embed(self.ids)
        # With a hook, numpy computes the pass even if a device computes other passes. So the
        # comparison with replaced outputs is exact.
        unchanged: Hook = lambda name, layer, stage: stage  # noqa: E731
        for layer in range(reader.config.n_layer):
            self._streams.append(x)
            stages = reader.block(x, layer, unchanged)
            x, context = stages["resid_post"], stages["context"]
            self.sums.append(context.sum(axis=(0, 2), dtype=np.float64))
            if needed:
                self.contexts.append(context)
        self._losses = self._loss(x)

    def rise(self, layer: int, head: int) -> Array:
        """Returns the (B,) rises of the windows' losses without a head, in nats per character."""

        def hook(name: str, at: int, stage: Array) -> Array:
            if (name, at) == ("context", layer):
                stage[:, head] = self.replacements[layer][..., head, :, :]
            return stage

        later = range(layer, self.reader.config.n_layer)
        x = self.reader.blocks(self._streams[layer], later, hook)
        return self._loss(x) - self._losses

    def _loss(self, x: Array) -> Array:
        """(B, T, C) output of the last layer -> (B,) losses of the windows, in nats."""
        logits = self.reader.logits(self.reader.final_norm(x))
        nats = surprisals(logits, self._targets).astype(np.float64)
        return nats.mean(axis=-1)  # type: ignore[no-any-return]
