"""The effect of a head: how much the loss rises without its output (Michel et al. 2019).

The head's output is replaced, and its layer and the later ones are computed again.
Tensor names: N texts, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import call

import numpy as np

from gpt.config import Ablation, ModelConfig
from gpt.devices import cores
from gpt.errors import TextError
from gpt.heads.measures import Measure, standard_errors
from gpt.reading.decode import map_on_cores
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.score import surprisals, windows_at_once
from gpt.vocabulary import Ids

#: What replaces a head's output in each case.
REPLACED_BY = {
    "mean": "its mean",
    "zero": "0",
    "resample": "that of another window, drawn at random",
}
Done = Callable[[float], object]  # called with the share of the work that is done


@dataclass(frozen=True)
class Texts:
    """Texts on which a loss is measured: (N, T) ids, and targets, the ids that follow them."""

    ids: Ids
    targets: Ids

    @classmethod
    def of_windows(cls, windows: Ids) -> Texts:
        """From windows of a text, (N, T + 1) ids."""
        return cls(windows[:, :-1], windows[:, 1:])

    def __len__(self) -> int:
        return len(self.ids)

    def parts(self, config: ModelConfig) -> list[Texts]:
        """The texts in parts: one for each core, or more if memory requires it."""
        size = min(windows_at_once(config), math.ceil(len(self) / cores()))
        starts = range(0, len(self), size)
        return [Texts(self.ids[n : n + size], self.targets[n : n + size]) for n in starts]


def ablate(
    reader: Reader,
    texts: Texts,
    how: Ablation,
    done: Done = lambda share: None,
    seed: int = 0,
) -> Measure:
    """How much the loss rises without each head, in nats per character, with paired standard errors
    over texts.

    how: the replacement of the head's output. mean: its mean over all characters of all texts.
    resample: its output in another window at the same position (Chan et al. 2022); the seed chooses
    the window, the same for all heads. Raises TextError for resampling with a single window.
    """
    parts = _replacement_parts(reader, texts, how, seed)
    layers, heads = reader.config.n_layer, reader.config.n_head
    rises = np.zeros((len(texts), layers, heads))
    for layer, head in np.ndindex(layers, heads):
        works = [partial(part.rise, layer, head) for part in parts]
        rises[:, layer, head] = np.concatenate(map_on_cores(call, works))
        done((layer * heads + head + 1) / (layers * heads))
    explained = (
        f"rise of the loss without the head (its output replaced by {REPLACED_BY[how]}), nats/char"
    )
    means, errors = rises.mean(axis=0), standard_errors(rises)
    return Measure("ablation", "Δloss", explained, means, errors, 0.0, len(rises))


def mean_contexts(reader: Reader, texts: Texts) -> Array:
    """(L, H, D) mean output of each head over all characters of all texts, which replaces the
    output for "mean".
    """
    return _mean([_Part(reader, part, False) for part in texts.parts(reader.config)])


def other_windows(N: int, seed: int) -> Ids:
    """(N,) another window for each window, in a random order in which each occurs once.

    Raises TextError if N is 1.
    """
    if N < 2:
        raise TextError("resample needs two windows; give a longer text or more `windows`")
    order = np.random.default_rng(seed).permutation(N)
    others = np.empty_like(order)
    others[order] = np.roll(order, 1)
    return others


def _replacement_parts(reader: Reader, texts: Texts, how: Ablation, seed: int) -> list[_Part]:
    """All texts in parts; each part knows what replaces the output of each head; see `ablate`."""
    others = other_windows(len(texts), seed) if how == "resample" else None
    parts = [_Part(reader, part, others is not None) for part in texts.parts(reader.config)]
    ends = np.cumsum([len(part.texts) for part in parts])[:-1]
    for layer, mean in enumerate(_mean(parts)[:, :, None]):  # (H, 1, D)
        outputs: list[Array] = [mean if how == "mean" else np.zeros_like(mean)] * len(parts)
        if others is not None:
            outputs = np.split(np.concatenate([p.contexts[layer] for p in parts])[others], ends)
        for part, output in zip(parts, outputs, strict=True):
            part.replaced.append(output)
    return parts


def _mean(parts: Sequence[_Part]) -> Array:
    """(L, H, D) mean output of each head over all characters of all texts."""
    characters = sum(part.texts.ids.size for part in parts)
    mean: Array = np.sum([part.sums for part in parts], axis=0) / characters
    return mean


def _keep_unchanged(name: str, layer: int, stage: Array) -> Array:
    """A hook that changes nothing. With any hook numpy computes, so a comparison with replaced
    stages is exact even if a device computes other forward passes.
    """
    return stage


class _Part:
    """Some texts computed by the whole model: the input of each layer, and the losses.

    sums: for each layer, (H, D) the heads' outputs added over all characters. contexts: (B, H, T,
    D) their outputs, if needed. replaced: what replaces them in each layer, an array that
    broadcasts to their shape.
    """

    def __init__(self, reader: Reader, texts: Texts, needed: bool) -> None:
        self.reader, self.texts = reader, texts
        self.sums, self.contexts, self._streams = list[Array](), list[Array](), list[Array]()
        self.replaced = list[Array]()
        x = reader.embed(texts.ids)
        for layer in range(reader.config.n_layer):
            self._streams.append(x)
            stages = reader.block(x, layer, _keep_unchanged)
            x, context = stages["resid_post"], stages["context"]
            self.sums.append(context.sum(axis=(0, 2), dtype=np.float64))
            if needed:
                self.contexts.append(context)
        self._losses = self._loss(x)

    def rise(self, layer: int, head: int) -> Array:
        """(B,) how much each text's loss rises, in nats per character, without a head."""

        def hook(name: str, at: int, stage: Array) -> Array:
            if (name, at) == ("context", layer):
                stage[:, head] = self.replaced[layer][..., head, :, :]
            return stage

        later = range(layer, self.reader.config.n_layer)
        x = self.reader.blocks(self._streams[layer], later, hook)
        return self._loss(x) - self._losses

    def _loss(self, x: Array) -> Array:
        """(B, T, C) output of the last layer -> (B,) mean nats of each text's targets."""
        logits = self.reader.logits(self.reader.final_norm(x))
        nats = surprisals(logits, self.texts.targets).astype(np.float64)
        return nats.mean(axis=-1)  # type: ignore[no-any-return]
