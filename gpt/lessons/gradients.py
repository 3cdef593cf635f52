"""What the lesson "learning" computes with: a small GPT of one head, forward and backward, the
slopes of a function, and a step of AdamW.

Tensor names: T words that are read, V words of the vocabulary, C width, D head size; the weights
are (V, C), three of (D, C), (V, D).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adamw import adamw

from gpt.config import TrainConfig

Named = dict[str, Tensor]
Function = Callable[[Tensor], Tensor]
WEIGHTS = ("embedding", "W_query", "W_key", "W_value", "W_output")
EPS = 1e-8  # AdamW's, in torch and in gptx


def run_forward(weights: Named, ids: Tensor, target: int) -> Named:
    """The loss (nats) of the word `target` after (T,) ids, and all numbers before it, in order."""
    x = weights["embedding"][ids]  # (T, C)
    query = weights["W_query"] @ x[-1]  # (D,)
    keys, values = x @ weights["W_key"].T, x @ weights["W_value"].T  # (T, D)
    scores = keys @ query / len(query) ** 0.5  # (T,)
    a = F.softmax(scores, dim=0)
    context = a @ values  # (D,)
    logits = weights["W_output"] @ context  # (V,)
    loss = logits.logsumexp(dim=0) - logits[target]
    before = {"x": x, "query": query, "keys": keys, "values": values, "scores": scores, "a": a}
    return before | {"context": context, "logits": logits, "loss": loss}


@torch.no_grad()
def run_backward(weights: Named, ids: Tensor, target: int, seen: Named) -> Named:
    """The gradient of the loss by each number that `run_forward` has seen, and by each weight.

    The chain rule by hand, without autograd. J is the (T, T) Jacobian of the softmax of the scores.
    """
    a, query, root = seen["a"], seen["query"], len(seen["query"]) ** 0.5
    d_logits = F.softmax(seen["logits"], dim=0)
    d_logits[target] -= 1
    d_context = weights["W_output"].T @ d_logits
    d_values, d_a = a.outer(d_context), seen["values"] @ d_context
    jacobian = a.diag() - a.outer(a)
    d_scores = jacobian @ d_a
    d_query, d_keys = seen["keys"].T @ d_scores / root, d_scores.outer(query) / root
    d_x = d_keys @ weights["W_key"] + d_values @ weights["W_value"]
    d_x[-1] += d_query @ weights["W_query"]
    return {
        "logits": d_logits,
        "context": d_context,
        "values": d_values,
        "a": d_a,
        "J": jacobian,
        "scores": d_scores,
        "query": d_query,
        "keys": d_keys,
        "x": d_x,
        "embedding": torch.zeros_like(weights["embedding"]).index_add(0, ids, d_x),
        "W_query": d_query.outer(seen["x"][-1]),
        "W_key": d_keys.T @ seen["x"],
        "W_value": d_values.T @ seen["x"],
        "W_output": d_logits.outer(seen["context"]),
    }


def join(named: Named) -> Tensor:
    """The weights, or their gradients, as one row of N numbers, in the order of WEIGHTS."""
    return torch.cat([named[name].detach().flatten() for name in WEIGHTS])


def split(row: Tensor, shapes: Named) -> Named:
    """The inverse of `join`: matrices of the same shapes as those given."""
    parts = row.tensor_split(_starts(shapes)[1:])
    return {n: part.view_as(shapes[n]) for n, part in zip(WEIGHTS, parts, strict=True)}


def find_largest(gradient: Named) -> list[int]:
    """For each matrix, the place in the joined row of its number with the largest gradient."""
    places = [int(gradient[name].abs().argmax()) for name in WEIGHTS]
    return [start + place for start, place in zip(_starts(gradient), places, strict=True)]


def _starts(named: Named) -> list[int]:
    """The place in the joined row of each matrix's first number."""
    return [0, *accumulate(named[name].numel() for name in WEIGHTS[:-1])]


def measure_slopes(function: Function, at: Tensor, places: list[int], h: float) -> Tensor:
    """(K,) central differences: the slopes of a function of (N,) numbers by those at K places.

    Each number is changed by ±h. Rounding changes h itself a little, so the quotient divides by the
    difference that is left.
    """
    steps = h * torch.eye(len(at), dtype=at.dtype)[places]
    pairs = [(at + step, at - step) for step in steps]
    return torch.stack([(function(up) - function(down)) / (up - down).sum() for up, down in pairs])


def step_adamw(
    w: Tensor, m: Tensor, v: Tensor, g: Tensor, step: int, config: TrainConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights w and moments m and v after step 1, 2 … of AdamW, from those before and gradients g.

    Kingma & Ba 2015; Loshchilov & Hutter 2019 for the decay of the weights.
    """
    m = config.beta1 * m + (1 - config.beta1) * g
    v = config.beta2 * v + (1 - config.beta2) * g**2
    mean, square = m / (1 - config.beta1**step), v / (1 - config.beta2**step)
    move = mean / (square.sqrt() + EPS) + config.weight_decay * w
    return w - config.learning_rate * move, m, v


def step_torch(
    w: Tensor, m: Tensor, v: Tensor, g: Tensor, step: int, config: TrainConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by the function that torch.optim.AdamW calls.

    The class itself imports torch's compiler, which takes two seconds.
    """
    w, m, v, count = w.clone(), m.clone(), v.clone(), torch.tensor(step - 1.0)
    adamw(
        *([w], [g], [m], [v], [], [count]),
        amsgrad=False,
        maximize=False,
        beta1=config.beta1,
        beta2=config.beta2,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        eps=EPS,
    )
    return w, m, v
