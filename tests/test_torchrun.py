"""Ranks under torchrun: a kill, a signal, and a training that goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT
from program import answer_of, at_home
from ranked import on_ranks
from safetensors.numpy import load_file

from gpt.corpus.corpus import reopen_corpus
from gpt.storage.run import MODEL, STATE, Run
from gpt.training.events import Stepped
from gpt.training.trainer import Trainer

SHAPE = (
    "--n-layer 2 --n-head 2 --n-embd 16 --block-size 16 --batch-size 6 --dropout 0.1 "
    "--eval-chars 200 --warmup-steps 2 --learning-rate 0.01"
).split()


@contextmanager
def launched(folder: Path, size: int, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `torchrun … -m -- gpt train` in a folder; ends it with all its child processes."""
    environment = {name: value for name, value in os.environ.items() if "GPTX" not in name}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={size}", "--monitor-interval=0.2"),
            *("-m", "--", "gpt", "train", *arguments),
        ],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        started = workers(process)
        with suppress(ProcessLookupError):
            process.kill()
        for pid in started.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        assert process.stdout
        process.stdout.close()


def workers(launcher: subprocess.Popen[bytes]) -> dict[int, int]:
    """rank -> process id of the launcher's child processes."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, StopIteration):
            parent = int(entry.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher.pid:
                variables = entry.joinpath("environ").read_bytes().split(b"\0")
                rank = next(one for one in variables if one.startswith(b"RANK="))
                found[int(rank[5:])] = int(entry.name)
    return found


def wait_for_step(run: Run, step: int) -> None:
    until = time.monotonic() + 180
    while not any(int(path.name[5:]) >= step for path in run.step_paths()):
        assert time.monotonic() < until, "no such step was saved"
        time.sleep(0.02)


def tensors_of(run: Run, step: int) -> dict[str, Any]:
    path = run.at(step).path
    return {**load_file(path / MODEL), **load_file(path / STATE)}


def learn_undisturbed(folder: Path, step: int) -> None:
    """The same training without a kill, up to this step."""
    trained = Run(folder / "checkpoints/killed").last().manifest
    start = replace(
        trained, step=0, val_loss=None, best_step=None, best_loss=None, running=(0.0, 0), files={}
    )
    corpus = reopen_corpus(trained.corpus, folder / "data", trained.vocabulary)
    assert corpus
    run = Run(folder / "checkpoints/quiet")
    run.path.mkdir(exist_ok=True)
    trainer = Trainer(run, corpus, start, "cpu")
    for event in trainer.events():
        if isinstance(event, Stepped) and event.step == step:
            trainer.stop("SIGTERM")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_ranks_end_after_a_kill_and_go_on_until_a_signal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are those of an undisturbed training; then one process can resume."""
    order = ("text.txt", "--steps", "1000000", "--eval-interval", "20", "--run", "killed")
    run = Run(folder / "checkpoints/killed")
    with launched(folder, 2, *order, *SHAPE) as process:
        wait_for_step(run, 20)
        os.kill(workers(process)[1], signal.SIGKILL)
        assert process.communicate(timeout=180)
        assert process.returncode != 0
    with launched(folder, 2, "--resume", "--run", "killed") as process:
        wait_for_step(run, max(run.steps()) + 40)
        os.kill(workers(process)[1], signal.SIGTERM)
        told = process.communicate(timeout=180)[0].decode()
    (resumed,) = re.findall(r"resuming killed at step (\d+)", told)  # only one rank prints
    assert int(resumed) % 20 == 0
    assert "torchrun … -m -- gpt train --resume --run killed" in told
    assert told.count("SIGTERM after step") == 1
    stopped = run.last().manifest
    assert stopped.val_loss is None or stopped.step % 20 == 0
    step = max(each for each in run.steps() if each % 20 == 0)
    assert step > int(resumed)
    on_ranks(2, learn_undisturbed, folder, step)
    found, expected = tensors_of(run, step), tensors_of(Run(folder / "checkpoints/quiet"), step)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)
    at_home(folder, monkeypatch)
    again = ("train", "--resume", "--run", "killed", "--steps", str(stopped.step + 5))
    alone = answer_of(monkeypatch, again)
    assert alone.code == 0, alone.err
    assert "not bit-exact: this run was trained with ranks 2, now it is 1" in alone.err
    assert run.last().manifest.step == stopped.step + 5
