"""The whole program: errors, notes, help, and the commands in README and docs."""

from __future__ import annotations

import ast
import platform
import re
import runpy
import shlex
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import typer
from program import TINY, Gptx, answer_of, at_home

import gpt
from gpt.commands import GROUPS, make_program
from gpt.interface import training as notebook

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
WRONG = {
    "empty.txt": b"",
    "short.txt": b"abcdefghij",
    "latin.txt": b"caf\xe9 au lait" + b" black" * 100,
    "broken.toml": b"n_layer = = 3",
}


@pytest.mark.parametrize(
    ("command", "code", "named"),
    [
        ("dance", 2, "dance"),
        ("sample The cat", 2, "quotes"),
        ("train corpus.txt --resume --init-from corpus-1", 2, "keeps its own weights"),
        ("train corpus.txt --n-embd 10", 2, "--n-embd"),
        ("train corpus.txt --minutes 1 --steps 5", 2, "--minutes"),
        ("train corpus.txt --split every:1", 2, "--split"),
        ("train corpus.txt --split every:3 --val-fraction 0.2", 2, "--val-fraction"),
        ("train nowhere.txt --run corpus-1", 2, "exists already"),
        ("train --config missing.toml", 2, "missing.toml"),
        ("train --config broken.toml", 2, "broken.toml"),
        ("sample --config /dev/zero", 2, "/dev/zero"),
        ("sample the --prompt cat", 2, "once"),
        ("attn the --layer 9", 2, "--layer"),
        ("attn the --json --format csv", 2, "--format"),
        ("attn the -o picture.gif", 2, ".gif"),
        ("runs corpus-*", 2, "corpus-*"),
        ("import out/ckpt.pt --run corpus-1", 2, "exists already"),
        ("train nowhere.txt", 3, "nowhere.txt"),
        ("train empty.txt", 3, "empty"),
        ("train short.txt", 3, "--block-size"),
        ("train latin.txt", 3, "byte 3"),
        ("train corpus.txt --split nowhere.txt", 3, "--split"),
        ("sample --prompt caté", 3, "U+00E9"),
        ("attn ''", 3, "at least one character"),
        ("attn 'the cat sat on the mat'", 3, "--truncate"),
        ("import out/ckpt.pt --corpus new.txt", 3, "does not know"),
        ("train corpus.txt --init-from nobody", 4, "nobody"),
        ("sample --checkpoints empty", 4, "gptx train"),
        ("eval --step 77", 4, "77"),
        ("train corpus.txt --checkpoints corpus.txt", 6, "corpus.txt"),
        ("train corpus.txt --batch-size 1000000000", 8, "--batch-size"),
    ],
)
def test_bad_input_prints_one_line_and_sets_the_exit_code(
    gptx: Gptx, home: Path, command: str, code: int, named: str
) -> None:
    for name, content in WRONG.items():
        (home / name).write_bytes(content)
    before = sorted(home.rglob("step-*"))
    answer = gptx(*shlex.split(command))
    assert (answer.code, answer.out) == (code, "")
    last = answer.err.splitlines()[-1]
    assert last.startswith("gptx: error: ")
    assert named in last
    assert "Traceback" not in answer.err
    assert sorted(home.rglob("step-*")) == before


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (
            "train --max_iters=100 --out_dir=out --n_layer=4 --compile=False a.txt",
            "train --steps 100 --checkpoints out --n-layer 4 --no-compile a.txt",
        ),
        ("train --lr 1e-3 --input_txt my.txt", "train --learning-rate 1e-3 my.txt"),
        ("train --compile=True --wandb_log=True -o x", "train --compile -o x"),
        (
            "sample --start='To be' --num_samples=3 --temp 0.5 --max_new_tokens 9",
            "sample --prompt 'To be' -n 3 --temperature 0.5 --length 9",
        ),
        ("generate --n 3 --prefix=a --dtype float16", "sample -n 3 --prompt a"),
        ("sample -temperature 0.3 -length 20", "sample --temperature 0.3 --length 20"),
    ],
)
def test_a_command_in_the_words_of_others_is_shown_in_ours(
    gptx: Gptx, typed: str, meant: str
) -> None:
    answer = gptx(*shlex.split(typed))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.endswith(f"; in gptx: gptx {meant}\n")


def test_underscores_are_dashes_and_other_mistakes_stay_as_they_are(gptx: Gptx) -> None:
    assert gptx("sample", "a", "--top_k=3", "--avoid_copies", "0").err.endswith("int >= 1\n")
    for line in ("train --maxx_iters 3", "train --n_layer=x", "dance --lr 1"):
        assert "in gptx:" not in gptx(*line.split()).err


def test_debugging_shows_the_traceback_and_keeps_line_and_code(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = gptx("train", "no.txt")
    monkeypatch.setenv("GPTX_DEBUG", "1")
    debugged = gptx("train", "no.txt")
    assert (usual.code, debugged.code) == (3, 3)
    assert debugged.err.startswith("Traceback")
    assert debugged.err.endswith(f"\n{usual.err}")


def test_note_names_the_newest_of_several_runs(gptx: Gptx, home: Path) -> None:
    copytree(home / "checkpoints/corpus-1", home / "several/a")
    copytree(home / "checkpoints/corpus-1", home / "several/b")
    newest = gptx("next", "the", "--checkpoints", "several").err
    assert re.fullmatch(r"run: [ab], the newest .*\n", newest)
    assert gptx("next", "the", "--checkpoints", "several", "--run", "a").err == ""


def commands_of(document: Path) -> list[str]:
    """The lines `gptx …` in the shell blocks of a document, but those with shell variables."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("gptx ") and "$" not in line]


@pytest.mark.parametrize(
    "command", dict.fromkeys(command for document in DOCUMENTS for command in commands_of(document))
)
def test_commands_in_readme_and_docs_work(gptx: Gptx, command: str) -> None:
    arguments = shlex.split(command)[1:]
    if arguments[0] == "import":  # the newest run stays the one that the other commands read
        arguments += ["--checkpoints", "imported"]
    if arguments[0] == "train":  # a small model, and only up to the card
        small = [] if "--resume" in arguments else TINY
        if "--minutes" in arguments:
            small = [*TINY[: TINY.index("--steps")], *TINY[TINY.index("--steps") + 2 :]]
        arguments += [*small, *(["--dry-run"] if "--dry-run" not in arguments else [])]
    answer = gptx(*arguments)
    assert answer.code == 0, answer.err


def test_first_hour_works_from_its_first_command_to_its_last(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one folder with nothing but a text, as its reader does; only the model is smaller."""
    at_home(tmp_path, monkeypatch)
    (tmp_path / "corpus.txt").write_bytes((home / "corpus.txt").read_bytes())
    outputs = {}
    for command in commands_of(ROOT / "docs/first-hour.md"):
        words = shlex.split(command)[1:]
        answer = answer_of(monkeypatch, (*words, *(TINY if words[0] == "train" else ())))
        assert answer.code == 0, (command, answer.err)
        outputs[" ".join(words)] = answer.out
        has_run = any((tmp_path / "checkpoints").glob("*/step-*"))
        assert has_run == ("train corpus.txt" in outputs)  # not by --dry-run
    assert "“The cat” · layer 0 head 0" in outputs["attn The cat --layer 0 --head 0"]
    assert "loss without it" in outputs["heads"]
    assert "sum" in outputs["why The cat"]
    assert "The cat" in (tmp_path / "live.html").read_text(encoding="utf-8")


def snippets_of(document: str) -> list[str]:
    """The Python blocks of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text("utf-8"), re.DOTALL)


def small(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of gpt that trains, with a small model and few steps."""

    def call(*arguments: Any, minutes: float = 0.0, steps: int = 8, **options: Any) -> Any:
        shape = {"n_head": 2, "n_embd": 16, "block_size": 16, "batch_size": 4, "counting": 0}
        if function.__name__ == "resume":
            return function(*arguments, steps=12, **options)
        return function(*arguments, steps=min(steps, 8), **(shape | options))

    return call


def test_python_in_readme_and_docs_works(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.txt").write_bytes((home / "corpus.txt").read_bytes())
    monkeypatch.chdir(tmp_path)
    for name in ("train", "resume"):
        monkeypatch.setattr(notebook, name, small(getattr(notebook, name)))
    names: dict[str, Any] = {}
    for snippet in snippets_of("docs/python.md") + snippets_of("README.md"):
        exec(snippet, names)
    assert names["run"].path.name == "kept"
    assert names["weights"].shape == (7, 7)
    assert "induction" in capsys.readouterr().out


def test_words_of_errors_in_the_docs_are_those_of_gptx() -> None:
    """But for those of the shell."""
    texts = {
        node.value
        for path in ROOT.glob("gpt/**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| the error says .*?\n\n", page, re.DOTALL | re.MULTILINE)
    rows = [row.split("|")[1] for table in tables for row in table.strip().splitlines()[2:]]
    words = {each for row in rows for each in re.findall(r"`([^`]+)`", row)}
    assert len(words) > 10
    unknown = {each for each in words if not any(each in text for text in texts)}
    assert unknown == {"command not found: gptx"}


def test_paths_in_documents_exist() -> None:
    """`make site` checks the links."""
    documents = {*DOCUMENTS, *ROOT.glob("*.md"), *ROOT.glob("*/README.md")}
    texts = "".join(path.read_text(encoding="utf-8") for path in documents)
    paths = re.findall(r"`((?:gpt|tests|docs|benchmarks)/[\w./-]*)`", texts)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_docs_cli_equals_the_help_of_the_commands() -> None:
    written = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(ROOT / "docs/commands.py"))["page"](), "make cli-docs"


def test_version_says_what_a_report_of_a_bug_needs(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = gptx("--version").out
    assert said.startswith(f"gptx {gpt.__version__}\nPython {platform.python_version()}, ")
    assert f"torch {metadata.version('torch')}, numpy {metadata.version('numpy')}\n" in said
    assert re.search(r"^threads: \d+ of \d+ cores?$", said, re.MULTILINE)
    for count, device in ((0, "cpu"), (2, "cuda (2 GPUs)")):
        monkeypatch.setattr("gpt.devices.cuda_device_count", lambda count=count: count)
        assert f"\ndevice: {device}\n" in gptx("--version").out


def test_help_has_every_command_and_option_and_fits_the_terminal(gptx: Gptx) -> None:
    overview, details = gptx("--help").out, gptx("train", "--help-all").out
    assert gptx().out == overview
    assert all(len(line) <= 80 for line in (overview + details).splitlines())
    assert [line[:-1] for line in overview.splitlines() if line[:-1] in GROUPS] == [*GROUPS]
    program = make_program()
    words = " ".join(overview.split())
    for command in program.registered_commands:
        assert str(command.short_help) in words
    train = typer.main.get_command(program).commands["train"]  # type: ignore[attr-defined]
    for spelling in (spelling for parameter in train.params for spelling in parameter.opts):
        assert re.search(rf"{re.escape(spelling)}(?![\w-])", details), spelling
    short = gptx("train", "--help").out.partition("Model options:")[2]
    first = re.findall(r"^  --([\w-]+)", short, re.MULTILINE)[:5]
    assert first == ["n-layer", "n-head", "n-embd", "block-size", "dropout"]
