"""What every attention head computed for a text, with checks that the numbers are right; and parts
of it: as matrices for the terminal and figures, and as files for programs.

Numbers in files keep float32's nine digits.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, SupportsIndex, get_args

import numpy as np
import numpy.typing as npt

from gpt.checks import Arrays, Check
from gpt.config import DrawnStage, ModelConfig
from gpt.config.fields import require
from gpt.config.model import HEAD_STAGES, SQUARE, STAGES
from gpt.devices import require_memory
from gpt.errors import ConfigError, TextError
from gpt.heads.places import Key, parse_key
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.show.programs import csv_text, round_floats, to_frame, to_json
from gpt.show.result import Column, Matrix, Result
from gpt.storage import files
from gpt.vocabulary import Ids, Vocabulary, code_points
from gpt.words import counted, layers_and_heads

#: What figures, files and tables can show: one layer or all; one head, all or their mean.
AnyLayer = SupportsIndex | Literal["all"]
AnyHead = SupportsIndex | Literal["all", "mean"]
HeadName = int | Literal["mean", "all"]
FigureForm = Literal["svg", "png", "pdf"]
FileForm = Literal["json", "csv", "npz", "html", FigureForm]
Form = Literal["text", FileForm]

#: Bytes of memory for each number of a matrix that an output shows; for npz: for each number of all
#: matrices (benchmarks/LOG.md).
BYTES_PER_NUMBER = {"text": 80, "json": 70, "csv": 90, "npz": 37, "html": 45}
BYTES_PER_NUMBER |= dict.fromkeys(get_args(FigureForm), 130)


@dataclass(frozen=True, repr=False)
class AttentionMap(Arrays, Result):
    """All stages of all layers for one text of T characters, and their checks.

    model: the TrainedGPT that computed the map, if known; the page needs it. rounding: stage -> the
    largest difference from the same computation in float64.
    """

    text: str
    ids: Ids
    layers: tuple[Stages, ...]
    checks: tuple[Check, ...]
    model: Any = field(default=None, compare=False)
    rounding: Mapping[str, float] = field(default_factory=dict)

    COLUMNS = Column("stage", "stage"), Column("shape", "shape")

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks_of() if not check.passed]
        return (
            f"<AttentionMap of {self._quoted}: {len(self.ids)} characters, "
            f"{layers_and_heads(len(self.layers), self.heads)}, "
            + (f"FAILED checks: {', '.join(failed)}>" if failed else "all checks passed>")
        )

    @property
    def title(self) -> str:
        sizes = layers_and_heads(len(self.layers), self.heads)
        return f"attention of {self._quoted} · {len(self.ids)} characters, {sizes}"

    @property
    def rows(self) -> list[dict[str, str]]:
        """The stages with their shapes."""
        return shape_rows(self.to_numpy())

    def checked(self) -> tuple[Check, ...]:
        return self.checks_of()

    def checks_of(self, stage: str = "weights") -> tuple[Check, ...]:
        """The checks, among them how far a stage is from the same computation in float64."""
        first, *others = self.checks
        return first, Check("the same in float64", self.rounding[stage]), *others

    @property
    def _quoted(self) -> str:
        """The beginning of the text, in quotation marks."""
        return f"{self.text[:40]!r}{'…' * (len(self.text) > 40)}"

    @property
    def heads(self) -> int:
        """The number of heads in each layer."""
        return len(self.layers[0].q)

    @property
    def head_size(self) -> int:
        """The number of columns of a head's queries, keys and values."""
        return int(self.layers[0].q.shape[-1])

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """(T, T) True where a row may read a column."""
        return np.tri(len(self.ids), dtype=np.bool_)

    @property
    def forbidden(self) -> npt.NDArray[np.bool_]:
        """(T, T) True where the mask hides a column from a row."""
        return ~self.allowed

    @property
    def characters(self) -> str:
        """The model's vocabulary, id -> character; empty if the model is not known."""
        return self.model.vocabulary.characters if self.model else ""

    def __getitem__(self, key: Key) -> Array:
        """seen["weights", layer, head] is (T, T), seen["weights", layer] (H, T, T), seen["weights"]
        (L, H, T, T), seen["weights", layer, head, 5] its row 5, (T,). See docs/heads.md.

        head may be "mean". q, k, v and context have D columns, stages without heads C columns.
        Raises ValueError for another stage or word, IndexError for a layer, head or position that
        does not exist.
        """
        shapes = {name: each.shape for name, each in vars(self.layers[0]).items()}
        place = parse_key(key, shapes, range(len(self.layers)))
        layers = self.layers if place.layer is None else [self.layers[place.layer]]
        parts = [place.part(getattr(each, place.stage)) for each in layers]
        return np.stack(parts) if place.layer is None else parts[0]

    def to_numpy(self) -> dict[str, Any]:
        """Stage -> all of its layers, as self[stage] gives it; ids (T,)."""
        return {"ids": self.ids} | {
            name: self[name] for name in STAGES if name in vars(self.layers[0])
        }

    def to_pandas(
        self,
        *,
        layer: AnyLayer = "all",
        head: AnyHead = "all",
        stage: DrawnStage = "weights",
    ) -> Any:
        """One row for each number of a stage, as a pandas.DataFrame.

        Raises ConfigError for a layer or head that does not exist, ImportError without pandas.
        """
        return to_frame(*select(self, str(layer), str(head), stage).table())

    def save(
        self,
        path: str | Path,
        *,
        layer: AnyLayer = "all",
        head: AnyHead = "all",
        stage: DrawnStage = "weights",
    ) -> Path:
        """Writes the format that the path's ending names: .npz (all stages), .csv, .json, .html
        (the page of `live`, opened at this text), .svg, .pdf or .png (a figure). .npz contains all
        layers, heads and stages.

        Raises ConfigError for another ending and for a layer or head that does not exist,
        StorageError.
        """
        target = Path(path)
        form = saved_form(target)
        if form == "html":
            return self.model.live(path, text=self.text)  # type: ignore[no-any-return]
        selection = select(self, str(layer), str(head), stage)
        data, _ = selection.to_bytes(form, self.model.stored.origin if self.model else {})
        with files.storage_errors(f"write {target}"):
            target.write_bytes(data)
        return target


def shape_rows(arrays: Mapping[str, Array]) -> list[dict[str, str]]:
    """A row for each array: its name and its shape."""
    return [
        {"stage": name, "shape": " × ".join(map(str, array.shape))}
        for name, array in arrays.items()
    ]


@dataclass(frozen=True, repr=False)
class Selection(Result):
    """Layers, heads, a stage, a range of rows (queries) and of columns (keys) of one map."""

    attention: AttentionMap
    layers: tuple[int, ...]
    heads: tuple[HeadName, ...]
    stage: DrawnStage
    queries: range
    keys: range

    @property
    def title(self) -> str:
        return f"{self.stage} of “{self.attention.text}”"

    def checked(self) -> tuple[Check, ...]:
        return self.attention.checks_of(self.stage)

    @property
    def square(self) -> bool:
        """Whether columns are keys; otherwise they are dimensions."""
        return self.stage in SQUARE

    def matrices(self) -> list[Matrix]:
        """The selected matrices, layer by layer. A stage without heads has one matrix a layer.
        Weights that the mask forbids, which are all 0, are NaN.
        """
        rows, columns = self._part
        masked = self.attention.forbidden[rows, columns] if self.stage == "weights" else False
        matrices = []
        for layer, head in self._heads():
            values = self._values(layer, head)[rows, columns]
            matrices.append(
                Matrix(
                    name=f"layer {layer}{_NAMES.get(head, f' head {head}')}",
                    values=np.where(masked, np.nan, values),
                    text=self.attention.text,
                    rows=self.queries,
                    columns=self.keys if self.square else range(values.shape[1]),
                    square=self.square,
                    weights=self.stage == "weights",
                )
            )
        return matrices

    @property
    def _part(self) -> tuple[slice, slice]:
        """The selected rows and columns."""
        columns = slice(self.keys.start, self.keys.stop) if self.square else slice(None)
        return slice(self.queries.start, self.queries.stop), columns

    def _heads(self) -> list[tuple[int, HeadName]]:
        """Layer and head of each matrix."""
        heads: tuple[HeadName, ...] = self.heads if self.stage in HEAD_STAGES else ("all",)
        return [(layer, head) for layer in self.layers for head in heads]

    def _values(self, layer: int, head: HeadName) -> Array:
        """(T, T or columns) matrix of one head, or of the layer."""
        return self.attention[self.stage, layer, None if head == "all" else head]

    def record(self) -> dict[str, Any]:
        """`values` is [panel][query][key or dimension], null where masked."""
        rows, columns = self._part
        return {
            "text": self.attention.text,
            "ids": self.attention.ids,
            "stage": self.stage,
            "axes": ["panel", "query", "key" if self.square else "dimension"],
            "panels": [{"layer": layer, "head": head} for layer, head in self._heads()],
            "queries": list(self.queries),
            "keys": list(self.keys) if self.square else None,
            "values": [round_floats(self._values(*head)[rows, columns]) for head in self._heads()],
            "checks": [round_floats(check.record) for check in self.checked()],
        }

    def table(self) -> tuple[list[str], Iterator[list[Any]]]:
        """The names of the columns, and a row for each number. Weights above the diagonal, which
        are all 0, are left out.
        """
        places = ["pos", "char", "dimension"]
        if self.square:
            places = ["q_pos", "q_char", "k_pos", "k_char"]
        value = "weight" if self.stage == "weights" else self.stage
        return ["layer", "head", *places, value], self._table_rows()

    def _table_rows(self) -> Iterator[list[Any]]:
        text = self.attention.text
        for (layer, head), matrix in zip(self._heads(), self.matrices(), strict=True):
            for query, values in zip(matrix.rows, matrix.values.tolist(), strict=True):
                for column, value in zip(matrix.columns, values, strict=True):
                    if not np.isnan(value):
                        key = [text[column]] if self.square else []
                        place = [layer, head, query, text[query], column, *key]
                        yield [*place, float(f"{value:.9g}")]

    def to_csv(self) -> str:
        """The table as CSV."""
        names, rows = self.table()
        return csv_text(chain([names], rows))

    def to_bytes(
        self, form: FileForm, origin: Mapping[str, Any], ascii_only: bool = False
    ) -> tuple[bytes, list[str]]:
        """The content of a file, and warnings about it. origin: what JSON says about the model.
        ascii_only: a figure has ASCII labels. Raises ConfigError for a figure that is too large, or
        without matplotlib.
        """
        if form == "npz":
            return _npz(self.attention), []
        if form == "csv":
            return self.to_csv().encode(), []
        if form == "json":
            return to_json(self, origin).encode(), []
        from gpt.show.figure import matrices_figure

        return matrices_figure(self.matrices(), self.title, len(self.heads), form, ascii_only)


_NAMES: dict[HeadName, str] = {"all": "", "mean": ", mean of heads"}


def select(
    attention: AttentionMap,
    layer: str = "0",
    head: str = "0",
    stage: DrawnStage = "weights",
    query: str | None = None,
    key: str | None = None,
) -> Selection:
    """Makes a selection from option texts: numbers, "all", "mean", "A:B". Raises ConfigError."""
    mean = head == "mean"
    heads: tuple[HeadName, ...] = ("mean",) if mean else _indices("head", head, attention.heads)
    return Selection(
        attention,
        layers=_indices("layer", layer, len(attention.layers)),
        heads=heads,
        stage=stage,
        queries=_range("query", query, len(attention.text)),
        keys=_range("key", key, len(attention.text)),
    )


def saved_form(path: Path) -> FileForm:
    """The format that a path's ending names. Raises ConfigError."""
    forms: dict[str, FileForm] = {".html": "html", ".npz": "npz", ".csv": "csv", ".json": "json"}
    forms |= {f".{form}": form for form in get_args(FigureForm)}
    ending = path.suffix.lower()
    require(ending in forms, "path", f"{path.name} does not end in one of {', '.join(forms)}")
    return forms[ending]


def require_memory_for(selection: Selection, form: Form) -> None:
    """Raises OutOfMemory if an output of this selection does not fit in memory."""
    layers = selection.attention.layers
    every = sum(layer.weights.size for layer in layers)
    matrices = len(selection.layers) * len(selection.heads)
    shown = matrices * len(selection.queries) * len(selection.keys)
    numbers = {"npz": every, "html": every / len(layers)}.get(form, shown)
    need, longest = numbers * BYTES_PER_NUMBER[form], len(selection.attention.text)
    require_memory("writing", longest, lambda length: need * (length / longest) ** 2)


def _npz(attention: AttentionMap) -> bytes:
    """All stages of all layers, as AttentionMap.to_numpy gives them, and the text with its code
    points, codes (T,). Nothing is pickled.
    """
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        text=np.array(attention.text),
        # numpy cuts characters with code 0 from the end of a text; code points stay.
        codes=code_points(attention.text),
        **attention.to_numpy(),
    )
    return buffer.getvalue()


def _indices(option: str, text: str, count: int) -> tuple[int, ...]:
    if text == "all":
        return tuple(range(count))
    words = "all, mean or a number" if option == "head" else "all or a number"
    require(text.isdecimal() and len(text) < 10, option, f"{text[:20]!r} is not {words}")
    require(int(text) < count, option, f"{text} is not in 0 … {count - 1}")
    return (int(text),)


def _range(option: str, text: str | None, length: int) -> range:
    """The positions that an option selects: one position, or "A:B" as in Python, from A up to but
    without B; A, B or both may be left out.
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
    of = counted(length, "character")
    require(max(first, last) <= length, option, f"{text!r} does not fit a text of {of}")
    require(first < last, option, f"{text!r} is empty: A:B ends before B")
    return range(first, last)


def inspect(
    reader: Reader, text: str, ids: Ids, proofs: Sequence[Check] = (), model: Any = None
) -> AttentionMap:
    """Runs the model on (T,) ids, 1 ≤ T ≤ block_size; keeps and checks every stage.

    proofs: the checks of the probe when the model was opened; model: the TrainedGPT of the reader.
    Raises TextError for another T, OutOfMemory if the machine does not have the memory.
    """
    if not len(ids):
        raise TextError("no text: there is nothing to attend to; give at least one character")
    require_fits(reader.config, len(ids))
    require_room(reader.config, len(ids))
    layers = reader.stages(ids)
    sums = [np.abs(each.weights.sum(axis=-1, dtype=np.float64) - 1).max() for each in layers]
    above = [np.abs(np.triu(each.weights, k=1)).max() for each in layers]
    checks = (
        Check("rows sum to 1", float(np.max(sums)), 1e-6),
        Check("above the diagonal exactly 0", float(np.max(above)), 0.0, detail=True),
        *proofs,
    )
    return AttentionMap(text, ids, layers, checks, model, _rounding(reader, ids, layers))


def _rounding(reader: Reader, ids: Ids, layers: Sequence[Stages]) -> dict[str, float]:
    """Stage -> the largest difference, in any layer, from the same computation in float64."""
    exact, read = reader.in_float64(), np.tri(len(ids), dtype=np.bool_)
    largest = dict.fromkeys(vars(layers[0]), 0.0)

    def compare(name: str, layer: int, stage: Array) -> Array:
        if name in largest:
            with np.errstate(invalid="ignore"):  # of masked scores, which are not compared
                apart = stage[0] - getattr(layers[layer], name)
            where = read if name in SQUARE else np.True_
            found = np.abs(apart, out=apart).max(initial=0.0, where=where)
            largest[name] = float(np.maximum(largest[name], found))  # NaN stays NaN
        return stage

    exact.blocks(exact.embed(ids[None]), range(len(layers)), compare)
    return largest


def inspect_text(
    reader: Reader,
    vocabulary: Vocabulary,
    text: str,
    truncate: bool = False,
    proofs: Sequence[Check] = (),
    model: Any = None,
) -> AttentionMap:
    """The map of a text; see TrainedGPT.attn, which raises the same errors, and `inspect`."""
    text = text[-reader.config.block_size :] if truncate else text
    return inspect(reader, text, vocabulary.encode(text), proofs, model)


def require_fits(config: ModelConfig, T: int) -> None:
    """Raises TextError if T characters are more than the context."""
    if config.block_size < T:
        raise TextError(
            f"the text has {T} characters, the model's context {config.block_size}; "
            "shorten it, or use `truncate`"
        )


def require_room(config: ModelConfig, T: int) -> None:
    """Raises OutOfMemory if `inspect` of T characters would not fit.

    The estimate is within a tenth of the measured peaks (benchmarks/LOG.md).
    """
    layers, heads = config.n_layer, config.n_head

    def need(n: int) -> float:
        kept = 4 * layers * n**2  # rows × columns, for scores to weights each
        checked = 10.25 * n**2  # again, in float64
        return 4 * (heads * (kept + checked) + config.n_embd * (10 * layers + 30) * n)

    require_memory("attention over", T, need)
