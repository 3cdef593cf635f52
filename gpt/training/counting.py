"""The counting expert of a run: a thread counts, and the gate is fitted to the GPT.

The gate is fitted with an expert of fewer counts (gpt/counting/held_out.py).

The GPT trains on its own loss, as if it were alone. If a gate learned at the same time, it would
ignore the GPT, as counting is better at first, and the GPT would get no gradient.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpt.config import ModelConfig
from gpt.counting.ahead import CountedAhead, count_experts
from gpt.counting.expert import Expert
from gpt.counting.held_out import HeldOut
from gpt.counting.mixture import (
    COUNTING_ALONE,
    FEATURES,
    Block,
    Gate,
    Mixture,
    fit_gate,
    gate_features,
    slices,
)
from gpt.counting.tables import release_memory
from gpt.model import GPT
from gpt.training.evaluation import Span, predict_span
from gpt.vocabulary import Ids

WINDOWS = 16  # windows that the GPT computes together
#: Factor on the GPT's fitted weight. The GPT learns the text around the held-out pieces, which the
#: counts leave out; so on these pieces the GPT is better than on new text.
GPT_WEIGHT_FACTOR = 0.9


class Counting:
    """Counts the (n,) ids of the training split.

    held: the text that the gate is fitted to; None for a model without counting. ahead: counts that
    have been started already.
    """

    def __init__(self, ids: Ids, config: ModelConfig, ahead: CountedAhead | None = None) -> None:
        self.ids, self.config = ids, config
        self.held = HeldOut.of(len(ids), config.vocab_size) if config.counting else None
        self._latest: tuple[int, Mixture] | None = None  # with its step
        if config.counting:
            begun = ahead.experts if ahead else None
            size, orders = config.vocab_size, config.counting
            self._whole, self._apart = begun or count_experts(ids, size, orders)

    @property
    def note(self) -> str:
        """A note if MOST_GRAMS allows fewer orders than asked; else "". Waits for the counts."""
        asked = self.config.counting
        orders = self._whole.result().trie.orders if asked else 0
        if orders == min(asked, len(self.ids)):
            return ""
        return f"counts n-grams up to {orders}, not {asked}: this text has too many different ones"

    def wait(self) -> None:
        """Waits until everything is counted."""
        if self.config.counting:
            self._whole.result(), self._apart.result()

    def mixture(self, model: GPT, device: str, step: int) -> Mixture | None:
        """The expert with a gate, the one that best predicts the held-out text together with the
        model at this step; None without counting. At step 0, and if the model's logits are not
        finite, the gate lets counting predict alone.
        """
        release_memory()
        if self.held is None:
            return None
        if self._latest is None or self._latest[0] != step:
            gate = self._fitted(model, device, self.held) if step else COUNTING_ALONE
            self._latest = step, Mixture(self._whole.result(), gate)
            release_memory()
        return self._latest[1]

    def _fitted(self, model: GPT, device: str, held: HeldOut) -> Gate:
        apart = self._apart.result()
        release_memory()
        blocks = [self._block(model, apart, span, device) for span in self._windows(held)]
        release_memory()
        finite = all(np.isfinite(block.gpt).all() for block in blocks)
        return fit_gate(blocks).scaled(GPT_WEIGHT_FACTOR) if finite else COUNTING_ALONE

    def _windows(self, held: HeldOut) -> Iterator[Span]:
        """The held-out text in windows, WINDOWS at a time; the character before each is context."""
        length = min(self.config.block_size, held.length)
        if length:
            within = np.arange(0, held.length - length + 1, length)
            starts = (held.starts[:, None] + within - 1).ravel()
            for first in range(0, len(starts), WINDOWS):
                yield starts[first : first + WINDOWS], length

    def _block(self, model: GPT, expert: Expert, span: Span, device: str) -> Block:
        """What both experts predict for these windows."""
        logits, came = predict_span(model, self.ids, span, device)
        histories = expert.trie.histories_at(self.ids, span[0] + 1, span[1])
        gpt = logits.cpu().numpy()  # (b · T, vocab_size)
        logs, seen = np.empty(gpt.shape, "f4"), np.empty((len(gpt), len(FEATURES)))
        for part in slices(*gpt.shape):
            counted = expert.predict(histories[:, part])
            logs[part], seen[part] = counted.logs, gate_features(counted, gpt[part])
        return Block(gpt.astype("f4", copy=False), logs, seen, came.cpu().numpy())
