"""The effect of a head: how much the loss rises without its output (Michel et al. 2019), and its
Shapley value, the mean of that rise over all orders in which the heads can be removed.

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

from gpt.blocks import format_number
from gpt.config import Ablation, ModelConfig
from gpt.config.fields import require
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
MOST_SHAPLEY = 12  # most heads for a Shapley value: all 2¹² subsets are removed
SHAPLEY_WORK = 1.5e11  # multiplications; sets the number of texts, at most SHAPLEY_TEXTS
SHAPLEY_TEXTS = 16


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

    def part(self, texts: slice) -> Texts:
        """Some of the texts; `texts` selects them."""
        return Texts(self.ids[texts], self.targets[texts])

    def parts(self, config: ModelConfig) -> list[Texts]:
        """The texts in parts: one for each core, or more if memory requires it."""
        size = min(windows_at_once(config), math.ceil(len(self) / cores()))
        return [self.part(slice(first, first + size)) for first in range(0, len(self), size)]


def share_between(done: Done, begin: float, end: float = 1.0) -> Done:
    """The `done` of a part of the work, whose share of all the work goes from begin to end."""
    return lambda share: done(begin + share * (end - begin))


def measure_effects(
    reader: Reader, texts: Texts, how: Ablation, done: Done = lambda share: None
) -> list[Measure]:
    """How much the loss rises without each head, and its Shapley value unless there are too many
    heads; see `ablate` and `shapley`.
    """
    n = reader.config.n_layer * reader.config.n_head
    work = n + 2**n / 4 * (n <= MOST_SHAPLEY)  # in forward passes that the ablation of a head takes
    found = [ablate(reader, texts, how, share_between(done, 0, n / work))]
    if n <= MOST_SHAPLEY:
        found.append(shapley(reader, texts, how, share_between(done, n / work)))
    return found


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
    parts = replacement_parts(reader, texts, how, seed)
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


def shapley(
    reader: Reader, texts: Texts, how: Ablation, done: Done = lambda share: None
) -> Measure:
    """Each head's Shapley value (Shapley 1953): how much the loss rises when the head is removed,
    averaged over all orders in which the n heads can be removed one after the other.

    Exact: computed from the losses without each of the 2ⁿ subsets. The values of all heads sum to
    the rise without all of them. If all texts are too much work, only some of them are used, at
    least two. For units, errors and arguments see `ablate`. Raises ConfigError for more than
    MOST_SHAPLEY heads.
    """
    config = reader.config
    n = config.n_layer * config.n_head
    require(n <= MOST_SHAPLEY, "shapley", f"2^{n} subsets of {n} heads are too many")
    layer = config.parameters() / config.n_layer * texts.ids.shape[1]
    most = min(SHAPLEY_TEXTS, max(2, int(SHAPLEY_WORK / (2**n * layer))))
    means = mean_contexts(reader, texts) if how == "mean" else None  # as in `ablate`
    texts = texts.part(slice(0, None, math.ceil(len(texts) / most)))
    parts, first = replacement_parts(reader, texts, how, means=means), 2**config.n_head
    losses = np.empty((first, 2**n // first, len(texts)))
    for subset in range(first):  # subset of layer 0
        works = [partial(part.losses_without, subset) for part in parts]
        losses[subset] = np.concatenate(map_on_cores(call, works), axis=-1)
        done((subset + 1) / first)
    # subsets of later layers come first, as bit l·H + h of a subset's number stands for head (l, h)
    values = shapley_values(losses.swapaxes(0, 1).reshape(2**n, -1))  # (n, N)
    rises = values.T.reshape(-1, config.n_layer, config.n_head)
    explained = (
        "Shapley value of Δloss: the mean rise over all orders in which heads are taken away, "
        f"nats/char; on {len(rises)} of the texts, all heads together "
        f"{format_number(float(rises.sum(axis=(1, 2)).mean()), 4)}"
    )
    means, errors = rises.mean(axis=0), standard_errors(rises)
    return Measure("shapley", "Shapley", explained, means, errors, 0.0, len(rises))


def shapley_values(worth: Array) -> Array:
    """(2ⁿ, …) the worth of each subset of n players, bit i of its number is player i -> (n, …)."""
    n = len(worth).bit_length() - 1
    subsets = np.arange(len(worth))
    sizes = np.array([subset.bit_count() for subset in range(len(worth))])
    found = []
    for player in range(n):
        without = subsets[(subsets >> player) & 1 == 0]
        orders = np.array([1 / (n * math.comb(n - 1, size)) for size in range(n)])
        gained = worth[without | 1 << player] - worth[without]
        found.append(np.tensordot(orders[sizes[without]], gained, 1))
    return np.stack(found)


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


def replacement_parts(
    reader: Reader,
    texts: Texts,
    how: Ablation,
    seed: int = 0,
    means: Array | None = None,
) -> list[_Part]:
    """All texts in parts; each part knows what replaces the output of each head; see `ablate`.
    means: (L, H, D) from `mean_contexts`; None: the means over these texts.
    """
    others = other_windows(len(texts), seed) if how == "resample" else None
    parts = _parts(reader, texts, others is not None)
    means = (_mean(parts) if means is None else means)[:, :, None]  # (L, H, 1, D)
    ends = np.cumsum([len(part.texts) for part in parts])[:-1]
    for layer, mean in enumerate(means):
        outputs: list[Array] = [mean if how == "mean" else np.zeros_like(mean)] * len(parts)
        if others is not None:
            outputs = np.split(np.concatenate([p.contexts[layer] for p in parts])[others], ends)
        for part, output in zip(parts, outputs, strict=True):
            part.replaced.append(output)
    return parts


def keep_unchanged(name: str, layer: int, stage: Array) -> Array:
    """A hook that changes nothing. With any hook numpy computes, so a comparison with replaced
    stages is exact even if a device computes other forward passes.
    """
    return stage


def text_losses(reader: Reader, texts: Texts, x: Array) -> Array:
    """(B, T, C) output of the last layer -> (B,) mean nats of each text's targets."""
    nats = surprisals(reader.logits(reader.final_norm(x)), texts.targets).astype(np.float64)
    return nats.mean(axis=-1)  # type: ignore[no-any-return]


def mean_contexts(reader: Reader, texts: Texts) -> Array:
    """(L, H, D) mean output of each head, which replaces the output for "mean"."""
    return _mean(_parts(reader, texts, False))


def _mean(parts: Sequence[_Part]) -> Array:
    """(L, H, D) mean output of each head over all characters of all texts."""
    characters = sum(part.texts.ids.size for part in parts)
    mean: Array = np.sum([part.sums for part in parts], axis=0) / characters
    return mean


def _parts(reader: Reader, texts: Texts, needed: bool) -> list[_Part]:
    """All texts in parts. needed: see _Part."""
    return [_Part(reader, part, needed) for part in texts.parts(reader.config)]


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
            stages = reader.block(x, layer, keep_unchanged)
            x, context = stages["resid_post"], stages["context"]
            self.sums.append(context.sum(axis=(0, 2), dtype=np.float64))
            if needed:
                self.contexts.append(context)
        self._losses = self._loss(x)

    def rise(self, layer: int, head: int) -> Array:
        """(B,) how much each text's loss rises, in nats per character, without a head."""
        later = range(layer, self.reader.config.n_layer)
        x = self._without(self._streams[layer], layer, 1 << head, later)
        return self._loss(x) - self._losses

    def losses_without(self, subset: int) -> Array:
        """(M, B) losses without a subset of layer 0's heads and each of the M subsets of all later
        layers' heads. The bits of a subset's number stand for heads.
        """
        depth, heads = self.reader.config.n_layer, self.reader.config.n_head
        found = np.empty((2 ** (heads * (depth - 1)), len(self.texts)))

        def go_on(x: Array, layer: int, number: int) -> None:
            if layer == depth:
                found[number] = self._loss(x)
                return
            for each in range(2**heads):
                later = self._without(x, layer, each, range(layer, layer + 1))
                go_on(later, layer + 1, number | each << heads * (layer - 1))

        go_on(self._without(self._streams[0], 0, subset, range(1)), 1, 0)
        return found

    def _without(self, x: Array, layer: int, subset: int, layers: range) -> Array:
        """The input of these layers -> their output without a subset of the heads of `layer`."""
        heads = [head for head in range(self.reader.config.n_head) if subset >> head & 1]

        def hook(name: str, at: int, stage: Array) -> Array:
            if (name, at) == ("context", layer):
                stage[:, heads] = self.replaced[layer][..., heads, :, :]
            return stage

        return self.reader.blocks(x, layers, hook)

    def _loss(self, x: Array) -> Array:
        """(B, T, C) output of the last layer -> (B,) mean nats of each text's targets."""
        return text_losses(self.reader, self.texts, x)
