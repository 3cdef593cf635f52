"""The effect of a head: how much the loss rises without its output (Michel et al. 2019).

The head's output is replaced, and its layer and the later ones are computed again; with an encoder
whose head it is, also the decoder.
Tensor names: N texts, T time, S characters of a source, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import call
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import Ablation, AttentionKind
from gpt.devices import cores
from gpt.errors import ConfigError, TextError
from gpt.heads.measures import Measure, standard_errors
from gpt.reading.decode import on_cores
from gpt.reading.gpt import CROSS, Memory, Reader
from gpt.reading.layers import Array
from gpt.reading.pairs import padded
from gpt.reading.score import surprisals, windows_at_once
from gpt.vocabulary import Ids

#: What each replaces a head's output by.
REPLACED_BY = {
    "mean": "mean",
    "zero": "zero",
    "resample": "that of another window, drawn at random",
}
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Texts:
    """Texts that a loss is measured on: (N, T) ids, and targets, what follows each of them.

    sources: (N, S) ids, for a model with an encoder. read, seen: False where `ids` and `sources`
    have padding.
    """

    ids: Ids
    targets: Ids
    read: Mask
    sources: Ids | None = None
    seen: Mask | None = None

    @classmethod
    def of_windows(cls, windows: Ids) -> Texts:
        """(N, T + 1) ids of a text."""
        return cls(windows[:, :-1], windows[:, 1:], np.ones_like(windows[:, 1:], np.bool_))

    @classmethod
    def of_pairs(cls, pairs: Sequence[tuple[Ids, Ids]], last: int) -> Texts:
        """pairs: the ids of each source, and of what the decoder reads. last: the id after a
        target.
        """
        sources, seen = padded([source for source, _ in pairs])
        ids, read = padded([read for _, read in pairs])
        targets, _ = padded([np.append(read[1:], last) for _, read in pairs])
        return cls(ids, targets, read, sources, seen)

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, texts: slice) -> Texts:
        """Some of the texts."""
        arrays = {name: each[texts] for name, each in vars(self).items() if each is not None}
        return replace(self, **arrays)


def ablate(
    reader: Reader,
    texts: Texts,
    how: Ablation,
    kind: AttentionKind = "decoder",
    done: Callable[[int], object] = lambda heads: None,
    seed: int = 0,
) -> Measure:
    """Rise of the loss by each head of a kind of attention, nats a character, paired standard
    errors over texts.

    mean: over all characters of all texts. resample: each window gets the output that the head has
    in another window at the same position (Chan et al. 2022); the seed decides which one, the same
    for all heads. done: receives the number of heads that are done. Raises TextError if there is
    one window only to resample from, ConfigError to resample pairs, as their lengths differ.
    """
    others = None
    if how == "resample":
        if texts.sources is not None:
            raise ConfigError("ablation of pairs: mean or zero; resample needs texts of one length")
        others = other_windows(len(texts), seed)
    parts = list(_parts(reader, texts, kind, others is not None))
    means = _mean(parts)
    layers, heads, _ = means.shape
    rises = np.zeros((len(texts), layers, heads))
    for layer, head in np.ndindex(layers, heads):
        outputs: list[Any] = [means[layer, head] if how == "mean" else 0.0] * len(parts)
        if others is not None:
            drawn = np.concatenate([part.contexts[layer][:, head] for part in parts])[others]
            outputs = np.split(drawn, np.cumsum([len(part.texts) for part in parts])[:-1])
        works = [
            partial(part.rise, layer, head, output)
            for part, output in zip(parts, outputs, strict=True)
        ]
        rises[:, layer, head] = np.concatenate(on_cores(call, works))
        done(layer * heads + head + 1)
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


def mean_contexts(reader: Reader, texts: Texts, kind: AttentionKind = "decoder") -> Array:
    """(L, H, D) mean output of each head of a kind, by which "mean" replaces its output."""
    return _mean(list(_parts(reader, texts, kind, False)))


def _mean(parts: Sequence[_Part]) -> Array:
    """(L, H, D) mean output of each head over all characters of all texts."""
    characters = sum(int(part.rows.sum()) for part in parts)
    mean: Array = np.sum([part.sums for part in parts], axis=0) / characters
    return mean


def _parts(reader: Reader, texts: Texts, kind: AttentionKind, needed: bool) -> Iterator[_Part]:
    """All texts: one part for each core, or more if memory needs it. needed: see _Part."""
    size = min(windows_at_once(reader.config), math.ceil(len(texts) / cores()))
    for first in range(0, len(texts), size):
        yield _Part(reader, texts.part(slice(first, first + size)), kind, needed)


class _Part:
    """Some texts under the whole model: the input of each layer that has this kind of attention,
    and the losses.

    rows: (B, T), or (B, S) for the encoder, False for padding. sums: of each layer's heads, (H, D),
    their outputs added over all rows. contexts: their outputs, (B, H, T, D), if they are needed.
    """

    def __init__(self, reader: Reader, texts: Texts, kind: AttentionKind, needed: bool) -> None:
        self.reader, self.texts = reader, texts
        self._stack, self.rows, ids = reader, texts.read, texts.ids
        self._context = CROSS + "context" if kind == "cross" else "context"
        self._more: dict[str, Any] = {}
        if texts.sources is not None and texts.seen is not None:
            if kind == "encoder" and reader.encoder:
                self._stack, self.rows, ids = reader.encoder, texts.seen, texts.sources
                self._more = {"allowed": texts.seen[:, None]}
            else:
                self._more = {"memory": reader.encode(texts.sources, texts.seen)}
        self.sums, self.contexts, self._streams = list[Array](), list[Array](), list[Array]()
        x = self._stack.embed(ids)
        for layer in range(self._stack.config.n_layer):
            self._streams.append(x)
            stages = self._stack.block(x, layer, **self._more)
            x, context = stages["resid_post"], stages[self._context]
            self.sums.append(np.einsum("bhtd,bt->hd", context, self.rows, dtype=np.float64))
            if needed:
                self.contexts.append(context)
        self._losses = self._loss(x)

    def rise(self, layer: int, head: int, output: Any) -> Array:
        """(B,) rise of each text's loss, nats a character, with a head's output replaced."""

        def hook(name: str, at: int, stage: Array) -> Array:
            if (name, at) == (self._context, layer):
                stage[:, head] = output
            return stage

        later = range(layer, self._stack.config.n_layer)
        x = self._stack.blocks(self._streams[layer], later, hook, **self._more)
        return self._loss(x) - self._losses

    def _loss(self, x: Array) -> Array:
        """(B, …, C), what leaves the last layer -> (B,) mean nats of each text's targets."""
        reader, texts = self.reader, self.texts
        if self._stack is not reader:
            memory = Memory(self._stack.final_norm(x), self._more["allowed"])
            x = reader.blocks(reader.embed(texts.ids), range(reader.config.n_layer), memory=memory)
        nats = surprisals(reader.logits(reader.final_norm(x)), texts.targets).astype(np.float64)
        return (nats * texts.read).sum(axis=-1) / texts.read.sum(axis=-1)  # type: ignore[no-any-return]
