"""The counting expert of a run, and its gate, which is fitted to the GPT on text that neither of
them has learned (gpt/counting/held_out.py).

The GPT trains on its own loss, as if it were alone. If a gate learned at the same time, it would
ignore the GPT, as counting is better at first, and the GPT would get no gradient.
"""

from __future__ import annotations

import numpy as np

from gpt.config import ModelConfig
from gpt.counting.baseline import Experts, count_experts
from gpt.counting.gate import FACTORS, PRIOR_MEAN, fit_gate
from gpt.counting.held_out import PIECES, HeldOut
from gpt.counting.mixture import COUNTING_ALONE, Array, Logits, Mixture
from gpt.counting.tables import release_memory
from gpt.model import GPT
from gpt.training.evaluation import predict_span
from gpt.vocabulary import Ids

WINDOWS = 16  # windows that the GPT computes together


class Counting:
    """Counts the (n,) ids of the training split, unless experts are given.

    held: the text that the gate is fitted to; None for a model without counting.
    """

    def __init__(self, ids: Ids, config: ModelConfig, experts: Experts | None = None) -> None:
        self.ids, self.config = ids, config
        size, orders = config.vocab_size, config.counting
        self.held = HeldOut.of(len(ids), size) if orders else None
        if orders and experts is None:
            experts = count_experts(ids, size, orders)
        self.experts = experts
        self._latest: tuple[int, Mixture] | None = None  # with its step

    @property
    def note(self) -> str:
        """A note if MOST_GRAMS allows fewer orders than asked; else ""."""
        asked = self.config.counting
        if self.experts is None or self.experts.whole.trie.orders == min(asked, len(self.ids)):
            return ""
        orders = self.experts.whole.trie.orders
        return f"counts n-grams up to {orders}, not {asked}: this text has too many different ones"

    def mixture(self, model: GPT, device: str, step: int) -> Mixture | None:
        """The expert with a gate, the one that best predicts the held-out text together with the
        model at this step; None without counting. At step 0, and if the model's logits are not
        finite, the gate lets counting predict alone.
        """
        release_memory()
        if self.experts is None or self.held is None:
            return None
        if self._latest is None or self._latest[0] != step:
            gate = COUNTING_ALONE
            if step:
                gate = self._fitted(model, device, self.held, self.experts.held)
            self._latest = step, Mixture(self.experts.whole, gate)
            release_memory()
        return self._latest[1]

    def _fitted(self, model: GPT, device: str, held: HeldOut, counting: Logits) -> Array:
        """The gate after a pass of the GPT over the held-out text, in windows of block_size; the
        character before each is context. counting: see Experts.held.
        """
        if not held.length:  # the text is too short to hold anything out
            return PRIOR_MEAN * FACTORS
        length = min(self.config.block_size, held.length)
        read = held.length - held.length % length  # of each piece
        starts = (held.starts[:, None] + np.arange(0, read, length)).ravel()
        counting = counting.reshape(PIECES, held.length, -1)[:, :read].reshape(PIECES * read, -1)
        gpt = np.empty(counting.shape, np.float32)
        for first in range(0, len(starts), WINDOWS):
            span = starts[first : first + WINDOWS] - 1, length
            logits, _ = predict_span(model, self.ids, span, device)
            gpt[first * length :][: len(logits)] = logits.cpu().numpy()
        release_memory()
        if not np.isfinite(gpt).all():
            return COUNTING_ALONE
        came = self.ids[starts[:, None] + np.arange(length)].ravel()
        return fit_gate(gpt, counting, came) * FACTORS
