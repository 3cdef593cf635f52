"""How weights change: the optimizer, its learning rate, the average."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import TrainConfig
from gpt.config.schedule import learning_rate
from gpt.config.train import frozen_names
from gpt.model import GPT
from gpt.training.muon import Muon, matrices_of

ENDS = ("token_embedding.weight", "lm_head.weight")
#: The moments that AdamW stores for a parameter; each has its shape. Muon stores the first.
MOMENTS = ("exp_avg", "exp_avg_sq")


def freeze(model: nn.Module, parts: str) -> None:
    """Parameters of these parts (gpt/config/train.py) get no gradient from now on."""
    frozen = frozen_names(parts)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen))


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019), and with matrix_lr, Muon for the matrices of the blocks.

    Matrices decay, gains and biases do not. The token embedding and the output may have their own
    learning rate. Parameters without a gradient do not change.
    """

    def __init__(self, model: nn.Module, config: TrainConfig) -> None:
        _spare_the_compiler()
        self.config = config  # may change while training: a time budget changes the steps
        groups: dict[tuple[float, float], list[Tensor]] = {}
        low = torch.bfloat16 if config.precision == "bfloat16" else torch.float32
        matrices = list(matrices_of(model)) if config.matrix_lr else []
        self._muon = Muon(matrices, config.beta1, low)
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad or parameter in self._muon.state:
                continue
            rate = config.embedding_lr if name.removeprefix("encoder.") in ENDS else 0.0
            decay = config.weight_decay if parameter.dim() >= 2 else 0.0
            groups.setdefault((rate or config.learning_rate, decay), []).append(parameter)
        self._adamw = torch.optim.AdamW(
            [
                {"params": parameters, "lr": rate, "peak": rate, "weight_decay": decay}
                for (rate, decay), parameters in groups.items()
            ],
            betas=(config.beta1, config.beta2),
            fused=next(model.parameters()).device.type in ("cpu", "cuda"),
        )

    def moments(self, parameter: Tensor) -> tuple[str, ...]:
        """The names of what `state` stores for a parameter in the parameter's shape."""
        return MOMENTS[:1] if parameter in self._muon.state else MOMENTS

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of AdamW, as in torch; "peak" is the highest learning rate."""
        return self._adamw.param_groups

    def state(self, parameter: Tensor) -> dict[str, Any]:
        """The optimizer's state of one parameter, to read or to set: "step" and its moments."""
        several = self._muon if parameter in self._muon.state else self._adamw
        state: dict[str, Any] = several.state[parameter]
        return state

    def zero_grad(self) -> None:
        """Removes the gradients and frees their memory."""
        self._adamw.zero_grad(set_to_none=True)
        for parameter in self._muon.state:
            parameter.grad = None

    def step(self, step: int) -> None:
        """Makes the next update, after `step` updates."""
        share = learning_rate(step, self.config) / self.config.learning_rate
        for group in self.param_groups:
            group["lr"] = group["peak"] * share
        rates = self.config.matrix_lr, self.config.learning_rate * self.config.weight_decay
        self._muon.step(*(share * rate for rate in rates))
        with torch.no_grad():  # as the wrappers of `step` do
            inspect.unwrap(torch.optim.AdamW.step)(self._adamw)


def _spare_the_compiler() -> None:
    """Keeps torch's optimizers from importing torch's compiler: 1.4 CPU seconds and 70 MB.

    These functions import it when first called, to exclude themselves from compiled code, unless
    they are marked as excluded. No optimizer is compiled here. If a newer torch reads another mark,
    it imports the compiler as usual.
    """
    for method in (torch.optim.Optimizer.add_param_group, torch.optim.Optimizer.zero_grad):
        function = getattr(method, "__wrapped__", None)
        if function is not None:
            vars(function).setdefault("__dynamo_disable", function)


class Average:
    """Exponential moving average of a model's weights: takes out the noise of small batches.

    (Polyak & Juditsky 1992.)
    """

    def __init__(self, model: GPT, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model: GPT, step: int) -> None:
        """After `step` steps: average ← decay · average + (1 − decay) · weights.

        The decay grows from 2/11 to its value, so that the first weights soon count little.
        """
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        averages, weights = ([p.detach() for p in m.parameters()] for m in (self.model, model))
        torch._foreach_lerp_(averages, weights, share)
