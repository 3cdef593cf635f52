"""The parts of a block that treat each position by itself: norms, activations, feed-forward.

Tensor names: B batch, T time, C n_embd.
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


class ReluSquared(torch.autograd.Function):
    """max(x, 0)² (So et al. 2021) in two passes over memory forward and one back: relu followed by
    square would need twice as many, and keep one more of a block's widest tensors.
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


#: GELU (Hendrycks & Gimpel 2016): its tanh approximation, as in GPT-2, and the form with erf, as in
#: nanoGPT.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": partial(F.gelu, approximate="tanh"),
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "relu2": ReluSquared.apply,
}


class Dropout(nn.Module):
    """In training, sets numbers to zero with probability p and scales the others by 1/(1 − p)
    (Srivastava et al. 2014). On a CPU, one random byte decides on each number, so p is rounded to
    256ths. torch's own dropout draws four bytes, and takes a third of a step.
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
    """(B, T, C) -> (B, T, C): up to 4C numbers, an activation, down to C."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, config.ffn_hidden, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.down = nn.Linear(config.ffn_hidden, config.n_embd, bias=config.bias)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.activation(self.up(x))))  # type: ignore[no-any-return]
