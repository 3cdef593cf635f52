"""The processes that train one model together, each on its share of every batch.

torch.distributed does the work: DistributedDataParallel averages the gradients (Li et al. 2020), or
fully_shard also shards weights, gradients and moments over the ranks (FSDP2; Rajbhandari et al.
2020, ZeRO-3). This module adds the rest: which rank reads which rows, and a stop of all ranks after
the same step. A single process calls the same functions, which then exchange nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import Store

from gpt.config import TrainConfig
from gpt.errors import ConfigError, RankError
from gpt.model import GPT
from gpt.training.launch import ALONE, Launch, Messages
from gpt.training.precision import compiled, settle

PATIENCE = timedelta(minutes=30)  # until a rank that does not answer counts as lost


class Ranks(Messages):
    """All ranks, from the view of one process. Call `init` before numbers are exchanged.

    shard: whether weights, gradients and moments are sharded over the ranks. Raises ConfigError.
    """

    def __init__(
        self, launch: Launch = ALONE, shard: bool = False, store: Store | None = None
    ) -> None:
        if shard and launch.size == 1:
            raise ConfigError("shard", "needs several processes; start them with torchrun")
        super().__init__(launch, store)
        self.shard = shard
        self._stop_requested = False  # by this rank
        self._stop_requests, self._device = 0.0, "cpu"  # the sum over all ranks at the last `total`
        # Wrapped for the ranks, and what computes with it: the same, or compiled.
        self._nets: dict[GPT, tuple[nn.Module, Callable[[Tensor], Tensor]]] = {}

    def init(self, device: str) -> None:
        """Starts the process group of all ranks for a device. Raises ConfigError, RankError."""
        self._device = device
        if device == "cuda" and self.launch.local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"--nproc-per-node: this machine has {torch.cuda.device_count()} CUDA devices; "
                "start as many processes, or use --device cpu"
            )
        if device == "cuda":
            torch.cuda.set_device(self.launch.local_rank)
        if self.size > 1:
            with self.errors():
                dist.init_process_group(
                    "nccl" if device == "cuda" else "gloo",
                    store=self.store,
                    rank=self.rank,
                    world_size=self.size,
                    timeout=PATIENCE,
                )

    def leave(self) -> None:
        """Waits for the other ranks, then leaves: torchrun ends all once one has left."""
        self._nets.clear()  # they refer to the group, so they must go first
        if self.size > 1 and dist.is_initialized():
            with contextlib.suppress(RuntimeError):  # the others may have left already
                dist.barrier()
            dist.destroy_process_group()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns the libraries' errors about a lost rank into RankError."""
        try:
            yield
        except RuntimeError as error:
            text = str(error)
            lost = any(name in text.lower() for name in ("gloo", "nccl", "process group"))
            if self.size == 1 or not (lost or isinstance(error, dist.DistError)):
                raise
            raise RankError(f"another rank has failed or was ended ({_first_line(text)})") from None

    def pieces(self, rows: int, most: int) -> list[slice]:
        """This rank's part of `rows` rows, in pieces of at most `most` (0: one piece).

        The parts of the ranks, in their order, are all rows in order. All ranks have the same
        number of pieces, so a piece may be empty.
        """
        first, last = self.rank * rows // self.size, (self.rank + 1) * rows // self.size
        count = math.ceil(math.ceil(rows / self.size) / most) if most else 1
        ends = [first + (last - first) * number // count for number in range(count + 1)]
        return [slice(*pair) for pair in pairwise(ends)]

    def request_stop(self) -> None:
        """Asks all ranks to stop; see `agreed`."""
        self._stop_requested = True

    def total(self, value: float = 0.0) -> float:
        """The sum of the ranks' values. Stop requests are exchanged, too."""
        if self.size == 1:
            return value
        numbers = torch.tensor(
            [value, self._stop_requested], dtype=torch.float64, device=self._device
        )
        dist.all_reduce(numbers)
        value, self._stop_requests = numbers.tolist()
        return value

    def all_reduce_max(self, value: float) -> float:
        """The largest of the ranks' values."""
        if self.size == 1:
            return value
        number = torch.tensor(value, dtype=torch.float64, device=self._device)
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return number.item()

    def from_first(self, tensor: Tensor) -> Tensor:
        """The first rank's values of a tensor; all ranks pass one of the same shape."""
        if self.size == 1:
            return tensor
        sent = tensor.to(self._device)
        dist.broadcast(sent, 0)
        return sent

    def agreed(self, reason: str | None) -> str | None:
        """Why all ranks stop now: the reason of the first rank that has one; else None.

        A request after the last `total` counts from the next `total` on.
        """
        if self.size == 1:
            return reason
        if not self._stop_requests:
            return None
        reasons: list[str | None] = [None] * self.size
        dist.all_gather_object(reasons, reason)
        return next(filter(None, reasons), None)

    def prepare(self, model: GPT, config: TrainConfig) -> None:
        """From now on, gradients computed with `net(model)` are means over all ranks.

        Raises ConfigError if a step has fewer sequences than there are ranks.
        """
        if config.batch_size < self.size:
            raise ConfigError(
                "batch_size",
                f"{config.batch_size} sequences are too few for {self.size} ranks; every rank "
                "needs one",
            )
        settle(config)
        joined = self._join(model) if self.size > 1 else model
        if joined is not model or self.shard or config.compile:
            self._nets[model] = joined, compiled(joined, config)

    def spread(self, model: GPT) -> None:
        """Shards the weights over the ranks, with --shard."""
        if not self.shard:
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self._device, (self.size,))
        encoder = model.encoder.blocks if model.encoder else ()
        for part in (
            *encoder,
            *model.blocks,
            model,
        ):  # resharded, so that the parameter objects stay
            fully_shard(part, mesh=mesh, reshard_after_forward=True)

    def _join(self, model: GPT) -> nn.Module:
        if self.shard:
            self.spread(model)
            return model
        device_ids = [self.launch.local_rank] if self._device == "cuda" else None
        net = nn.parallel.DistributedDataParallel(model, device_ids=device_ids)
        # It rebuilds its buckets after the first step, and they determine the order of additions: a
        # resumed run would differ in its first step. So the first step is done here, on zeros.
        ids = torch.zeros((1, 1), dtype=torch.int64, device=self._device)
        net(ids, **({"source": ids} if model.encoder else {})).sum().backward()
        net.zero_grad()
        return net

    def net(self, model: GPT) -> Callable[..., Tensor]:
        """The callable that replaces the model in training."""
        return self._nets[model][1] if model in self._nets else model

    def send(self, model: GPT, now: bool) -> None:
        """Whether the next forward and backward pass sends gradients, or adds them up here."""
        if self.shard:
            cast(Any, model).set_requires_gradient_sync(now)
        elif self.size > 1:
            cast(Any, self._nets[model][0]).require_backward_grad_sync = now

    def forget(self, model: GPT) -> None:
        """Drops what `prepare` made."""
        self._nets.pop(model, None)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "no reason given"


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor in one piece; all ranks must call this. Any other tensor is returned."""
    full: Any = getattr(tensor, "full_tensor", None)
    return full() if full else tensor


def here(parameter: Tensor) -> Tensor:
    """This rank's values of a parameter: all, unless it is sharded."""
    local: Any = getattr(parameter, "to_local", None)
    return local() if local else parameter.detach()


def placed(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor, equal on all ranks, moved and sharded as a parameter is."""
    moved = tensor.to(parameter.device)
    if not hasattr(parameter, "placements"):
        return moved
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(parameter, DTensor)
    return distribute_tensor(moved, parameter.device_mesh, parameter.placements)


ONE = Ranks()
