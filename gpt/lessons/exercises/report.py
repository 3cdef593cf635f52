"""Checks a student's file in a separate process, and reports the result. Imports no torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import numpy as np

from gpt.blocks import Block, Cell, Column, Paragraph, Passage, Table, Title
from gpt.checks import Check
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Stages
from gpt.storage.json_values import load_json, parse_value

STAGES = ("head", "mask", "multi-head", "block", "position", "loss", "sampling")
TRAINED = (*STAGES, "training")  # stages of a file that also learns a text
SIGNS = {"passed": Cell("✓"), "failed": Cell("✗", tone="gone"), "missing": Cell("·")}
LARGEST = 2**22  # bytes of the results


@dataclass(frozen=True)
class TrainedExercise:
    """A student's GPT after training: its first and last training loss, the validation loss before
    and after, in nats; a text that it wrote; the (L, H, T, T) weights of its heads on a line.
    """

    losses: tuple[float, float]
    validation: tuple[float, float]
    sample: str
    line: str
    weights: tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]

    def __post_init__(self) -> None:
        if np.shape(self.weights)[2:] != (len(self.line),) * 2:  # ValueError for ragged lists, too
            raise ValueError("weights of another shape")

    @property
    def heads(self) -> AttentionMap:
        """An attention map of the line that has its weights only, no other stages."""
        weights, ids = np.array(self.weights), np.arange(len(self.line))
        layers = (Stages(**dict.fromkeys(Stages.__annotations__, each)) for each in weights)
        sums = Check("rows sum to 1", float(np.abs(weights.sum(axis=-1) - 1).max()), 1e-5)
        later = Check("no weight on the future", float(np.triu(weights, 1).max()), 0)
        return AttentionMap(self.line, ids, tuple(layers), (sums, later))


@dataclass(frozen=True)
class Stage:
    """The result of one stage of the student's file, or of its training. slip: the name of a known
    mistake whose code gives the same numbers as the file, or "". message: where the mistake is, and
    what the student can do.
    """

    name: str
    status: Literal["passed", "failed", "missing"]
    slip: str = ""
    message: str = ""
    checks: tuple[Check, ...] = ()
    trained: TrainedExercise | None = None


def blocks_of(stages: list[Stage], file: str) -> list[Block]:
    """A line for each stage, then the text that the trained GPT writes."""
    rows = []
    for each in stages:
        text = " – ".join(filter(None, (each.slip, each.message)))
        rows.append([SIGNS[each.status], Cell(each.name, tone="name"), Cell(text)])
    blocks: list[Block] = [Title("attention", [file]), Table([Column(left=True)] * 3, rows)]
    if made := stages[-1].trained:
        blocks += [Paragraph("It writes:", "strong"), Passage(made.sample)]
        blocks.append(Paragraph(f"Its heads on “{made.line}”:", "strong"))
    return blocks


def check(source: str, seconds: int, text: str | None = None, seed: int = 1) -> list[Stage]:
    """The stages of a student's file, checked in a process that may take `seconds` at most.

    text: what its GPT learns if all stages are right. The process reads neither modules of the
    current folder nor Python's environment variables, and shows nothing that the file prints.
    """
    here = os.getcwd()
    paths = [str(Path(__file__).parents[3]), *(each for each in sys.path if each not in ("", here))]
    code = f"import sys; sys.path[:] = {paths}; import gpt.lessons.exercises.child as it; it.main()"
    job = json.dumps({"source": source, "text": text, "seed": seed}).encode()
    streams: Any = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with TemporaryFile() as results:
        command = [sys.executable, "-I", "-c", code]
        process = subprocess.Popen(command, stdout=results, start_new_session=True, **streams)
        try:
            process.communicate(job, seconds)
            end = f"the file ended the process, with the code {process.returncode}"
        except subprocess.TimeoutExpired:
            end = f"no end after {seconds} s: an endless loop? --time-limit gives more time"
        finally:
            with suppress(OSError, AttributeError):  # what the file has started; not on Windows
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.wait()
        results.seek(0)
        return read_stages(results.read(LARGEST), STAGES if text is None else TRAINED, end)


def unfinished_stages(names: Sequence[str], problem: str) -> list[Stage]:
    """The remaining stages, the first of which has a problem."""
    missing = [Stage(name, "missing", "", "not checked") for name in names[1:]]
    return [*(Stage(name, "failed", "", problem) for name in names[:1]), *missing]


def read_stages(lines: bytes, names: Sequence[str], end: str) -> list[Stage]:
    """The stages in a process's output, which the file may have forged. end: why it ended."""
    try:
        stages = [parse_value(Stage, load_json(line), "result") for line in lines.splitlines()]
        if [each.name for each in stages] != [*names[: len(stages)]]:
            raise ValueError("other stages")
    except (ValueError, TypeError, RecursionError):
        stages, end = [], "the file has written into the results of its check"
    return stages + unfinished_stages(names[len(stages) :], end)
