"""The counting expert and its gate in torch: gpt/counting/mixture.py for the next character of B
streams on a device.

No shape depends on the text, so a CUDA graph can repeat the work. In float64.
Tensor names: N orders, B streams, V vocab_size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpt.counting.gate import MOST_WEIGHT
from gpt.counting.mixture import Mixture


class TorchMixture:
    """The counting expert of a checkpoint, and the gate that mixes it with the GPT, on a device.

    source: what it was copied from.
    """

    def __init__(self, mixture: Mixture, device: torch.device) -> None:
        def copied(array: npt.NDArray[Any], kind: type[np.number[Any]]) -> Tensor:
            return torch.from_numpy(array.astype(kind)).to(device)

        self.source, expert = mixture, mixture.expert
        trie, self._vocab_size = expert.trie, expert.vocab_size
        self._symbols = copied(trie.symbols, np.int32)
        self._counts = copied(trie.counts, np.int32)
        self._starts = copied(trie.starts, np.int64)
        self._unseen = trie.unseen
        self._discounts = copied(expert.discounts, np.float64)  # (N, 4)
        self._gate = copied(mixture.gate.weights, np.float64)  # (2, F)
        self._orders = torch.arange(1, trie.orders + 1, device=device)[:, None]  # (N, 1)
        self._places = torch.arange(self._vocab_size, device=device)

    def scores(self, logits: Tensor, histories: Tensor, alone: bool = False) -> Tensor:
        """(B, V) logits of the GPT and (N, B) histories -> (B, V) the logits of both together.

        alone: counting, without the GPT.
        """
        chances = self._predict(histories)
        counting = chances.log()
        if alone:
            return counting
        gpt = logits.double().log_softmax(dim=-1)
        entropy, agreement = -(chances * counting).sum(dim=-1), (chances * gpt).sum(dim=-1)
        features = torch.stack([torch.ones_like(entropy), entropy, agreement], dim=-1)  # (B, F)
        shares = (self._gate[:, None] * features).sum(dim=-1).clamp(0.0, MOST_WEIGHT)  # (2, B)
        return shares[0, :, None] * gpt + shares[1, :, None] * counting

    def advanced(self, histories: Tensor, ids: Tensor) -> Tensor:
        """(N, B) histories and (B,) next characters -> (N, B) the histories after them."""
        grams, present = self._children(histories[:-1])  # (N − 1, B, V)
        same = present & (self._symbols[grams] == ids[:, None])
        found = torch.where(same, grams + 1, -1).amax(dim=-1)  # (N − 1, B)
        after = torch.where(found < 0, self._unseen, found)
        return torch.cat([torch.zeros_like(histories[:1]), after])

    def _children(self, histories: Tensor) -> tuple[Tensor, Tensor]:
        """(n, B) histories -> (n, B, V) the n-grams that continue each, and which of them exist."""
        first, end = self._starts[histories], self._starts[histories + 1]
        grams = first[..., None] + self._places
        present = grams < end[..., None]
        return torch.where(present, grams, 0), present

    def _predict(self, histories: Tensor) -> Tensor:
        """(N, B) histories -> (B, V) probabilities."""
        grams, present = self._children(histories)  # (N, B, V)
        counts = torch.where(present, self._counts[grams], 0)
        taken = self._discounts[self._orders[..., None] - 1, counts.clamp(max=3)]
        total = counts.sum(dim=-1)  # (N, B)
        divisor = total.clamp(min=1)
        left = torch.where(total > 0, taken.sum(dim=-1) / divisor, 1.0)
        symbols = torch.where(present, self._symbols[grams], self._vocab_size).long()
        shares = (counts - taken) / divisor[..., None]
        # The last column gets the zeros of n-grams that do not exist: so no other cell gets two.
        empty = shares.new_zeros(*total.shape, self._vocab_size + 1)
        seen = empty.scatter(-1, symbols, shares)[..., :-1]
        chances = torch.full_like(seen[0], 1.0 / self._vocab_size)
        for of_order, share in zip(seen, left[..., None], strict=True):
            chances = of_order + share * chances
        return chances
