"""Computes the attention of all heads for a text, checks it, and selects parts of it to show.

An AttentionMap has all stages of attention for a text. A Selection is a part of a map, as matrices
for the terminal, as figures, and as files. Files have nine digits, which float32 needs.
"""

from __future__ import annotations

import io
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, TypeAlias, get_args

import numpy as np

from gpt.config import DrawnStage, ModelConfig
from gpt.config.fields import require
from gpt.config.model import FINAL_STAGES, HEAD_STAGES, SQUARE, STAGES, Stage
from gpt.devices import require_memory
from gpt.errors import ConfigError, TextError
from gpt.reading.gpt import Array, Reader, Stages
from gpt.show.result import (
    Check,
    Matrix,
    ReadOnlyArrays,
    Result,
    csv_text,
    format_of_path,
    round_floats,
    to_json,
)
from gpt.storage import files
from gpt.vocabulary import Ids
from gpt.words import layers_and_heads, pluralize, text_with_labels

if TYPE_CHECKING:
    from gpt.heads.contributions import HeadSummary
    from gpt.show.matrix import View
    from gpt.show.terminal import Screen

HeadName = int | Literal["mean", "all"]
FigureForm = Literal["svg", "png", "pdf"]
FileForm = Literal["json", "csv", "npz", "html", FigureForm]
Form = Literal["text", FileForm]

#: A stage, or (stage, layer, head, position), whose last parts may be left out. None means all.
#: Layers and heads count from 0. A position may also count from the end, where -1 is the last one.
#: A position selects a row: the row of a key for k and v, and of a query for other stages. The head
#: is None for a stage without heads. Layer and head are None for final_norm and logits, for example
#: ("logits", None, None, 5).
Key: TypeAlias = Stage | tuple[Stage, *tuple[SupportsIndex | None, ...]]

MOST_QUOTED = 40  # most characters of the text in a title


class ParsedKey(NamedTuple):
    """A checked key. None means all."""

    stage: Stage
    layer: int | None
    head: int | None
    position: int | None

    def select_from(self, stage: Array) -> Array:
        """(…, H, T, D) or (…, T, C) stage -> the view of the key's head and position."""
        if self.head is not None:
            stage = stage[..., self.head, :, :]
        return stage if self.position is None else stage[..., self.position, :]


def parse_key(
    key: Key, shapes: Mapping[Any, tuple[int, ...]], layers: Sequence[int], from_end: bool = True
) -> ParsedKey:
    """Checks a key and returns its parts.

    shapes: name -> (…, H, T, D) or (…, T, C) shape of every possible stage. layers: the numbers of
    the possible layers. from_end: whether a position may count from the end.

    Raises ValueError for an unknown stage, and for a layer or head if the stage has none. Raises
    IndexError for a number that does not exist, TypeError for what is not a whole number.
    """
    entries: tuple[Any, ...] = key if isinstance(key, tuple) and key else (key,)
    name, layer, head, position = (*entries, None, None, None)[:4]
    if name not in shapes:
        raise ValueError(f"{name!r} is not one of {', '.join(shapes)}")
    if len(entries) > 4:
        raise ValueError(f"{key!r}: expected at most (stage, layer, head, position)")
    final = name in FINAL_STAGES
    if (head is not None and name not in HEAD_STAGES) or (layer is not None and final):
        lacks, at = ("layers", None) if final else ("heads", "layer")
        raise ValueError(f"{key!r}: {name} has no {lacks}; use ({name!r}, {at}, None, position)")
    if layer is not None and layer not in layers:
        raise IndexError(f"layer {layer} is not one of {', '.join(map(str, layers))}")
    if head is not None:
        head = check_number("head", head, shapes[name][-3])
    if position is not None:
        count = shapes[name][-2]
        position = check_number("position", position, count, -count if from_end else 0)
    return ParsedKey(name, layer, head, position)


def check_number(what: str, number: SupportsIndex, count: int, lowest: int = 0) -> int:
    """Returns the number as an int. what: what errors call it, such as "layer". Raises
    IndexError if it is not in lowest … count − 1, TypeError if it is no whole number.
    """
    if not isinstance(number, SupportsIndex):
        raise TypeError(f"{what}: expected a whole number, not {type(number).__name__}")
    at = operator.index(number)
    if not lowest <= at < count:
        raise IndexError(f"{what} {at} is not in {lowest} … {count - 1}")
    return at


@dataclass(frozen=True, repr=False)
class AttentionMap(ReadOnlyArrays, Result):
    """The stages of all layers for one text of T characters, and their checks.

    model: the TrainedGPT that computed the map, or None; an .html file needs it. rounding: stage ->
    the largest difference from the same computation in float64.
    """

    text: str
    ids: Ids
    layers: tuple[Stages, ...]
    checks: tuple[Check, ...]
    model: Any = field(default=None, compare=False)
    rounding: Mapping[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        sizes = layers_and_heads(len(self.layers), self.heads)
        return f"attention of {self.quoted} · {pluralize(len(self.ids), 'character')}, {sizes}"

    def list_checks(self, stage: str = "weights") -> tuple[Check, ...]:
        """Returns the checks, and one more, which compares a stage with the stage in float64."""
        first, *others = self.checks
        return first, Check("the same in float64", self.rounding[stage]), *others

    @property
    def quoted(self) -> str:
        """The text, or its first MOST_QUOTED characters, in quotation marks."""
        text = text_with_labels(self.text)
        return f"“{text if len(text) <= MOST_QUOTED else text[:MOST_QUOTED] + '…'}”"

    @property
    def heads(self) -> int:
        return len(self.layers[0].q)

    @property
    def stages(self) -> list[Stage]:
        return [name for name in STAGES if name in vars(self.layers[0])]

    def __getitem__(self, key: Key) -> Array:
        """Returns a stage or a part of it. docs/heads.md explains the keys.

        For example, key "weights" gives (L, H, T, T), ("weights", layer) gives (H, T, T),
        ("weights", layer, head) gives (T, T), and ("weights", layer, head, 5) gives its row 5,
        (T,). The stages q, k, v and context have D columns, and stages without heads have C
        columns.

        Raises ValueError for another stage, IndexError for a missing layer, head or position.
        """
        shapes = {name: stage.shape for name, stage in vars(self.layers[0]).items()}
        place = parse_key(key, shapes, range(len(self.layers)))
        layers = self.layers if place.layer is None else [self.layers[place.layer]]
        parts = [place.select_from(getattr(layer, place.stage)) for layer in layers]
        return np.stack(parts) if place.layer is None else parts[0]

    def to_numpy(self) -> dict[str, Any]:
        """Returns stage -> array of all layers, as self[stage], and "ids" -> (T,) ids."""
        return {"ids": self.ids} | {name: self[name] for name in self.stages}

    def save(
        self,
        path: str | Path,
        *,
        layer: SupportsIndex | Literal["all"] = "all",
        head: SupportsIndex | Literal["all", "mean"] = "all",
        stage: DrawnStage = "weights",
    ) -> Path:
        """Writes a file, whose format follows from the path's ending, and returns its path.

        .csv and .json have the selected layers, heads and stage, and .svg, .pdf and .png draw them.
        .npz has all layers, heads and stages. .html is the page of `live`, which shows this text.
        Raises ConfigError for another ending and for a layer or head that does not exist. Raises
        StorageError if the file cannot be written.
        """
        target = Path(path)
        form = format_of_path(target, get_args(FileForm))
        if form == "html":
            return self.model.live(path, text=self.text)  # type: ignore[no-any-return]
        selection = select_matrices(self, str(layer), str(head), stage)
        data = selection.to_bytes(form, self.model.stored.origin if self.model else {})
        return files.save(target, data)


@dataclass(frozen=True, repr=False)
class Selection(Result):
    """A part of a map: matrices of one stage, a range of their rows and a range of their columns.

    panels: (layer, head) of every matrix. A stage without heads has one matrix for each layer, with
    the head "all". across: how many matrices stand side by side. queries: the rows. keys: the
    columns, if the columns are keys. A stage whose columns are dimensions shows all of them.
    """

    attention: AttentionMap
    stage: DrawnStage
    panels: Sequence[tuple[int, HeadName]]
    across: int
    queries: range
    keys: range

    @property
    def title(self) -> str:
        return f"{self.stage} of “{self.attention.text}”"

    def list_checks(self) -> tuple[Check, ...]:
        return self.attention.list_checks(self.stage)

    @property
    def columns_are_keys(self) -> bool:
        """Whether the columns are keys, otherwise they are dimensions."""
        return self.stage in SQUARE

    def values(self) -> list[Array]:
        """Returns the selected rows and columns of every panel."""
        rows = slice(self.queries.start, self.queries.stop)
        columns = slice(self.keys.start, self.keys.stop) if self.columns_are_keys else slice(None)
        selected = []
        for layer, head in self.panels:
            values = self.attention[self.stage, layer, head if isinstance(head, int) else None]
            selected.append((values.mean(axis=0) if head == "mean" else values)[rows, columns])
        return selected

    def matrices(self) -> list[Matrix]:
        """Returns the selected matrices, with NaN for the weights above the diagonal (all 0)."""
        forbidden = np.array(self.queries)[:, None] < np.array(self.keys)
        heads = {"all": "", "mean": ", mean of heads"}
        return [
            Matrix(
                name=f"layer {layer}{heads.get(str(head), f' head {head}')}",
                values=np.where(forbidden, np.nan, values) if self.stage == "weights" else values,
                text=self.attention.text,
                rows=self.queries,
                columns=self.keys if self.columns_are_keys else range(values.shape[1]),
                square=self.columns_are_keys,
                weights=self.stage == "weights",
            )
            for (layer, head), values in zip(self.panels, self.values(), strict=True)
        ]

    def record(self) -> dict[str, Any]:
        """Entries of --json. `values` is [panel][query][key or dimension], null where masked."""
        return {
            "text": self.attention.text,
            "ids": self.attention.ids,
            "stage": self.stage,
            "axes": ["panel", "query", "key" if self.columns_are_keys else "dimension"],
            "panels": [{"layer": layer, "head": head} for layer, head in self.panels],
            "queries": list(self.queries),
            "keys": list(self.keys) if self.columns_are_keys else None,
            "values": [round_floats(values) for values in self.values()],
            "checks": [round_floats(check.record) for check in self.list_checks()],
        }

    def to_csv(self) -> str:
        """Returns a line for every number. Leaves out weights above the diagonal (all 0)."""
        places = ["pos", "char", "dimension"]
        if self.columns_are_keys:
            places = ["q_pos", "q_char", "k_pos", "k_char"]
        value = "weight" if self.stage == "weights" else self.stage
        return csv_text(chain([["layer", "head", *places, value]], self._lines()))

    def _lines(self) -> Iterator[list[Any]]:
        text = self.attention.text
        for (layer, head), matrix in zip(self.panels, self.matrices(), strict=True):
            for query, values in zip(matrix.rows, matrix.values.tolist(), strict=True):
                for column, value in zip(matrix.columns, values, strict=True):
                    if not np.isnan(value):
                        key = [text[column]] if self.columns_are_keys else []
                        place = [layer, head, query, text[query], column, *key]
                        yield [*place, float(f"{value:.9g}")]

    def draw(
        self,
        screen: Screen,
        view: View,
        *,
        digits: int,
        top: int,
        summary: HeadSummary | None = None,
    ) -> str:
        """Draws the matrices as text, with titles and remarks. summary: what the head does, if the
        selection has only one head. For the other arguments, see gpt.show.matrix.draw.
        """
        from gpt.show import matrix

        matrices, name = self.matrices(), self.attention.quoted
        if self.stage != "weights":
            name += f" · {self.stage}"
        remarks = ["a row is the character that reads"]
        titles = [f"{name} · {panel.name}" for panel in matrices]
        if view == "heads":
            titles = [f"{name} · all heads"]
        if summary:
            titles = [f"{name} · {summary.title}"]
            remarks.append(summary.hint)
        return matrix.draw(
            matrices,
            titles,
            remarks,
            self.list_checks(),
            screen,
            view=view,
            across=self.across,
            digits=digits,
            top=top,
        )

    def to_bytes(
        self, form: FileForm, origin: Mapping[str, Any], ascii_only: bool = False
    ) -> bytes:
        """Returns the content of a file.

        origin: entries about the model for JSON. ascii_only: whether the labels of a figure are
        ASCII. Raises ConfigError for a figure that is too large, and if matplotlib is missing.
        """
        if form == "npz":
            buffer = io.BytesIO()
            np.savez_compressed(
                buffer, text=np.array(self.attention.text), **self.attention.to_numpy()
            )
            return buffer.getvalue()
        if form == "csv":
            return self.to_csv().encode()
        if form == "json":
            return to_json(self, origin).encode()
        from gpt.show.figure import matrices_figure

        return matrices_figure(self.matrices(), self.title, self.across, form, ascii_only)


def select_matrices(
    attention: AttentionMap,
    layer: str = "0",
    head: str = "0",
    stage: DrawnStage = "weights",
    *,
    query: str | None = None,
    key: str | None = None,
) -> Selection:
    """Makes a selection from options of `attn`, which are texts: a number, "all", "mean" or "A:B".
    Raises ConfigError for a text that selects nothing.
    """
    layers = _indices("layer", layer, len(attention.layers))
    heads: Sequence[HeadName] = ["mean"]
    if head != "mean":
        heads = _indices("head", head, attention.heads)
    return Selection(
        attention,
        stage=stage,
        panels=[*product(layers, heads if stage in HEAD_STAGES else ["all"])],  # type: ignore[list-item]
        across=len(heads),
        queries=_range("query", query, len(attention.text)),
        keys=_range("key", key, len(attention.text)),
    )


def _indices(option: str, text: str, count: int) -> range:
    if text == "all":
        return range(count)
    words = "all, mean or a number" if option == "head" else "all or a number"
    require(text.isdecimal() and len(text) < 10, option, f"{text[:20]!r} is not {words}")
    require(int(text) < count, option, f"{text} is not in 0 … {count - 1}")
    return range(int(text), int(text) + 1)


def _range(option: str, text: str | None, length: int) -> range:
    """Returns the positions that an option selects: one position, or a range "A:B" as in Python.
    A:B begins at A and ends before B. A, B or both may be left out.
    """
    if text is None:
        return range(length)
    start, colon, stop = text.partition(":")
    try:
        first = int(start) if start or not colon else 0
        last = (int(stop) if stop else length) if colon else first + 1
    except ValueError:
        raise ConfigError(option, f"{text[:20]!r} is not a position or a range A:B") from None
    require(min(first, last) >= 0, option, f"{text!r}: positions count from 0")
    of = pluralize(length, "character")
    require(max(first, last) <= length, option, f"{text!r} does not fit a text of {of}")
    require(first < last, option, f"{text!r} selects nothing, because A:B ends before B")
    return range(first, last)


def compute_attention_map(
    reader: Reader, text: str, ids: Ids, proofs: Sequence[Check] = (), model: Any = None
) -> AttentionMap:
    """Computes and checks the attention map of (T,) ids, 1 ≤ T ≤ block_size.

    proofs: further checks, which were made when the model was opened. model: the TrainedGPT of the
    reader. Raises TextError for another T, OutOfMemory if the map does not fit the memory.
    """
    if not len(ids):
        raise TextError("the text is empty; give at least one character")
    require_fits_context(reader.config, len(ids))
    require_memory_for_map(reader.config, len(ids))
    layers = reader.stages(ids)
    sums = [np.abs(layer.weights.sum(axis=-1, dtype=np.float64) - 1).max() for layer in layers]
    above = [np.abs(np.triu(layer.weights, k=1)).max() for layer in layers]
    checks = (
        Check("rows sum to 1", float(np.max(sums)), 1e-6),
        Check("above the diagonal exactly 0", float(np.max(above)), 0.0, detail=True),
        *proofs,
    )
    return AttentionMap(text, ids, layers, checks, model, _rounding(reader, ids, layers))


def _rounding(reader: Reader, ids: Ids, layers: Sequence[Stages]) -> dict[str, float]:
    """Returns stage -> its largest difference from the same stage in float64, in any layer."""
    exact, read = reader.in_float64(), np.tri(len(ids), dtype=np.bool_)
    largest = dict.fromkeys(vars(layers[0]), 0.0)

    def compare(name: str, layer: int, stage: Array) -> Array:
        if name in largest:
            with np.errstate(invalid="ignore"):  # −inf minus −inf, where `read` is False
                apart = stage[0] - getattr(layers[layer], name)
            where = read if name in SQUARE else np.True_
            in_layer = np.abs(apart, out=apart).max(initial=0.0, where=where)
            largest[name] = float(np.maximum(largest[name], in_layer))  # NaN stays NaN
        return stage

    exact.blocks(exact.embed(ids[None]), range(len(layers)), compare)
    return largest


def require_fits_context(config: ModelConfig, T: int) -> None:
    """Raises TextError if T characters are more than the model's context."""
    if config.block_size < T:
        raise TextError(
            f"the text has {T} characters, but the model's context has only {config.block_size}; "
            "shorten it, or use `truncate`"
        )


def require_memory_for_map(config: ModelConfig, T: int) -> None:
    """Raises OutOfMemory if the attention map of T characters would not fit the memory. The
    estimate differs from measured peaks by at most a tenth (benchmarks/LOG.md).
    """
    layers, heads = config.n_layer, config.n_head

    def need(n: int) -> float:
        kept = 4 * layers * n**2  # the four stages from scores to weights
        checked = 10.25 * n**2  # the same stages of one layer, in float64
        return 4 * (heads * (kept + checked) + config.n_embd * (10 * layers + 30) * n)

    require_memory("attention over", T, need)
