"""Measures the time that frequent commands take, compared with `import torch`.

The script times whole processes in turns: `gptx sample --length 1`, `gptx attn`, `gptx --help`,
`gptx train` up to the end of its first step, `import torch`, and a Typer program of two commands.
It needs any trained run and a text. The last line is JSON.

    python benchmarks/start.py [--checkpoints checkpoints] [--corpus FILE] [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from typing import TYPE_CHECKING

from measure import GPTX, timed

if TYPE_CHECKING:
    from gpt.training.trainer import Trainer

BARE = """
import typer
app = typer.Typer()
@app.command()
def one(name: str = "you"):
    "One command."
@app.command()
def two(name: str = "you"):
    "Another."
app()
"""

UNTIL = "--until-first-step"  # the first argument of a call of train_until_first_step


def train_until_first_step(words: list[str]) -> None:
    """Runs `gptx train` and ends the process right after the first step, without cleaning up."""
    from gpt.commands import main, train

    def run_training(trainer: Trainer, as_json: bool) -> None:
        from gpt.training.progress import Stepped

        for event in trainer.events():
            if isinstance(event, Stepped):
                os._exit(0)

    train.run_training = run_training
    sys.argv = ["gptx", *words]
    main()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", default="checkpoints")
    parser.add_argument("--corpus", default="data/tinyshakespeare.txt", help="a text of 1 MB")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    where = ["--checkpoints", options.checkpoints]
    folder = tempfile.mkdtemp()
    here = ["--checkpoints", f"{folder}/checkpoints", "--data", f"{folder}/data"]
    train = [sys.executable, __file__, UNTIL, "train", options.corpus, *here]
    commands = {
        "sample": [GPTX, "sample", "--length", "1", *where],
        "attn": [GPTX, "attn", *where],
        "help": [GPTX, "--help"],
        "train": train,
        "train --minutes 15": [*train, "--minutes", "15"],
        "import torch": [sys.executable, "-c", "import torch"],
        "bare typer": [sys.executable, "-c", BARE, "--help"],
    }
    walls: dict[str, list[float]] = {name: [] for name in commands}
    cpus: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(options.rounds + 1):
        for name, command in commands.items():
            shutil.rmtree(folder, ignore_errors=True)  # each training encodes the text again
            done = timed(command)
            if number:  # the first round only fills the disk's cache
                walls[name].append(done.wall)
                cpus[name].append(done.cpu)
    result: dict[str, object] = {"benchmark": "start", "rounds": options.rounds}
    for name in commands:
        wall, cpu = statistics.median(walls[name]), statistics.median(cpus[name])
        print(f"{name:18} {wall:6.3f} s wall  {cpu:6.3f} s CPU")
        result[name] = {"wall": round(wall, 3), "cpu": round(cpu, 3)}
    for name, base in (
        ("sample", "import torch"),
        ("attn", "import torch"),
        ("help", "bare typer"),
        ("train", "import torch"),
        ("train --minutes 15", "import torch"),
    ):
        wall, cpu = (
            statistics.median(a / b for a, b in zip(of[name], of[base], strict=True))
            for of in (walls, cpus)
        )
        print(f"{name} / {base}: {wall:.2f} wall, {cpu:.2f} CPU")
        result[f"{name} / {base}"] = round(wall, 3)
        result[f"{name} / {base}, CPU"] = round(cpu, 3)
    print(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1:2] == [UNTIL]:
        train_until_first_step(sys.argv[2:])
    main()
