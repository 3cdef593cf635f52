"""The check of a student's file in a process of its own, and what it found. Imports no torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

import numpy as np

from gpt.blocks import Block, Cell, Column, Paragraph, Passage, Table, Title
from gpt.checks import Check
from gpt.storage.json_values import loads, parsed

STAGES = ("head", "mask", "multi-head", "block", "position", "loss", "sampling")
SIGNS = {"passed": "✓", "failed": "✗", "missing": "·"}
LARGEST = 2**22  # bytes of the results
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from gpt.lessons.exercises.child import main; main()"
)


@dataclass(frozen=True)
class Trained:
    """A student's GPT after training: its first and last loss, the validation loss before and
    after, in nats; a text that it wrote; the (L, H, T, T) weights of its heads on a line.
    """

    losses: tuple[float, float]
    validation: tuple[float, float]
    sample: str
    line: str
    weights: tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]

    def __post_init__(self) -> None:
        shape = np.shape(self.weights)  # ValueError for lists of different lengths
        if len(shape) != 4 or 0 in shape or shape[2:] != (len(self.line),) * 2:
            raise ValueError(f"weights of the shape {shape}")


@dataclass(frozen=True)
class Stage:
    """A stage of the file, or its training. slip: the one that gives the file's numbers, if it is
    known. message: where it is, and what to do.
    """

    name: str
    status: Literal["passed", "failed", "missing"]
    slip: str = ""
    message: str = ""
    checks: tuple[Check, ...] = ()
    trained: Trained | None = None


def blocks_of(stages: list[Stage], file: str) -> list[Block]:
    """A line for each stage, then what the trained GPT writes."""
    rows = []
    for each in stages:
        sign = Cell(SIGNS[each.status], tone="gone" if each.status == "failed" else "")
        text = " – ".join(filter(None, (each.slip, each.message)))
        rows.append([sign, Cell(each.name, tone="name"), Cell(text)])
    blocks: list[Block] = [Title("attention", [file]), Table([Column(left=True)] * 3, rows)]
    for it in (each.trained for each in stages if each.trained):
        blocks += [Paragraph("It writes:", "strong"), Passage(it.sample)]
        blocks.append(Paragraph(f"Its heads on “{it.line}”:", "strong"))
    return blocks


def check(source: str, seconds: int, text: str | None = None, seed: int = 1) -> list[Stage]:
    """The stages of a student's file, from a process that lasts so many seconds at most.

    text: what its GPT learns if all stages are right. The process reads neither modules of the
    current folder nor Python's environment variables, and shows nothing that the file prints.
    """
    here = os.getcwd()
    paths = [str(Path(__file__).parents[3]), *(each for each in sys.path if each not in ("", here))]
    job = json.dumps({"source": source, "text": text, "seed": seed}).encode()
    command = [sys.executable, "-I", "-c", BOOT, json.dumps(paths)]
    streams: Any = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with TemporaryFile() as results:
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
        return read(results.read(LARGEST), [*STAGES, *["training"] * (text is not None)], end)


def read(lines: bytes, names: list[str], end: str) -> list[Stage]:
    """The stages in the lines of a process, which the file may have forged. end: why it ended."""
    try:
        stages = [parsed(Stage, loads(line), "result") for line in lines.splitlines()]
        forged = [each.name for each in stages] != names[: len(stages)]
    except (ValueError, TypeError, RecursionError):
        forged = True
    if forged:
        stages, end = [], "the file has written into the results of its check"
    if left := names[len(stages) :]:
        stages.append(Stage(left[0], "failed", "", end))
    return stages + [Stage(name, "missing", "", "not checked") for name in left[1:]]
