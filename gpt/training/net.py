"""A model in training, on one rank or on several that share each batch.

torch's DistributedDataParallel averages the gradients (Li et al. 2020).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpt.config import TrainConfig
from gpt.errors import ConfigError
from gpt.model import GPT
from gpt.training.precision import compile_net, set_determinism
from gpt.training.ranks import world_size


class Net:
    """Computes a model in training. After the last part of a step, the gradients are means over all
    ranks.

    Raises ConfigError if a step has fewer sequences than there are ranks.
    """

    def __init__(self, model: GPT, config: TrainConfig) -> None:
        if config.batch_size < world_size():
            raise ConfigError(
                "batch_size",
                f"{config.batch_size} sequences are too few for {world_size()} ranks; every rank "
                "needs one",
            )
        set_determinism(config)
        self._joined: Any = _averaged(model) if world_size() > 1 else model
        self._compute = compile_net(self._joined, config)

    def __call__(self, ids: Tensor) -> Tensor:
        """(b, T) ids -> (b, T, vocab_size) logits."""
        return self._compute(ids)

    def send(self, now: bool) -> None:
        """Sets whether the next forward and backward pass sends gradients to the other ranks."""
        if world_size() > 1:
            self._joined.require_backward_grad_sync = now


def _averaged(model: GPT) -> nn.Module:
    parameter = next(model.parameters())
    net = nn.parallel.DistributedDataParallel(model)
    # DistributedDataParallel rebuilds its buckets after the first step, and they determine the
    # order of additions, so the first step of a resumed run would differ. So that first step is
    # made here, on zeros.
    net(torch.zeros((1, 1), dtype=torch.int64, device=parameter.device)).sum().backward()
    net.zero_grad()
    return net
