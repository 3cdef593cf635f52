"""The lessons in docs/lessons run as scripts, so all their assertions hold."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

LESSONS = sorted((Path(__file__).parents[1] / "docs" / "lessons").glob("*.py"))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, short trainings, and torch's random generator as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LESSON_STEPS", "20")
    with torch.random.fork_rng(devices=[]):
        yield


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs_and_prints_its_tables(
    lesson: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(lesson), run_name="__main__")
    assert capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []


def test_the_dropout_mask_of_the_lesson_causal_is_that_of_intels_library() -> None:
    """Its generator is seeded with 32 bits of torch's; a number is kept if it is below 1 − p."""
    generator = torch.Generator().manual_seed(123)
    drawn = torch.empty((), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    modulus, multiplier = 2**31 - 1, 1132489760
    state, kept = (int(drawn) >> 32 & 0xFFFFFFFF) % modulus, []
    for _ in range(36):
        kept.append(2.0 * (state / modulus < 0.5))
        state = state * multiplier % modulus
    causal = next(path for path in LESSONS if path.stem == "causal")
    assert runpy.run_path(str(causal))["intel"].flatten().tolist() == kept
