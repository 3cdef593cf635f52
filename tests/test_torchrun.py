"""Ranks under torchrun: a kill, a signal, a restart."""

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
from gpt.training.trainer import Trainer

SHAPE = (
    "--n-layer 2 --n-head 2 --n-embd 16 --block-size 16 --batch-size 6 --dropout 0.1 "
    "--eval-chars 200 --warmup-steps 2 --learning-rate 0.01"
).split()


@contextmanager
def launched(
    folder: Path, size: int, *arguments: str, restarts: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `torchrun … -m -- gpt train` in a folder; ends it with all its child processes."""
    environment = {name: value for name, value in os.environ.items() if "GPTX" not in name}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={size}", f"--max-restarts={restarts}", "--monitor-interval=0.2"),
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


def last_of(run: Run) -> dict[str, Any]:
    path = run.last_undamaged()[0].path
    return {**load_file(path / MODEL), **load_file(path / STATE)}


def learn_undisturbed(folder: Path) -> int:
    """The same training without a kill."""
    trained = Run(folder / "checkpoints/killed").last().manifest
    start = replace(
        trained, step=0, val_loss=None, best_step=None, best_loss=None, running=(0.0, 0), files={}
    )
    corpus = reopen_corpus(trained.corpus, folder / "data", trained.vocabulary)
    assert corpus
    run = Run(folder / "checkpoints/quiet")
    run.path.mkdir(exist_ok=True)
    return len(list(Trainer(run, corpus, start, "cpu").events()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_ranks_restart_after_a_kill_with_the_same_weights(
    folder: Path,
) -> None:
    order = ("text.txt", "--steps", "120", "--eval-interval", "40", *SHAPE)
    with launched(folder, 2, *order, "--run", "killed", restarts=1) as process:
        wait_for_step(Run(folder / "checkpoints/killed"), 40)
        os.kill(workers(process)[1], signal.SIGKILL)
        told = process.communicate(timeout=180)[0].decode()
        assert process.returncode == 0, told
    assert re.search(r"resuming killed at step (40|80)", told)
    assert len(re.findall("ended +all 120 steps", told)) == 1  # only one rank prints
    on_ranks(2, learn_undisturbed, folder)
    found, expected = (last_of(Run(folder / "checkpoints" / name)) for name in ("killed", "quiet"))
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_signal_to_one_rank_stops_all_and_one_process_can_resume(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = ("text.txt", "--steps", "1000000", "--eval-interval", "50", "--run", "signalled")
    run = Run(folder / "checkpoints/signalled")
    with launched(folder, 2, *order, *SHAPE, restarts=1) as process:
        wait_for_step(run, 50)
        os.kill(workers(process)[1], signal.SIGTERM)
        told = process.communicate(timeout=180)[0].decode()
    assert process.returncode == 0, told  # otherwise torchrun would restart all ranks
    assert "torchrun … -m -- gpt train --resume --run signalled" in told
    assert told.count("SIGTERM after step") == 1
    assert "resuming" not in told
    stopped = run.last().manifest
    assert stopped.step > 50
    assert stopped.val_loss is None or stopped.step % 50 == 0
    at_home(folder, monkeypatch)
    alone = answer_of(monkeypatch, ("train", "--resume", "--steps", str(stopped.step + 5)))
    assert alone.code == 0, alone.err
    assert "not bit-exact: this run was trained with ranks 2, now it is 1" in alone.err
    assert run.last().manifest.step == stopped.step + 5
