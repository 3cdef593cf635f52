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
