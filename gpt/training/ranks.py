"""The ranks of torch's process group: processes that train one model, each on its share of a batch.

torch.distributed does the work: DistributedDataParallel averages the gradients (Li et al. 2020), or
fully_shard also shards weights, gradients and moments over the ranks (FSDP2; Rajbhandari et al.
2020, ZeRO-3). A process without a group is the only rank: these functions then exchange nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from gpt.config import TrainConfig
from gpt.devices import usable
from gpt.errors import ConfigError, RankError
from gpt.model import GPT
from gpt.training.precision import compiled, settle

#: Until a rank that does not answer counts as lost. The others wait while the first reads a corpus.
PATIENCE = timedelta(hours=3)


def rank() -> int:
    """The number of this process among all ranks."""
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    """The number of all ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the process that prints and saves."""
    return rank() == 0


def join(device: str, local_rank: int = 0, attempt: int = 0) -> str:
    """Starts the process group of all processes that torchrun has started -> the device to use.

    All must choose the same, so each only checks whether torch supports the device. local_rank and
    attempt: see Launch. Raises ConfigError, RankError.
    """
    device = usable(device, _check_cuda)
    if device == "cuda":
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"--nproc-per-node: this machine has {torch.cuda.device_count()} CUDA devices; "
                "start as many processes, or use --device cpu"
            )
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    try:
        found, rank, size = next(rendezvous("env://"))
        # The store outlives an attempt, and holds the addresses of the processes that have ended.
        store = PrefixStore(f"attempt {attempt} of {size}", found)
        dist.init_process_group(backend, timeout=PATIENCE, store=store, rank=rank, world_size=size)
    except (RuntimeError, ValueError) as error:
        raise RankError(f"the processes cannot connect ({_first_line(error)})") from None
    return device


def _check_cuda(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device that it can use")


def leave() -> None:
    """Waits for the other ranks, then leaves: torchrun ends all once one has failed."""
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):  # the others may have left already
            dist.barrier()
        dist.destroy_process_group()


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Turns the libraries' errors about a lost rank into RankError."""
    try:
        yield
    except RuntimeError as error:
        names = ("gloo", "nccl", "process group")
        lost = isinstance(error, dist.DistError) or any(
            each in str(error).lower() for each in names
        )
        if size() == 1 or not lost:
            raise
        raise RankError(f"another rank has failed or was ended ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or "no reason given"


def pieces(rows: int, most: int, rank: int, size: int) -> list[slice]:
    """A rank's part of `rows` rows, in pieces of at most `most` (0: one piece).

    The parts of the ranks, in their order, are all rows in order. All ranks have the same number of
    pieces, so a piece may be empty.
    """
    first, last = rank * rows // size, (rank + 1) * rows // size
    count = math.ceil(math.ceil(rows / size) / most) if most else 1
    ends = [first + (last - first) * number // count for number in range(count + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def total(value: float, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> float:
    """The sum of the ranks' values, or the result of another operation."""
    if size() == 1:
        return value
    number = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(number, operation)
    return number.item()


def largest(value: float) -> float:
    """The largest of the ranks' values."""
    return total(value, dist.ReduceOp.MAX)


def agreed(reason: str | None) -> str | None:
    """The reason of the first rank that has one; else None."""
    first = int(total(size() if reason is None else rank(), dist.ReduceOp.MIN))
    return from_rank(first, reason or "") if first < size() else None


def from_rank(source: int, text: str) -> str:
    """The text of one rank. All ranks must call this."""
    if size() == 1:
        return text
    data = bytearray(text.encode()) if rank() == source else bytearray()
    length = torch.tensor(len(data))
    dist.broadcast(length, source)
    held = torch.frombuffer(data or bytearray(int(length)), dtype=torch.uint8)
    dist.broadcast(held, source)
    return held.numpy().tobytes().decode()


class Net:
    """Computes a model in training; after the last of a step's pieces, gradients are means over all
    ranks.

    shard: spreads the model over the ranks. Raises ConfigError if a step has fewer sequences than
    there are ranks.
    """

    def __init__(self, model: GPT, config: TrainConfig, shard: bool = False) -> None:
        if config.batch_size < size():
            raise ConfigError(
                "batch_size",
                f"{config.batch_size} sequences are too few for {size()} ranks; every rank "
                "needs one",
            )
        settle(config)
        self.shard, self._joined = shard, cast(Any, model)
        if shard:
            spread(model)
        elif size() > 1:
            self._joined = _averaged(model)
        self._compute = compiled(self._joined, config)

    def __call__(self, **given: Tensor) -> Tensor:
        """The model's logits for its arguments."""
        return self._compute(**given)

    def send(self, now: bool) -> None:
        """Whether the next forward and backward pass sends gradients, or adds them up here."""
        if self.shard:
            self._joined.set_requires_gradient_sync(now)
        elif size() > 1:
            self._joined.require_backward_grad_sync = now


def _averaged(model: GPT) -> nn.Module:
    parameter = next(model.parameters())
    net = nn.parallel.DistributedDataParallel(model)
    # It rebuilds its buckets after the first step, and they determine the order of additions: a
    # resumed run would differ in its first step. So the first step is done here, on zeros.
    ids = torch.zeros((1, 1), dtype=torch.int64, device=parameter.device)
    net(ids, **({"source": ids} if model.encoder else {})).sum().backward()
    net.zero_grad()
    return net


def spread(model: GPT) -> None:
    """Shards a model's weights over the ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (size(),))
    encoder = model.encoder.blocks if model.encoder else ()
    for part in (*encoder, *model.blocks, model):
        # resharded, so that the parameter objects stay
        fully_shard(part, mesh=mesh, reshard_after_forward=True)


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor in one piece; all ranks must call this. Any other tensor is returned."""
    full: Any = getattr(tensor, "full_tensor", None)
    return full() if full else tensor


def placed(tensor: Tensor, parameter: Any) -> Tensor:
    """A whole tensor, equal on all ranks, moved and sharded as a parameter is."""
    moved = tensor.to(parameter.device)
    if not hasattr(parameter, "placements"):
        return moved
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(moved, parameter.device_mesh, parameter.placements)
