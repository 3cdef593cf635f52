"""A model file alone is enough for a command that needs no run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from program import Gptx

from gpt.storage.run import Run


@pytest.fixture(scope="module")
def runs(home: Path) -> Path:
    """A home with the run "first"."""
    (home / "checkpoints/corpus-1").rename(home / "checkpoints/first")
    return home


@pytest.fixture(scope="module")
def model(runs: Path) -> str:
    """A model file alone in a folder."""
    (runs / "sent").mkdir()
    best = Run(runs / "checkpoints/first").at()
    shutil.copy(best.path / "model.safetensors", runs / "sent/one:1.safetensors")
    return "sent/one:1.safetensors"


@pytest.mark.parametrize(
    "command",
    [
        "sample --prompt To --length 30 --seed 1 --json",
        "attn cat --json",
        "next cat --json",
        "heads corpus.txt --json",
        "eval held-out.txt --json",
    ],
)
def test_model_file_alone_gives_the_same_answers_as_its_run(
    gptx: Gptx, runs: Path, model: str, command: str
) -> None:
    by_name = gptx(*command.split(), "--run", "first")
    alone = gptx(*command.split(), "--run", model)
    assert alone.code == by_name.code == 0
    name = Path(model).name
    assert alone.out.replace(name, "first") == by_name.out
    assert alone.err.replace(name, "first") == by_name.err


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        ("eval --run {model}", 3, "the validation split needs the corpus"),
        ("sample --novelty --run {model}", 3, "--novelty needs the corpus: one:1.safetensors"),
        ("sample --run {model} --step 4", 2, "--step: {model} has only one step"),
        ("sample --run corpus.txt", 4, "not a gptx checkpoint"),
        ("train --resume --run {model}", 2, "invalid run name"),
        ("sample --run ../first", 4, "no checkpoint in "),
        ("sample --run sent", 4, "no checkpoint in "),
    ],
)
def test_commands_that_need_a_run_refuse_a_model_file(
    gptx: Gptx, runs: Path, model: str, command: str, code: int, problem: str
) -> None:
    answer = gptx(*command.format(model=model).split())
    assert answer.code == code
    assert problem.format(model=model) in answer.err
    assert answer.err.count("\n") <= 1
    assert bool(answer.out) == (code == 0)
