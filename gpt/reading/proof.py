"""Checks that a model computes here what torch computed when it was saved, and that every stage
equals its float64 recomputation, up to float32 rounding.

The same reader, with float64 weights, recomputes the stages. This finds too much rounding, and
numbers that do not follow from each other. But an error in the reader's code is in both
computations; only the probe finds it, because torch computed the probe.

A computed product equals the exact product of factors that are each off by a few rounding errors
(Higham 2002, ch. 3). So its error is in proportion to the lengths of the factors, even if the
product is small. These lengths are the `reach` of a stage; a stage that is computed from the stage
before it may be off by UNITS times its reach. A reach has one number for each row.

Errors grow from layer to layer, and with sharp attention a small error can select another key, so
the size of scores and logits gives no bound for a whole forward pass (benchmarks/LOG.md). But a
float32 forward pass equals an exact one whose weights are off by a few rounding errors. So the
allowed difference is how much the logits change when every weight changes by that much.
Tensor names: T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.errors import CheckpointError
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import ACTIVATIONS, EPSILON, Array, centred
from gpt.storage.model_file import Probe, StoredModel, Tensors
from gpt.vocabulary import Ids

if TYPE_CHECKING:
    from gpt.reading.fallback import Device

#: Type of the numbers -> the allowed error of a stage, divided by its reach. float32: 16 units in
#: the last place; random and trained models of 16 to 384 columns need up to half of it
#: (benchmarks/LOG.md). float64: the rounding errors of the recomputation itself are of this size.
UNITS = {np.dtype(np.float32): 2.0**-19, np.dtype(np.float64): 1e-12}
#: An error and its bound.
Held = tuple[float, float]


def worst_row(found: Array, expected: Array, reach: Array | float) -> Held:
    """Error and bound of the row where their ratio is largest; NaN counts as largest."""
    with np.errstate(invalid="ignore"):
        apart = found - expected
        error = np.abs(apart, out=apart).max(axis=-1)
        if np.isnan(error).any():  # e.g. a difference of equal infinities
            apart[found == expected] = 0.0
            error = apart.max(axis=-1)
    bound = np.broadcast_to(UNITS[found.dtype] * np.asarray(reach), (*error.shape, 1))[..., 0]
    return worst_error(zip(error.ravel().tolist(), bound.ravel().tolist(), strict=True))


def worst_error(results: Iterable[Held]) -> Held:
    """The (error, bound) with the largest ratio; NaN counts as largest."""
    errors, bounds = np.array(list(results)).T
    place = int(np.argmax(errors / np.maximum(bounds, np.finfo(np.float64).tiny)))
    return float(errors[place]), float(bounds[place])


def _stream_reach(exact: Reader, ids: Ids) -> Array:
    """(T,) ids -> (T, 1) reach of the stream that enters layer 0: tokens and positions are added
    up.
    """
    stream = exact.embed(ids[None])[0]
    positions = exact.position.embed(np.zeros_like(stream[None]), slice(0, len(ids)))[0]
    return _largest(np.abs(stream - positions) + np.abs(positions))


def _stage_reaches(exact: Reader, layer: int, found: Stages) -> dict[str, Array | float]:
    """Stage -> its reach, if each stage is computed from the stages in `found`.

    exact: the model in float64.
    """
    config, block = exact.config, f"blocks.{layer}."
    entered, proj, v = (each.astype(np.float64) for each in (found.resid_pre, found.proj, found.v))
    normed, spread = exact.norm(entered, f"{block}norm1"), _norm(exact, entered, f"{block}norm1")
    packed = _linear(exact, normed, spread, f"{block}attention.qkv")
    lengths = _length(found.q) * _length(found.k).max(axis=1, keepdims=True)  # (H, T, 1)
    largest = lengths / config.head_size**0.5
    resid_post: Array | float = 0.0  # the same numbers
    if config.feed_forward:
        resid_post = _feed_forward(exact, block, found.resid_mid.astype(np.float64))
    return {
        "q": packed,
        "k": packed,
        "v": packed,
        "scores": lengths,
        "scaled": largest,
        "masked": largest,
        # 1e-6, or one rounding error of the largest possible score
        "weights": np.maximum(1 / 2, largest / 16),
        "context": np.abs(v).max(axis=(1, 2), keepdims=True),
        "concat": 0.0,  # the same numbers in another order
        "proj": _linear(exact, found.concat.astype(np.float64), 0.0, f"{block}attention.proj"),
        "resid_mid": _largest(entered) + _largest(proj),
        "resid_post": resid_post,
    }


def _logits_reach(exact: Reader, resid_post: Array) -> Array:
    """(T, C) resid_post of the last layer -> (T, 1) reach of the logits."""
    weight, _ = exact.linear(exact.output)
    return _norm(exact, resid_post, "norm") * float(_length(weight).max())


def _feed_forward(exact: Reader, block: str, resid_mid: Array) -> Array:
    """(T, C) resid_mid -> (T, 1) reach of resid_post."""
    up, down, norm = f"{block}feed_forward.up", f"{block}feed_forward.down", f"{block}norm2"
    normed = exact.norm(resid_mid, norm)
    spread = _linear(exact, normed, _norm(exact, resid_mid, norm), up)
    wide = exact.apply(normed, up)
    active = ACTIVATIONS[exact.config.activation](wide.copy())
    slope: Array | float = 1.0  # the largest factor by which the activation enlarges an error
    if exact.config.activation == "relu2":
        slope = _largest(2 * np.maximum(wide, 0))
    spread = _length(active) + slope * spread
    return _largest(resid_mid) + _linear(exact, active, spread, down)


def _linear(exact: Reader, x: Array, spread: Array | float, name: str) -> Array:
    """(T, columns) and their reach -> (T, 1) reach of their product with a linear layer."""
    weight, bias = exact.linear(name)
    reach: Array = np.maximum(spread, _length(x)) * _length(weight).max()
    return reach if bias is None else reach + np.abs(bias).max()


def _norm(exact: Reader, x: Array, norm: str) -> Array:
    """(T, C) without errors -> (T, 1) reach of the normalised rows.

    The error of subtracting the mean is in proportion to the numbers, not to their difference.
    """
    lost = _length(x * exact.tensors[f"{norm}.weight"]) / _root_mean_square(centred(x))
    return np.maximum(_length(exact.norm(x, norm)), lost)


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


#: Opens a model on a device.
OpenDevice: TypeAlias = "Callable[[StoredModel], Device]"
PROBE = "logits = torch's at saving"
#: Relative change of the weights that bounds the error of a whole forward pass, in UNITS: 64 units
#: in the last place of a float32. Random and trained models need up to a tenth of it
#: (benchmarks/LOG.md).
WHOLE = 4
NUDGES = 4  # most forward passes with randomly changed weights; the first one usually suffices
#: Stage -> the check that covers it; each is recomputed from the stage before it.
CHECKS = {
    "resid_pre": "resid_pre",
    **dict.fromkeys(("q", "k", "v"), "q, k, v"),
    **dict.fromkeys(("scores", "scaled", "masked"), "scores"),
    "weights": "weights",
    **dict.fromkeys(("context", "concat"), "context"),
    **{name: name for name in ("proj", "resid_mid", "resid_post")},
}
IN_FLOAT64 = "again in float64"


def prove_tensors(config: ModelConfig, tensors: Tensors, probe: Probe) -> Check:
    """Does what `prove` does, for a model that has no reader yet."""
    return prove(Reader(config, tensors), probe)


def open_proven(stored: StoredModel, open_device: OpenDevice | None = None) -> tuple[Reader, Check]:
    """The reader of a model file, and its proof. open_device: for a reader on a device, which must
    compute the same logits of the probe. Raises CheckpointError if the probe fails.
    """
    reader = Reader(stored.config, stored.tensors)
    proof = prove(reader, stored.probe)
    if not proof.passed:
        raise CheckpointError(
            f"damaged: {stored.source} computes other logits than torch did at saving "
            f"(difference {proof.error:.1e}; rounding allows {proof.bound:.1e})"
        )
    if open_device is None:
        return reader, proof
    from gpt.reading.fallback import DeviceWithFallback, FallbackReader

    ids = stored.probe.ids[:1]
    logits = reader.logits(reader.forward(ids))
    expected = ids[0], logits[0], partial(allowed_difference, reader, ids, logits)
    device = DeviceWithFallback(partial(open_device, stored), *expected)
    return FallbackReader(reader, device), proof


def prove(reader: Reader, probe: Probe) -> Check:
    """Checks that the reader computes the logits of the probe.

    If float32 is not exact enough, as for a model with sharp attention, float64 decides whether the
    weights are those that were saved.
    """
    with np.errstate(all="ignore"):  # if a value overflows, the comparison fails
        found = probe.of(compute_logits(reader, probe.ids))
        error, bound = _apart(found, probe.logits), _least(reader, probe.logits)
        if not error <= bound:
            decided = compute_logits(reader.in_float64(), probe.ids)
            apart = _apart(probe.of(decided), probe.logits)
            if not apart <= bound:
                return Check(PROBE, apart, bound)
        bound = allowed_difference(reader, probe.ids, probe.logits, error, probe.of)
        return Check(PROBE, error, bound)


def allowed_difference(
    reader: Reader,
    ids: Ids,
    logits: Array,
    error: float,
    of: Callable[[Iterable[Array]], Array] = lambda rows: np.stack([*rows]),
) -> float:
    """The largest allowed difference between the reader's logits for (R, L) ids and exact
    ones.

    At least WHOLE · UNITS times the largest logit; if the error is larger, the largest change that
    randomly changed weights cause. of: gets the logits, R rows of (L, vocab_size), and returns
    those to compare.
    """
    bound, random = _least(reader, logits), np.random.default_rng(1)
    if error <= bound:
        return bound
    steady = of(compute_logits(reader, ids))
    for _ in range(NUDGES):
        moved = Reader(reader.config, _nudged(reader, random))
        bound = max(bound, _apart(of(compute_logits(moved, ids)), steady))
        if error <= bound:
            break
    return bound


def compute_logits(reader: Reader, ids: Ids) -> Iterator[Array]:
    """(R, L) ids -> R rows of (L, vocab_size) logits."""
    return map(reader.logits, reader.forward(ids))


def _least(reader: Reader, logits: Array) -> float:
    return WHOLE * UNITS[reader.dtype] * float(np.abs(logits).max())


def _apart(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max())


def _nudged(reader: Reader, random: np.random.Generator) -> Tensors:
    """The weights, each made larger or smaller at random by WHOLE · UNITS of its value."""
    by = reader.dtype.type(WHOLE * UNITS[reader.dtype])
    return {
        name: weight * (1 + by * (2 * random.integers(0, 2, weight.shape, np.int8) - 1))
        for name, weight in reader.tensors.items()
    }


def check_stages(reader: Reader, ids: Ids, layers: Sequence[Stages]) -> Iterator[Check]:
    """Checks every stage in float64 from the stage before it, and the logits from the (T,) ids."""
    exact = reader.in_float64()
    results = {check: list[Held]() for check in CHECKS.values()}
    x: Array = exact.embed(ids[None])[0]
    for layer, stages in enumerate(layers):
        entering: Array | float = 0.0 if layer else _stream_reach(exact, ids)
        reach = {"resid_pre": entering, **_stage_reaches(exact, layer, stages)}
        x = _check_layer(exact, layer, x, vars(stages), reach, results)
    for name, errors in results.items():
        yield Check(name, *worst_error(errors), IN_FLOAT64)
    resid_post = layers[-1].resid_post
    logits = reader.logits(reader.final_norm(resid_post[None]))[0]  # (T, vocab_size)
    expected = exact.logits(exact.final_norm(x))
    yield Check("logits", *worst_row(logits, expected, _logits_reach(exact, x)), IN_FLOAT64)
    error = _apart(logits, next(compute_logits(exact, ids[None])))
    bound = allowed_difference(reader, ids[None], logits[None], error)
    yield Check("logits end to end", error, bound, IN_FLOAT64)


def _check_layer(
    exact: Reader,
    layer: int,
    x: Array,
    found: Mapping[str, Array],
    reach: Mapping[str, Array | float],
    results: Mapping[str, list[Held]],
) -> Array:
    """(T, C), a layer's input -> (T, C) its output in float64, where each stage is computed from
    the stage before it in `found`. Adds the error of each of these to the results.
    """

    def hook(name: str, layer: int, stage: Array) -> Array:
        if name not in found:
            return stage
        results[CHECKS[name]].append(worst_row(found[name], stage[0], reach[name]))
        if name in ("scores", "scaled", "masked"):  # up to the weights, all from q and k
            return stage
        return found[name][None].astype(np.float64)

    resid_post: Array = exact.block(x[None], layer, hook)["resid_post"][0]
    return resid_post
