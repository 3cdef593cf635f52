"""Ranks under torchrun: the same losses as one process; one rank is killed, all leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import TEXT
from program import answer_of, at_home

from gpt.storage.run import Run

TRAIN = (
    "train text.txt --n-layer 2 --n-head 2 --n-embd 16 --block-size 16 --batch-size 6 --dropout 0 "
    "--eval-chars 200 --warmup-steps 2 --learning-rate 0.01 --eval-interval 10"
).split()
TORCHRUN = "torch.distributed.run --standalone --nproc-per-node=2 --monitor-interval=0.2 -m -- gpt"


def launched(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts two ranks in a folder, which gets a text."""
    (folder / "text.txt").write_text(TEXT)
    environment = {name: value for name, value in os.environ.items() if "GPTX" not in name}
    return subprocess.Popen(
        [sys.executable, "-m", *TORCHRUN.split(), *TRAIN, *arguments],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def losses(run: Path) -> list[float]:
    return [record["val_loss"] for record in Run(run).records("metrics") if "val_loss" in record]


def test_two_ranks_have_the_losses_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = launched(tmp_path, "--steps", "30", "--run", "ranks")
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 0, said.decode()
    assert said.count(b"gptx sample --prompt") == 1  # only one rank prints
    at_home(tmp_path, monkeypatch)
    alone = answer_of(monkeypatch, (*TRAIN, "--steps", "30", "--run", "alone"))
    assert alone.code == 0, alone.err
    together = losses(tmp_path / "checkpoints/ranks")
    assert len(together) >= 3
    assert together == pytest.approx(losses(tmp_path / "checkpoints/alone"), abs=1e-4)


def rank_process(launcher: int, rank: int) -> int:
    """The process id of a rank that this process has launched."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            parent = entry.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            variables = entry.joinpath("environ").read_bytes().split(b"\0")
            if int(parent) == launcher and f"RANK={rank}".encode() in variables:
                return int(entry.name)
    raise AssertionError(f"no rank {rank}")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_all_ranks_leave_after_one_is_killed_and_no_checkpoint_is_lost(tmp_path: Path) -> None:
    run = Run(tmp_path / "checkpoints/killed")
    process = launched(tmp_path, "--steps", "1000000", "--run", "killed")
    try:
        until = time.monotonic() + 180
        while not any(run.steps()):
            assert time.monotonic() < until, "no step was saved"
            assert process.poll() is None
            time.sleep(0.05)
        first = rank_process(process.pid, 0)
        os.kill(rank_process(process.pid, 1), signal.SIGKILL)
        process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode != 0
    assert not Path(f"/proc/{first}").exists()
    assert run.last_undamaged()[0].manifest.step % 10 == 0
