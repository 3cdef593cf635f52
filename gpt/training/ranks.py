"""The ranks: processes that torchrun starts to train one model. How they exchange values, and how
they find the same run and text.

The first rank finds the corpus and the checkpoint and tells the others where they are; `--data` and
`--checkpoints` must be the same folders on all machines. Without torchrun, a process is the only
rank; these functions then exchange nothing and import no torch.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal, TypeVar

from gpt.devices import check_device
from gpt.errors import ConfigError, GptxError, RankError, StorageError

#: How long until a silent rank counts as lost. The others wait while the first one reads a corpus.
RANK_TIMEOUT = timedelta(hours=3)
Found = TypeVar("Found")


def rank() -> int:
    """The number of this process among all ranks, from torchrun's environment variables."""
    return _number("RANK") if world_size() > 1 else 0


def world_size() -> int:
    """The number of all ranks."""
    return _number("WORLD_SIZE") if {"RANK", "WORLD_SIZE"} <= os.environ.keys() else 1


def is_first() -> bool:
    """Whether this is the process that prints and saves."""
    return rank() == 0


def _number(variable: str) -> int:
    return int(os.environ.get(variable, "0"))


def join(device: str) -> str:
    """Starts the process group of all ranks and returns the device to use.

    All ranks must choose the same device, so each only checks whether torch supports it. Raises
    ConfigError, RankError.
    """
    import torch
    import torch.distributed as dist

    def check_cuda(device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("torch finds no CUDA device that it can use")

    device = check_device(device, check_cuda)
    if device == "cuda":
        local_rank = _number("LOCAL_RANK")  # the number among the ranks of this machine
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"--nproc-per-node: this machine has {torch.cuda.device_count()} CUDA devices; "
                "start as many processes, or use --device cpu"
            )
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, timeout=RANK_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise RankError(f"the processes cannot connect ({_first_line(error)})") from None
    return device


def leave() -> None:
    """Waits for the other ranks, then ends: torchrun stops all processes once one has failed."""
    if world_size() > 1:
        import torch.distributed as dist

        with suppress(RuntimeError):  # the others may have ended already
            dist.barrier()
        dist.destroy_process_group()


@contextmanager
def rank_errors() -> Iterator[None]:
    """Turns the libraries' errors about a lost rank into RankError."""
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1:
            raise
        import torch.distributed as dist

        names = ("gloo", "nccl", "process group")
        named = any(each in str(error).lower() for each in names)
        if not (named or isinstance(error, dist.DistError)):
            raise
        raise RankError(f"another rank has failed or was ended ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or "no reason given"


def rank_pieces(rows: int, most: int, rank: int, size: int) -> list[slice]:
    """A rank's part of `rows` rows, in pieces of at most `most` (0: one piece).

    Together, the parts of all ranks are all rows in order. All ranks have the same number of
    pieces, so a piece may be empty.
    """
    first, last = rank * rows // size, (rank + 1) * rows // size
    count = math.ceil(math.ceil(rows / size) / most) if most else 1
    ends = [first + (last - first) * number // count for number in range(count + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def sum_over_ranks(value: float) -> float:
    """The sum of a value over the ranks."""
    return _reduced(value, "SUM")


def max_over_ranks(value: float) -> float:
    """The largest value of all ranks."""
    return _reduced(value, "MAX")


def agree_on(reason: str | None) -> str | None:
    """The reason of the first rank that has one; else None."""
    first = int(_reduced(world_size() if reason is None else rank(), "MIN"))
    return from_rank(first, reason) if first < world_size() else None


def _reduced(value: float, operation: Literal["SUM", "MAX", "MIN"]) -> float:
    if world_size() == 1:
        return value
    import torch
    import torch.distributed as dist

    number = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(number, getattr(dist.ReduceOp, operation))
    return number.item()


def from_rank(source: int, value: Any) -> Any:
    """The value that one rank has; it must be JSON. All ranks must call this. Raises RankError."""
    if world_size() == 1:
        return value
    import torch
    import torch.distributed as dist

    data = bytearray(json.dumps(value).encode()) if rank() == source else bytearray()
    length = torch.tensor(len(data))
    with rank_errors():
        dist.broadcast(length, source)
        held = torch.frombuffer(data or bytearray(int(length)), dtype=torch.uint8)
        dist.broadcast(held, source)
    return json.loads(held.numpy().tobytes())


def share_result(
    find: Callable[[], Found], describe: Callable[[Found], Any], follow: Callable[[Any], Found]
) -> Found:
    """What the first rank finds. The other ranks find it by the first one's description, which must
    be JSON. All ranks must call this.

    Raises what `find` raises; on other ranks RankError, or StorageError if `follow` finds nothing.
    """
    if is_first():
        found = find()
        from_rank(0, describe(found))
        return found
    message = from_rank(0, None)
    try:
        return follow(message)
    except GptxError as error:
        advice = "give all machines the same folders: --checkpoints, --data"
        raise StorageError(f"{error}; {advice}") from None
