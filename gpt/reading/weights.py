"""A model's weights by the names of TransformerLens, as stored or with the norms folded in.

Tensor names: V vocab_size, L layers, C n_embd, H heads, D head_size, F ffn_hidden, S block_size.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from gpt.config import ModelConfig
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.show.result import Arrays, read_only
from gpt.words import layers_and_heads

#: A name, or (name, layer, head), where trailing parts may be left out. None means all.
Key: TypeAlias = str | tuple[str, *tuple[SupportsIndex | None, ...]]

_OF_HEADS = re.compile(r"W_[QKVO]|b_[QKV]")
_WHOLE = re.compile(r"[Wb]_(E|U|pos)|ln_final_[wb]")  # outside layers
#: A module that is a table -> its name; a module that is a norm -> the start of its weights' names.
_TABLES = {"token_embedding": "W_E", "position": "W_pos"}
_NORMS = {"norm": "ln_final", "norm1": "ln1", "norm2": "ln2"}
#: A module that reads the stream, with its sublayer -> its norm; modules that write to the stream.
_READS = {"attention.qkv": "norm1", "feed_forward.up": "norm2", "lm_head": "norm"}
_WRITES = (*_TABLES, "proj", "down")


def check_number(what: str, number: SupportsIndex, count: int, lowest: int = 0) -> int:
    """The number of a layer or head. what: "layer" or "head", for errors. Raises IndexError unless
    it is in lowest … count − 1, TypeError unless it is a whole number.
    """
    if not isinstance(number, SupportsIndex):
        raise TypeError(f"{what}: expected a whole number, not {type(number).__name__}")
    at = operator.index(number)
    if not lowest <= at < count:
        raise IndexError(f"{what} {at} is not in {lowest} … {count - 1}")
    return at


@dataclass(frozen=True, repr=False, eq=False)
class Weights(Arrays):
    """weights["W_Q"] is (L, H, C, D), weights["W_Q", 1] is layer 1, weights["W_Q", 1, 2] its head
    2. Names and orientation are TransformerLens's: x @ W, with (in, out) for each matrix.

    W_E (V, C), W_pos (S, C), W_U (C, V). For each layer: W_Q, W_K, W_V (H, C, D), W_O (H, D, C),
    W_in (C, F), W_out (F, C). Biases: b_Q, b_K, b_V (H, D), b_O (C,), b_in (F,), b_out (C,). Gains
    and shifts of norms (C,): ln1_w, ln1_b, ln2_w, ln2_b, and outside layers ln_final_w, ln_final_b.
    What a model does not have is missing: rotary positions have no W_pos.

    Arrays are read-only; the arrays of one layer are views of the model's tensors. weights[…]
    raises ValueError for an unknown name, and for a layer or head if the weight has none;
    IndexError for a layer or head that does not exist.
    """

    config: ModelConfig
    tensors: dict[str, Array]

    @classmethod
    def of(cls, reader: Reader) -> Weights:
        """A reader's weights; a table that is used twice has both names."""
        config = reader.config
        tensors = {name: reader.tensors[name] for name in config.shapes()}
        if config.position == "sinusoidal":
            empty = np.zeros((1, config.block_size, config.n_embd), reader.dtype)
            added = reader.position.embed(empty, slice(0, config.block_size))[0]
            tensors["position.weight"] = added
        tensors["lm_head.weight"] = reader.tensors[f"{reader.output}.weight"]
        return cls(config, tensors)

    def folded(self) -> Weights:
        """The same model, but each norm is x / √(mean(x²) + 1e-5), without gain and shift.

        A norm's gain is multiplied into the matrices that read it, and its shift becomes a bias
        (b_U is new). Matrices that write to the stream are centred, so that its mean is 0 and no
        norm has to subtract it; matrices that read it are centred, too, like TransformerLens's
        fold_ln and center_writing_weights. W_U is not centred over characters, so logits do not
        change. Computed in float64, rounded once.
        """
        folded = dict[str, Array]()
        for name, stored in self.tensors.items():
            place, _, kind = name.rpartition(".")
            module = place.rpartition(".")[2]
            if kind == "bias" or module in _NORMS:
                continue
            weight, bias = self._exact(name), self._exact(f"{place}.bias", len(stored))
            shift = ""  # the name of the norm's bias, if the module reads a norm
            if module in _WRITES:
                axis = -1 if module in _TABLES else 0
                weight, bias = _centred(weight, axis), _centred(bias, 0)
            else:
                norm = _norm_before(place)
                shift = f"{norm}.bias"
                bias += weight @ self._exact(shift, self.config.n_embd)
                gain = self._exact(f"{norm}.weight", self.config.n_embd, 1)
                weight = _centred(weight * gain, 1)
            folded[name] = weight.astype(stored.dtype)
            if {f"{place}.bias", shift} & self.tensors.keys():
                folded[f"{place}.bias"] = bias.astype(stored.dtype)
        return Weights(self.config, folded)

    def _exact(self, name: str, size: int = 0, missing: float = 0) -> Array:
        """A tensor in float64; if the model does not have it, `size` times the value `missing`."""
        return np.array(self.tensors.get(name, np.full(size, missing)), np.float64)

    @cached_property
    def _views(self) -> dict[str, list[Array]]:
        """Name -> the arrays of all layers, or the one array outside layers."""
        views: dict[str, list[Array]] = {}
        for stored, tensor in self.tensors.items():
            for name, view in _named(stored, tensor, self.config):
                views.setdefault(name, []).append(read_only(view))
        return views

    def __getitem__(self, key: Key) -> Array:
        entries: tuple[Any, ...] = key if isinstance(key, tuple) and key else (key,)
        name, layer, head = (*entries, None, None)[:3]
        if name not in self._views:
            raise ValueError(f"{name!r} is not one of {', '.join(self)}")
        arrays, layered = self._views[name], not _WHOLE.fullmatch(name)
        if len(entries) > 3 or (layer is not None and not layered):
            allowed = f"({name!r}, layer, head)" if layered else f"{name!r}: it has no layers"
            raise ValueError(f"{key!r}: expected {allowed}")
        if head is not None:
            if not _OF_HEADS.fullmatch(name):
                use = f"({name!r}, layer)" if layered else repr(name)
                raise ValueError(f"{key!r}: {name} has no heads; use {use}")
            number = check_number("head", head, self.config.n_head)
            arrays = [array[number] for array in arrays]
        if not layered:
            return arrays[0]
        if layer is not None:
            return arrays[check_number("layer", layer, len(arrays))]
        return read_only(np.stack(arrays))

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def keys(self) -> Iterable[str]:
        """The names, so that `dict(weights)` and `**weights` give name -> array."""
        return self._views.keys()

    def to_numpy(self) -> dict[str, Array]:
        """Name -> array."""
        return {name: self[name] for name in self}

    def __repr__(self) -> str:
        names = ", ".join(self)
        return f"<Weights of {layers_and_heads(self.config.n_layer, self.config.n_head)}: {names}>"


def _centred(x: Array, axis: int) -> Array:
    """x minus its mean along an axis."""
    return x - x.mean(axis, keepdims=True)  # type: ignore[no-any-return]


def _norm_before(place: str) -> str:
    """The norm whose output a module reads: "blocks.1.attention.qkv" -> "blocks.1.norm1"."""
    module = next(module for module in _READS if place.endswith(module))
    return place.removesuffix(module) + _READS[module]


def _named(stored: str, tensor: Array, config: ModelConfig) -> Iterator[tuple[str, Array]]:
    """The names and views of the weights that a stored tensor contains."""
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
