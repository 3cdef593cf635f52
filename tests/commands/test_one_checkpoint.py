"""A command uses one checkpoint from start to end, and a model file alone is enough for it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import TINY, Gptx

import gpt.interface.trained
import gpt.storage.runs
from gpt.storage.run import Run

#: Every command that uses a model and its corpus, or that opens a model twice.
READING = [
    "sample --prompt To --seed 1 --length 30 --novelty --json",
    "eval --json",
    "eval --against first --json",
    "heads --json",
    "attn cat --format json",
    "next cat --json",
]


@pytest.fixture(scope="module")
def runs(home: Path) -> Path:
    """A home with the run "first" on corpus.txt and a run "second" with other characters."""
    (home / "other.txt").write_text("ΑΒΓ cato, αβγδε! 123\n" * 200, encoding="utf-8")
    (home / "checkpoints/corpus-1").rename(home / "checkpoints/first")
    return home


@pytest.fixture
def second(runs: Path, gptx: Gptx) -> Path:
    apart = runs / "apart"
    if not apart.exists():
        trained = gptx("train", "other.txt", *TINY, "--run", "second", "--checkpoints", "apart")
        assert trained.code == 0, trained.err
    return apart / "second"


@pytest.fixture
def commits(runs: Path, second: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Another process saves a newer run as soon as a command has found the newest one."""
    find, made = gpt.storage.runs.find_run, list[Path]()

    def find_run(root: Path, name: str | None = None) -> Run:
        found = find(root, name)
        if not made:
            made.append(Path(shutil.copytree(second, runs / "checkpoints/second")))
            newest = Run(made[0]).step_paths()[-1]
            os.utime(newest, ns=(2 * 10**18, 2 * 10**18))
        return found

    for module in (gpt.storage.runs, gpt.interface.trained):
        monkeypatch.setattr(module, "find_run", find_run)
    yield made
    shutil.rmtree(runs / "checkpoints/second")


@pytest.mark.parametrize("command", READING)
def test_checkpoint_saved_meanwhile_does_not_change_an_answer(
    gptx: Gptx, runs: Path, command: str, request: pytest.FixtureRequest
) -> None:
    alone = gptx(*command.split())
    assert (alone.code, alone.err) == (0, "")
    made = request.getfixturevalue("commits")
    raced = gptx(*command.split())
    assert made
    assert (raced.code, raced.out) == (0, alone.out)


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
        "sample --prompt To --seed 1 --length 30 --json",
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
    assert alone.out.replace(model, "first") == by_name.out
    assert alone.err.replace(model, "first") == by_name.err
    if "--json" in command or "json" in command:
        assert f'"run": "{model}"' in alone.out.replace('":"', '": "')


def test_heads_of_a_model_file_uses_the_text_in_it(gptx: Gptx, model: str) -> None:
    answer = gptx("heads", "--run", model)
    assert answer.code == 0
    assert f"note: {model} is a model file without its run, so its corpus is unknown" in answer.err
    assert "of the validation split's first " in answer.out


def test_model_file_can_be_compared_with_a_run(gptx: Gptx, runs: Path, model: str) -> None:
    against = gptx("eval", "corpus.txt", "--run", "first", "--step", "4", "--against", model)
    assert against.out.startswith("corpus.txt · ")
    assert "\nfirst step 4 " in against.out
    assert f"\n{model} step 8 " in against.out
    record = json.loads(
        gptx("eval", "corpus.txt", "--run", model, "--against", "first:4", "--json").out
    )
    assert (record["run"], record["against"]["run"], record["against"]["step"]) == (
        model,
        "first",
        4,
    )
    split = gptx("eval", "--run", "first", "--against", model)
    assert split.code == 0
    assert split.err == f"warning: {model} is a model file without its run: its text is unknown\n"


@pytest.mark.parametrize(
    ("command", "code", "problem"),
    [
        (
            "eval --run {model}",
            3,
            "the validation split needs the corpus: {model} is a model file without its "
            "run, so its corpus is unknown; give its run with --run; or give a text",
        ),
        (
            "sample --novelty --run {model}",
            3,
            "--novelty needs the corpus: {model} is a model file without its run, so "
            "its corpus is unknown; give its run with --run",
        ),
        ("sample --run {model} --step 4", 2, "--step: {model} has one step only; leave --step out"),
        ("eval corpus.txt --run first --against {step} --step last", 0, ""),
        ("sample --run {step} --step last", 2, "--step: {step} has one step only"),
        ("sample --run corpus.txt", 4, "not a gptx checkpoint"),
        (
            "train --resume --run {model}",
            2,
            "--run: {model} is a file, but only a run can be resumed",
        ),
        ("sample --run ../first", 2, "invalid run name '../first'"),
        ("sample --run sent", 4, "no checkpoint in "),
        ("sample --run=", 2, "invalid run name ''"),
        ("sample --run {long}", 2, "invalid run name"),
    ],
)
def test_commands_that_need_a_run_refuse_a_model_file(
    gptx: Gptx, runs: Path, model: str, command: str, code: int, problem: str
) -> None:
    names = {"model": model, "step": "checkpoints/first/step-00000008", "long": "x/" * 5000}
    answer = gptx(*(part.format(**names) for part in command.split()))
    assert answer.code == code
    assert problem.format(**names) in answer.err
    assert answer.err.count("\n") <= 1
    assert bool(answer.out) == (code == 0)


def test_path_of_a_run_or_step_opens_it_with_its_corpus(gptx: Gptx, runs: Path) -> None:
    def asked(*arguments: str) -> dict[str, Any]:
        answer = gptx("eval", "--json", *arguments)
        assert (answer.code, answer.err) == (0, "")
        return json.loads(answer.out)  # type: ignore[no-any-return]

    elsewhere = ("--checkpoints", "nowhere")
    for step in ("4", "8"):
        expected = asked("--run", "first", "--step", step)
        assert asked("--run", "checkpoints/first", "--step", step, *elsewhere) == expected
        assert asked("--run", f"{runs}/checkpoints/first/step-0000000{step}") == expected


def test_run_name_takes_precedence_over_a_file(gptx: Gptx, runs: Path, model: str) -> None:
    shutil.copy(runs / model, runs / "first")
    try:
        assert (
            json.loads(gptx("next", "cat", "--run", "first", "--step", "4", "--json").out)["step"]
            == 4
        )
        by_path = json.loads(gptx("next", "cat", "--run", "./first", "--json").out)
        assert by_path["run"] == "./first"
    finally:
        (runs / "first").unlink()
