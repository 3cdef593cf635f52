"""A short run of the fuzzer (tests/fuzz.py); `make fuzz` runs thousands of inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).with_name("fuzz.py")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and named pipes")


def test_hostile_inputs_never_cause_a_hang_a_traceback_or_a_lost_file() -> None:
    line = [sys.executable, str(FUZZ), "--inputs", "20", "--seed", "31"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout)
    assert counts["findings"] == {}
    assert len(counts["inputs"]) == 5
    assert sum(counts["inputs"].values()) == 20


@pytest.mark.parametrize(
    ("code", "said", "memory", "wrong"),
    [
        (2, "gptx: error: --n: 0 is less than 1", 0, ""),
        (-1, "", 0, "hangs"),
        (1, "gptx: error: KeyError: 'x' (a bug in gptx)", 0, "a bug in gptx"),
        (4, "Traceback (most recent call last):\ngptx: error: x", 0, "traceback"),
        (-11, "gptx: error: x", 0, "exit -11"),
        (0, "gptx: error: x", 0, "1 errors"),
        (0, "", 2**40, "1048576 MiB"),
    ],
)
def test_fuzzer_classifies_results(code: int, said: str, memory: int, wrong: str) -> None:
    from fuzz import problem

    assert wrong in problem(code, said, memory)
    assert bool(wrong) == bool(problem(code, said, memory))
