"""The effect of a head: how much the loss rises without its output (Michel et al. 2019).

The head's output is replaced. Of a decoder-only model, only its layer and later layers are computed
again; pairs are short, so a model with an encoder computes each again from its start.
Tensor names: N windows or pairs, T time, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from gpt.config import AttentionKind
from gpt.devices import cores
from gpt.errors import ConfigError, TextError
from gpt.heads.measures import Measure, standard_errors
from gpt.heads.patching import Patches
from gpt.reading.decode import on_cores
from gpt.reading.gpt import CROSS, Hook, Memory, Reader, unchanged
from gpt.reading.layers import Array
from gpt.reading.pairs import padded
from gpt.reading.score import surprises, windows_at_once
from gpt.vocabulary import Ids

Ablation = Literal["mean", "zero", "resample"]
ABLATIONS: tuple[Ablation, ...] = get_args(Ablation)
#: What each replaces a head's output by.
REPLACED_BY = {
    "mean": "mean",
    "zero": "zero",
    "resample": "that of another window, drawn at random",
}


def ablate(
    reader: Reader,
    windows: Ids,
    how: Ablation,
    done: Callable[[int], object] = lambda heads: None,
    seed: int = 0,
) -> Measure:
    """(N, T + 1) ids -> rise of the loss by each head, nats/character, paired standard errors.

    mean: over all positions of all windows. resample: each window gets the output that the head has
    in another window at the same position (Chan et al. 2022); the seed decides which one, the same
    for all heads. done: receives the number of heads that are done. Raises TextError if there is
    one window only to resample from.
    """
    layers, heads, N = reader.config.n_layer, reader.config.n_head, len(windows)
    others = other_windows(N, seed) if how == "resample" else None
    parts = list(_parts(reader, windows, others is not None))
    means = _mean(parts)
    rises = np.zeros((N, layers, heads))
    for layer in range(layers):
        for head in range(heads):
            output = _replacement(parts, means, how, layer, head, others)
            patch = {("context", layer, head): output}
            patches = Patches(reader.config, patch, N, windows.shape[1] - 1)
            found = on_cores(methodcaller("rise", layer, patches), parts)
            rises[:, layer, head] = np.concatenate(found)
            done(layer * heads + head + 1)
    return _measure(rises, how)


def ablate_pairs(
    reader: Reader,
    pairs: Sequence[tuple[Ids, Ids]],
    kind: AttentionKind,
    how: Ablation,
    last: int,
    done: Callable[[int], object] = lambda heads: None,
) -> Measure:
    """N pairs -> rise of the loss by each head of this kind, nats per target character, paired
    standard errors over pairs.

    pairs: the ids of each source, and of what the decoder reads. last: the id after a target.
    mean: over all characters of all pairs. done: receives the number of heads that are done. Raises
    ConfigError for resample: outputs of pairs of different lengths do not fit each other.
    """
    if how == "resample":
        raise ConfigError("ablation of pairs: mean or zero; resample needs texts of one length")
    size = windows_at_once(reader.config)
    parts = [_Pairs(reader, pairs[at : at + size], last) for at in range(0, len(pairs), size)]
    of = reader.encoder if kind == "encoder" and reader.encoder else reader
    layers, heads = of.config.n_layer, of.config.n_head
    means = _mean_of_pairs(parts, kind)
    rises = np.zeros((len(pairs), layers, heads))
    losses = np.concatenate([part.losses() for part in parts])
    for layer in range(layers):
        for head in range(heads):
            hook = _replacing(kind, layer, head, means[layer, head] if how == "mean" else 0.0)
            without = np.concatenate([part.losses(kind, hook) for part in parts])
            rises[:, layer, head] = without - losses
            done(layer * heads + head + 1)
    return _measure(rises, how)


def _measure(rises: Array, how: Ablation) -> Measure:
    """(N, L, H) rises of the loss -> their means and standard errors."""
    explained = f"rise of the loss without the head (its output: {REPLACED_BY[how]}), nats/char"
    means, errors = rises.mean(axis=0), standard_errors(rises)
    return Measure("ablation", "Δloss", explained, means, errors, 0.0, len(rises))


def other_windows(N: int, seed: int) -> Ids:
    """(N,) for each window another one, in a random order in which each comes once.

    Raises TextError if N is 1.
    """
    if N < 2:
        raise TextError("resample needs two windows or more; give a longer text")
    order = np.random.default_rng(seed).permutation(N)
    others = np.empty_like(order)
    others[order] = np.roll(order, 1)
    return others


def mean_contexts(reader: Reader, windows: Ids) -> Array:
    """(N, T + 1) ids -> (L, H, D) mean output of each head, by which "mean" replaces its output."""
    return _mean(list(_parts(reader, windows, False)))


def mean_pair_contexts(
    reader: Reader, pairs: Sequence[tuple[Ids, Ids]]
) -> dict[AttentionKind, Array]:
    """Pairs, as for `ablate_pairs` -> kind of attention -> (L, H, D) mean output of each head."""
    size = windows_at_once(reader.config)
    parts = [_Pairs(reader, pairs[at : at + size], 0) for at in range(0, len(pairs), size)]
    return {kind: _mean_of_pairs(parts, kind) for kind in get_args(AttentionKind)}


def _replacement(
    parts: list[_Part], means: Array, how: Ablation, layer: int, head: int, others: Ids | None
) -> Array | float:
    """What a head's output becomes: 0, its mean (D,), or that of other windows, (N, T, D)."""
    if how == "zero":
        return 0.0
    if others is not None:
        return np.concatenate([part.contexts[layer][:, head] for part in parts])[others]
    mean: Array = means[layer, head]
    return mean


def _parts(reader: Reader, windows: Ids, needed: bool) -> Iterator[_Part]:
    """All windows: one part for each core, or more if memory needs it. needed: see _Part."""
    size = min(windows_at_once(reader.config), math.ceil(len(windows) / cores()))
    for first in range(0, len(windows), size):
        yield _Part(reader, windows, slice(first, first + size), needed)


def _mean(parts: Sequence[_Part]) -> Array:
    """(L, H, D) mean output of each head over all positions of all windows."""
    mean: Array = np.average([part.means for part in parts], 0, [len(p.targets) for p in parts])
    return mean


def _mean_of_pairs(parts: Sequence[_Pairs], kind: AttentionKind) -> Array:
    """(L, H, D) mean output of each head of this kind over all characters of all pairs."""
    sums = sum(part.sums(kind) for part in parts)
    mean: Array = sums / sum(part.rows(kind).sum() for part in parts)
    return mean


class _Part:
    """Some windows under the whole model: the input of each layer, and the losses.

    means: the mean output of each layer's heads, (H, D). contexts: their outputs, (B, H, T, D), if
    they are needed.
    """

    def __init__(self, reader: Reader, windows: Ids, part: slice, needed: bool) -> None:
        self.reader, self.windows, self.targets = reader, part, windows[part, 1:]
        self.means, self.contexts = list[Array](), list[Array]()
        self._streams = [reader.embed(windows[part, :-1])]
        for layer in range(reader.config.n_layer):
            stages = reader.block(self._streams[-1], layer)
            self._streams.append(stages["output"])
            self.means.append(stages["context"].mean(axis=(0, 2), dtype=np.float64))
            if needed:
                self.contexts.append(stages["context"])
        self._losses = self._loss(self._streams.pop())

    def rise(self, layer: int, patches: Patches) -> Array:
        """(B,) rise of each window's loss, nats/character, with a head of this layer replaced."""
        later = range(layer, self.reader.config.n_layer)
        x = self.reader.blocks(self._streams[layer], later, patches.hook(self.windows))
        return self._loss(x) - self._losses

    def _loss(self, stream: Array) -> Array:
        losses = surprises(self.reader.logits(self.reader.final_norm(stream)), self.targets)
        means: Array = losses.mean(axis=-1, dtype=np.float64)
        return means


def _context(kind: AttentionKind) -> str:
    """The name that hooks get for the heads' outputs of a kind of attention."""
    return CROSS + "context" if kind == "cross" else "context"


def _replacing(kind: AttentionKind, layer: int, head: int, output: Any) -> Hook:
    """The hook that replaces a head's output."""

    def hook(name: str, at: int, stage: Array) -> Array:
        if (name, at) == (_context(kind), layer):
            stage[:, head] = output
        return stage

    return hook


class _Pairs:
    """Some pairs under the whole model. last: the id after a target."""

    def __init__(self, reader: Reader, pairs: Sequence[tuple[Ids, Ids]], last: int) -> None:
        self.reader = reader
        self._sources, self._seen = padded([source for source, _ in pairs])
        self._ids, self._read = padded([read for _, read in pairs])
        self._targets, _ = padded([np.append(read[1:], last) for _, read in pairs])

    def rows(self, kind: AttentionKind) -> npt.NDArray[np.bool_]:
        """(N, T) True where this kind of attention has a row that is not padding."""
        return self._seen if kind == "encoder" else self._read

    def losses(self, kind: AttentionKind | None = None, hook: Hook = unchanged) -> Array:
        """(N,) mean nats of each pair's target. hook: of the encoder or, for other kinds, of the
        decoder.
        """
        reader, encoder, allowed = self.reader, self.reader.encoder, self._seen[:, None]
        if encoder is None:
            raise ValueError("this model has no encoder")
        of_encoder, of_decoder = (hook, unchanged) if kind == "encoder" else (unchanged, hook)
        x = encoder.embed(self._sources)
        x = encoder.blocks(x, range(encoder.config.n_layer), of_encoder, allowed=allowed)
        memory = Memory(encoder.final_norm(x), allowed)
        x = reader.embed(self._ids)
        x = reader.blocks(x, range(reader.config.n_layer), of_decoder, memory=memory)
        nats = surprises(reader.logits(reader.final_norm(x)), self._targets).astype(np.float64)
        return (nats * self._read).sum(axis=-1) / self._read.sum(axis=-1)  # type: ignore[no-any-return]

    def sums(self, kind: AttentionKind) -> Array:
        """(L, H, D) each head's outputs of this kind, summed over all characters."""
        found: dict[int, Array] = {}

        def hook(name: str, layer: int, stage: Array) -> Array:
            if name == _context(kind):  # (N, H, T, D)
                found[layer] = np.einsum("nhtd,nt->hd", stage, self.rows(kind), dtype=np.float64)
            return stage

        self.losses(kind, hook)
        return np.stack([found[layer] for layer in sorted(found)])
