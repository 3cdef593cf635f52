"""The layers of a GPT besides attention: activations, dropout, feed-forward, positions.

Tensor names: B batch, T time, C n_embd, D head_size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.config import ModelConfig

EPSILON = 1e-5  # of layer norms (Ba et al. 2016)
ROTARY_BASE = 10_000.0


class ReluSquared(torch.autograd.Function):
    """max(x, 0)² (So et al. 2021). Takes two passes over memory forward and one backward. Separate
    relu and square would take twice as many, and would keep one more of a layer's largest tensors.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        (gradient,) = gradients
        # The zero broadcasts, so addcmul multiplies by a factor in one pass over memory.
        return torch.addcmul(gradient.new_zeros(()), gradient, positive, value=2)


#: "gelu" is the tanh approximation of GPT-2, "gelu_erf" the exact form of nanoGPT (Hendrycks &
#: Gimpel 2016).
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": partial(F.gelu, approximate="tanh"),
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "relu2": ReluSquared.apply,
}


class Dropout(nn.Module):
    """In training, sets numbers to 0 with probability p, and divides the others by 1 − p.

    Srivastava et al. 2014 describe it. On a CPU, one random byte decides about a number, so p is
    rounded to 256ths. torch's own dropout draws four bytes for a number, and is slower.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        dropped = min(255, round(256 * self.p))  # how many of a byte's 256 values drop a number
        draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = (draws.view(torch.uint8)[: x.numel()] >= dropped).view(x.shape).to(x.dtype)
        return torch.addcmul(x.new_zeros(()), x, kept, value=256 / (256 - dropped))


class FeedForward(nn.Module):
    """(B, T, C) -> (B, T, C). Applies a linear layer, an activation, and a linear layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, config.ffn_hidden, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.down = nn.Linear(config.ffn_hidden, config.n_embd, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.activation(self.up(x))))  # type: ignore[no-any-return]


class Position(nn.Module):
    """A model without positions; base class of the other kinds of positions.

    Subclasses change the embeddings in `embed`, or queries and keys in `rotate`. `at` is the range
    of positions of the other arguments. Without positions, a model sees the order of the characters
    only through the causal mask (Haviv et al. 2022).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        for name, table in self.tables(config).items():
            self.register_buffer(name, table.to(torch.get_default_dtype()), persistent=False)

    @staticmethod
    def tables(config: ModelConfig) -> dict[str, Tensor]:
        """Returns buffer name -> the constants of this kind of positions, in float64."""
        return {}

    def embed(self, x: Tensor, at: slice) -> Tensor:
        """(B, T, C) embeddings -> (B, T, C). May add positions to them."""
        return x

    def rotate(self, queries: Tensor, keys: Tensor, at: slice) -> tuple[Tensor, Tensor]:
        """(…, T, D) queries and keys -> the same shapes. May rotate both by their positions."""
        return queries, keys


class Learned(Position):
    """Adds a trained vector for each of the block_size positions (GPT-2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.weight = nn.Parameter(torch.zeros(config.block_size, config.n_embd))

    def embed(self, x: Tensor, at: slice) -> Tensor:
        return x + self.weight[at]


class Sinusoidal(Position):
    """Adds fixed sines and cosines of the position t (Vaswani et al. 2017). Column c is sin(t /
    10000^(c/C)) if c is even, and otherwise the cosine of the angle of column c − 1.
    """

    table: Tensor

    @staticmethod
    def tables(config: ModelConfig) -> dict[str, Tensor]:
        pairs = torch.arange(0, config.n_embd, 2, dtype=torch.float64) / config.n_embd
        times = torch.arange(config.block_size, dtype=torch.float64)
        angles = torch.outer(times, 10_000.0**-pairs)  # (T, C/2)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # (T, C)
        return {"table": table[:, : config.n_embd]}

    def embed(self, x: Tensor, at: slice) -> Tensor:
        return x + self.table[at]


class Rotary(Position):
    """Rotates queries and keys by an angle that grows with the position (Su et al. 2021).
    Coordinates 2d and 2d + 1 form a complex number, which is multiplied by e^(i·t·10000^(−2d/D)).
    So a score depends on the distance of query and key, and not on their positions.
    """

    turns: Tensor

    @staticmethod
    def speeds(config: ModelConfig) -> Tensor:
        """Returns (D/2,) radians by which pairs of coordinates rotate from position to position."""
        half = config.head_size // 2
        return ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half)

    @staticmethod
    def tables(config: ModelConfig) -> dict[str, Tensor]:
        times = torch.arange(config.block_size, dtype=torch.float64)
        angles = torch.outer(times, Rotary.speeds(config))  # (T, D/2)
        return {"turns": torch.stack((angles.cos(), angles.sin()), dim=-1)}  # (T, D/2, 2)

    def rotate(self, queries: Tensor, keys: Tensor, at: slice) -> tuple[Tensor, Tensor]:
        turns = torch.view_as_complex(self.turns[at])  # (T, D/2)
        return self._turn(queries, turns), self._turn(keys, turns)

    def _turn(self, x: Tensor, turns: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.to(self.turns.dtype).view(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)  # (..., T, D)


POSITIONS: dict[str, type[Position]] = {
    "none": Position,
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
}
