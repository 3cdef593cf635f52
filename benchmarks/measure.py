"""Functions of all benchmarks: timing a whole process, and measuring the machine's limit."""

from __future__ import annotations

import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from gpt.config import ModelConfig, TrainConfig

GPTX = os.path.join(os.path.dirname(sys.executable), "gptx")


@dataclass(frozen=True)
class Timed:
    """One process that succeeded: wall seconds, CPU seconds, its output."""

    wall: float
    cpu: float
    output: str


def timed(command: list[str], threads: int | None = None) -> Timed:
    """Runs a command to its end; raises CalledProcessError unless it succeeds.

    `cpu` includes every child process that ended during the run. The command keeps its bytecode, as
    an installed program does.
    """
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(wall, cpu, done.stdout)


def train(
    corpus: str, arguments: str, seed: int, folder: str, threads: int | None = None
) -> dict[str, float]:
    """One run of `gptx train`: its loss and that of the GPT alone in nats, and times in seconds."""
    where = ["--checkpoints", f"{folder}/checkpoints", "--data", f"{folder}/data"]
    command = [GPTX, "train", corpus, *shlex.split(arguments), "--seed", str(seed), "--json"]
    done = timed([*command, *where], threads)
    result = json.loads(done.output)
    return {
        "loss": round(result["val_nats"], 4),
        "GPT": round(result["gpt_nats"] or result["val_nats"], 4),
        "steps": result["step"],
        "training": round(result["seconds"], 2),
        "wall": round(done.wall, 2),
        "cpu": round(done.cpu, 2),
    }


def step_seconds(
    model_config: ModelConfig,
    config: TrainConfig,
    ids: np.ndarray,
    device: str,
    seconds: float,
    shard: bool = False,
) -> float:
    """Median time of the training steps of a temporary model; of several ranks, the slowest's."""
    from gpt.model import GPT, initialise
    from gpt.training import ranks
    from gpt.training.net import Net
    from gpt.training.optim import Optimizer
    from gpt.training.step import train_step

    model = GPT(model_config)
    initialise(model, config.seed)
    model.to(device).train()
    net = Net(model, config, shard)
    optimizer, steps = Optimizer(model, config), [0.0]
    while len(steps) < 4 or sum(steps) < seconds:
        started = time.perf_counter()
        train_step(model, optimizer, ids, config, len(steps) - 1, net=net)
        steps.append(ranks.max_over_ranks(time.perf_counter() - started))
    return statistics.median(steps[2:])  # the first step includes the start


def sgemm_rate(
    rows: int = 2048, inner: int = 128, columns: int = 512, seconds: float = 0.3
) -> float:
    """GFLOP/s of a float32 product of a small model's shapes: the limit of a training step."""
    import torch

    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    for _ in range(5):
        a @ b
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        a @ b
        count += 1
    return count * 2 * rows * inner * columns / (time.perf_counter() - started) / 1e9
