"""Exchanges values between ranks, which are the processes that torchrun starts to train one model.

The first rank finds the corpus and the checkpoint and tells the others where to find them, so all
machines need the same folders. Without torchrun, the process is the only rank and imports no torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

from gpt.devices import error_summary, resolve_device
from gpt.errors import ConfigError, GptxError, OutOfMemory, RankError, StorageError

Result = TypeVar("Result")


def rank() -> int:
    """Returns the number of this process among all ranks, which torchrun sets."""
    return int(os.environ["RANK"]) if world_size() > 1 else 0


def world_size() -> int:
    """Returns the number of ranks."""
    return int(os.environ["WORLD_SIZE"]) if {"RANK", "WORLD_SIZE"} <= os.environ.keys() else 1


def is_first() -> bool:
    """Whether this process is the first rank, which prints and saves."""
    return rank() == 0


def join(device: str) -> str:
    """Joins the other ranks and returns this rank's device. Raises ConfigError, RankError."""
    import torch.distributed

    device = resolve_device(device)
    if device == "cuda":
        local_rank = int(os.environ["LOCAL_RANK"])  # the number among the ranks of this machine
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"--nproc-per-node: torch can use {torch.cuda.device_count()} CUDA devices of this "
                "machine; start as many processes, or use --device cpu"
            )
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    try:  # the other ranks wait while the first one reads a corpus
        torch.distributed.init_process_group(backend, timeout=timedelta(hours=3))
    except (RuntimeError, ValueError) as error:
        raise RankError(f"the processes cannot connect ({error_summary(error)})") from None
    return device


def leave() -> None:
    """Waits for the other ranks, because torchrun stops them if one fails. Then disconnects."""
    if world_size() > 1:
        import torch.distributed as dist

        with suppress(RuntimeError):  # other ranks may have ended already
            dist.barrier()
        dist.destroy_process_group()


@contextmanager
def report_once() -> Iterator[None]:
    """Lets the first rank report an error of all ranks, and every rank an error of its machine."""
    try:
        yield
    except (OutOfMemory, StorageError) as error:
        named = f"rank {rank()}: {error}" if world_size() > 1 else str(error)
        raise type(error)(named) from None
    except GptxError as error:
        if is_first():
            raise
        raise SystemExit(error.exit_code) from None


@contextmanager
def rank_errors() -> Iterator[None]:
    """Turns errors of torch about a lost rank into RankError."""
    try:
        yield
    except RuntimeError as error:
        if world_size() == 1:
            raise
        import torch.distributed as dist

        named = any(name in str(error).lower() for name in ("gloo", "nccl", "process group"))
        if not named and not isinstance(error, dist.DistError):
            raise
        raise RankError(f"another rank has failed or was ended ({error_summary(error)})") from None


def rank_pieces(rows: int, most: int, rank: int, size: int) -> list[slice]:
    """Returns the rows of a rank in pieces of at most `most` rows (0: in one piece). All ranks get
    equally many pieces, so a piece may be empty.
    """
    first, last = rank * rows // size, (rank + 1) * rows // size
    count = math.ceil(math.ceil(rows / size) / most) if most else 1
    ends = [first + (last - first) * number // count for number in range(count + 1)]
    return [slice(*pair) for pair in pairwise(ends)]


def agree_on(reason: str | None) -> str | None:
    """Returns the reason of the first rank that has a reason, or None."""
    first = int(reduce(world_size() if reason is None else rank(), "MIN"))
    return broadcast(first, reason) if first < world_size() else None


def reduce(value: float, operation: str) -> float:
    """Returns the "SUM", "MIN" or "MAX" of the values of all ranks."""
    if world_size() == 1:
        return value
    import torch.distributed

    number = torch.tensor(value, dtype=torch.float64)
    torch.distributed.all_reduce(number, getattr(torch.distributed.ReduceOp, operation))
    return float(number)


def broadcast(source: int, value: Any) -> Any:
    """Returns the value of the rank `source`. All ranks must call this. Raises RankError."""
    if world_size() == 1:
        return value
    import torch.distributed

    values = [value]
    with rank_errors():
        torch.distributed.broadcast_object_list(values, source, device=torch.device("cpu"))
    return values[0]


def share_result(
    find: Callable[[], Result], describe: Callable[[Result], Any], follow: Callable[[Any], Result]
) -> Result:
    """Calls `find` on the first rank, and sends the result's description to the other ranks, which
    call `follow` with it. All ranks must call this. Raises what `find` raises and, on other ranks,
    RankError, or StorageError if `follow` fails.
    """
    if is_first():
        result = find()
        broadcast(0, describe(result))
        return result
    message = broadcast(0, None)
    try:
        return follow(message)
    except GptxError as error:
        advice = "give all machines the same folders: --checkpoints, --data"
        raise StorageError(f"{error}; {advice}") from None
