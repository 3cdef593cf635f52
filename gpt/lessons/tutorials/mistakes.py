"""The lesson "mistakes": two slips in an attention head that look right, and how to repair them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.lessons.ladder import SelfAttention, causal, weights_of
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, error_text, table, torch_seed
from gpt.model.attention import Head

N_EMBD, N_HEAD, SEED = 32, 4, 123  # the size of the head in the tutorial
PAIRS = 20_000


class HastyHead(SelfAttention):
    """A head with both slips: (B, T, C) -> (B, T, D). Do not use it."""

    tril: Tensor

    def __init__(self, n_embd: int, head_size: int, block_size: int) -> None:
        super().__init__(n_embd, head_size)
        self.register_buffer("tril", causal(block_size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.dropout(self.weights(x))  # type: ignore[operator]  # slip 2: there is none
        return weights @ self.value(x)  # type: ignore[no-any-return]

    def weights(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, T)"""
        T, C = x.shape[-2:]
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * C**-0.5  # slip 1: C, not D
        return F.softmax(scores.masked_fill(~self.tril[:T, :T], float("-inf")), dim=-1)


def steps(material: Material) -> Iterator[Step]:
    """Each slip, its effect, and the correct head in `gpt/model/attention.py`."""
    words, seed = material.words, material.seed_or(SEED)
    T, both = len(words), {"rows": words, "columns": words}
    config = ModelConfig(
        vocab_size=1, block_size=T, n_head=N_HEAD, n_embd=N_EMBD, position="learned"
    )
    size = config.head_size
    yield Step(
        "A head, written from memory",
        "The head of attention in one tutorial has two slips (small mistakes). Both are easy to "
        f"make, and one of them raises no error. The example: n_embd = {N_EMBD}, n_head = "
        f"{N_HEAD}, so each head has {N_EMBD} // {N_HEAD} = {size} columns.",
        "B, T, C = x.shape\nscores = queries · keysᵀ × C**-0.5\nweights = self.dropout(softmax(…))",
    )
    with torch_seed(seed):
        queries, keys = torch.randn(2, PAIRS, size, dtype=torch.float64)
        # nn.Linear starts within ±1/√C, so rows with a deviation of √3 give queries with a
        # deviation of 1.
        x = 3**0.5 * torch.randn(T, N_EMBD, dtype=torch.float64)
        hasty = HastyHead(N_EMBD, size, T).double()
    scores = (queries * keys).sum(dim=-1)
    factors = (1.0, size**-0.5, N_EMBD**-0.5)
    spreads = torch.stack([(scores * factor).std() for factor in factors])
    yield Step(
        "Slip 1: the scale",
        f"C is the width of x, {N_EMBD}. But a score is a sum of {size} products, one for each "
        f"column of the head. The scores of {PAIRS:,} pairs of random queries and keys have a "
        f"standard deviation of about √{size} = {size**0.5:.2f}; divided by √{size}, of 1, which "
        f"suits softmax; divided by √{N_EMBD}, of half that.",
        "scale = 1 / √head_size, not 1 / √n_embd",
        (table("spread of the scores", spreads, columns=("raw", f"/ √{size}", f"/ √{N_EMBD}")),),
        "Queries and keys can grow to compensate, so the model still trains. But its heads start "
        "by distinguishing words only half as well.",
        (Check("√head_size spreads by 1", abs(float(spreads[1]) - 1), 0.05),),
    )
    head = Head(config).double().eval()
    head.load_state_dict(hasty.state_dict())
    hasty_weights = hasty.weights(x)
    weights = weights_of(head.query(x), head.key(x), head.tril)
    output = head(x[None], lambda queries, keys: (queries, keys))[0]
    even = 1 / torch.arange(1, T + 1, dtype=torch.float64)
    rows = "even share", "slip", "repaired"
    largest = torch.stack((even, hasty_weights.amax(dim=-1), weights.amax(dim=-1)))
    falls = float((largest[:-1] - largest[1:]).max().detach())  # above 0: a row exceeds the next
    yield Step(
        "What it does to the weights",
        f"Both heads have the same matrices, as nn.Linear initialises them (seed {seed}), and get "
        f"the same random rows, {N_EMBD} wide, scaled so that queries and keys spread by 1 as "
        "above. With the slip, a row’s largest weight is nearer to an even share, 1 / the number "
        "of words it may attend to: the head distinguishes less.",
        tables=(
            table("weights with the slip", hasty_weights, **both),
            table("weights, repaired", weights, **both),
            table("largest weight of each word’s row", largest, rows=rows, columns=words),
        ),
        notice="A larger spread is not better: the lesson “trainable” explains why scores that "
        "spread too widely hardly learn. √head_size gives the right spread.",
        checks=(
            Check("with the slip nearer to an even share", max(0.0, falls), 1e-12),
            check_equal("repaired = gpt.model.attention.Head", weights @ head.value(x), output),
        ),
    )
    yield Step(
        "Slip 2: a dropout that was never made",
        "forward uses self.dropout, but __init__ does not create it. There is no error until the "
        f"head is called. Then torch raises {error_text(lambda: hasty(x))}",
        "self.dropout = nn.Dropout(dropout)    # belongs in __init__",
        notice="`Head` in gpt/model/attention.py creates it, and scales by head_size. A test "
        "checks both.",
        checks=(Check("Head has its dropout", float(not hasattr(head, "dropout")), 0.0),),
    )
