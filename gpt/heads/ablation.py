"""The effect of a head: how much the loss rises without its output (Michel et al. 2019).

The head's output is replaced by its mean over all positions of all windows, or by zero, and only
its layer and later layers are computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from gpt.heads.measures import Measure, standard_errors
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.score import surprises, windows_at_once
from gpt.vocabulary import Ids

Ablation = Literal["mean", "zero"]


def ablate(
    reader: Reader, windows: Ids, how: Ablation, done: Callable[[int], object] = lambda heads: None
) -> Measure:
    """(N, T + 1) ids -> rise of the loss by each head, nats/character, paired standard errors.

    done: receives the number of heads that are done.
    """
    layers, heads = reader.config.n_layer, reader.config.n_head
    size = windows_at_once(reader.config)
    parts = [_Part(reader, windows[n : n + size]) for n in range(0, len(windows), size)]
    sizes = [len(part.targets) for part in parts]
    outputs = np.average([part.contexts for part in parts], 0, sizes)  # (L, H, D)
    if how == "zero":
        outputs = np.zeros_like(outputs)
    rises = np.zeros((len(windows), layers, heads))
    for layer in range(layers):
        for head in range(heads):
            each = [part.rise(layer, head, outputs[layer, head]) for part in parts]
            rises[:, layer, head] = np.concatenate(each)
            done(layer * heads + head + 1)
    explained = f"rise of the loss without the head (its output: {how}), nats/char"
    means, errors = rises.mean(axis=0), standard_errors(rises)
    return Measure("ablation", "Δloss", explained, means, errors, 0.0, len(windows))


class _Part:
    """Some windows under the whole model: the input of each layer, and the losses.

    contexts (L, H, D): the mean output of each head.
    """

    def __init__(self, reader: Reader, windows: Ids) -> None:
        self.reader, self.targets = reader, windows[:, 1:]
        self._streams, contexts = [reader.embed(windows[:, :-1])], []
        for layer in range(reader.config.n_layer):
            stages = reader.block(self._streams[-1], layer)
            self._streams.append(stages["output"])
            contexts.append(stages["context"].mean(axis=(0, 2), dtype=np.float64))  # (H, D)
        self.contexts = np.stack(contexts)
        self._losses = self._loss(self._streams.pop())

    def rise(self, layer: int, head: int, output: Array) -> Array:
        """(N,) rise of each window's loss, nats/character, with this (D,) output of the head."""
        x = self.reader.block(self._streams[layer], layer, replaced={head: output})["output"]
        for later in range(layer + 1, self.reader.config.n_layer):
            x = self.reader.block(x, later)["output"]
        return self._loss(x) - self._losses

    def _loss(self, stream: Array) -> Array:
        losses = surprises(self.reader.logits(self.reader.final_norm(stream)), self.targets)
        means: Array = losses.mean(axis=-1, dtype=np.float64)
        return means
