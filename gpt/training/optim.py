"""Changes the weights: AdamW, Muon for the matrices of the blocks, and averaged weights.

An update of AdamW has a few large singular values and many small ones. Muon (Jordan et al. 2024)
makes all of them about equal, so that a matrix learns equally fast in every direction of its input.
A step takes longer, but far fewer are needed (benchmarks/LOG.md).
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import TrainConfig
from gpt.model import GPT
from gpt.model.attention import FusedAttention, MultiHeadAttention
from gpt.model.layers import FeedForward
from gpt.storage.manifest import Clock
from gpt.training.schedule import learning_rate

EMBEDDING_AND_OUTPUT = ("token_embedding.weight", "lm_head.weight")
#: The moments that AdamW stores for a parameter, in its shape. Muon stores the first one.
MOMENTS = ("exp_avg", "exp_avg_sq")
#: Factors a, b, c of the steps s ← a·s + b·s³ + c·s⁵, which bring singular values s between 0.001
#: and 1 near 1 (Polar Express, Amsel et al. 2025).
FACTORS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
)
MARGIN = 1.01  # the norm is multiplied by this, so that rounding brings no singular value above 1


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019); with matrix_lr, Muon for the matrices of the blocks.

    Weight decay applies to matrices alone. Embedding and output may have their own learning rate.
    clock: that of a run with a time budget; the trainer sets it before each step.
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        _spare_the_compiler()
        self.config = config
        self.clock: Clock | None = None
        groups: dict[tuple[float, float], list[Tensor]] = {}
        low = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        matrices = list(find_matrices(model)) if config.matrix_lr else []
        self._muon = Muon(matrices, config.beta1, low)
        for name, parameter in model.named_parameters():
            if parameter in self._muon.state:
                continue
            rate = config.learning_rate
            if name in EMBEDDING_AND_OUTPUT:
                rate = config.embedding_lr or rate
            decay = config.weight_decay if parameter.dim() >= 2 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
        self._adamw = torch.optim.AdamW(
            [
                {"params": parameters, "lr": rate, "peak": rate, "weight_decay": decay}
                for (rate, decay), parameters in groups.items()
            ],
            betas=(config.beta1, config.beta2),
            fused=next(model.parameters()).device.type in ("cpu", "cuda"),
        )
        self.param_groups = self._adamw.param_groups  # of AdamW; "peak": the highest rate

    def moments(self, parameter: Tensor) -> tuple[str, ...]:
        """The names of the tensors in `state` that have the parameter's shape."""
        return MOMENTS[:1] if parameter in self._muon.state else MOMENTS

    def state(self, parameter: Tensor) -> dict[str, Any]:
        """The optimizer's state for one parameter, to read or to set: "step" and its moments."""
        several = self._muon if parameter in self._muon.state else self._adamw
        state: dict[str, Any] = several.state[parameter]
        return state

    def zero_grad(self) -> None:
        """Removes the gradients and frees their memory."""
        self._adamw.zero_grad(set_to_none=True)
        for parameter in self._muon.state:
            parameter.grad = None

    def step(self, step: int) -> None:
        """Makes the next update; `step` updates came before it."""
        config = self.config
        share = learning_rate(config, step, self.clock) / config.learning_rate
        for group in self.param_groups:
            group["lr"] = group["peak"] * share
        decay = share * (config.learning_rate * config.weight_decay)
        self._muon.step(share * config.matrix_lr, decay)
        with torch.no_grad():  # `step` of torch's optimizers does so, too
            inspect.unwrap(torch.optim.AdamW.step)(self._adamw)


def _spare_the_compiler() -> None:
    """Keeps torch's optimizers from importing torch's compiler (1.4 CPU seconds and 70 MB) at the
    first call of these functions: they are marked as excluded from compiled code. No optimizer is
    compiled here. If a newer torch uses another mark, it imports as usual.
    """
    for method in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.zero_grad):
        function = getattr(method, "__wrapped__", None)
        if function is not None:
            vars(function).setdefault("__dynamo_disable", function)


@dataclass(frozen=True)
class Matrices:
    """`count` matrices of one shape, stacked: together they are the rows of these parameters."""

    parameters: tuple[Tensor, ...]
    count: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of one matrix."""
        rows = sum(len(parameter) for parameter in self.parameters)
        return rows // self.count, self.parameters[0].shape[1]


def find_matrices(model: nn.Module) -> Iterator[Matrices]:
    """The matrices of a model's blocks, in both forms of attention: those of all heads' queries,
    keys and values; projections; the matrices of feed-forward layers.
    """
    for module in model.modules():
        if isinstance(module, FusedAttention):
            yield Matrices((module.qkv.weight,), 3)
            yield Matrices((module.proj.weight,))
        elif isinstance(module, MultiHeadAttention):
            heads: Any = list(module.heads)
            for part in ("query", "key", "value"):
                yield Matrices(tuple(getattr(head, part).weight for head in heads))
            yield Matrices((module.proj.weight,))
        elif isinstance(module, FeedForward):
            yield Matrices((module.up.weight,))
            yield Matrices((module.down.weight,))


def orthogonalise(stack: Tensor) -> Tensor:
    """(n, r, c) matrices with r ≥ c -> an approximation of U·Vᵀ for each, where U·S·Vᵀ is its
    singular value decomposition; a zero matrix stays zero.
    """
    norms = torch.linalg.vector_norm(stack, dim=(1, 2), keepdim=True)
    stack = stack / (MARGIN * norms).clamp(min=torch.finfo(stack.dtype).tiny)
    for a, b, c in FACTORS:
        gram = stack.mT @ stack  # (n, c, c)
        gram = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        stack = torch.baddbmm(stack, stack, gram, beta=a)
    return stack


class Muon:
    """Changes matrices by `rate` times their orthogonalised mean gradient; by more if they have
    more rows than columns.

    momentum: decay of the mean gradient. dtype: the type in which products are computed. state:
    parameter -> number of its steps and its mean gradient.
    """

    def __init__(self, matrices: list[Matrices], momentum: float, dtype: torch.dtype) -> None:
        self.momentum, self.dtype = momentum, dtype
        self._alike: dict[tuple[int, int], list[Matrices]] = defaultdict(list)
        for group in matrices:
            self._alike[max(group.shape), min(group.shape)].append(group)
        self.state: dict[Tensor, dict[str, Tensor]] = {
            parameter: {} for group in matrices for parameter in group.parameters
        }

    @torch.no_grad()
    def step(self, rate: float, decay: float) -> None:
        """Makes an update. decay: the share of each matrix that is subtracted first."""
        for alike in self._alike.values():
            directions = [self._direction(group) for group in alike]
            turned = orthogonalise(torch.cat(directions).to(self.dtype)).float()
            sizes = [group.count for group in alike]
            for group, change in zip(alike, torch.split(turned, sizes), strict=True):
                rows, columns = group.shape
                change = change if rows >= columns else change.mT
                scale = rate * max(1.0, rows / columns) ** 0.5
                lengths = [len(parameter) for parameter in group.parameters]
                parts = torch.split(change.reshape(-1, columns), lengths)
                for parameter, part in zip(group.parameters, parts, strict=True):
                    parameter.mul_(1 - decay)
                    parameter.add_(part, alpha=-scale)

    def _direction(self, matrices: Matrices) -> Tensor:
        """Updates the mean gradient -> (count, r, c), r ≥ c: the mean one step ahead (Nesterov)."""
        ahead = []
        for parameter in matrices.parameters:
            state = self.state[parameter]
            if not state:
                state.update(step=torch.tensor(0.0), exp_avg=torch.zeros_like(parameter))
            state["step"] += 1
            mean, gradient = state["exp_avg"], parameter.grad
            assert gradient is not None
            mean.lerp_(gradient, 1 - self.momentum)
            ahead.append(gradient.lerp(mean, self.momentum))
        rows, columns = matrices.shape
        stack = torch.cat(ahead).view(matrices.count, rows, columns)
        return stack if rows >= columns else stack.mT


class Average:
    """Exponential moving average of a model's weights (Polyak & Juditsky 1992), which removes the
    noise of small batches.
    """

    def __init__(self, model: GPT, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model: GPT, step: int) -> None:
        """After `step` steps: average ← decay · average + (1 − decay) · weights. The decay grows
        from 2/11 to its final value, so that the first weights soon count little.
        """
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        averages, weights = ([p.detach() for p in m.parameters()] for m in (self.model, model))
        torch._foreach_lerp_(averages, weights, share)
