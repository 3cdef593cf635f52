"""Checks that a model computes here what torch computed at saving, and that every stage equals its
float64 recomputation, up to float32 rounding.

Errors grow from layer to layer, and with sharp attention a small error can select another key, so
the size of scores and logits gives no bound (benchmarks/LOG.md). But a float32 forward equals an
exact forward of weights that are off by some rounding errors (Higham 2002, ch. 3). So the allowed
difference is how much the logits change when every weight changes by that much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.config.show import AttentionKind
from gpt.errors import CheckpointError
from gpt.heads.exact import Exact, Layer
from gpt.heads.rounding import UNITS, Held, held, worst
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.stages import Stages
from gpt.storage.model_file import Probe, StoredModel, Tensors
from gpt.vocabulary import Ids

PROBE = "logits = torch's at saving"
#: Relative nudge of the weights that bounds the error of a whole forward, in UNITS: 64 units in the
#: last place of a float32. Random and trained models need up to a tenth of it (benchmarks/LOG.md).
WHOLE = 4
NUDGES = 4  # most forwards with weights nudged at random; the first one usually suffices
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
#: The number of a sublayer's layer, its stages, and the memory that they read, if they are cross-
#: attention: (S, C) as the reader computed it, and in float64 from the ids.
Sublayer = tuple[int, Stages, tuple[Array, Array] | None]


def prove_tensors(config: ModelConfig, tensors: Tensors, probe: Probe) -> Check:
    """Like `prove`, for a model without a reader."""
    return prove(Reader(config, tensors), probe)


def proven(stored: StoredModel) -> tuple[Reader, Check]:
    """The reader of a model file, and its proof. Raises CheckpointError if the probe fails."""
    reader = Reader(stored.config, stored.tensors)
    proof = prove(reader, stored.probe)
    if not proof.passed:
        raise CheckpointError(
            f"damaged: {stored.source} computes other logits than torch did at saving "
            f"(difference {proof.error:.1e}; rounding allows {proof.bound:.1e})"
        )
    return reader, proof


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
            exact = Exact(reader)
            sources = [None] * len(probe.ids) if source is None else list(source)
            rows = zip(probe.ids, sources, strict=True)
            decided = probe.of(np.stack([exact.logits(*row) for row in rows]))
            apart = _apart(decided, probe.logits)
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
    exact, results = Exact(reader), {name: list[Held]() for name in ("stream", *AGAIN)}
    memory = None
    if source is not None and reader.encoder is not None:
        encoder, every = Exact(reader.encoder), np.ones((len(source),) * 2, np.bool_)
        last = _again(encoder, source, list(_numbered(stages["encoder"])), results, every)
        found = reader.encode(source[None]).states[0]  # (S, C)
        normed, reach = encoder.before(stages["encoder"][-1].output.astype(np.float64), "norm")
        results["memory"] = [held(found, normed, reach)]
        memory = found, encoder.before(last, "norm")[0]
    sublayers = list(_numbered(stages["decoder"]))
    if memory is not None:
        crossed = _numbered(stages["cross"], memory)
        sublayers = [each for pair in zip(sublayers, crossed, strict=True) for each in pair]
    stream = _again(exact, ids, sublayers, results)
    for name, errors in results.items():
        yield Check(name, *worst(errors), IN_FLOAT64)
    output = sublayers[-1][1].output
    logits = reader.logits(reader.final_norm(output[None]))[0]  # (T, vocab_size)
    _, expected, reach = exact.last(output)
    yield Check("logits", *held(logits, expected, reach), IN_FLOAT64)
    error = float(np.abs(logits - exact.last(stream)[1]).max())
    read = None if source is None else source[None]
    bound = promised(reader, ids[None], logits[None], error, source=read)
    yield Check("logits end to end", error, bound, IN_FLOAT64)


def _numbered(
    stages: Sequence[Stages], memory: tuple[Array, Array] | None = None
) -> Iterator[Sublayer]:
    return ((number, each, memory) for number, each in enumerate(stages))


def _again(
    exact: Exact,
    ids: Ids,
    sublayers: Sequence[Sublayer],
    results: Mapping[str, list[Held]],
    allowed: npt.NDArray[np.bool_] | None = None,
) -> Array:
    """Adds the errors of every stage of these sublayers, in the order of the computation, to the
    results. Returns the (T, C) output of the last, computed from the ids alone.
    """
    first = exact.embed(ids)
    results["stream"].append(held(sublayers[0][1].stream, first.stream, first.reach))
    for (_, before, _), (_, after, _) in pairwise(sublayers):
        results["stream"].append(held(after.stream, before.output, 0.0))
    stream = first.stream
    for number, found, memory in sublayers:
        read, own = memory or (None, None)
        again = Layer(exact, number, found.stream, found, read, allowed).held(found)
        for name, stages in AGAIN.items():
            results[name] += [again[stage] for stage in stages]
        stream = Layer(exact, number, stream, None, own, allowed).stages.output
    return stream
