"""Kills trainings at random moments and checks the saved files.

Each child is a whole `gptx train` or `gptx train --resume`, ended by SIGKILL; every checkpoint that
it had committed must be unchanged and complete. A run that has trained all its steps must equal an
undisturbed run bit for bit: weights, moments and evaluations. Linux and macOS.

    python tests/soak.py [--kills 200] [--seed 1] [--longest 2.0]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a forked child cannot use its parent's threads

import torch  # noqa: F401  # once, for all children

from gpt import commands
from gpt.errors import CheckpointError
from gpt.storage.run import MODEL, STATE, Run

TEXT = "the cat sat on the mat. the rat sat on the cat.\nno mat, no cat, no rat!\n" * 200
OPTIONS = (
    "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --batch-size 4 "
    "--dropout 0.1 --average 0.9 --warmup-steps 5 --eval-interval 15"
).split()


def start(arguments: list[str]) -> int:
    """Starts gptx with these arguments; returns its process id."""
    child = os.fork()
    if child == 0:
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = ["gptx", *arguments]
        status = 1
        try:
            commands.main()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        finally:
            os._exit(status)
    return child


def commits(run: Run) -> dict[str, bytes]:
    """Every byte of every checkpoint."""
    found = {}
    for path in run.step_paths():
        for name in (MODEL, STATE, "manifest.json"):
            found[f"{path.name}/{name}"] = (path / name).read_bytes()
    return found


def outcome(run: Run) -> tuple[bytes, bytes, list[tuple[int, float]]]:
    """Weights, moments, and every evaluation's loss."""
    path = run.last().path
    losses = [(record["step"], record["val_loss"]) for record in run.records("metrics")]
    return (path / MODEL).read_bytes(), (path / STATE).read_bytes(), losses


def wait(child: int) -> int:
    """The exit code of a child; negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=600, help="of each run")
    parser.add_argument("--longest", type=float, default=2.0, help="seconds that a child lives")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("text.txt").write_text(TEXT, encoding="utf-8")
        new = ["train", "text.txt", *OPTIONS, "--steps", str(options.steps), "--run"]
        assert wait(start([*new, "unbroken"])) == 0, Path("log.txt").read_text()
        expected = outcome(Run(Path("checkpoints/unbroken")))
        kills, runs, empty, lived = 0, 0, 0, 0.0
        while kills < options.kills:
            name = f"run-{runs}"
            run, ended = Run(Path("checkpoints") / name), False
            while not ended:
                if run.step_paths():
                    arguments = ["train", "--resume", "--run", name]
                else:  # killed before the first save: there is nothing to resume
                    shutil.rmtree(run.path, ignore_errors=True)
                    arguments = [*new, name]
                    empty += kills > 0
                child, started = start(arguments), time.monotonic()
                deadline = started + draw.uniform(0, options.longest)
                known = len(run.records("metrics")) if draw.random() < 0.5 else None
                while time.monotonic() < deadline and not ended:
                    time.sleep(0.002)
                    if known is not None and len(run.records("metrics")) > known:
                        # The training has begun: half of the children are killed near a save.
                        deadline, known = time.monotonic() + draw.uniform(0, 0.05), None
                    elif known is not None:
                        deadline = started + 60
                    done, status = os.waitpid(child, os.WNOHANG)
                    if done:
                        code = os.waitstatus_to_exitcode(status)
                        assert code == 0, f"exit {code}: {Path('log.txt').read_text()[-2000:]}"
                        ended = True
                if ended:
                    break
                before = commits(run)
                os.kill(child, signal.SIGKILL)
                wait(child)
                kills, lived = kills + 1, lived + time.monotonic() - started
                after = commits(run)
                newest = sorted(before)[-1:] and max(path.split("/")[0] for path in before)
                for path, data in before.items():
                    if path.startswith(newest or "/"):
                        assert after.get(path) == data, f"{path} is not what it was"
                if after:
                    _, warnings = run.last_undamaged()
                    assert not warnings, warnings
                    try:
                        run.at().verify()
                    except CheckpointError as error:
                        raise AssertionError("the best is not whole") from error
                if kills % 20 == 0:
                    print(f"{kills} kills, {runs} runs finished", flush=True)
            assert outcome(run) == expected, f"{name} is not the undisturbed run"
            shutil.rmtree(run.path)
            runs += 1
        print(
            f"{kills} kills ({empty} before a first checkpoint) after {lived / kills:.2f} s on "
            f"average; {runs} runs finished, each bit for bit as undisturbed; nothing lost"
        )


if __name__ == "__main__":
    main()
