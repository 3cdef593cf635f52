"""The whole program: errors, notes, and the commands in README and docs."""

from __future__ import annotations

import ast
import platform
import re
import runpy
import shlex
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
from program import TINY, Gptx, answer_of, at_home

import gpt
from gpt.commands import COMMANDS as ALL
from gpt.commands import GROUPS, MOVED, make_program
from gpt.interface import training as notebook

ROOT = Path(__file__).parents[1]

START = ("--init-from",)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["train", "corpus.txt", "--changed-corpus"], 2, "No such option: --changed-corpus"),
        (["train", "corpus.txt", "--resume", *START, "corpus-1"], 2, "keeps its own weights"),
        (["train", "corpus.txt", *START, "nobody"], 4, "no run 'nobody' in checkpoints; there"),
        (["train", "corpus.txt", *START, "./no.bin"], 4, "no run, folder or file './no.bin'"),
        (["train", "corpus.txt", *START, "corpus.txt"], 4, "not a gptx checkpoint: "),
        (["train", "corpus.txt", *START, "corpus-1", "--n-embd", "32"], 2, "--n-embd: corpus-1"),
        (
            ["train", "corpus.txt", "--batch-size", "1000000000"],
            8,
            "are free; try --batch-size",
        ),
        (["train", "corpus.txt", "--n-embd", "1000000", "--n-head", "4"], 8, "a smaller model"),
        (["train", "--config", "classic.toml", "--preset", "best"], 2, "but --config has classic"),
        (["train", "--resume", "--preset", "best"], 2, "--preset: this run has default"),
        (
            ["train", "corpus.txt", "--split", "every:1"],
            2,
            "--split: 'every:1' needs N of 2 or",
        ),
        (["train", "corpus.txt", "--split", "nowhere.txt"], 3, "--split takes last, every:N or a"),
        (["train", "corpus.txt", "--separator", "\\q"], 2, "--separator: "),
        (
            ["train", "corpus.txt", "--split", "every:3", "--val-fraction", "0.2"],
            2,
            "--val-fraction: only with --split last",
        ),
        (["attn", "the", "--json", "--format", "csv"], 2, "--json and --format csv: give one"),
        (["train", "corpus.txt", "--min-lr", "1"], 2, "--min-lr: 1.0 is above --learning-rate"),
        (["sample", "-n", "0"], 2, "-n: 0 is not a whole number of 1 or more"),
        (["attn", "the", "-o", "picture.gif"], 2, "--output: .gif is not one of .txt, .json"),
        (["train", "nowhere.txt"], 3, "cannot read corpus"),
        (["train", "empty.txt"], 3, "corpus is empty"),
        (["train", "short.txt"], 3, "--block-size"),
        (["train", "latin.txt"], 3, "byte 3 is not UTF-8; one of its lines is"),
        (["train", "corpus.txt", "--n-embd", "10"], 2, "--n-embd"),
        (["train", "corpus.txt", "--position", "spiral"], 2, "--position"),
        (["train", "corpus.txt", "--minutes", "1", "--steps", "5"], 2, "--minutes"),
        (["train", "corpus.txt", "--run", "../x"], 2, "invalid run name"),
        (["train", "nowhere.txt", "--run", "corpus-1"], 2, "exists already"),
        (["train", "corpus.txt", "--checkpoints", "corpus.txt"], 6, "cannot make a run"),
        (["train", "--config", "missing.toml"], 2, "missing.toml"),
        (["next", "--config", "nul.toml"], 2, "invalid run name 'a\\x00b'"),
        (["sample", "--config", "/dev/zero"], 2, "binary data, not text"),
        (["runs", "corpus-1", "--checkpoints", "x" * 5000], 4, "no run 'corpus-1' in xxx"),
        (["train", "--config", "typo.toml"], 2, "n_layers"),
        (["train", "--config", "broken.toml"], 2, "broken.toml"),
        (["sample", "--temperature", "nan"], 2, "--temperature"),
        (["sample", "--top-k", "0"], 2, "--top-k"),
        (["sample", "--prompt", "caté"], 3, "'é' (U+00E9"),
        (["sample", "the", "--prompt", "cat"], 2, "give the text once"),
        (["sample", "--run", "nobody"], 4, "no run 'nobody'"),
        (["sample", "--checkpoints", "empty"], 4, "train one with"),
        (["sample", "--step", "77"], 4, "no step 77"),
        (["attn", ""], 3, "at least one character"),
        (["attn", "the cat sat on the mat"], 3, "--truncate"),
        (["attn", "the", "--layer", "9"], 2, "--layer"),
        (["attn", "the", "--query", "2:9"], 2, "--query"),
        (["eval", "missing.txt"], 3, "cannot read missing.txt"),
        (["import", "corpus.txt"], 3, "not a nanoGPT checkpoint: corpus.txt (torch.save has not"),
        (["import", "out/ckpt.pt", "--meta", "missing.pkl"], 3, "cannot read missing.pkl"),
        (["import", "out/ckpt.pt", "--run", "corpus-1"], 2, "exists already"),
        (["import", "out/ckpt.pt", "--corpus", "new.txt"], 3, "does not know: "),
        (["eval", "--against", "corpus-*"], 2, "invalid run name 'corpus-*'"),
        (["eval", "--against", "corpus-1:77"], 4, "has no step 77"),
        (["heads", "--sort", "sink"], 2, "No such option: --sort"),
        (["heads", "--step", "0:8"], 2, "--step: '0:8' is neither best, last nor a step's number"),
        (["heads", "-o", "picture.svg"], 2, "--output: .svg is not one of .txt, .json, .csv"),
        (["attn", "the", "--digits", "10"], 2, "--digits"),
        (["sample", "--prompt", "th\udcffe"], 3, "(U+DCFF no name) at position 2"),
        (["dance"], 2, "dance"),
        (["sample", "The", "cat"], 2, "put a text of several words in quotes (see gptx sample"),
        (["runs", "a", "b"], 4, "no run 'a' in checkpoints; there are: corpus-1"),
    ],
)
def test_bad_input_prints_one_line_and_sets_the_exit_code(
    gptx: Gptx, home: Path, arguments: list[str], code: int, says: str
) -> None:
    (home / "empty.txt").write_bytes(b"")
    (home / "nul.toml").write_text('run = "a\\u0000b"')
    (home / "short.txt").write_bytes(b"abcdefghij")
    (home / "latin.txt").write_bytes(b"caf\xe9 au lait" + b" black" * 100)
    (home / "typo.toml").write_text("n_layers = 3\n", encoding="utf-8")
    (home / "classic.toml").write_text('preset = "classic"\n', encoding="utf-8")
    (home / "broken.toml").write_text("n_layer = = 3\n", encoding="utf-8")
    before = sorted(home.rglob("step-*"))
    answer = gptx(*arguments)
    assert (answer.code, answer.out) == (code, "")
    last = answer.err.splitlines()[-1]
    assert last.startswith("gptx: error: ")
    assert says in last
    assert "Traceback" not in answer.err
    assert sorted(home.rglob("step-*")) == before


def commands_of(document: Path) -> list[str]:
    """Every `gptx …` line in the shell blocks of a document, without its comment."""
    blocks = re.findall(r"```sh\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in unrolled(block.splitlines())]
    commands = [re.split(r"\s+# ", line)[0].strip() for line in lines]
    return [command for command in commands if command.startswith("gptx ")]


def unrolled(lines: list[str]) -> list[str]:
    """Lines of a shell block, with its loops `for NAME in WORDS; do`, … `done` written out."""
    found: list[str] = []
    while lines:
        line, *lines = lines
        if (loop := re.fullmatch(r"\s*for (\w+) in (.*); do", line)) is None:
            found.append(line)
            continue
        indent = len(line) - len(line.lstrip())
        end = lines.index(" " * indent + "done")
        for word in loop[2].split():
            found += unrolled([each.replace(f"${loop[1]}", word) for each in lines[:end]])
        lines = lines[end + 1 :]
    return found


PAGES = [path for path in sorted(ROOT.glob("docs/*.md")) if path.name != "README.md"]
DOCUMENTS = [ROOT / "README.md", ROOT / "docs/README.md", *PAGES]
COMMANDS = dict.fromkeys(command for document in DOCUMENTS for command in commands_of(document))


@pytest.mark.parametrize("command", COMMANDS)
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
    writes = arguments[0] in ("train", "live", "export", "import") or {
        "-o",
        "--open",
    } & {*arguments}
    assert answer.out or writes


@pytest.mark.parametrize("name", MOVED)
@pytest.mark.parametrize("rest", [[], ["--help"], ["simple", "--full"]])
def test_a_command_that_moved_says_where_it_went(gptx: Gptx, name: str, rest: list[str]) -> None:
    answer = gptx(name, *rest)
    said = f"gptx: error: gptx has no command {name} any more: {MOVED[name]}\n"
    assert (answer.code, answer.out, answer.err) == (2, "", said)


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
    assert "layer 0 head 0 · weights" in outputs["attn The cat --layer 0 --head 0"]
    assert "Δloss" in outputs["heads --ablate mean"]
    assert "sum" in outputs["why The cat"]
    page = (tmp_path / "live.html").read_text(encoding="utf-8")
    assert "The cat" in page


def small(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of gpt that trains, with a small model and few steps."""

    def call(*arguments: Any, minutes: float = 0.0, steps: int = 8, **options: Any) -> Any:
        shape = {"n_head": 2, "n_embd": 16, "block_size": 16, "batch_size": 4, "counting": 0}
        if function.__name__ == "resume":
            return function(*arguments, steps=12, **options)
        return function(*arguments, steps=min(steps, 8), **(shape | options))

    return call


def test_snippets_in_the_page_on_python_work(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus.txt").write_bytes((home / "corpus.txt").read_bytes())
    monkeypatch.chdir(tmp_path)
    for name in ("train", "train_events", "resume"):
        monkeypatch.setattr(notebook, name, small(getattr(notebook, name)))
    snippets = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text("utf-8"), re.S
    )
    assert len(snippets) > 10
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(snippet, names)
    assert names["run"].path.name == "kept"
    assert "induction" in capsys.readouterr().out


@pytest.mark.usefixtures("gptx")  # runs in a user's working folder
def test_python_example_in_readme_works(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENTS[0].read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["weights"].shape == (7, 7)
    assert names["logits"].shape[:2] == (1, 7)
    assert capsys.readouterr().out.startswith("The ")


def test_readme_is_short_and_begins_with_installation_and_three_commands() -> None:
    text = DOCUMENTS[0].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    words = [line.split("  #")[0].split()[:2] for line in blocks.splitlines()]
    assert [each for each in words if each[0] in ("pip", "gptx")][:4] == [
        ["pip", "install"],
        ["gptx", "train"],
        ["gptx", "sample"],
        ["gptx", "attn"],
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_says_for_whom_it_is_and_is_in_the_index(page: Path) -> None:
    title, _, audience, *_ = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert audience.startswith("*For ")
    assert f"]({page.name}" in DOCUMENTS[1].read_text(encoding="utf-8")


def test_words_of_errors_in_the_docs_are_those_of_gptx() -> None:
    """But for those of the shell."""
    others = {"command not found: gptx"}
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
    assert {each for each in words - others if not any(each in text for text in texts)} == set()


LINKING = [
    *DOCUMENTS,
    *(ROOT / path for path in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *(ROOT / path for path in ("tests/README.md", "docs/lessons/README.md")),
]


@pytest.mark.parametrize("document", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_paths_in_documents_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"""(?:\]\(|src(?:set)?=")([^)":\s]+)[)"]""", text)
    paths = re.findall(r"`((?:gpt|tests|docs|benchmarks)/[\w./-]*)`", text)
    broken = [path for path in paths if not (ROOT / path).exists()]
    for link in links:
        path, _, place = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (place and place not in places(target)):
            broken.append(link)
    assert broken == []


def places(document: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_docs_cli_equals_the_help_of_the_commands() -> None:
    written = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(ROOT / "docs/commands.py"))["page"](), "make cli-docs"


def test_note_names_skipped_characters(gptx: Gptx) -> None:
    for command in (["attn"], ["next"], ["sample", "--length", "3"]):
        answer = gptx(*command, "thé cät", "--unknown", "skip")
        assert answer.code == 0
        assert "left out 2 of 7 characters, which the model does not know: 'ä' 'é'" in answer.err
    long = "ä" * 30 + "the cat sat on t"
    assert gptx("attn", long, "--truncate").code == 0
    assert gptx("attn", long[:-1], "--truncate").code == 3


def test_note_names_the_newest_of_several_runs(gptx: Gptx, home: Path) -> None:
    from shutil import copytree

    copytree(home / "checkpoints/corpus-1", home / "several/a")
    copytree(home / "checkpoints/corpus-1", home / "several/b")
    newest = gptx("next", "the", "--checkpoints", "several").err
    assert re.fullmatch(r"run: [ab], the newest \(--run takes another\)\n", newest)
    assert gptx("next", "the", "--checkpoints", "several", "--run", "a").err == ""


def test_debugging_shows_the_traceback_and_keeps_line_and_code(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = gptx("train", "no.txt")
    monkeypatch.setenv("GPTX_DEBUG", "1")
    debugged = gptx("train", "no.txt")
    assert (usual.code, debugged.code) == (3, 3)
    assert debugged.err.startswith("Traceback")
    assert debugged.err.endswith(f"\n{usual.err}")


@pytest.mark.parametrize(
    ("columns", "command", "word"),
    [("0", "--help", "Start"), ("1", "runs", "corpus-1"), ("10", "--help", "Start")],
)
def test_tiny_terminal_width_is_ignored(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, columns: str, command: str, word: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert word in gptx(command).out.replace(":", " ").split()


def test_without_a_command_gptx_names_the_three_to_start_with(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = gptx()
    assert (answer.code, answer.err) == (0, "")
    lines = [line for line in answer.out.splitlines() if line[0] != " "]
    calls = ["gptx train", "gptx sample", "gptx attn", "gptx --help"]
    assert [" ".join(line.split()[:2]) for line in lines] == calls
    monkeypatch.setenv("COLUMNS", "30")
    narrow = gptx().out
    assert max(map(len, narrow.splitlines())) <= 30
    assert narrow.split() == answer.out.split()


def test_the_commands_are_eleven_in_three_groups() -> None:
    groups = [
        ["train", "sample", "attn"],
        ["heads", "why", "next", "eval"],
        ["runs", "live", "import", "export"],
    ]
    assert [[*group] for group in GROUPS.values()] == groups
    assert [*ALL] == [name for group in groups for name in group]
    assert not {*ALL} & {*MOVED}


def test_version_says_in_six_lines_what_a_report_of_a_bug_needs(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = gptx("--version")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == f"gptx {gpt.__version__}"
    assert lines[1].startswith(f"Python {platform.python_version()}, ")
    assert lines[2] == f"torch {metadata.version('torch')}, numpy {metadata.version('numpy')}"
    assert re.fullmatch(r"threads: \d+ of \d+ cores?", lines[4])
    assert [line.split()[0] for line in lines[3:]] == ["device:", "threads:", "AMX:"]
    (tmp_path / "flags").write_text("processor : 0\nflags\t\t: fpu amx_bf16 amx_tile\n")
    (tmp_path / "none").write_text("flags : fpu amx_bf16x\n")
    for name, said in (("flags", "yes"), ("none", "no"), ("gone", "not known on this system")):
        monkeypatch.setattr("gpt.commands.version.CPU_INFO", tmp_path / name)
        assert gptx("--version").out.endswith(f"\nAMX: {said}\n")
    for count, said in ((0, "cpu"), (1, "cuda (1 GPU)"), (2, "cuda (2 GPUs)")):
        monkeypatch.setattr("gpt.commands.version.cuda_devices", lambda count=count: count)
        assert f"\ndevice: {said}\n" in gptx("--version").out


def test_the_list_of_commands_has_the_first_sentence_of_each_help() -> None:
    commands = typer.main.get_command(make_program()).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        assert command.help.split("\n")[0] == command.short_help, name


@pytest.mark.parametrize("columns", ["20", "79", "80", "100"])
def test_help_in_a_narrow_terminal_has_every_option_and_sentence_in_full(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    overview, details = gptx("--help").out, gptx("train", "--help-all").out
    words = " ".join(overview.split())
    headings = re.findall(r"^(Arguments|\w+ options|Options):$", details, re.MULTILINE)
    assert headings == ["Arguments", "Options", "Model options", "Train options"]
    app = make_program()
    titles = [re.escape(title) for title in GROUPS]
    groups = re.findall(rf"^({'|'.join(titles)}):$", overview, re.MULTILINE)
    assert groups == [*GROUPS]
    for command in app.registered_commands:
        assert str(command.short_help) in words
    assert not {*MOVED} & {*re.findall(r"^ +(\S+)", overview, re.MULTILINE)}
    for line in (overview + details).splitlines():
        assert len(line) <= int(columns) or re.match("Usage|  [^ ]", line), line
    parameters = typer.main.get_command(app).commands["train"].params  # type: ignore[attr-defined]
    for spelling in (each for parameter in parameters for each in parameter.opts):
        assert re.search(rf"{re.escape(spelling)}(?![\w-])", details), spelling


def test_help_of_train_fits_two_screens_and_begins_its_groups_with_the_names_of_nanogpt(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = gptx("train", "--help").out
    assert len(shown.splitlines()) <= 100
    groups = re.split(r"^\w+ options:$", shown, flags=re.MULTILINE)[1:]
    first = [re.findall(r"^  --([\w-]+)", group, re.MULTILINE) for group in groups]
    assert first[0] == ["n-layer", "n-head", "n-embd", "block-size", "dropout"]
    assert first[1][:2] == ["batch-size", "learning-rate"]
    assert "--help-all" in shown
