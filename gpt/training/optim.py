"""Changes the weights: optimizer with learning rate, averaged weights."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import TrainConfig
from gpt.model import GPT
from gpt.storage.manifest import Clock
from gpt.training.muon import Muon, find_matrices
from gpt.training.schedule import learning_rate

EMBEDDING_AND_OUTPUT = ("token_embedding.weight", "lm_head.weight")
#: The moments that AdamW stores for a parameter, in the parameter's shape. Muon stores the first
#: one.
MOMENTS = ("exp_avg", "exp_avg_sq")


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019); with matrix_lr, Muon for the matrices of the blocks.

    Weight decay applies to matrices, not to gains and biases. The token embedding and the output
    may have their own learning rate. clock: that of a run with a time budget; the trainer sets it
    before each step.
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

    def moments(self, parameter: Tensor) -> tuple[str, ...]:
        """The names of the tensors in `state` that have the parameter's shape."""
        return MOMENTS[:1] if parameter in self._muon.state else MOMENTS

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameter groups of AdamW, as in torch; "peak" is the highest learning rate."""
        return self._adamw.param_groups

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
    """Keeps torch's optimizers from importing torch's compiler: 1.4 CPU seconds and 70 MB.

    These functions import the compiler at their first call, to exclude themselves from compiled
    code, unless they are marked as excluded. No optimizer is compiled here. If a newer torch uses
    another mark, it imports the compiler as usual.
    """
    for method in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.zero_grad):
        function = getattr(method, "__wrapped__", None)
        if function is not None:
            vars(function).setdefault("__dynamo_disable", function)


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
