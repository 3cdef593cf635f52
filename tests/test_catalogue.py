"""Every test that tests/README.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent


def test_every_test_named_in_the_readme_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (TESTS / "README.md").read_text(encoding="utf-8")))
    there = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.M)
    }
    assert len(named) > 60
    assert named <= there, sorted(named - there)
