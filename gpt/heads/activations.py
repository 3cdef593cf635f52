"""Computes the stages of a model for many texts, and names its weights.

A forward pass takes some of the texts at a time, and stores only the requested stages. Shorter
texts are padded on the right, which does not change earlier positions. The caller may replace
(patch) stages. Everything after a replaced stage is computed from its new values. This is
activation patching (Vig et al. 2020, Meng et al. 2022). The weights have the names of
TransformerLens.
Tensor names: N texts, L layers (only the kept ones in Activations), T time, C n_embd, H heads,
D head_size, V vocab_size, F ffn_hidden, S block_size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig, Stage, Unknown
from gpt.config.model import FINAL_STAGES, HEAD_STAGES, SQUARE
from gpt.errors import TextError
from gpt.heads.attention_map import Key, ParsedKey, check_number, parse_key
from gpt.reading.gpt import Array, Reader
from gpt.reading.score import windows_at_once
from gpt.show.result import ReadOnlyArrays, Result, read_only
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import pluralize

#: What `TrainedGPT.activations` accepts: a text, several texts, or (N, T) or (T,) ids.
Texts = str | Sequence[str] | Ids
#: What replaces a stage: an array or number that broadcasts to the stage's shape, or a function
#: that gets the stage's array and returns such an array. Parameters have the type Mapping[Any,
#: Patch], because mypy would reject a dict with str keys for Mapping[Key, Patch].
Patch: TypeAlias = Callable[[Array], npt.ArrayLike] | npt.ArrayLike

#: A name, or (name, layer, head), whose last parts may be left out. None means all.
WeightKey: TypeAlias = str | tuple[str, *tuple[SupportsIndex | None, ...]]

_OF_HEADS = re.compile(r"W_[QKVO]|b_[QKV]")
_WHOLE = re.compile(r"[Wb]_(E|U|pos)|ln_final_[wb]")  # not in a layer
#: Module of a checkpoint that is an embedding table -> the name of its weight.
_TABLES = {"token_embedding": "W_E", "position": "W_pos"}
#: Module of a checkpoint that is a norm -> the beginning of its weights' names.
_NORMS = {"norm": "ln_final", "norm1": "ln1", "norm2": "ln2"}


def stage_shapes(config: ModelConfig, T: int) -> dict[Stage, tuple[int, ...]]:
    """Returns name -> shape of every stage of one text of T characters, in order of computation.
    Leaves out the feed-forward stages of a model without feed-forward.
    """
    columns = {"ffn_hidden": config.ffn_hidden, "logits": config.vocab_size}
    columns |= dict.fromkeys(("q", "k", "v", "context"), config.head_size)
    columns |= dict.fromkeys(SQUARE, T)
    shapes = dict[Stage, tuple[int, ...]]()
    for name in config.stages:
        shape = T, columns.get(name, config.n_embd)
        shapes[name] = (config.n_head, *shape) if name in HEAD_STAGES else shape
    return shapes


@dataclass(frozen=True, repr=False, eq=False)
class Activations(ReadOnlyArrays, Result):
    """Stages of N texts, as acts[key]. docs/heads.md explains the keys.

    For example, acts["weights"] is (N, L, H, T, T), acts["weights", 1] is (N, H, T, T) of layer 1,
    and acts["weights", 1, 2, 5] is (N, T), row 5 of head 2 of layer 1.

    arrays: name -> (N, L, …) array, without the axis L for final_norm and logits. layers: the
    numbers of the L kept layers. ids: (N, T). lengths: (N,) characters of the texts. After the end
    of a shorter text, the numbers in the arrays are 0.

    acts[key] raises ValueError for a stage that was not kept, and IndexError for a layer that was
    not kept. If texts differ in length, it raises IndexError for a position from the end.
    """

    arrays: Mapping[Stage, Array]
    layers: tuple[int, ...]
    ids: Ids
    lengths: npt.NDArray[np.int64]

    def to_numpy(self) -> dict[str, Array]:
        return dict(self.arrays.items())

    def __getitem__(self, key: Key) -> Array:
        shapes = {name: array.shape for name, array in self.arrays.items()}
        place = parse_key(key, shapes, self.layers, len({*self.lengths}) == 1)
        array = self.arrays[place.stage]
        if place.layer is not None:
            array = array[:, self.layers.index(place.layer)]
        return place.select_from(array)

    def __iter__(self) -> Iterator[Stage]:
        """The names of the kept stages, in the order of computation."""
        return iter(self.arrays)

    @property
    def title(self) -> str:
        (N, T), layers = self.ids.shape, ", ".join(map(str, self.layers))
        return f"activations of {pluralize(N, 'text')} of {T} characters, layers {layers}"


class ActivationPlan:
    """A checked request for stages of N texts. `read` computes the stages.

    ids: (N, T), N ≥ 1 and 1 ≤ T ≤ block_size. lengths: (N,), None if all texts have T characters.
    names: the stages to keep, None for all except head_output. layers: the layers to keep, None for
    all. patch: key -> what replaces the stage, an array in the shape of Activations[key] or a
    function, which is called for one layer at a time. Keys with fewer parts apply first.

    Raises what `parse_key` raises. Raises ValueError for an unknown name, for head_output in
    `patch`, and for an array that does not broadcast. Raises IndexError for a layer outside the
    model. `read` raises TypeError for values that are not real numbers.
    """

    def __init__(
        self,
        reader: Reader,
        ids: Ids,
        names: Stage | Iterable[Stage] | None = None,
        layers: SupportsIndex | Iterable[SupportsIndex] | None = None,
        *,
        patch: Mapping[Any, Patch] | None = None,
        lengths: npt.NDArray[np.int64] | None = None,
    ) -> None:
        config, (N, T) = reader.config, ids.shape
        self.reader, self.ids = reader, ids
        self.lengths = np.full(N, T) if lengths is None else lengths
        #: Name -> shape of every stage of the model, for one text.
        self._known = known = stage_shapes(config, T)
        self.layers = _checked_layers(layers, config.n_layer)
        L = len(self.layers)
        #: Name -> shape of every kept stage, for one text.
        self._shapes = {
            name: known[name] if name in FINAL_STAGES else (L, *known[name])
            for name in _checked_names(names, config)
        }
        changes = [self._change(key, value) for key, value in (patch or {}).items()]
        self._changes = sorted(changes, key=lambda change: -change.place.count(None))

    def read(self) -> Activations:
        """Computes the activations. Raises OutOfMemory if the attention does not fit the memory."""
        N = len(self.ids)
        at_once = min(N, windows_at_once(self.reader.config))
        if any(callable(change.value) for change in self._changes):
            at_once = N  # functions get all texts at once
        dtype = self.reader.dtype
        arrays = {name: np.empty((N, *shape), dtype) for name, shape in self._shapes.items()}
        for start in range(0, N, at_once):
            texts = slice(start, start + at_once)
            self._compute(texts, {name: array[texts] for name, array in arrays.items()})
        for number in np.flatnonzero(self.lengths < self.ids.shape[1]):  # clears the padding
            end = self.lengths[number]
            for name, array in arrays.items():
                array[number, ..., end:, :] = 0
                if name in ("scores", "scaled"):
                    array[number, ..., end:] = 0
        return Activations(arrays, self.layers, self.ids, self.lengths)

    def _change(self, key: Key, value: Any) -> _Change:
        N, depth = len(self.ids), self.reader.config.n_layer
        place = parse_key(key, self._known, range(depth), len({*self.lengths}) == 1)
        if place.stage == "head_output":
            raise ValueError(
                f"patch {key!r}: head_output cannot be replaced; replace ('context', layer, head), "
                "or the sum of all heads, ('proj', layer)"
            )
        if not callable(value):
            shape: tuple[int, ...] = (N, *self._known[place.stage])
            if place.layer is None and place.stage not in FINAL_STAGES:
                shape = (N, depth, *self._known[place.stage])
            value = np.broadcast_to(value, place.select_from(np.broadcast_to(0.0, shape)).shape)
        return _Change(place, value)

    def _compute(self, texts: slice, arrays: Mapping[Stage, Array]) -> None:
        """Computes a slice of the texts, and writes their stages into the arrays."""
        reader, config = self.reader, self.reader.config

        def target(name: Any, layer: int) -> Array | None:
            array = arrays.get(name)
            if array is None or name in FINAL_STAGES:
                return array
            return array[:, self.layers.index(layer)] if layer in self.layers else None

        def keep(name: str, layer: int, stage: Array) -> Array:
            for change in self._changes:
                if change.place.stage == name and change.place.layer in (None, layer):
                    change.apply(stage, layer, texts)
            if (array := target(name, layer)) is not None:
                array[...] = stage
            if name == "context" and (array := target("head_output", layer)) is not None:
                weight, _ = reader.weight_and_bias(f"blocks.{layer}.attention.proj")  # (C, C)
                by_head = weight.T.reshape(config.n_head, config.head_size, -1)  # (H, D, C)
                np.matmul(stage, by_head, out=array)
            return stage

        to_the_end = not set(FINAL_STAGES).isdisjoint(arrays)
        depth = config.n_layer if to_the_end else max(self.layers, default=-1) + 1
        stream = reader.blocks(reader.embed(self.ids[texts]), range(depth), keep)
        if to_the_end:
            reader.logits(reader.final_norm(stream, keep), keep)


def pad_texts(
    texts: Texts, vocabulary: Vocabulary, config: ModelConfig, unknown: Unknown = "error"
) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Texts or ids -> (N, T) ids, padded on the right with id 0, and the (N,) lengths. Raises
    TextError for a text that is empty, too long or has unknown characters. Raises ValueError if
    there is no text, and for ids outside the vocabulary. Raises TypeError for other types.
    """
    is_one = isinstance(texts, str) or (isinstance(texts, np.ndarray) and texts.ndim <= 1)
    several: Sequence[Any] = [texts] if is_one else [*texts]
    if not several:
        raise ValueError("texts: there is none; give at least one")
    rows = [
        vocabulary.encode(text, unknown)
        if isinstance(text, str)
        else vocabulary.row_of(np.asarray(text), "texts")
        for text in several
    ]
    for number, row in enumerate(rows):
        if not 1 <= len(row) <= config.block_size:
            raise TextError(
                f"text {number} has {len(row):,} characters; the model reads 1 to "
                f"{config.block_size:,} at once, so cut it into windows"
            )
    lengths = np.array([len(row) for row in rows])
    ids = np.zeros((len(rows), lengths.max()), vocabulary.dtype)
    ids[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(rows)
    return ids, lengths


def _checked_names(names: Stage | Iterable[Stage] | None, config: ModelConfig) -> list[Stage]:
    if names is None:
        return [name for name in config.stages if name != "head_output"]
    wanted = {names} if isinstance(names, str) else set(names)
    if unknown := wanted - set(config.stages):
        raise ValueError(f"names: {min(unknown)!r} is not one of {', '.join(config.stages)}")
    return [name for name in config.stages if name in wanted]


def _checked_layers(
    layers: SupportsIndex | Iterable[SupportsIndex] | None, count: int
) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(count))
    wanted = layers if isinstance(layers, Iterable) else [layers]
    return tuple(dict.fromkeys(check_number("layer", layer, count) for layer in wanted))


@dataclass(frozen=True)
class _Change:
    """The replacement of a stage. value: a function or an (N, [L,] …) array."""

    place: ParsedKey
    value: Any

    def apply(self, stage: Array, layer: int, texts: slice) -> None:
        """Replaces values of a stage in place. stage: (B, …), computed for B of all texts.
        texts: which of them. The stage keeps its strides, so that equal values give
        exactly equal logits.
        """
        part = self.place.select_from(stage)
        if callable(self.value):
            new = self.value(part)
        else:
            new = self.value[texts]
            new = new[:, layer] if new.ndim > part.ndim else new
        np.copyto(part, new)


@dataclass(frozen=True, repr=False, eq=False)
class Weights(ReadOnlyArrays):
    """A model's weights by the names of TransformerLens, as weights[name, layer, head].

    weights["W_Q"] is (L, H, C, D), weights["W_Q", 1] is (H, C, D) of layer 1, and weights["W_Q", 1,
    2] is (C, D) of its head 2. All matrices are (in, out), for x @ W, as in TransformerLens.

    W_E (V, C), W_pos (S, C), W_U (C, V). For each layer: W_Q, W_K, W_V (H, C, D), W_O (H, D, C),
    W_in (C, F), W_out (F, C). Biases: b_Q, b_K, b_V (H, D), b_O (C,), b_in (F,), b_out (C,).
    Weights and biases of norms (C,): ln1_w, ln1_b, ln2_w, ln2_b in layers, ln_final_w, ln_final_b.
    A model has only the weights that it needs: with rotary positions it has no W_pos.

    Arrays are read-only. The arrays of one layer are views of the model's tensors. weights[…]
    raises ValueError for an unknown name, and for a layer or head if the weight has none. It raises
    IndexError for a layer or head that does not exist.
    """

    config: ModelConfig
    #: Name -> the arrays of all layers, or a single array for a weight that is not in a layer.
    views: Mapping[str, tuple[Array, ...]]

    @classmethod
    def of_reader(cls, reader: Reader) -> Weights:
        """Returns a reader's weights. A tied table appears under both of its names."""
        config, views = reader.config, dict[str, tuple[Array, ...]]()
        tensors = {name: reader.tensors[name] for name in config.shapes()}
        if config.position == "sinusoidal":
            empty = np.zeros((1, config.block_size, config.n_embd), reader.dtype)
            added = reader.position.embed(empty, slice(0, config.block_size))[0]
            tensors["position.weight"] = added
        tensors["lm_head.weight"] = reader.tensors[f"{reader.output}.weight"]
        for stored, tensor in tensors.items():
            for name, view in _named(stored, tensor, config):
                views[name] = (*views.get(name, ()), view)
        return cls(config, views)

    def __getitem__(self, key: WeightKey) -> Array:
        name, *place = key if isinstance(key, tuple) else (key,)
        if name not in self.views:
            raise ValueError(f"{name!r} is not one of {', '.join(self)}")
        arrays: Sequence[Array] = self.views[name]
        axes = ["layers", "heads"] if _OF_HEADS.fullmatch(name) else ["layers"]
        if _WHOLE.fullmatch(name):
            axes = []
        if len(place) > len(axes):
            has = "only " + " and ".join(axes) if axes else "neither layers nor heads"
            raise ValueError(f"{key!r}: {name} has {has}")
        layer, head, *_ = *place, None, None
        if head is not None:
            number = check_number("head", head, self.config.n_head)
            arrays = [array[number] for array in arrays]
        if not axes:
            return arrays[0]
        if layer is not None:
            return arrays[check_number("layer", layer, len(arrays))]
        return read_only(np.stack(arrays))

    def __iter__(self) -> Iterator[str]:
        return iter(self.views)

    def keys(self) -> Iterable[str]:
        """Returns the names, with which `dict(weights)` and `**weights` work."""
        return self.views.keys()

    def to_numpy(self) -> dict[str, Array]:
        return {name: self[name] for name in self}


def _named(stored: str, tensor: Array, config: ModelConfig) -> Iterator[tuple[str, Array]]:
    """Yields name and view of every weight that a tensor of a checkpoint contains."""
    place, _, kind = stored.rpartition(".")
    module = place.rpartition(".")[2]
    letter, H, D = ("W_" if kind == "weight" else "b_"), config.n_head, config.head_size
    if module in _TABLES:
        yield _TABLES[module], tensor
    elif module in _NORMS:
        yield f"{_NORMS[module]}_{kind[0]}", tensor
    elif module == "qkv":
        packed = tensor.reshape(3, H, D, *tensor.shape[1:])
        for name, part in zip("QKV", packed, strict=True):
            yield letter + name, part.swapaxes(1, 2) if kind == "weight" else part
    elif module == "proj":
        yield f"{letter}O", tensor.T.reshape(H, D, -1) if kind == "weight" else tensor
    else:
        yield letter + {"up": "in", "down": "out", "lm_head": "U"}[module], tensor.T
