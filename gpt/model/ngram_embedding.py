"""Embeddings of the last 2, 3 … N characters, added to a character's own.

Earlier releases trained models with these (hashed n-gram embeddings: Svenstrup et al. 2017, Clark
et al. 2022). This release computes them, but does not train them.
Tensor names: B batch, T time, C n_embd, N orders.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.config import ModelConfig

MULTIPLIER, MODULUS = 1_000_003, 2**31 - 1  # of the hash, whose products fit in 63 bits


class NgramEmbedding(nn.Module):
    """One table with the rows of all orders: (B, T) ids -> (B, T, C), the sum of their rows.

    A row's number is a polynomial in the characters' codes, id + 1, or 0 before the text. If all
    n-grams of an order fit its table, the base is the number of codes and each n-gram has its own
    row; else the polynomial is a hash, and some n-grams share a row.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kinds, self.tables = config.vocab_size + 1, config.ngram_tables
        self.weight = nn.Parameter(torch.zeros(sum(self.tables), config.n_embd))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(self.rows(ids), self.weight).sum(dim=2)  # (B, T, C)

    def rows(self, ids: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, N) rows of the table."""
        T, first, rows = ids.shape[1], 0, []
        for order, table in enumerate(self.tables, start=2):
            factor = self.kinds if self.kinds**order <= table else MULTIPLIER
            row = ids + 1
            for before in range(1, order):
                earlier = F.pad(ids + 1, (before, 0))[:, :T]  # 0: before the text
                row = (row * factor + earlier) % MODULUS
            rows.append(row % table + first)
            first += table
        return torch.stack(rows, dim=-1)
