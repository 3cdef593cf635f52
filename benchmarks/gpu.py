"""Every measurement that needs a GPU. Each is a row of a table: G1, G2, G3, G5, G6 or G7.

The script appends a JSON line to the output when a row is finished. It does not repeat finished
rows, so several short calls can complete the table.

    python benchmarks/gpu.py tinyshakespeare.txt --output results/gpu.jsonl [--rows G1 G3 …]
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import GPTX, step_seconds, training

from gpt.config import ModelConfig, TrainConfig

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def gptx(arguments: str, folder: str) -> subprocess.CompletedProcess[str]:
    command = [GPTX, *shlex.split(arguments)]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)


def trained(corpus: str, options: str) -> Row:
    """Runs a training; returns its loss, the seconds of its steps, and those of the command."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = gptx(f"train {corpus} --device cuda --json {options}", folder)
        wall = time.perf_counter() - started
    if done.returncode:
        return {"code": done.returncode, "error": done.stderr[-600:]}
    result = json.loads(done.stdout)
    measured = {name: result[name] for name in ("val_nats", "step", "seconds")}
    return {**measured, "wall_seconds": round(wall, 2)}


def suite(_: str) -> Row:
    """G1: the tests that compare the forms of the model on CUDA, and all others with a GPU."""
    tests = ["-m", "pytest", "-q", "-k", "cuda or parity or decoder or device"]
    done = subprocess.run(
        [sys.executable, *tests], cwd=HERE.parent, text=True, capture_output=True, check=False
    )
    return {"code": done.returncode, "end": done.stdout[-1500:]}


def classic(corpus: str) -> Row:
    """G2: nanoGPT's recipe for a GPU, which reaches 1.4697 in nanoGPT."""
    return trained(corpus, "--preset classic")


def default(corpus: str) -> Row:
    """G3: the loss of the default preset after a few seconds and at its end, and the speed of
    training 10.7 M parameters.
    """
    losses = {f"{seconds} s": trained(corpus, f"--minutes {seconds / 60}") for seconds in (3, 30)}
    speeds = {
        f"bfloat16 × {batch}, compile {compiled}": characters_per_second(batch, compiled)
        for batch in (64, 1024)
        for compiled in (False, True)
    }
    return {**losses, "default": trained(corpus, ""), "characters_per_second": speeds}


def characters_per_second(batch: int, compiled: bool) -> int:
    """Returns how many characters a second a model of 6 layers of width 384 trains on."""
    config = ModelConfig(vocab_size=65, n_layer=6, n_head=6, n_embd=384, block_size=256)
    train = TrainConfig(batch_size=batch, precision="bfloat16", compile=compiled)
    ids = np.random.default_rng(1).integers(65, size=1_000_000, dtype=np.uint8)
    return round(batch * 256 / step_seconds(training(config, train, ids, "cuda"), 3.0))


def exact(corpus: str) -> Row:
    """G5: whether a resumed run has the same files as an unbroken run, and the seconds of steps;
    with and without deterministic algorithms.
    """
    row: Row = {}
    for option in ("--no-deterministic", "--deterministic"):
        with tempfile.TemporaryDirectory() as folder:
            told = f"train {corpus} --device cuda --preset classic --steps 200 --eval-interval 100"
            first, _ = (gptx(f"{told} {option} --run {run} --json", folder) for run in "ab")
            unbroken, resumed = (Path(folder, f"checkpoints/{run}/step-00000200") for run in "ab")
            shutil.rmtree(resumed)
            gptx("train --resume --run b --device cuda", folder)
            equal = all(
                (unbroken / name).read_bytes() == (resumed / name).read_bytes()
                for name in ("model.safetensors", "state.safetensors")
            )
        row[option] = {"bit_equal": equal, "seconds": json.loads(first.stdout)["seconds"]}
    return row


def memory(corpus: str) -> Row:
    """G6: the exit code (8) and the advice after a batch that is too large for any GPU."""
    shape = "--n-layer 24 --n-embd 2048 --n-head 16 --block-size 1024 --batch-size 4096"
    with tempfile.TemporaryDirectory() as folder:
        done = gptx(f"train {corpus} --device cuda --steps 5 {shape}", folder)
    return {"code": done.returncode, "error": done.stderr[-400:]}


def best(corpus: str) -> Row:
    """G7: the preset best with five seeds."""
    return {f"seed {seed}": trained(corpus, f"--preset best --seed {seed}") for seed in range(1, 6)}


ROWS: dict[str, Callable[[str], Row]] = {
    "G1": suite,
    "G2": classic,
    "G3": default,
    "G5": exact,
    "G6": memory,
    "G7": best,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", help="Tiny Shakespeare's text")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--output", type=Path, default=HERE / "results/gpu.jsonl")
    options = parser.parse_args()
    lines = options.output.read_text().splitlines() if options.output.exists() else []
    finished = {json.loads(line)["row"] for line in lines}
    for name in options.rows:
        if name not in finished:
            started = time.perf_counter()
            row = {"row": name, **ROWS[name](str(Path(options.corpus).resolve()))}
            row["took_seconds"] = round(time.perf_counter() - started, 1)
            with options.output.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
