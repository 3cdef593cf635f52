"""The effect of a head: how much the loss rises without its output (Michel et al. 2019).

The head's output is replaced, and only its layer and later layers are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np

from gpt.errors import TextError
from gpt.heads.measures import Measure, standard_errors
from gpt.heads.patching import Patches
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
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
            for part in parts:
                rises[part.windows, layer, head] = part.rise(layer, patches)
            done(layer * heads + head + 1)
    explained = f"rise of the loss without the head (its output: {REPLACED_BY[how]}), nats/char"
    means, errors = rises.mean(axis=0), standard_errors(rises)
    return Measure("ablation", "Δloss", explained, means, errors, 0.0, N)


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
    """All windows, as many at once as memory allows. needed: see _Part."""
    size = windows_at_once(reader.config)
    for first in range(0, len(windows), size):
        yield _Part(reader, windows, slice(first, first + size), needed)


def _mean(parts: Sequence[_Part]) -> Array:
    """(L, H, D) mean output of each head over all positions of all windows."""
    mean: Array = np.average([part.means for part in parts], 0, [len(p.targets) for p in parts])
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
