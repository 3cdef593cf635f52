"""A model in training, on one rank or on several that share each batch.

torch.distributed does the work: DistributedDataParallel averages the gradients (Li et al. 2020), or
fully_shard also shards weights, gradients and moments over the ranks (FSDP2; Rajbhandari et al.
2020, ZeRO-3).
"""

from __future__ import annotations

from typing import Any, cast

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

    shard: shards the model over the ranks. Raises ConfigError if a step has fewer sequences than
    there are ranks.
    """

    def __init__(self, model: GPT, config: TrainConfig, shard: bool = False) -> None:
        if config.batch_size < world_size():
            raise ConfigError(
                "batch_size",
                f"{config.batch_size} sequences are too few for {world_size()} ranks; every rank "
                "needs one",
            )
        set_determinism(config)
        self.shard, self._joined = shard, cast(Any, model)
        if shard:
            shard_model(model)
        elif world_size() > 1:
            self._joined = _averaged(model)
        self._compute = compile_net(self._joined, config)

    def __call__(self, ids: Tensor) -> Tensor:
        """(b, T) ids -> (b, T, vocab_size) logits."""
        return self._compute(ids)

    def send(self, now: bool) -> None:
        """Sets whether the next forward and backward pass sends gradients to the other ranks."""
        if self.shard:
            self._joined.set_requires_gradient_sync(now)
        elif world_size() > 1:
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


def shard_model(model: GPT) -> None:
    """Shards a model's weights over the ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (world_size(),))
    for part in (*model.blocks, model):
        # reshards, so that the parameter objects stay the same
        fully_shard(part, mesh=mesh, reshard_after_forward=True)


def gather_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor in one piece, others unchanged; all ranks must call this."""
    full: Any = getattr(tensor, "full_tensor", None)
    return full() if full else tensor


def shard_like(tensor: Tensor, parameter: Any) -> Tensor:
    """A tensor that is whole and equal on all ranks, moved and sharded like the parameter."""
    moved = tensor.to(parameter.device)
    if not hasattr(parameter, "placements"):
        return moved
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(moved, parameter.device_mesh, parameter.placements)
