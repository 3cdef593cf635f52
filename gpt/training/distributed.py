"""The processes that train one model together, each on its share of every batch.

torch.distributed does the work: DistributedDataParallel averages the gradients (Li et al. 2020), or
fully_shard also spreads weights, gradients and moments over the ranks (FSDP2; Rajbhandari et al.
2020, ZeRO-3). Here is what that leaves open: who reads which rows, rows of sparse gradients, how
all stop after the same step, what one tells the others before they compute. A process alone takes
the same path, and nothing is exchanged.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from gpt.config import TrainConfig
from gpt.errors import ConfigError, RankError
from gpt.model import GPT
from gpt.training.launch import ALONE, Launch
from gpt.training.precision import compiled, settle

PATIENCE = timedelta(minutes=30)  # with a rank that does not answer, once all compute
POLL = 0.05  # seconds


class Ranks:
    """This process's view of all. `meet` comes before anything is exchanged.

    `shard`: weights, gradients and moments are spread over the ranks. Raises ConfigError.
    """

    def __init__(
        self, launch: Launch = ALONE, shard: bool = False, store: Store | None = None
    ) -> None:
        self.launch, self.shard = launch, shard
        self.rank, self.size, self.first = launch.rank, launch.size, launch.first
        if shard and self.size == 1:
            raise ConfigError("shard", "needs several processes; start them with torchrun")
        self._hand = False  # raised by who wants all to stop
        self._hands, self._device = 0.0, "cpu"
        self._nets: dict[GPT, tuple[nn.Module, nn.Module]] = {}  # joined, and as it is called
        self._store = store
        if self.size > 1 and store is None:
            found, _, _ = next(rendezvous("env://"))
            # It outlives an attempt, and what the one before has left there must not be heard.
            self._store = PrefixStore(f"attempt {launch.attempt} of {launch.size}", found)

    def tell(self, key: str, text: str) -> None:
        """Leaves a message for all ranks, which need not have met."""
        if self._store is not None:
            self._store.set(f"gptx/{key}", text)

    def hear(self, key: str) -> str:
        """Waits for the message, however long; a signal may end that."""
        assert self._store is not None
        while not self._store.check([f"gptx/{key}"]):
            time.sleep(POLL)
        return str(self._store.get(f"gptx/{key}"), "utf-8")

    def meet(self, device: str) -> None:
        """All ranks get ready to exchange numbers of a device. Raises ConfigError, RankError."""
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
                    store=self._store,
                    rank=self.rank,
                    world_size=self.size,
                    timeout=PATIENCE,
                )

    def leave(self) -> None:
        """Waits for the others, then parts from them. torchrun ends all once one has gone."""
        self._nets.clear()  # before the group: what they hold of it must not outlive it
        if self.size > 1 and dist.is_initialized():
            with contextlib.suppress(RuntimeError):  # they may have gone already
                dist.barrier()
            dist.destroy_process_group()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns what the libraries say when another rank is gone into RankError."""
        try:
            yield
        except RuntimeError as error:
            text = str(error)
            lost = any(name in text.lower() for name in ("gloo", "nccl", "process group"))
            if self.size == 1 or not (lost or isinstance(error, dist.DistError)):
                raise
            raise RankError(f"another rank has failed or was ended ({_first_line(text)})") from None

    def pieces(self, rows: int, most: int) -> list[slice]:
        """This rank's part of `rows` rows in pieces of at most `most`; 0: in one.

        The ranks in their order have all rows, in theirs, and all have as many pieces; so one may
        be empty.
        """
        first, last = self.rank * rows // self.size, (self.rank + 1) * rows // self.size
        count = math.ceil(math.ceil(rows / self.size) / most) if most else 1
        ends = [first + (last - first) * number // count for number in range(count + 1)]
        return [slice(*pair) for pair in pairwise(ends)]

    def raise_hand(self) -> None:
        """Asks all ranks to stop; see `agreed`."""
        self._hand = True

    def total(self, *values: float) -> list[float]:
        """Each value's sum over the ranks. Raised hands are counted with them."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor([*values, self._hand], dtype=torch.float64, device=self._device)
        dist.all_reduce(numbers)
        *sums, self._hands = numbers.tolist()
        return sums

    def most(self, value: float) -> float:
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
        """Why all stop now: the first rank's reason that has one, known to all; or None.

        A hand that was raised after the last `total` counts with the next.
        """
        if self.size == 1:
            return reason
        if not self._hands:
            return None
        reasons: list[str | None] = [None] * self.size
        dist.all_gather_object(reasons, reason)
        return next(filter(None, reasons), None)

    def prepare(self, model: GPT, config: TrainConfig) -> None:
        """From now on `net(model)` computes gradients that are the means over all ranks.

        Those of n-gram embeddings have few rows: `exchange_rows` sends these alone.
        """
        settle(config)
        joined = self._join(model) if self.size > 1 else model
        if joined is not model or self.shard or config.compile:
            self._nets[model] = joined, compiled(joined, config)

    def spread(self, model: GPT) -> None:
        """Gives each rank its share of the weights, if they are to be; n-gram embeddings stay."""
        if not self.shard:
            return
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(self._device, (self.size,))
        ignored = {model.ngram_embedding.weight} if model.ngram_embedding else None
        for part in (*model.blocks, model):  # resharded, so that parameters stay the same ones
            fully_shard(part, mesh=mesh, reshard_after_forward=True, ignored_params=ignored)

    def _join(self, model: GPT) -> nn.Module:
        if self.shard:
            self.spread(model)
            return model
        if model.ngram_embedding:
            nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
                model, ["ngram_embedding.weight"]
            )
        device_ids = [self.launch.local_rank] if self._device == "cuda" else None
        net = nn.parallel.DistributedDataParallel(model, device_ids=device_ids)
        # It arranges its buckets anew after the first step, and they are the order of additions: a
        # resumed run would differ in its first step. So the first step is one that does not count.
        net(torch.zeros((1, 1), dtype=torch.int64, device=self._device)).sum().backward()
        net.zero_grad()
        return net

    def net(self, model: GPT) -> nn.Module:
        """What to call in the model's place while training."""
        return self._nets[model][1] if model in self._nets else model

    @contextlib.contextmanager
    def unsent(self, model: GPT, keep: bool) -> Iterator[None]:
        """While inside, gradients add up on this rank, if `keep`."""
        net = self._nets[model][0] if self.size > 1 else model
        if keep and isinstance(net, nn.parallel.DistributedDataParallel):
            with net.no_sync():
                yield
            return
        if self.shard:
            cast(Any, net).set_requires_gradient_sync(not keep)
        yield

    def forget(self, model: GPT) -> None:
        """Lets go of what `prepare` made."""
        self._nets.pop(model, None)

    def exchange_rows(self, model: GPT) -> None:
        """Gives the n-gram embedding its mean gradient: each rank sends the rows that it has."""
        if self.size == 1 or model.ngram_embedding is None:
            return
        parameter = model.ngram_embedding.weight
        assert parameter.grad is not None
        grad = parameter.grad.coalesce()
        counts = [torch.zeros(1, dtype=torch.int64, device=grad.device) for _ in range(self.size)]
        dist.all_gather(counts, counts[0].new_tensor([grad._nnz()]))
        most = max(int(count) for count in counts)
        indices = _padded(grad.indices()[0], most)
        values = _padded(grad.values() / self.size, most)
        every = [_gathered(part, counts) for part in (indices, values)]
        parameter.grad = torch.sparse_coo_tensor(
            every[0][None], every[1], grad.shape, check_invariants=False
        )


def _gathered(part: Tensor, counts: Sequence[Tensor]) -> Tensor:
    """All ranks' parts, one after the other, each without what it was padded with."""
    parts = [torch.empty_like(part) for _ in counts]
    dist.all_gather(parts, part)
    return torch.cat([one[: int(count)] for one, count in zip(parts, counts, strict=True)])


def _padded(part: Tensor, rows: int) -> Tensor:
    padded = part.new_zeros((rows, *part.shape[1:]))
    padded[: len(part)] = part
    return padded


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "no reason given"


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor in one piece; any other is one. All ranks must ask."""
    full: Any = getattr(tensor, "full_tensor", None)
    return full() if full else tensor


def here(parameter: Tensor) -> Tensor:
    """The values of a parameter that this rank has, all of them unless it is sharded."""
    local: Any = getattr(parameter, "to_local", None)
    return local() if local else parameter.detach()


def placed(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A tensor that all ranks have in one piece, where the parameter is: its device, its shards."""
    moved = tensor.to(parameter.device)
    if not hasattr(parameter, "placements"):
        return moved
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(parameter, DTensor)
    return distribute_tensor(moved, parameter.device_mesh, parameter.placements)


ONE = Ranks()
