"""Several ranks in a test: forked processes that connect through a file."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.distributed import FileStore

from gpt.training.distributed import Ranks
from gpt.training.launch import Launch

WAIT = 60  # seconds, after which a test has hung


@contextmanager
def rank(number: int, size: int, meeting: Path, shard: bool = False) -> Iterator[Ranks]:
    """One rank, connected to the others on the CPU."""
    ranks = Ranks(Launch(number, size, number), shard, FileStore(str(meeting), size))
    ranks.init("cpu")
    yield ranks
    ranks.leave()


def on_ranks(size: int, work: Callable[..., Any], *details: Any) -> list[Any]:
    """Runs work(number, size, *details) in so many processes -> the result or error of each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "gpt.training.trainer", "torch.distributed.fsdp"])
    ends: list[Connection] = []
    processes = []
    for number in range(size):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(there, work, number, size, details))
        process.start()
        there.close()
        ends.append(here)
        processes.append(process)
    until = time.monotonic() + WAIT
    try:
        return [_heard(end, until - time.monotonic()) for end in ends]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _heard(end: Connection, seconds: float) -> Any:
    if not end.poll(max(0.0, seconds)):
        return TimeoutError("a rank did not answer")
    try:
        return end.recv()
    except (EOFError, OSError) as error:
        return error


def _answer(
    end: Connection, work: Callable[..., Any], number: int, size: int, details: tuple[Any, ...]
) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    try:
        end.send(work(number, size, *details))
    except Exception as error:
        error.args = (*error.args, traceback.format_exc())
        end.send(error)
