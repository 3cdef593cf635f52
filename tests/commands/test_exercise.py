"""`gptx exercise` from the command line: the list, the file, its check, the training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from program import Gptx
from rich.cells import cell_len
from solved import UNFILLED, changed, filled

from gpt.lessons.exercises import child, report
from gpt.lessons.exercises.report import STAGES, Stage

CHECK = ("exercise", "attention", "--check")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks in this process, with a short training."""

    def check(source: str, seconds: int, text: str | None, seed: int) -> list[Stage]:
        return list(child.run_job(source, text, seed))

    monkeypatch.setattr(report, "check", check)
    monkeypatch.setattr(child, "STEPS", 20)


def test_exercises_are_listed(gptx: Gptx) -> None:
    answer = gptx("exercise")
    assert (answer.code, answer.err) == (0, "next   gptx exercise attention\n")
    assert answer.out.startswith("attention  From one head to a GPT")
    (record,) = map(json.loads, gptx("exercise", "--json").out.splitlines())
    assert record["exercise"] == "attention"


def test_exercise_is_written_once(gptx: Gptx, home: Path) -> None:
    answer = gptx("exercise", "attention")
    assert (answer.code, answer.out) == (0, "")
    assert "gptx exercise attention --check attention.py" in answer.err
    assert (home / "attention.py").read_text("utf-8") == UNFILLED
    (home / "attention.py").write_text("my work", "utf-8")
    again = gptx("exercise", "attention")
    assert again.code == 2
    assert "--output: attention.py exists and is not overwritten" in again.err
    assert (home / "attention.py").read_text("utf-8") == "my work"
    assert gptx("exercise", "attention", "-o", "other.py").code == 0
    assert (home / "other.py").read_text("utf-8") == UNFILLED
    assert gptx("exercise", "attention", "-o", "-").out == UNFILLED


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        ("atention", 2, "'atention' is no exercise; gptx exercise lists them"),
        ("--check x.py", 2, "--check: no effect here"),
        ("-o x.py", 2, "--output: no effect here"),
        ("attention --check x.py -o y.py", 2, "--output: no effect here"),
        ("attention --train corpus.txt", 2, "--train: no effect here"),
        ("attention --time-limit 5", 2, "--time-limit: no effect here"),
        ("attention --check x.py --time-limit 0", 2, "--time-limit: 0 is not in [1, 86,400]"),
        ("attention --check gone.py", 3, "cannot read gone.py"),
        ("attention --check corpus.txt --train short.txt", 3, "short.txt: training needs at least"),
        ("attention -o gone/x.py", 6, "its folder does not exist"),
    ],
)
def test_bad_input_prints_one_line(
    gptx: Gptx, home: Path, arguments: str, code: int, problem: str
) -> None:
    (home / "short.txt").write_text("too short", "utf-8")
    answer = gptx("exercise", *arguments.split())
    assert (answer.code, answer.out) == (code, "")
    assert problem in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.usefixtures("here")
def test_check_shows_a_line_for_each_stage_and_fails_unless_all_are_right(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = changed("Head.scores", " * queries.shape[-1] ** -0.5", "")
    answer = gptx(*CHECK, "-", stdin=source.encode())
    assert answer.code == 7
    assert answer.err == "gptx: error: standard input: 6 of 7 stages are right\n"
    lines = answer.out.splitlines()
    assert lines[0] == "attention · standard input"
    assert lines[2] == "✗  head        forgot /√D – Head.scores: divide by head_size**0.5"
    assert lines[3:] == [f"✓  {name}" for name in STAGES[1:]]
    monkeypatch.setenv("COLUMNS", "40")
    narrow = gptx(*CHECK, "-", "--ascii", stdin=source.encode()).out
    assert narrow.isascii()
    assert max(map(cell_len, narrow.splitlines())) <= 40
    assert gptx(*CHECK, "-", stdin=UNFILLED.encode()).out.count("·  ") == 7


@pytest.mark.usefixtures("here")
def test_json_has_every_stage_with_its_checks(gptx: Gptx, home: Path) -> None:
    (home / "mine.py").write_text(changed("draw", "chances, 1", "chances ** 2, 1"), "utf-8")
    answer = gptx(*CHECK, "mine.py", "--json")
    record = json.loads(answer.out)
    assert (answer.code, record["passed"], record["file"]) == (7, False, "mine.py")
    assert [each["name"] for each in record["stages"]] == list(STAGES)
    last = record["stages"][-1]
    assert (last["status"], last["slip"]) == ("failed", "")
    assert last["message"] == "draw: the ids are not drawn with their probabilities"
    assert any(each["error"] > each["bound"] for each in last["checks"])
    (home / "mine.py").write_text(filled(), "utf-8")
    answer = gptx(*CHECK, "mine.py", "--json")
    assert (answer.code, answer.err, json.loads(answer.out)["passed"]) == (0, "", True)


@pytest.mark.usefixtures("here")
def test_a_right_file_trains_and_shows_its_heads(gptx: Gptx, home: Path) -> None:
    (home / "mine.py").write_text(filled(), "utf-8")
    answer = gptx(*CHECK, "mine.py", "--train", "corpus.txt")
    assert (answer.code, answer.err) == (0, "")
    assert "✓  training    validation loss " in answer.out
    assert "It writes:" in answer.out
    assert "layer 1 head 3" in answer.out
    assert "checks: rows sum to 1" in answer.out
    (home / "mine.py").write_text(UNFILLED, "utf-8")
    refused = gptx(*CHECK, "mine.py", "--train", "corpus.txt")
    assert refused.code == 7
    assert "·  training    trains once all are right" in refused.out


def test_only_the_process_of_a_check_imports_torch() -> None:
    code = (
        "import sys, gpt.commands.exercise as e, gpt.lessons.exercises.report as r; "
        "found = r.check('x = 1', 60); print(len(found), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "7 False\n"


def test_a_check_that_takes_too_long_is_ended(gptx: Gptx) -> None:
    answer = gptx(*CHECK, "-", "--time-limit", "1", stdin=b"while True: pass")
    assert answer.code == 7
    assert "✗  head        no end after 1 s" in answer.out
