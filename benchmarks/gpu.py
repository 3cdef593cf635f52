"""Every measurement that needs a GPU, in one script: rows G1 to G7.

Each row runs in a separate process, so that a failure does not affect the others, and appends its
JSON line to the output when it is finished. Finished rows are not repeated, so several short runs
can complete the table. Rows: suite (the tests on CUDA), classic and best seeds
(whole trainings), loss (time to 1.47 from a cold process), speed (characters a second of training
steps), sampling, exact (resume bit for bit, and what deterministic mode costs), memory (a real
out-of-memory error).

    python benchmarks/gpu.py tinyshakespeare.txt --output results/gpu.jsonl [--rows suite speed …]

`--device cpu --quick` tries the script itself: tiny models, a few steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEVICE, QUICK = "cuda", False
TINY = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --batch-size 4 --eval-chars 500"
Row = dict[str, Any]


def again() -> list[str]:
    """The arguments for another process of this script."""
    return ["--device", DEVICE, *["--quick"] * QUICK]


def python(arguments: list[str], folder: str | Path = ".") -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder, with the gptx of this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, check=False
    )


def gptx(arguments: str, folder: str) -> subprocess.CompletedProcess[str]:
    return python(["-m", "gpt", *shlex.split(arguments)], folder)


def short(steps: int) -> str:
    """Options that make a training quick, to try the script itself."""
    return f"{TINY} --steps {steps}" if QUICK else ""


def trained(corpus: str, arguments: str) -> Row:
    """A whole training: its loss, and the seconds of its steps and of the whole command."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = gptx(f"train {corpus} --device {DEVICE} --json {arguments} {short(20)}", folder)
        wall = time.perf_counter() - started
    if done.returncode:
        return {"failed": done.stderr[-600:], "code": done.returncode}
    result = json.loads(done.stdout)
    card = [line for line in done.stderr.splitlines() if line.startswith(("time", "device"))]
    return {
        "val_nats": result["val_nats"],
        "steps": result["step"],
        "training_seconds": result["seconds"],
        "wall_seconds": round(wall, 2),
        "card": card,
    }


def suite(_: str) -> Row:
    """G1: readable = fused = cached = numpy on CUDA; and every test that needs a GPU."""
    tests = ["-m", "pytest", "-q", "-k", "cuda or parity or decoder or device"]
    done = python(tests, HERE.parent)
    return {"code": done.returncode, "end": done.stdout[-1500:]}


def classic(corpus: str) -> Row:
    """G2: nanoGPT's recipe for a GPU; it reaches 1.4697 there."""
    return trained(corpus, "--preset classic")


def loss(corpus: str) -> Row:
    """G3, P5: the default preset, and its loss after a few seconds."""
    return {
        f"{seconds} s": trained(corpus, "" if QUICK else f"--minutes {seconds / 60}")
        for seconds in (3, 10, 30)
    } | {"default": trained(corpus, "")}


def speed(_: str) -> Row:
    """G3, P6: training steps of 10.7 M parameters, by precision, batch size, compiled or not."""
    rows: Row = {}
    for precision, batch, compile in (
        *((precision, 64, False) for precision in ("float32", "bfloat16")),
        *(("bfloat16", batch, False) for batch in (256, 1024)),
        *(("bfloat16", batch, True) for batch in (64, 256, 1024) if not QUICK),
    ):
        work: Row = {"precision": precision, "batch": batch, "compile": compile}
        done = python([__file__, "--steps", json.dumps(work), *again()])
        key = f"{precision} × {batch}{' compiled' * compile}"
        rows[key] = json.loads(done.stdout) if not done.returncode else done.stderr[-300:]
    return rows


def steps(precision: str, batch: int, compile: bool) -> Row:
    """Seconds of a training step of 10.7 M parameters, and characters a second."""
    import numpy as np
    import torch
    from measure import step_seconds, training

    from gpt.config import ModelConfig, TrainConfig

    shape: Row = {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256}
    if QUICK:
        shape |= {"n_layer": 1, "n_embd": 24, "block_size": 16}
    config = ModelConfig(vocab_size=65, **shape)
    train = TrainConfig(batch_size=batch, precision=precision, compile=compile)  # type: ignore[arg-type]
    ids = np.random.default_rng(1).integers(65, size=1_000_000, dtype=np.uint8)
    seconds = step_seconds(training(config, train, ids, DEVICE), 0.1 if QUICK else 3.0)
    rate = batch * config.block_size / seconds
    peak = torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0
    return {
        "ms": round(1e3 * seconds, 3),
        "characters_per_second": round(rate),
        "teraflops": round(rate * config.training_flops / 1e12, 1),
        "peak_GB": round(peak / 2**30, 2),
    }


def sampling(corpus: str) -> Row:
    """G4, P8: one stream and many streams, with a briefly trained model of 10.7 M parameters."""
    shape = "--n-layer 6 --n-head 6 --n-embd 384 --block-size 256 --steps 50 " + short(5)
    rows: Row = {}
    with tempfile.TemporaryDirectory() as folder:
        done = gptx(f"train {corpus} --device {DEVICE} --run one {shape}", folder)
        if done.returncode:
            return {"failed": done.stderr[-600:]}
        code = (
            "import gpt, time, json; from gpt.config import SampleConfig; "
            "from gpt.reading.sampler import sample_ids; import numpy as np\n"
            f"run = gpt.load('checkpoints', device='{DEVICE}'); rows = {{}}\n"
            "sizes = (1, 2000), (64, 1000), (1024, 500), (4096, 250)\n"
            f"for n, length in sizes[: {2 if QUICK else 4}]:\n"
            "    draw = lambda: sum(1 for _ in sample_ids(run.decoders.first, np.zeros(1, int), "
            "SampleConfig(length=length, n=n)))\n"
            "    draw(); begun = time.perf_counter(); draw()\n"
            "    rows[n] = round(n * length / (time.perf_counter() - begun))\n"
            "print(json.dumps(rows))"
        )
        found = python(["-c", code], folder)
        rows["characters_per_second"] = (
            json.loads(found.stdout) if not found.returncode else found.stderr[-800:]
        )
        rows["notes"] = found.stderr[-800:]  # the device failed, so numpy was measured
    return rows


def exact(corpus: str) -> Row:
    """G5: a resumed run and an unbroken one, with and without deterministic algorithms."""
    rows: Row = {}
    for option in ("--no-deterministic", "--deterministic"):
        with tempfile.TemporaryDirectory() as folder:
            told = f"--device {DEVICE} --preset classic {short(200) or '--steps 200'} {option}"
            told += " --eval-interval 100"
            straight = gptx(f"train {corpus} --run a {told}", folder)
            half = gptx(f"train {corpus} --run b {told}", folder)
            for last in sorted(Path(folder, "checkpoints/b").glob("step-*"))[-1:]:
                shutil.rmtree(last)
            resumed = gptx(f"train --resume --run b --device {DEVICE}", folder)
            ends = [
                Path(folder, f"checkpoints/{run}/step-00000200/{part}")
                for run in "ab"
                for part in ("model.safetensors", "state.safetensors")
            ]
            same = all(end.exists() for end in ends) and all(
                ends[part].read_bytes() == ends[part + 2].read_bytes() for part in range(2)
            )
            times = [line for line in straight.stderr.splitlines() if line.startswith("time")]
            codes = [straight.returncode, half.returncode, resumed.returncode]
            rows[option] = {"codes": codes, "bit_equal": same, "time": times}
    return rows


def memory(corpus: str) -> Row:
    """G6: a batch too large for any GPU: exit code 8, and the advice."""
    with tempfile.TemporaryDirectory() as folder:
        shape = "--n-layer 24 --n-embd 2048 --n-head 16 --block-size 1024 --batch-size 4096"
        done = gptx(f"train {corpus} --device {DEVICE} --steps 5 {shape}", folder)
    return {"code": done.returncode, "told": done.stderr[-400:]}


def best(corpus: str) -> Row:
    """G7: the preset best, five seeds."""
    return {
        seed: trained(corpus, f"--preset best --seed {seed}")
        for seed in range(1, 2 if QUICK else 6)
    }


ROWS: dict[str, Callable[[str], Row]] = {
    "suite": suite,
    "speed": speed,
    "sampling": sampling,
    "classic": classic,
    "loss": loss,
    "exact": exact,
    "memory": memory,
    "best": best,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", nargs="?", help="Tiny Shakespeare's text")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--output", type=Path, default=HERE / "results/gpu.jsonl")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--steps", help=argparse.SUPPRESS)
    options = parser.parse_args()
    global DEVICE, QUICK
    DEVICE, QUICK = options.device, options.quick
    if options.steps:
        print(json.dumps(steps(**json.loads(options.steps))))
        return
    corpus = str(Path(options.corpus).resolve())
    done = set()
    if options.output.exists():
        done = {json.loads(line)["row"] for line in options.output.read_text().splitlines()}
    for name in options.rows:
        if name in done:
            continue
        started = time.perf_counter()
        row = {"row": name, **ROWS[name](corpus)}
        row["took_seconds"] = round(time.perf_counter() - started, 1)
        with options.output.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
