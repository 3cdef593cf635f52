"""Bounds on how much float32 may differ from float64, and the differences found.

A computed product equals the exact product of numbers that are off by some rounding errors each
(Higham 2002, ch. 3). So its error is in proportion to the lengths of the factors, even if the
product is small. These lengths are a stage's `reach`; a stage that is computed from the stage
before it may be off by UNITS times its reach. A reach has one column: a number for each row.
Tensor names: T time, S keys, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpt.reading.gpt import Reader
from gpt.reading.layers import ACTIVATIONS, EPSILON, Array
from gpt.reading.stages import Stages
from gpt.vocabulary import Ids

#: Type of the numbers -> the error that a stage may have, as a part of its reach. float32: 16 units
#: in the last place; random and trained models of 16 to 384 columns need up to half of it
#: (benchmarks/LOG.md). float64: the recomputation has rounding errors of the same size.
UNITS = {np.dtype(np.float32): 2.0**-19, np.dtype(np.float64): 1e-12}
#: An error and its bound.
Held = tuple[float, float]


def held(found: Array, expected: Array, reach: Array | float) -> Held:
    """The row with the largest ratio of error to bound; NaN counts as largest."""
    with np.errstate(invalid="ignore"):
        apart = found - expected
        error = np.abs(apart, out=apart).max(axis=-1)
        if np.isnan(error).any():  # for example a difference of equal infinities
            apart[found == expected] = 0.0
            error = apart.max(axis=-1)
    bound = np.broadcast_to(UNITS[found.dtype] * np.asarray(reach), (*error.shape, 1))[..., 0]
    return worst(zip(error.ravel().tolist(), bound.ravel().tolist(), strict=True))


def worst(results: Iterable[Held]) -> Held:
    """The error with the largest ratio to its bound; NaN counts as largest."""
    errors, bounds = np.array(list(results)).T
    place = int(np.argmax(errors / np.maximum(bounds, np.finfo(np.float64).tiny)))
    return float(errors[place]), float(bounds[place])


def summands(exact: Reader, ids: Ids) -> tuple[Array, Array]:
    """(T,) ids -> what tokens and positions add to the stream that enters layer 0, both (T, C)."""
    stream = exact.embed(ids[None])[0]
    positions = exact.position.embed(np.zeros_like(stream[None]), slice(0, len(ids)))[0]
    return stream - positions, positions


def stream_reach(exact: Reader, ids: Ids) -> Array:
    """(T,) ids -> (T, 1), of the stream that enters layer 0."""
    return _largest(np.sum(np.abs(summands(exact, ids)), axis=0))


def reaches(
    exact: Reader, layer: int, found: Stages, memory: Array | None = None
) -> dict[str, Array | float]:
    """Stage -> its reach, if each is computed from the stages of `found`.

    exact: the model in float64. memory: (S, C) in float64, for stages of cross-attention. With an
    encoder, a decoder's self-attention has no output of its own.
    """
    config, block = exact.config, f"blocks.{layer}."
    sublayer, norm = ("attention", "norm1") if memory is None else ("cross", "cross_norm")
    stream, proj, v = (getattr(found, name).astype(np.float64) for name in ("stream", "proj", "v"))
    reach = _projections(exact, f"{block}{sublayer}.qkv", stream, block + norm, memory)
    lengths = _length(found.q) * _length(found.k).max(axis=1, keepdims=True)  # (H, T, 1)
    largest = lengths / config.head_size**0.5
    reach |= {"scores": lengths, "scaled": largest, "masked": largest}
    # 1e-6, or one rounding error of the largest possible score.
    reach["weights"] = np.maximum(1 / 2, largest / 16)
    reach["context"] = np.abs(v).max(axis=(1, 2), keepdims=True)
    reach["concat"] = 0.0  # the same numbers in another order
    reach["proj"] = _linear(exact, found.concat.astype(np.float64), 0.0, f"{block}{sublayer}.proj")
    reach["residual"] = residual = _largest(stream) + _largest(proj)
    if config.post_norm:
        reach["residual"] = _normalised(exact, stream + proj, residual, block + norm)
    if memory is not None or not config.encoder_layers:
        reach["output"] = _feed_forward(exact, block, found.residual.astype(np.float64))
    return reach


def before_reach(exact: Reader, x: Array, norm: str) -> Array:
    """(T, C) stream -> (T, 1), of the input of the sublayer that has this norm."""
    return _length(x) if exact.config.post_norm else _norm(exact, x, norm)


def logits_reach(exact: Reader, output: Array) -> Array:
    """(T, C) output of the last layer -> (T, 1), of the logits."""
    name = "token_embedding.weight" if exact.config.tied else "lm_head.weight"
    longest = float(_length(exact.tensors[name]).max())
    return before_reach(exact, output, "norm") * longest


def _projections(
    exact: Reader, name: str, stream: Array, norm: str, memory: Array | None
) -> dict[str, Array | float]:
    """Of q, k and v."""
    x = exact.before(stream, norm)
    own = _linear(exact, x, before_reach(exact, stream, norm), name)
    read = own if memory is None else _linear(exact, memory, 0.0, name)
    return {"q": own, "k": read, "v": read}


def _feed_forward(exact: Reader, block: str, residual: Array) -> Array:
    """(T, C) residual -> (T, 1), of the layer's output."""
    up, down, norm = f"{block}feed_forward.up", f"{block}feed_forward.down", f"{block}norm2"
    normed = exact.before(residual, norm)
    spread = _linear(exact, normed, before_reach(exact, residual, norm), up)
    hidden = exact.apply(normed, up)
    active = ACTIVATIONS[exact.config.activation](hidden.copy(), None)
    spread = _length(active) + _slope(exact.config.activation, hidden) * spread
    reach = _largest(residual) + _linear(exact, active, spread, down)
    if not exact.config.post_norm:
        return reach
    return _normalised(exact, residual + exact.apply(active, down), reach, norm)


def _slope(activation: str, hidden: Array) -> Array | float:
    """(T, widened) -> (T, 1), the largest factor by which an activation passes on an error."""
    if activation == "relu2":
        return _largest(2 * np.maximum(hidden, 0))
    if activation == "swiglu":  # SiLU's slope is at most 1.1
        gate, up = np.split(hidden, 2, axis=-1)
        silu = gate * (1 + np.tanh(gate / 2)) / 2
        return _largest(np.abs(silu) + 1.1 * np.abs(up))
    return 1.0


def _linear(exact: Reader, x: Array, spread: Array | float, name: str) -> Array:
    """(T, columns) and their reach -> (T, 1), of the product with a linear layer."""
    weight, bias = exact.linear(name)
    reach: Array = np.maximum(spread, _length(x)) * _length(weight).max()
    return reach if bias is None else reach + np.abs(bias).max()


def _normalised(exact: Reader, x: Array, reach: Array, norm: str) -> Array:
    """(T, C) and their reach -> (T, 1), of the normalised rows."""
    gain = float(np.abs(exact.tensors.get(f"{norm}.weight", np.ones(1))).max())
    return _norm(exact, x, norm) + reach * gain / _root_mean_square(_centred(exact, x))


def _norm(exact: Reader, x: Array, norm: str) -> Array:
    """(T, C) without errors -> (T, 1), of the normalised rows.

    The error of subtracting the mean is in proportion to the numbers, not to their difference.
    """
    gain = exact.tensors.get(f"{norm}.weight", np.ones(1))
    lost = _length(x * gain) / _root_mean_square(_centred(exact, x))
    return np.maximum(_length(exact.norm(x, norm)), lost)


def _centred(exact: Reader, x: Array) -> Array:
    """(T, C) less the mean of each row, if the norm removes it."""
    return x - x.mean(axis=-1, keepdims=True) if exact.config.norm == "layer" else x


def _root_mean_square(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)  # type: ignore[no-any-return]


def _length(x: Array) -> Array:
    """(..., columns) -> (..., 1), in float64."""
    squares = np.einsum("...c,...c->...", x, x, dtype=np.float64)
    return np.sqrt(squares)[..., None]  # type: ignore[no-any-return]


def _largest(x: Array) -> Array:
    """(..., columns) -> (..., 1)"""
    return np.abs(x).max(axis=-1, keepdims=True)  # type: ignore[no-any-return]
