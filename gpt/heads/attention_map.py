"""What every attention head computed for a text, with checks that the numbers are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.blocks import Block, Checks, Title, shapes_table
from gpt.checks import Check, TableResult
from gpt.config import DrawnStage, ModelConfig
from gpt.config.model import SQUARE, STAGES
from gpt.devices import require_memory
from gpt.errors import TextError
from gpt.heads.places import Key, parse_key
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import layers_and_heads

#: What figures, files and tables can show: one layer or all; one head, all or their mean.
AnyLayer = SupportsIndex | Literal["all"]
AnyHead = SupportsIndex | Literal["all", "mean"]


@dataclass(frozen=True, repr=False)
class AttentionMap(TableResult):
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

    def __repr__(self) -> str:
        failed = [check.name for check in self.checks_of() if not check.passed]
        return (
            f"<AttentionMap of {self._quoted}: {len(self.ids)} characters, "
            f"{layers_and_heads(len(self.layers), self.heads)}, "
            + (f"FAILED checks: {', '.join(failed)}>" if failed else "all checks passed>")
        )

    def blocks(self) -> list[Block]:
        """The stages with their shapes, and the checks."""
        sizes = [f"{len(self.ids)} characters", layers_and_heads(len(self.layers), self.heads)]
        return [
            Title("attention", [f"of {self._quoted}", *sizes]),
            shapes_table(self.to_numpy()),
            Checks(self.checks_of()),
        ]

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

    def first(self, count: int) -> AttentionMap:
        """The map of the first `count` characters only. Their numbers are the same, as no position
        depends on a later one. The checks remain those of the whole text.

        Raises ValueError for a count outside 1 … T.
        """
        if not 1 <= count <= len(self.ids):
            raise ValueError(f"count: {count} is not in 1 … {len(self.ids)}")

        def cut(name: str, values: Array) -> Array:
            return values[..., :count, : count if name in SQUARE else None]

        layers = (Stages(**{n: cut(n, each) for n, each in vars(it).items()}) for it in self.layers)
        return replace(self, text=self.text[:count], ids=self.ids[:count], layers=tuple(layers))

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
        return showing.renderer().attention_to_pandas(self, layer, head, stage)

    def save(
        self,
        path: str | Path,
        *,
        layer: AnyLayer = "all",
        head: AnyHead = "all",
        stage: DrawnStage = "weights",
    ) -> Path:
        """Writes the format that the path's ending names: .npz (all stages), .csv, .json, .txt,
        .html (the page), .svg, .pdf or .png (a figure). .npz and .html contain all layers, heads
        and stages.

        Raises ConfigError for another ending and for a layer or head that does not exist,
        StorageError.
        """
        found: Path = showing.renderer().save(self, path, layer, head, stage)
        return found


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
