"""Hostile names, texts and numbers: what reaches a terminal, a file, a pipe."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from program import Gptx, answer_of, at_home
from typer.main import get_command

import gpt
from gpt import commands
from gpt.characters import cut
from gpt.config.train import from_toml
from gpt.errors import ConfigError

COMMANDS: dict[str, Any] = get_command(commands.make_program()).commands  # type: ignore[attr-defined]
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
    ["attn", "the cat", "--run", HOSTILE, "--json"],
    ["attn", "--file", TEXT, "--truncate"],
    ["heads", TEXT, "--windows", "2", "--run", NAME],
    ["sample", "--run", HOSTILE, "--length", "5", "--novelty"],
    ["sample", "--run", NAME, "--stop", HOSTILE[:-1], "--length", "5", "--json"],
    ["sample", HOSTILE, "--unknown", "skip", "--length", "5"],
    ["eval", TEXT, "--run", NAME, "--chars"],
    ["eval", TEXT, "--run", NAME, "--json"],
    ["eval", TEXT, "--run", HOSTILE, "--against", "corpus-1"],
    ["next", "the", "--run", NAME],
    ["live", "--run", NAME, "-o", f"{HOSTILE}.html"],
    ["export", f"{HOSTILE}.folder", "--run", HOSTILE, "--force"],
    ["train", TEXT, *TINY],
    ["train", "corpus.txt", "--steps", "2", "--init-from", NAME, "--json"],
    ["runs"],
    ["runs", "--json"],
    ["runs", "*"],
]
WRONG = [
    ["attn", HOSTILE],
    ["eval", HOSTILE],
    ["next", f"--{HOSTILE}"],
    ["train", "--config", HOSTILE],
    ["runs", "--checkpoints", HOSTILE],
    [HOSTILE],
    ["runs", HOSTILE, HOSTILE],
    ["sample", "--run", f"{HOSTILE}x"],
    ["train", "--init-from", f"{HOSTILE}x"],
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


def test_terminal_output_escapes_control_characters(
    on_terminal: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "ab\x1b[31m\x07\x9b\u202ecd\r\x08\n" * 60
    Path("evil.txt").write_bytes(text.encode())
    trained = on_terminal("train", "evil.txt", *TINY, "--checkpoints", "evil")
    assert trained.code == 0, trained.err
    line = (
        "sample",
        "ab\x1b",
        "--seed",
        "1",
        "--length",
        "300",
        "--temperature",
        "3",
        "--checkpoints",
        "evil",
    )
    raw, seen = answer_of(monkeypatch, line).out, on_terminal(*line).out
    assert "\x1b" in raw
    unescaped = re.sub(
        r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\(r)",
        lambda match: "\r" if match[3] else chr(int(match[1] or match[2], 16)),
        seen,
    )
    assert unescaped == raw
    assert not UNSAFE.findall(seen)


def test_a_pipe_gets_the_exact_text_and_a_terminal_the_same_json(
    on_terminal: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("eval", TEXT, "--run", NAME, "--json")
    shown, piped = on_terminal(*line), answer_of(monkeypatch, line)
    assert json.loads(shown.out) == json.loads(piped.out)
    assert "\x1b[31m" in json.loads(piped.out)["run"]


@pytest.mark.parametrize("ending", ["html", "json", "csv", "svg", "png", "npz", "txt"])
def test_a_model_whose_name_is_not_utf8_is_drawn_in_every_format(
    on_terminal: Gptx, ending: str
) -> None:
    name = f"attn {HOSTILE}.{ending}"
    answer = on_terminal("attn", "the", "--run", NAME, "-o", name)
    assert answer.code == 0, answer.err
    data = Path(name).read_bytes()
    if ending in ("html", "json"):
        assert "\\xff" in data.decode()
    if ending in ("svg", "txt", "csv"):
        heads = ("heads", TEXT, "--windows", "2", "--run", NAME, "-o", f"heads.{ending}")
        assert on_terminal(*heads).code == 0
        Path(f"heads.{ending}").read_text(encoding="utf-8")


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


def test_long_names_are_cut_without_reading_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    monkeypatch.setattr(
        "gpt.characters.cell_len", lambda text: [measured.append(len(text)), len(text)][1]
    )
    assert cut("a" * 20_000, 20) == "a" * 19 + "…"
    assert sum(measured) < 10_000
    assert len(cut("\u0301" * 20_000, 20)) < 1000


def test_a_long_option_is_shown_cut(gptx: Gptx) -> None:
    line = ("train", "corpus.txt", *TINY, "--separator", "ab" * 50_000, "--run")
    assert gptx(*line, "long-1").code == 0
    for arguments in (("runs", "long-1"), ("runs", "long-1", "corpus-1")):
        answer = gptx(*arguments)
        assert answer.code == 0
        assert max(map(len, answer.out.splitlines())) < 400
    assert len(gptx("sample", "--run", "x" * 100_000).err) < 5000


@pytest.mark.parametrize("value", ["9" * 5000, "-5", "0", "text", "²", "1000000"])
def test_sizes_that_no_terminal_has_are_ignored(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((80, 24)))
    expected = gptx("--help")
    for variable in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        monkeypatch.setenv(variable, value)
    assert gptx("--help") == expected


def numeric_options() -> Iterator[tuple[str, str, type]]:
    for name, command in COMMANDS.items():
        kinds = get_type_hints(inspect.unwrap(command.callback))
        for each in command.params:
            for kind in {int, float} & {*get_args(kinds.get(each.name)), kinds.get(each.name)}:
                yield name, each.opts[-1], kind


@pytest.mark.parametrize(("name", "option", "kind"), [*numeric_options()])
def test_no_option_takes_a_number_too_large_to_compute_with(
    gptx: Gptx, name: str, option: str, kind: type
) -> None:
    needed = {"export": ["x"], "import": ["x"]}.get(name, [])
    for value in ["9" * 400, *["1e308"] * (kind is float)]:
        answer = gptx(name, *needed, option, value)
        assert answer.code == 2, answer.err
        assert answer.err.count("\n") == 1


@pytest.mark.parametrize("option", ["--length", "--temperature"])
def test_numbers_of_any_form_are_refused_in_one_line(gptx: Gptx, option: str) -> None:
    for value in ("9" * 5000, "-" + "9" * 400, "nan", "0x10"):
        answer = gptx("sample", option, value)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
    Path("c.toml").write_text(f"{option.lstrip('-')} = 0x{'f' * 300}")
    assert gptx("sample", "--config", "c.toml").code == 2
    Path("c.toml").write_text("# a comment\n" * 100_000)
    assert "has more than 1,048,576 bytes" in gptx("runs", "--config", "c.toml").err


def test_a_time_beyond_any_machine_is_refused(gptx: Gptx) -> None:
    answer = gptx(*"train corpus.txt --minutes 1e300 --dry-run".split())
    assert answer.code == 2, answer.err
    assert answer.err.count("gptx: error: ") == 1


@pytest.mark.parametrize("text", ['"""\n\\"""\n' * 99_999, '"\\' * 500_000, "'''\n'" * 200_000])
def test_config_file_of_unclosed_texts_is_refused_at_once(text: str) -> None:
    with pytest.raises(ConfigError):
        from_toml(text, "c.toml")


def test_config_file_may_have_points_in_texts_and_numbers() -> None:
    text = f"a = \"{'.' * 5000}\"  # it's \"{'.' * 5000}\nb = 0.5\nc = '''\n{'x.' * 900}'''\n"
    assert [*from_toml(text, "c.toml")] == ["a", "b", "c"]
