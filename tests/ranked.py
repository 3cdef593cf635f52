"""Several ranks in a test: forked processes that connect through a file."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from gpt.training import ranks

WAIT = 180  # seconds, after which a test has hung


def on_ranks(size: int, work: Callable[..., Any], *details: Any) -> list[Any]:
    """Runs work(*details) on so many ranks, on the CPU -> the result or error of each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["conftest", "hypothesis", "torch._dynamo"])
    ends: list[Connection] = []
    processes = []
    with TemporaryDirectory() as folder:
        for number in range(size):
            here, there = context.Pipe(duplex=False)
            group = {"init_method": f"file://{folder}/meet", "rank": number, "world_size": size}
            process = context.Process(target=_answer, args=(there, group, work, details))
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
    end: Connection, group: dict[str, Any], work: Callable[..., Any], details: tuple[Any, ...]
) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1"}
    os.environ |= {"RANK": str(group["rank"]), "WORLD_SIZE": str(group["world_size"])}
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", **group)
        result = work(*details)
        ranks.leave()
        end.send(result)
    except Exception as error:
        error.args = (*error.args, traceback.format_exc())
        end.send(error)
