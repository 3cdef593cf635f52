"""Runs a student's file: reads a job from stdin, writes a line of JSON for each stage."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from gpt.lessons.exercises.checking import load_file, problem_of, stages
from gpt.lessons.exercises.report import STAGES, TRAINED, Stage, TrainedExercise, unfinished_stages
from gpt.vocabulary import Vocabulary

MEMORY, FILE_SIZE = 2**32, 2**24  # bytes that the file may use beside torch's, and write to a file
STEPS, BATCH, BLOCK, RATE, SHAPE = 200, 16, 32, 3e-3, (2, 4, 64, 0.1)  # layers, heads, C, p
WRITTEN, SHOWN = 300, 24  # characters of the sample, and of the line for which heads are shown


def main() -> None:
    """Does the job. Hides what the file itself prints."""
    job = json.load(sys.stdin)
    torch.set_num_threads(1)  # products are tiny, so more threads would only wait
    results, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    with suppress(ImportError, OSError):  # only Linux can tell how much is used
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    for stage in run_job(**job):
        os.write(results, f"{json.dumps(asdict(stage))}\n".encode())


def run_job(source: str, text: str | None, seed: int) -> Iterator[Stage]:
    """All stages of a file and, if they are right, its training on a text."""
    left, right = list(STAGES if text is None else TRAINED), True
    try:
        file = load_file(source)
        for stage in stages(file):
            right &= stage.status == "passed"
            yield stage
            left.remove(stage.name)
        if text is not None:
            later = Stage("training", "missing", "", "trains once all are right")
            yield train_file(file, text, seed) if right else later
    except BaseException as error:
        yield from unfinished_stages(left, problem_of(error))


def train_file(file: ModuleType, text: str, seed: int) -> Stage:
    """Trains the file's GPT on the first 90 % of a text of at least 1,000 characters."""
    torch.manual_seed(seed)
    vocabulary, cut = Vocabulary.from_text(text), len(text) * 9 // 10
    ids = torch.from_numpy(vocabulary.encode(text)).long()
    model, losses = file.GPT(len(vocabulary), BLOCK, *SHAPE), list[float]()
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    before = validation(file, model, ids[cut:])
    for _ in range(STEPS):
        batch = ids[torch.randint(cut - BLOCK, (BATCH, 1)) + torch.arange(BLOCK)]
        loss = file.loss(model.train()(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    after, last = validation(file, model, ids[cut:]), sum(losses[-20:]) / 20
    message = (
        f"validation loss {before:.4f} → {after:.4f} nats on the last 10 %; training loss "
        f"{losses[0]:.4f} at step 1, {last:.4f} in the last 20 of {STEPS}"
    )
    if not after < before:
        return Stage("training", "failed", "", f"the loss does not fall: {message}")
    sample = file.generate(model, ids[None, cut : cut + 1], WRITTEN, 0.8, 20)[0].numpy()
    line = max(text[cut:].split("\n"), key=len)[:SHOWN]
    weights = attention_weights(model, torch.from_numpy(vocabulary.encode(line)).long()[None])
    made = TrainedExercise(
        (losses[0], last), (before, after), vocabulary.decode(sample), line, weights
    )
    return Stage("training", "passed", "", message, trained=made)


@torch.no_grad()
def validation(file: ModuleType, model: torch.nn.Module, ids: Tensor) -> float:
    """The mean loss over the first windows, at most 64."""
    windows = ids.unfold(0, BLOCK, BLOCK)[:64]
    return float(file.loss(model.eval()(windows), windows))


@torch.no_grad()
def attention_weights(model: torch.nn.Module, ids: Tensor) -> Any:
    """The weights of all heads for a text: (1, T) -> (L, H, T, T), as lists."""
    found = list[Tensor]()
    for head in model.modules():
        if type(head).__name__ == "Head":
            head.register_forward_pre_hook(lambda m, x: found.append(m.weights(m.scores(*x))[0]))
    model(ids)
    return torch.stack(found).view(*SHAPE[:2], ids.shape[1], -1).tolist()
