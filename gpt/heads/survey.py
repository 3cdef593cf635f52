"""All measures of a model's heads: on the windows of a text, on synthetic texts, by ablation.

Ablation says how much the loss rises without a head (Michel et al. 2019): the head's output is
replaced, and its layer and the later ones are computed again.
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

from gpt.config import Ablation, HeadsConfig, ModelConfig
from gpt.devices import cores
from gpt.errors import TextError
from gpt.heads.attention_map import FigureForm, require_room
from gpt.heads.measures import (
    RULE,
    Measure,
    back_names,
    greatest_strengths,
    head_name,
    induction,
    job,
    measure_heads,
    name_heads,
    standard_errors,
)
from gpt.reading.decode import map_on_cores
from gpt.reading.gpt import Array, Hook, Reader
from gpt.reading.score import surprisals, windows_at_once
from gpt.show.result import Arrays, Column, Result, named_form, short_number, signed_number
from gpt.storage import files
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import pluralize

MOST_SHOWN = 14  # heads in the short form
SHORTEST = 3  # characters in a text: a query with two keys, and the next character
Done = Callable[[float], object]  # called with the share of the work that is done

#: What replaces a head's output in each case.
REPLACED_BY = {
    "mean": "its mean",
    "zero": "0",
    "resample": "that of another window, drawn at random",
}


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
        return f"<Survey of heads on {self.measured}>"

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
        return f"{pluralize(self.windows, 'window')} of {self.characters} characters of {self.text}"

    def ranking(self) -> list[tuple[int, int]]:
        """(layer, head) of every head: by how much the loss rises under ablation, if measured, else
        by how near a head is to a named kind.
        """
        values = self.to_numpy().get("ablation", greatest_strengths(self.measures))
        order = np.argsort(-np.nan_to_num(values, nan=-np.inf), axis=None, kind="stable")
        return [divmod(place, values.shape[1]) for place in order.tolist()]

    def _name(self, place: tuple[int, int]) -> str:
        return self.names[place[0]][place[1]]

    def _row(self, place: tuple[int, int]) -> dict[str, Any]:
        """A head as people see it: the weight on what it looks at, and the loss without it."""
        name, values = self._name(place), self.to_numpy()
        measure = "back" if name == "previous" or name.endswith(" back") else name
        return {
            "head": head_name(*place),
            "looks_at": job(name),
            "weight": float(values[measure][place]) if name else None,
            "rise": float(values["ablation"][place]) if "ablation" in values else None,
            "began": "(induction)" if name == "induction" else self._began(place),
        }

    def _began(self, place: tuple[int, int]) -> str:
        """Whether gptx's own first weights made the head do what it does."""
        layer, head = place
        is_set = layer == 0 and head < self.set_heads
        return "began so" if is_set and self._name(place) == back_names(np.array(head + 1)) else ""

    def columns(self, all: bool = False) -> Sequence[Column]:
        return self.MEASURES if all else self.COLUMNS

    def shown(self, all: bool = False) -> Sequence[Any]:
        """A row for each head with a name, and one for all others; for `all`, one for each measure
        of each head.
        """
        if all:
            return [
                self._measured(measure, place)
                for place in self.ranking()
                for measure in self.measures
            ]
        others = self.of("")
        listed = [place for place in self.ranking() if self._name(place) or len(others) == 1]
        rows = [self._row(place) for place in listed[:MOST_SHOWN]]
        blank = dict.fromkeys(("weight", "rise", "began"))
        if len(listed) > MOST_SHOWN:
            more = f"{len(listed) - MOST_SHOWN} more"
            rows.append({"head": more, "looks_at": "at one of these"} | blank)
        if len(others) > 1:
            row = {"head": f"{len(others)} heads", "looks_at": job("")} | blank
            if "ablation" in self.to_numpy():
                row["rise"] = self._row(others[0])["rise"]
                row["began"] = f"most: {head_name(*others[0])}"
            rows.append(row)
        return rows

    def _measured(self, measure: Measure, place: tuple[int, int]) -> dict[str, Any]:
        """A measure of a head, with its standard error and its value for uniform attention."""
        title = measure.title
        if measure.offsets is not None:
            title = job(str(back_names(measure.offsets)[place]))
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
        """Writes a figure (.svg, .pdf or .png): bars of each head's weight on what it looks at, and
        of the loss without it. Raises ConfigError for another ending and without matplotlib,
        StorageError.
        """
        target = Path(path)
        return files.save(target, self.figure(named_form(target, get_args(FigureForm))))

    def figure(self, form: str) -> bytes:
        """The figure as a file's content. form: svg, pdf or png. Raises ConfigError."""
        from gpt.show.figure import bars_figure

        rows = [self._row(place) for place in self.ranking()]
        labels = [f"{row['head']}  {row['looks_at']}" for row in rows]
        bars = {"weight there": [row["weight"] for row in rows]}
        if "ablation" in self.to_numpy():
            bars["loss without it (nats)"] = [row["rise"] for row in rows]
        return bars_figure(labels, bars, f"heads on {self.measured}", form)


def survey(
    reader: Reader,
    vocabulary: Vocabulary,
    ids: Ids,
    options: HeadsConfig,
    *,
    text: str = "a text",
    done: Done = lambda share: None,
) -> Survey:
    """(n,) ids of the text named `text` -> every measure over windows of block_size, spread over
    the text.

    done: gets the share of the ablation that is done. Raises TextError if the text is too short.
    """
    config, ablation = reader.config, options.ablate
    windows = spread_windows(ids, config.block_size, options.windows)
    length = windows.shape[1] - 1
    require_room(config, length)
    texts = (  # one at a time, as the stages are large
        (ids, [stages.weights for stages in reader.stages(ids)]) for ids in windows[:, :-1]
    )
    measures = measure_heads(texts)
    words = [n for n, character in enumerate(vocabulary.characters) if character.isalnum()]
    if synthetic := induction(reader, windows[np.isin(windows, words)]):
        after = 1 + [measure.name for measure in measures].index("induction")
        measures.insert(after, synthetic)
    if ablation:
        measures.append(ablate(reader, windows, ablation, done))
    set_heads = min(config.n_head, config.previous_heads)
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


def ablate(reader: Reader, windows: Ids, how: Ablation, done: Done = lambda share: None) -> Measure:
    """How much the loss of (N, T + 1) windows rises without each head, in nats per character, with
    paired standard errors over windows.

    how: the replacement of the head's output. mean: its mean over all characters of all windows.
    resample: its output in another window at the same position (Chan et al. 2022), the same
    for all heads. Raises TextError for resampling with a single window.
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
    """(L, H, D) mean output of each head over all characters of (N, T + 1) windows, which replaces
    the output for "mean".
    """
    return _mean([_Part(reader, part, False) for part in _divided(windows, reader.config)])


def other_windows(N: int) -> Ids:
    """(N,) another window for each window, in a random order in which each occurs once.

    Raises TextError if N is 1.
    """
    if N < 2:
        raise TextError("resample needs two windows; give a longer text or more `windows`")
    order = np.random.default_rng(0).permutation(N)
    others = np.empty_like(order)
    others[order] = np.roll(order, 1)
    return others


def _divided(windows: Ids, config: ModelConfig) -> list[Ids]:
    """The windows in parts: one for each core, or more if memory requires it."""
    size = min(windows_at_once(config), math.ceil(len(windows) / cores()))
    return [windows[n : n + size] for n in range(0, len(windows), size)]


def _replacement_parts(reader: Reader, windows: Ids, how: Ablation) -> list[_Part]:
    """All windows in parts, each with what replaces the outputs of its heads; see `ablate`."""
    others = other_windows(len(windows)) if how == "resample" else None
    parts = [_Part(reader, w, others is not None) for w in _divided(windows, reader.config)]
    ends = np.cumsum([len(part.ids) for part in parts])[:-1]
    for layer, mean in enumerate(_mean(parts)[:, :, None]):  # (H, 1, D)
        outputs: list[Array] = [mean if how == "mean" else np.zeros_like(mean)] * len(parts)
        if others is not None:
            outputs = np.split(np.concatenate([p.contexts[layer] for p in parts])[others], ends)
        for part, output in zip(parts, outputs, strict=True):
            part.replaced.append(output)
    return parts


def _mean(parts: Sequence[_Part]) -> Array:
    """(L, H, D) mean output of each head over all characters of all windows."""
    characters = sum(part.ids.size for part in parts)
    mean: Array = np.sum([part.sums for part in parts], axis=0) / characters
    return mean


class _Part:
    """Some windows computed by the whole model: the input of each layer, and the losses.

    sums: for each layer, (H, D) the heads' outputs added over all characters. contexts: (B, H, T,
    D) their outputs, if needed. replaced: what replaces them in each layer, an array that
    broadcasts to their shape.
    """

    def __init__(self, reader: Reader, windows: Ids, needed: bool) -> None:
        self.reader, self.ids, self._targets = reader, windows[:, :-1], windows[:, 1:]
        self.sums, self.contexts, self._streams = list[Array](), list[Array](), list[Array]()
        self.replaced = list[Array]()
        x = reader.embed(self.ids)
        # With any hook numpy computes, so a comparison with replaced stages is exact even if a
        # device computes other forward passes.
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
        """(B,) how much each window's loss rises, in nats per character, without a head."""

        def hook(name: str, at: int, stage: Array) -> Array:
            if (name, at) == ("context", layer):
                stage[:, head] = self.replaced[layer][..., head, :, :]
            return stage

        later = range(layer, self.reader.config.n_layer)
        x = self.reader.blocks(self._streams[layer], later, hook)
        return self._loss(x) - self._losses

    def _loss(self, x: Array) -> Array:
        """(B, T, C) output of the last layer -> (B,) mean nats of each window's targets."""
        logits = self.reader.logits(self.reader.final_norm(x))
        nats = surprisals(logits, self._targets).astype(np.float64)
        return nats.mean(axis=-1)  # type: ignore[no-any-return]
