"""Hostile names, texts and numbers: what reaches a terminal, a file, a pipe."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from program import Gptx, answer_of, at_home

import gpt

TINY = "--n-layer 1 --n-head 2 --n-embd 8 --block-size 8 --batch-size 2 --steps 2".split()

# ESC, C1's CSI, DEL, bell, bidirectional controls, and a byte that is not UTF-8
HOSTILE = "=e\x1b[31m\x9b\x7f\x07\u202e\u2066\u200e\u061c" + os.fsdecode(b"\xff")
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
STYLES = re.compile(r"\x1b\[[\d;]*m")  # of gptx itself; the name's own begin with its escape


@pytest.fixture(scope="module")
def hostile_home(trained_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything has a hostile name."""
    home = tmp_path_factory.mktemp("hostile") / "home"
    shutil.copytree(trained_home, home)
    run = next((home / "checkpoints").iterdir())
    shutil.copytree(run, home / HOSTILE)
    step = max(run.glob("step-*"))
    shutil.copy(step / "model.safetensors", home / f"{HOSTILE}.safetensors")
    shutil.copy(step / "model.safetensors", home / "=1+1.safetensors")
    shutil.copy(home / "corpus.txt", home / f"{HOSTILE}.txt")
    return home


@pytest.fixture
def on_terminal(hostile_home: Path, monkeypatch: pytest.MonkeyPatch) -> Gptx:
    """Runs the program in `hostile_home` on a terminal."""
    at_home(hostile_home, monkeypatch)
    monkeypatch.setenv("TERM", "xterm-256color")
    return lambda *arguments: answer_of(monkeypatch, arguments, terminal=True)


NAME, TEXT = f"{HOSTILE}.safetensors", f"{HOSTILE}.txt"
LINES = [
    ["attn", "the cat", "--run", NAME],
    ["attn", "--file", TEXT, "--truncate"],
    ["heads", TEXT, "--windows", "2", "--run", NAME],
    ["sample", "--run", HOSTILE, "--length", "5", "--novelty"],
    ["sample", "--run", NAME, "--length", "5", "--json"],
    ["eval", TEXT, "--run", NAME, "--chars"],
    ["eval", TEXT, "--run", NAME, "--json"],
    ["next", "the", "--run", NAME],
    ["live", "--run", NAME, "-o", f"{HOSTILE}.html"],
    ["export", f"{HOSTILE}.folder", "--run", HOSTILE, "--force"],
    ["train", TEXT, *TINY],
    ["train", "corpus.txt", "--steps", "2", "--init-from", NAME, "--json"],
    ["runs"],
    ["runs", "--json"],
]
WRONG = [
    ["attn", HOSTILE],
    ["sample", "--stop", HOSTILE],
    ["eval", HOSTILE],
    ["train", "--config", HOSTILE],
    ["runs", "--checkpoints", HOSTILE],
    [HOSTILE],
    ["runs", HOSTILE, HOSTILE],
    ["sample", "--run", f"{HOSTILE}x"],
    ["train", "corpus.txt", "--split", HOSTILE],
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_no_name_reaches_a_terminal_with_its_control_characters(
    on_terminal: Gptx, line: list[str]
) -> None:
    answer = on_terminal(*line)
    assert answer.code == 0, answer.err
    assert "\x1b[31m[" not in answer.out
    for text in (answer.out, re.sub(r"\r[^\n]*|\x1b\[A", "", answer.err)):  # bars of tqdm
        assert not UNSAFE.findall(STYLES.sub("", text))
    for each in map(json.loads, answer.out.splitlines() if "--json" in line else ()):
        json.dumps(each, ensure_ascii=False).encode()  # nothing in it that a file cannot store


@pytest.mark.parametrize("line", WRONG, ids=range(len(WRONG)))
def test_no_error_reaches_a_terminal_with_control_characters(
    on_terminal: Gptx, line: list[str]
) -> None:
    answer = on_terminal(*line)
    assert answer.code in (2, 3, 4, 6), answer.err
    assert not UNSAFE.findall(STYLES.sub("", answer.out + answer.err))


def test_a_sample_with_control_characters_is_escaped_on_a_terminal_only(
    on_terminal: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evil.txt").write_bytes(("ab\x1b[31m\x07\x9b\u202ecd\r\x08\n" * 60).encode())
    trained = on_terminal("train", "evil.txt", *TINY, "--checkpoints", "evil")
    assert trained.code == 0, trained.err
    line = ("sample", "ab\x1b", *"--length 300 --temperature 3 --seed 1 --checkpoints evil".split())
    assert "\x1b" in answer_of(monkeypatch, line).out
    assert not UNSAFE.findall(on_terminal(*line).out)


def test_only_the_console_writes_to_the_standard_streams() -> None:
    """A print elsewhere would show names without their control characters escaped."""
    root, found = Path(gpt.__file__).parent, list[str]()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called == "print" or re.fullmatch(r"sys\.std(out|err)\.(buffer\.)?write", called):
                found.append(path.relative_to(root).as_posix())
    start = "commands/__init__.py"  # names the package without which the console cannot be imported
    assert ({*found}, found.count(start)) == ({"commands/console.py", start}, 1)
