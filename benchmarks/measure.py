"""Functions that several benchmarks use: they time processes and steps, and measure the machine."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from gpt.config import ModelConfig, TrainConfig
    from gpt.model import GPT

GPTX = os.path.join(os.path.dirname(sys.executable), "gptx")


@dataclass(frozen=True)
class Timed:
    """Wall seconds, CPU seconds and output of a process that succeeded."""

    wall: float
    cpu: float
    output: str


def timed(command: list[str], threads: int | None = None) -> Timed:
    """Runs a command to its end; raises CalledProcessError unless it succeeds.

    `cpu` includes every child process that ended during the run. Python may write bytecode files,
    as for an installed program.
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
    """Runs `gptx train`; returns its loss and the GPT's loss in nats, and times in seconds."""
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


def configs(values: dict[str, Any], vocab_size: int) -> tuple[ModelConfig, TrainConfig]:
    """Returns the options in `values` for a model and for its training."""
    from gpt.config import ModelConfig, TrainConfig
    from gpt.config.fields import only_fields

    model = ModelConfig(vocab_size=vocab_size, **only_fields(ModelConfig, values))
    return model, TrainConfig(**only_fields(TrainConfig, values))


def split_ids(text: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the ids of the training and the validation split, and the size of the vocabulary."""
    from gpt.vocabulary import Vocabulary

    vocabulary = Vocabulary("".join(sorted(set(text))))
    ids, boundary = vocabulary.encode(text), int(0.9 * len(text))
    return ids[:boundary], ids[boundary:], len(vocabulary)


def training(
    model_config: ModelConfig, config: TrainConfig, ids: np.ndarray, device: str = "cpu"
) -> Iterator[tuple[GPT, float]]:
    """Trains a new model without end; yields the model and the loss of each step."""
    from gpt.model import GPT, initialise
    from gpt.training.step import Learner

    model = GPT(model_config)
    initialise(model, config.seed)
    model.to(device).train()
    learner = Learner(model, ids, config)
    for step in itertools.count():
        yield model, learner.step(step)[0]


def in_turns(loops: Sequence[Iterator[Any]], rounds: int) -> list[list[float]]:
    """Runs one step of each loop in turn. Returns the seconds of `rounds` steps of each loop; the
    first two steps of a loop do not count.
    """
    times: list[list[float]] = [[] for _ in loops]
    for number in range(rounds + 2):
        for loop, taken in zip(loops, times, strict=True):
            started = time.perf_counter()
            next(loop)
            if number > 1:
                taken.append(time.perf_counter() - started)
    return times


def step_seconds(steps: Iterator[Any], seconds: float) -> float:
    """Returns the median seconds of a training's steps; the slowest rank counts."""
    from gpt.training import ranks

    times = [0.0]
    while len(times) < 4 or sum(times) < seconds:
        started = time.perf_counter()
        next(steps)
        times.append(ranks.reduce(time.perf_counter() - started, "MAX"))
    return statistics.median(times[2:])  # the first step includes the start


def sgemm_rate() -> float:
    """Returns the GFLOP/s of float32 matrix products in a small model's shapes. No training step in
    float32 can be faster.
    """
    import torch

    rows, inner, columns = 2048, 128, 512
    a, b = torch.randn(rows, inner), torch.randn(inner, columns)
    for _ in range(5):
        a @ b
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < 0.3:
        a @ b
        count += 1
    return count * 2 * rows * inner * columns / (time.perf_counter() - started) / 1e9
