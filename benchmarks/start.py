"""The time that frequent commands take, compared with `import torch`.

Whole processes, in turns: `gptx sample --length 1`, `gptx attn`, `gptx --help`, `import torch`, and
a Typer program of one command. Needs a trained run (any). The last line is JSON.

    python benchmarks/start.py [--checkpoints checkpoints] [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys

from measure import timed

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", default="checkpoints")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    gptx = os.path.join(os.path.dirname(sys.executable), "gptx")
    where = ["--checkpoints", options.checkpoints]
    commands = {
        "sample": [gptx, "sample", "--length", "1", *where],
        "attn": [gptx, "attn", *where],
        "help": [gptx, "--help"],
        "import torch": [sys.executable, "-c", "import torch"],
        "bare typer": [sys.executable, "-c", BARE, "--help"],
    }
    walls: dict[str, list[float]] = {name: [] for name in commands}
    cpus: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(options.rounds + 1):
        for name, command in commands.items():
            done = timed(command)
            if number:  # the first round only fills the disk's cache
                walls[name].append(done.wall)
                cpus[name].append(done.cpu)
    result: dict[str, object] = {"benchmark": "start", "rounds": options.rounds}
    for name in commands:
        wall, cpu = statistics.median(walls[name]), statistics.median(cpus[name])
        print(f"{name:13} {wall:6.3f} s wall  {cpu:6.3f} s CPU")
        result[name] = {"wall": round(wall, 3), "cpu": round(cpu, 3)}
    for name, base in (
        ("sample", "import torch"),
        ("attn", "import torch"),
        ("help", "bare typer"),
    ):
        pairs = [a / b for a, b in zip(walls[name], walls[base], strict=True)]
        print(f"{name} / {base}: {statistics.median(pairs):.2f}")
        result[f"{name} / {base}"] = round(statistics.median(pairs), 3)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
