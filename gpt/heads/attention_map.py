"""What every attention head computed for a text, with checks that the numbers are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, get_args

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.blocks import Block, Checks, Title, shapes_table
from gpt.checks import Check, TableResult, check_number
from gpt.config import AttentionKind, DrawnStage, ModelConfig
from gpt.config.fields import require
from gpt.config.model import SQUARE, STAGES
from gpt.devices import require_memory
from gpt.errors import ConfigError, TextError
from gpt.heads.places import Key, parse_key
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.reading.proof import check_stages
from gpt.vocabulary import Ids, Symbols, Vocabulary, join_symbols
from gpt.words import layers_and_heads

if TYPE_CHECKING:
    from gpt.heads.alignment import Alignment

#: What figures, files and tables can show: one layer or all; one head, all or a mixture of them.
AnyLayer = SupportsIndex | Literal["all"]
AnyHead = SupportsIndex | Literal["all", "mean", "rollout"]
NO_ROLLOUT = "rollout exists for self-attention only, as it multiplies the weights of its layers"
#: The kinds of attention of a model with an encoder, for titles.
KIND_TITLES: Mapping[AttentionKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
#: What only models without an encoder have -> what a model with an encoder has instead.
DECODER_ONLY = {
    "circuits": "attn shows what its heads attend to in a text",
    "paths": "without them, heads --ablate shows what each head does to the loss",
    "the lesson mine": "attn shows every stage of its encoder, decoder and cross-attention",
    "export": "its file model.safetensors opens with gptx alone: --run FILE, gpt.load(FILE)",
}


def require_decoder_only(config: ModelConfig, what: str, name: str = "") -> None:
    """Raises ConfigError if the model has an encoder. what: a key of DECODER_ONLY. name: what to
    name in the error instead.
    """
    if config.encoder_layers:
        raise ConfigError(f"{name or what}: not for a model with an encoder; {DECODER_ONLY[what]}")


def require_kind(config: ModelConfig, kind: AttentionKind | None) -> None:
    """Raises ConfigError for a kind of attention that the model lacks. None: its default kind."""
    known = get_args(AttentionKind) if config.encoder_layers else ("decoder",)
    has = "this model has no encoder: " if kind in get_args(AttentionKind) else ""
    require(kind in (None, *known), "attention", f"{has}{kind!r} is not one of {', '.join(known)}")


@dataclass(frozen=True, repr=False)
class AttentionMap(TableResult):
    """All stages of all layers for one text of T characters, and their checks.

    kind: which attention. "decoder": each character reads itself and earlier ones; "encoder": every
    character of a source reads all of the source; "cross": each character that the decoder reads (a
    TAB and the target) reads all S characters of the source. text and ids belong to the rows; a
    text with symbols of several characters is a tuple of symbols.
    model: the TrainedGPT that computed the map, if known; the page needs it. source: text and ids
    that the model's encoder read, if it has one.
    """

    text: Symbols
    ids: Ids
    layers: tuple[Stages, ...]
    checks: tuple[Check, ...]
    model: Any = field(default=None, compare=False)
    kind: AttentionKind = "decoder"
    source: tuple[Symbols, Ids] | None = None

    def __repr__(self) -> str:
        of = f"{self.title} {self.texts}".strip()
        across = f" × {len(self.columns)}" if self.kind == "cross" else ""
        failed = [check.name for check in self.checks if not check.passed]
        return (
            f"<AttentionMap {of}: {len(self.ids)}{across} characters, "
            f"{layers_and_heads(len(self.layers), self.heads)}, "
            + (f"FAILED checks: {', '.join(failed)}>" if failed else "all checks passed>")
        )

    def blocks(self) -> list[Block]:
        """The stages with their shapes, and the checks."""
        sides = [f"{len(self.ids)} characters", layers_and_heads(len(self.layers), self.heads)]
        return [
            Title(self.title or "attention", [self.texts, *sides]),
            shapes_table(self.to_numpy()),
            *(self.alignment.blocks() if self.alignment else []),
            Checks(self.checks),
        ]

    @cached_property
    def alignment(self) -> Alignment | None:
        """Which pieces of the source belong to which pieces of the target. None without
        cross-attention, and for an empty target.
        """
        if self.kind != "cross":
            return None
        from gpt.heads.alignment import align

        return align(self["weights"][:, :, :-1], self.columns, self.text[1:])  # not the end

    @property
    def texts(self) -> str:
        """ "of 'the text'"; for cross-attention, also the text that is read."""
        read = f" to {_short(self.columns)}" if self.kind == "cross" else ""
        return f"of {_short(self.text)}{read}"

    @property
    def heads(self) -> int:
        """The number of heads in each layer."""
        return len(self.layers[0].q)

    @property
    def head_size(self) -> int:
        """The number of columns of a head's queries, keys and values."""
        return int(self.layers[0].q.shape[-1])

    @property
    def title(self) -> str:
        """The kind of attention in words; empty for a model without an encoder."""
        return KIND_TITLES[self.kind] if self.source else ""

    @property
    def columns(self) -> Symbols:
        """The text of the columns: the characters that are read."""
        return self.source[0] if self.kind == "cross" and self.source else self.text

    @property
    def column_ids(self) -> Ids:
        """(S,) ids of `columns`."""
        return self.source[1] if self.kind == "cross" and self.source else self.ids

    @property
    def allowed(self) -> npt.NDArray[np.bool_]:
        """(T, S) True where a row may read a column."""
        every = np.ones((len(self.ids), len(self.column_ids)), np.bool_)
        return np.tril(every) if self.kind == "decoder" else every

    @property
    def characters(self) -> Symbols:
        """The model's vocabulary, id -> character; empty if the model is not known."""
        known: Symbols = self.model.vocabulary.characters if self.model else ""
        return known

    def __getitem__(self, key: Key) -> Array:
        """seen["weights", layer, head] is (T, S), seen["weights", layer] (H, T, S), seen["weights"]
        (L, H, T, S), seen["weights", layer, head, 5] its row 5, (S,). See docs/heads.md.

        head may be "mean". q and context have D columns; k and v, too, but S rows; stages without
        heads have C columns. Except for cross-attention, S is T. Raises ValueError for another
        stage or word, IndexError for a layer, head or position that does not exist.
        """
        shapes = {name: each.shape for name, each in vars(self.layers[0]).items()}
        place = parse_key(key, shapes, range(len(self.layers)))
        layers = self.layers if place.layer is None else [self.layers[place.layer]]
        parts = [place.part(getattr(each, place.stage)) for each in layers]
        return np.stack(parts) if place.layer is None else parts[0]

    def rollout(self, layer: SupportsIndex) -> Array:
        """(T, T) the product of ½(mean of heads + identity) of the layers 0 … layer.

        A heuristic for how much of each position reaches another (Abnar & Zuidema 2020): it assumes
        that the residual stream is half of every layer's output, and ignores feed-forward. Raises
        IndexError, and ValueError for cross-attention, whose rows and columns are different texts.
        """
        if self.kind == "cross":
            raise ValueError(NO_ROLLOUT)
        last = check_number("layer", layer, len(self.layers))
        mixed: Array = np.eye(len(self.ids), dtype=self.layers[last].weights.dtype)
        for stages in self.layers[: last + 1]:
            mixed = (stages.weights.mean(axis=0) @ mixed + mixed) / 2
        return mixed

    def first(self, count: int) -> AttentionMap:
        """The map of the first `count` characters only. Their numbers are the same, as no position
        of a decoder depends on a later one. The checks remain those of the whole text.

        Raises ValueError for an encoder's map, and for a count outside 1 … T.
        """
        if self.kind == "encoder":
            raise ValueError("an encoder's numbers depend on the whole text: take them all")
        if not 1 <= count <= len(self.ids):
            raise ValueError(f"count: {count} is not in 1 … {len(self.ids)}")
        keys = count if self.kind == "decoder" else len(self.column_ids)

        def cut(name: str, values: Array) -> Array:
            rows = keys if name in ("k", "v") else count
            return values[..., :rows, : keys if name in SQUARE else None]

        layers = (Stages(**{n: cut(n, each) for n, each in vars(it).items()}) for it in self.layers)
        return replace(self, text=self.text[:count], ids=self.ids[:count], layers=tuple(layers))

    def to_numpy(self) -> dict[str, Any]:
        """Stage -> all of its layers, as self[stage] gives it; ids (T,); for cross-attention also
        column_ids (S,).
        """
        crossed = {"column_ids": self.column_ids} if self.kind == "cross" else {}
        stages = {name: self[name] for name in STAGES if name in vars(self.layers[0])}
        return {"ids": self.ids, **crossed, **stages}

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
    reader: Reader,
    text: Symbols,
    ids: Ids,
    proof: Check | None = None,
    model: Any = None,
    source: tuple[Symbols, Ids] | None = None,
    kind: AttentionKind = "decoder",
) -> AttentionMap:
    """Runs the model on (T,) ids, 1 ≤ T ≤ block_size; keeps and checks every stage.

    proof: the check of the probe when the model was opened; model: the TrainedGPT of the reader.
    source: the source's text and (S,) ids, for a model with an encoder; text and ids are then what
    its decoder reads. All kinds of attention are checked; the map contains one of them. Raises
    TextError for another T, OutOfMemory if the machine does not have the memory.
    """
    if not len(ids):
        raise TextError("no text: there is nothing to attend to; give at least one character")
    require_fits(reader.config, len(ids))
    require_room(reader.config, len(ids), len(source[1]) if source else 0)
    stages = stages_of(reader, ids, source[1] if source else None)
    weights = [layer.weights for layers in stages.values() for layer in layers]
    sums = [np.abs(each.sum(axis=-1, dtype=np.float64) - 1).max() for each in weights]
    above = [np.abs(np.triu(layer.weights, k=1)).max() for layer in stages["decoder"]]
    checks = [
        Check("rows sum to 1", float(np.max(sums)), 1e-6),
        Check("above the diagonal exactly 0", float(np.max(above)), 0.0),
        *check_stages(reader, ids, stages, source[1] if source else None),
    ]
    if proof:
        checks.append(proof)
    if kind == "encoder" and source:
        text, ids = source
    return AttentionMap(text, ids, stages[kind], tuple(checks), model, kind, source)


def inspect_text(
    reader: Reader,
    vocabulary: Vocabulary,
    text: str,
    kind: AttentionKind | None = None,
    truncate: bool = False,
    proof: Check | None = None,
    model: Any = None,
) -> AttentionMap:
    """The map of a text; see TrainedGPT.attn, which raises the same errors, and `inspect`."""
    config = reader.config
    require_kind(config, kind)
    if reader.encoder:
        from gpt.reading.targets import split_pair

        require(not truncate, "truncate", "a source is read as a whole; shorten the text")
        of_source, ids = split_pair(reader, vocabulary, text)
        source = vocabulary.written(of_source, "source"), of_source
        chosen = proof, model, source, kind or "cross"
        return inspect(reader, vocabulary.written(ids, "target"), ids, *chosen)
    text = text[-config.block_size :] if truncate else text
    return inspect(reader, text, vocabulary.encode(text), proof, model)


def require_fits(config: ModelConfig, T: int) -> None:
    """Raises TextError if T characters are more than the context."""
    if config.block_size < T:
        raise TextError(
            f"the text has {T} characters, the model's context {config.block_size}; "
            "shorten it, or use `truncate`"
        )


def require_room(config: ModelConfig, T: int, S: int = 0) -> None:
    """Raises OutOfMemory if `inspect` of T characters, and S of a source, would not fit.

    The estimate is within a tenth of the measured peaks (benchmarks/LOG.md).
    """
    layers, encoder, longest = config.n_layer, config.encoder_layers, max(T, S)
    kept = layers * T * (T + S) + encoder * S * S  # rows × columns, for scores to weights each
    checked = 10.25 * longest**2  # again, in float64
    rows = 10 * (layers * (1 + (S > 0)) * T + encoder * S) + 75 * longest

    def need(n: int) -> float:
        share = n / longest
        matrices = config.n_head * (4 * kept + checked) * share**2
        logits = config.n_head * 4 * kept * share**2 + 6 * config.vocab_size * T * share
        return 4 * (max(matrices, logits) + config.n_embd * rows * share)

    require_memory("attention over", longest, need)


def stages_of(
    reader: Reader, ids: Ids, source: Ids | None = None
) -> dict[AttentionKind, tuple[Stages, ...]]:
    """(T,) ids, and (S,) of a source -> kind of attention -> the stages of each layer."""
    if source is None or reader.encoder is None:
        return {"decoder": reader.stages(ids)}
    found = reader.sublayers(ids, memory=reader.encode(source[None]))
    return {
        "encoder": reader.encoder.stages(source),
        "decoder": found["attention"],
        "cross": found["cross"],
    }


def _short(text: Symbols) -> str:
    return f"{join_symbols(text[:40])!r}{'…' * (len(text) > 40)}"
