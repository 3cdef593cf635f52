"""Checks that a model computes here what torch computed at saving, and that every stage equals its
float64 recomputation, up to float32 rounding.

The recomputation is the same reader with float64 weights. It finds too much rounding and numbers
that do not follow from each other. An error of the reader's code is in both: only the probe finds
it, as torch computed the probe.

Errors grow from layer to layer, and with sharp attention a small error can select another key, so
the size of scores and logits gives no bound (benchmarks/LOG.md). But a float32 forward equals an
exact forward of weights that are off by some rounding errors (Higham 2002, ch. 3). So the allowed
difference is how much the logits change when every weight changes by that much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.config.show import AttentionKind
from gpt.errors import CheckpointError
from gpt.heads.rounding import (
    UNITS,
    Held,
    before_reach,
    held,
    logits_reach,
    reaches,
    stream_reach,
    worst,
)
from gpt.reading.fallback import Device, Expected, FallbackReader, Fallible
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.stages import CROSS, Memory, Stages
from gpt.storage.model_file import Probe, StoredModel, Tensors
from gpt.vocabulary import Ids

#: Puts a model on a device.
OpenDevice: TypeAlias = Callable[[StoredModel], Device]
PROBE = "logits = torch's at saving"
#: Relative nudge of the weights that bounds the error of a whole forward, in UNITS: 64 units in the
#: last place of a float32. Random and trained models need up to a tenth of it (benchmarks/LOG.md).
WHOLE = 4
NUDGES = 4  # most forwards with weights nudged at random; the first one usually suffices
#: Stage -> the check that covers it, recomputed from the stage before it.
CHECKS = {
    "stream": "stream",
    **dict.fromkeys(("q", "k", "v"), "q, k, v"),
    **dict.fromkeys(("scores", "scaled", "masked"), "scores"),
    "weights": "weights",
    **dict.fromkeys(("context", "concat"), "context"),
    **{name: name for name in ("proj", "residual", "output")},
}
IN_FLOAT64 = "again in float64"


def prove_tensors(config: ModelConfig, tensors: Tensors, probe: Probe) -> Check:
    """Like `prove`, for a model without a reader."""
    return prove(Reader(config, tensors), probe)


def proven(stored: StoredModel, open_device: OpenDevice | None = None) -> tuple[Reader, Check]:
    """The reader of a model file, and its proof; on a device, which must compute the same logits of
    the probe, unless the model has an encoder. Raises CheckpointError if the probe fails.
    """
    reader = Reader(stored.config, stored.tensors)
    proof = prove(reader, stored.probe)
    if not proof.passed:
        raise CheckpointError(
            f"damaged: {stored.source} computes other logits than torch did at saving "
            f"(difference {proof.error:.1e}; rounding allows {proof.bound:.1e})"
        )
    if open_device is None or reader.encoder:
        return reader, proof
    ids = stored.probe.ids[:1]
    logits = reader.logits(reader.forward(ids))
    expected = Expected(ids[0], logits[0], partial(promised, reader, ids, logits))
    return FallbackReader(reader, Fallible(partial(open_device, stored), expected)), proof


def prove(reader: Reader, probe: Probe) -> Check:
    """Checks that the reader computes the logits of the probe.

    If float32 is not exact enough, as for a model with sharp attention, float64 decides whether the
    weights are those that were saved.
    """
    with np.errstate(all="ignore"):  # a value that overflows fails the comparison
        source = probe.source if reader.encoder else None
        found = probe.of(_logits(reader, probe.ids, source))
        error, bound = _apart(found, probe.logits), _least(reader, probe.logits)
        if not error <= bound:
            decided = _logits(reader.in_float64(), probe.ids, source)
            apart = _apart(probe.of(decided), probe.logits)
            if not apart <= bound:
                return Check(PROBE, apart, bound)
        return Check(
            PROBE, error, promised(reader, probe.ids, probe.logits, error, probe.of, source)
        )


def promised(
    reader: Reader,
    ids: Ids,
    logits: Array,
    error: float,
    of: Callable[[Array], Array] = lambda logits: logits,
    source: Ids | None = None,
) -> float:
    """How far the reader's logits for (R, L) ids may be from exact ones.

    At least WHOLE · UNITS times the largest logit; if the error is above that, the largest change
    caused by nudged weights. of: selects from the (R, L, vocab_size) logits. source: (R, S) ids,
    for a model with an encoder.
    """
    bound, random = _least(reader, logits), np.random.default_rng(1)
    if error <= bound:
        return bound
    steady = of(_logits(reader, ids, source))
    for _ in range(NUDGES):
        moved = Reader(reader.config, _nudged(reader, random))
        bound = max(bound, _apart(of(_logits(moved, ids, source)), steady))
        if error <= bound:
            break
    return bound


def _logits(reader: Reader, ids: Ids, source: Ids | None) -> Array:
    """(R, L) ids, and (R, S) of the source if there is an encoder -> (R, L, vocab_size)."""
    return reader.logits(reader.forward(ids, None if source is None else reader.encode(source)))


def _least(reader: Reader, logits: Array) -> float:
    return WHOLE * UNITS[reader.dtype] * float(np.abs(logits).max())


def _apart(found: Array, expected: Array) -> float:
    return float(np.abs(found - expected).max())


def _nudged(reader: Reader, random: np.random.Generator) -> Tensors:
    """Every weight, larger or smaller at random by WHOLE · UNITS of its value."""
    by = reader.dtype.type(WHOLE * UNITS[reader.dtype])
    return {
        name: weight * (1 + by * (2 * random.integers(0, 2, weight.shape, np.int8) - 1))
        for name, weight in reader.tensors.items()
    }


def recomputed(
    reader: Reader,
    ids: Ids,
    stages: Mapping[AttentionKind, Sequence[Stages]],
    source: Ids | None = None,
) -> Iterator[Check]:
    """Checks every stage in float64 from the stage before it, and the logits from the ids.

    ids: (T,), of the decoder. stages: of each layer, by the kind of attention. source: (S,) ids,
    for a model with an encoder.
    """
    exact = reader.in_float64()
    results = {check: list[Held]() for check in CHECKS.values()}
    read, memories = None, None
    if source is not None and exact.encoder is not None:
        read = source[None]
        every = np.ones((1, 1, len(source)), np.bool_)
        last, own = _again(exact.encoder, source, results, stages["encoder"], allowed=every)
        found, expected = reader.encode(read).states[0], exact.encoder.final_norm(last)
        results["memory"] = [held(found, expected, before_reach(exact.encoder, last, "norm"))]
        memories = found.astype(np.float64), exact.encoder.final_norm(own)
    last, own = _again(exact, ids, results, stages["decoder"], stages.get("cross", ()), memories)
    for name, errors in results.items():
        yield Check(name, *worst(errors), IN_FLOAT64)
    output = stages["cross" if exact.encoder else "decoder"][-1].output
    logits = reader.logits(reader.final_norm(output[None]))[0]  # (T, vocab_size)
    expected = exact.logits(exact.final_norm(last))
    yield Check("logits", *held(logits, expected, logits_reach(exact, last)), IN_FLOAT64)
    error = _apart(logits, exact.logits(exact.final_norm(own)))
    bound = promised(reader, ids[None], logits[None], error, source=read)
    yield Check("logits end to end", error, bound, IN_FLOAT64)


def _again(
    exact: Reader,
    ids: Ids,
    results: Mapping[str, list[Held]],
    layers: Sequence[Stages],
    crossed: Sequence[Stages] = (),
    memories: tuple[Array, Array] | None = None,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> tuple[Array, Array]:
    """Adds the errors of every stage to the results. Returns the last layer's output as it is in
    `layers`, and as computed from the ids alone, both (T, C) in float64.

    crossed: of cross-attention. memories: what it reads, (S, C), in these two computations.
    allowed: see `Reader.attend`.
    """
    memory, own_memory = memories or (None, None)
    x = own = exact.embed(ids[None])[0]
    entering = stream_reach(exact, ids)
    for layer, stages in enumerate(layers):
        found = dict(vars(stages))
        reach = {"stream": 0.0 if layer else entering, **reaches(exact, layer, stages)}
        if crossed:
            cross = crossed[layer]
            results["output"].append(held(stages.output, stages.residual, 0.0))
            results["stream"].append(held(cross.stream, stages.output, 0.0))
            found |= {CROSS + name: stage for name, stage in vars(cross).items()}
            later = reaches(exact, layer, cross, memory)
            found["output"], reach["output"] = cross.output, later["output"]
            reach |= {CROSS + name: each for name, each in later.items()}
        see = partial(_hold, results, found, reach)
        x = recompute(exact, layer, x, found, see, memory, allowed)
        own = recompute(exact, layer, own, {}, lambda *_: None, own_memory, allowed)
    return x, own


def _hold(
    results: Mapping[str, list[Held]],
    found: Mapping[str, Array],
    reach: Mapping[str, Array | float],
    name: str,
    stage: Array,
) -> None:
    """Adds the error of one stage in `found` to the results."""
    if name in found:
        results[CHECKS[name.removeprefix(CROSS)]].append(held(found[name], stage, reach[name]))


def recompute(
    exact: Reader,
    layer: int,
    x: Array,
    found: Mapping[str, Array],
    see: Callable[[str, Array], object],
    memory: Array | None = None,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> Array:
    """Computes one layer in float64, each stage from the stage before it in `found`, if it has one.

    x: (T, C), what enters the layer. see: gets each stage by its name in a Hook, before the one in
    `found` replaces it. memory: (S, C). allowed: see `Reader.attend`. Returns the output, (T, C).
    """

    def hook(name: str, layer: int, stage: Array) -> Array:
        see(name, stage[0])
        # Scores, scaled and masked are all computed from q and k, up to the weights.
        if name not in found or name.removeprefix(CROSS) in ("scores", "scaled", "masked"):
            return stage
        return found[name][None].astype(np.float64)

    read = None if memory is None else Memory(memory[None])
    output: Array = exact.block(x[None], layer, hook, memory=read, allowed=allowed)["output"][0]
    return output
