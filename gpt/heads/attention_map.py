"""Text -> what every attention head computed for it, and checks that the numbers are right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import numpy as np

from gpt.checks import Check, TableResult, numbered, views
from gpt.config.show import Stage
from gpt.errors import TextError
from gpt.heads.exact import Exact, Layer
from gpt.heads.proof import promised
from gpt.heads.rounding import Held, held, worst
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.stages import Stages
from gpt.vocabulary import Ids

#: Stages that belong to a layer, not to one of its heads.
LAYER_STAGES = ("stream", "concat", "proj", "residual", "output")
#: Everything that `AttentionMap.stage` can show.
AnyStage = Literal[Stage, "stream", "q", "k", "v", "output"]
#: What figures, files and tables can contain: one layer or all, one head, all or a mixture of them.
AnyLayer = SupportsIndex | Literal["all"]
AnyHead = SupportsIndex | Literal["all", "mean", "rollout"]


@dataclass(frozen=True, repr=False)
class AttentionMap(TableResult):
    """All stages of all layers for one text of T characters, with their checks.

    bias: (H, T, T), added to the scaled scores of every layer by ALiBi positions; None: nothing.
    model: the TrainedGPT that computed it, if known; its page needs it.
    """

    text: str
    ids: Ids
    layers: tuple[Stages, ...]
    checks: tuple[Check, ...]
    bias: Array | None = None
    model: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        heads = len(self.layers[0].q)
        text = f"{self.text[:40]!r}{'…' * (len(self.text) > 40)}"
        failed = [check.name for check in self.checks if not check.passed]
        return (
            f"<AttentionMap of {text}: {len(self.ids)} characters, {len(self.layers)} layers × "
            f"{heads} heads, "
            + (f"FAILED checks: {', '.join(failed)}>" if failed else "all checks passed>")
        )

    @property
    def characters(self) -> str:
        """The model's vocabulary, id -> character; empty if the model is not known."""
        return str(self.model.vocabulary.characters) if self.model else ""

    def stage(
        self,
        name: AnyStage,
        layer: SupportsIndex,
        head: SupportsIndex | Literal["mean", "all", "rollout"],
    ) -> Array:
        """(T, T) for scores to weights; (T, D) for q, k, v and context; (T, C) for LAYER_STAGES.

        LAYER_STAGES belong to the whole layer and ignore `head`. "all" gives every head,
        (H, T, …), "mean" their mean, "rollout" (weights only) the attention rollout through the
        layers 0 … layer. Layers and heads count from 0. Raises ValueError for another stage or
        word, IndexError for a layer or head outside the model.
        """
        if name not in (known := [field.name for field in fields(Stages)]):
            raise ValueError(f"{name!r} is not one of {', '.join(known)}")
        if head == "rollout":
            if name != "weights":
                raise ValueError(f"rollout exists for weights only, not for {name}")
            return self.rollout(layer)
        values: Array = getattr(self.layers[numbered("layer", layer, len(self.layers))], name)
        if isinstance(head, str):
            if head not in ("mean", "all"):
                raise ValueError(f"{head!r} is not a head's number, mean, all or rollout")
            whole = head == "all" or name in LAYER_STAGES
            return values if whole else values.mean(axis=0)
        number = numbered("head", head, len(self.layers[0].q))
        return values if name in LAYER_STAGES else values[number]

    def rollout(self, layer: SupportsIndex) -> Array:
        """(T, T) the product of ½(mean of heads + identity) of the layers 0 … layer.

        A heuristic for how much of each position reaches another (Abnar & Zuidema 2020): it assumes
        that the residual stream is half of every layer's output, and ignores feed-forward. Raises
        IndexError.
        """
        last = numbered("layer", layer, len(self.layers))
        mixed: Array = np.eye(len(self.ids), dtype=self.layers[last].weights.dtype)
        for stages in self.layers[: last + 1]:
            mixed = (stages.weights.mean(axis=0) @ mixed + mixed) / 2
        return mixed

    def first(self, count: int) -> AttentionMap:
        """The map of the text's first `count` characters: the same numbers, as no position depends
        on a later one. The checks stay those of the whole text.
        """
        if not 1 <= count <= len(self.ids):
            raise ValueError(f"count: {count} is not in 1 … {len(self.ids)}")
        layers = []
        for layer in self.layers:
            cut: dict[str, Array] = {}
            for each in fields(Stages):
                values = getattr(layer, each.name)
                square = each.name in ("scores", "scaled", "masked", "weights")
                cut[each.name] = values[..., :count, :count] if square else values[..., :count, :]
            layers.append(Stages(**cut))
        bias = None if self.bias is None else self.bias[:, :count, :count]
        return replace(
            self, text=self.text[:count], ids=self.ids[:count], layers=tuple(layers), bias=bias
        )

    def to_numpy(self) -> dict[str, Any]:
        """All stages of all layers: q, k, v, context (L, H, T, D); scores … weights (L, H, T, T);
        stream, concat, proj, residual, output (L, T, C); ids (T,).
        """
        stages = {
            each.name: np.stack([getattr(layer, each.name) for layer in self.layers])
            for each in fields(Stages)
        }
        return {"ids": self.ids, **stages}

    def to_pandas(
        self,
        *,
        layer: AnyLayer = "all",
        head: AnyHead = "all",
        stage: Stage = "weights",
    ) -> Any:
        """One row for each number of a stage, as a pandas.DataFrame.

        Raises ConfigError for a layer or head that does not exist, ImportError without pandas.
        """
        return views().attention_to_pandas(self, layer, head, stage)

    def page(self, path: str | Path) -> Path:
        """Writes the interactive page, one HTML file that needs no network: every head and stage.

        Raises ValueError if the map has no model, StorageError.
        """
        found: Path = views().save_page(self, path)
        return found

    def figure(
        self,
        path: str | Path,
        *,
        layer: AnyLayer = "all",
        head: AnyHead = "all",
        stage: Stage = "weights",
    ) -> Path:
        """Draws matrices for a paper into a .svg, .pdf or .png file; needs matplotlib.

        Raises ConfigError for another ending, a layer or head that does not exist and a figure that
        would be too large, StorageError.
        """
        found: Path = views().save_figure(self, path, layer, head, stage)
        return found

    def save(
        self,
        path: str | Path,
        *,
        layer: AnyLayer = "all",
        head: AnyHead = "all",
        stage: Stage = "weights",
    ) -> Path:
        """Writes the format that the path's ending names: .npz (all stages), .csv, .json, .txt,
        .html (the page), .svg, .pdf or .png (a figure). .npz and .html contain all layers, heads
        and stages.

        Raises ConfigError for another ending and for a layer or head that does not exist,
        StorageError.
        """
        found: Path = views().save(self, path, layer, head, stage)
        return found


def inspect(
    reader: Reader, text: str, ids: Ids, proof: Check | None = None, model: Any = None
) -> AttentionMap:
    """Runs the model on (T,) ids, 1 ≤ T ≤ block_size, keeping and checking every stage.

    proof: the probe's check at opening; model: the TrainedGPT of the reader. Raises
    TextError for another T.
    """
    if not len(ids):
        raise TextError("no text: there is nothing to attend to; give at least one character")
    if len(ids) > reader.config.block_size:
        raise TextError(
            f"the text has {len(ids)} characters, the model's context {reader.config.block_size}; "
            "shorten it, or use `truncate`"
        )
    layers = reader.stages(ids)
    sums = [np.abs(layer.weights.sum(axis=-1, dtype=np.float64) - 1).max() for layer in layers]
    above = [np.abs(np.triu(layer.weights, k=1)).max() for layer in layers]
    checks = [
        Check("rows sum to 1", float(np.max(sums)), 1e-6),
        Check("above the diagonal exactly 0", float(np.max(above)), 0.0),
        *recomputed(reader, ids, layers),
    ]
    bias = reader.position.bias(slice(0, len(ids)))
    every = (*checks, proof) if proof else tuple(checks)
    return AttentionMap(text, ids, layers, every, bias, model)


#: Check -> the stages that it covers, each recomputed from the stage before it.
AGAIN: dict[str, tuple[str, ...]] = {
    "q, k, v": ("q", "k", "v"),
    "scores": ("scores", "scaled", "masked"),
    "weights": ("weights",),
    "context": ("context", "concat"),
    "proj": ("proj",),
    "residual": ("residual",),
    "output": ("output",),
}
IN_FLOAT64 = "again in float64"


def recomputed(reader: Reader, ids: Ids, layers: Sequence[Stages]) -> Iterator[Check]:
    """Checks every stage in float64 from the stage before it, and the logits from the ids."""
    exact = Exact(reader)
    first = exact.embed(ids)
    results = {name: list[Held]() for name in ("stream", *AGAIN)}
    results["stream"].append(held(layers[0].stream, first.stream, first.reach))
    stream = first.stream  # recomputed from the ids, for the last check
    for number, layer in enumerate(layers):
        again = Layer(exact, number, layer.stream, layer).held(layer)
        for name, stages in AGAIN.items():
            results[name] += [again[stage] for stage in stages]
        if number:
            results["stream"].append(held(layer.stream, layers[number - 1].output, 0.0))
        stream = Layer(exact, number, stream).stages.output
    for name, found in results.items():
        yield Check(name, *worst(found), IN_FLOAT64)
    logits = reader.logits(reader.final_norm(layers[-1].output[None]))[0]  # (T, vocab_size)
    _, expected, reach = exact.last(layers[-1].output)
    yield Check("logits", *held(logits, expected, reach), IN_FLOAT64)
    error = float(np.abs(logits - exact.last(stream)[1]).max())
    bound = promised(reader, ids[None], logits[None], error)
    yield Check("logits end to end", error, bound, IN_FLOAT64)
