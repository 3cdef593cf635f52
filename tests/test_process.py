"""Tests that need a real process: signals, pipes, full disks, locales, imports, memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT
from program import Answer, Gptx, answer_of, at_home

from gpt.storage.run import Run

MAIN = [sys.executable, "-m", "gpt"]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with one thread, no user settings, and `changes`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPTX_")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd(), **changes}


def listen() -> None:
    """Resets signals that a shell or nohup has set to be ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def ended(
    folder: Path, *command: str, stdout: int = subprocess.PIPE, stdin: str = "", **changes: str
) -> subprocess.CompletedProcess[str]:
    """A process that has run in this folder, with `changes` of the environment."""
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**changes),
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=120,
        preexec_fn=listen,
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gptx:
    """Runs the program in this process, in `tmp_path`."""

    def run(*arguments: str) -> Answer:
        with monkeypatch.context() as patch:
            at_home(tmp_path, patch)
            return answer_of(patch, arguments)

    return run


#: Commands that answer without torch.
READING = [
    [],
    ["--help"],
    ["train", "--help"],
    ["--version"],
    ["sample", "--seed", "1", "--length", "5"],
    ["attn", "the cat"],
    ["attn", "the cat", "--format", "html"],
    ["heads", "--ablate", "mean"],
    ["next", "the cat"],
    ["runs"],
    ["eval", "corpus.txt"],
    ["export", "folder", "--json"],
]
#: Runs the commands of stdin; prints exit code, whether it wrote, and what it imported, for each.
IMPORTS = """if True:
    import io, json, sys
    import gpt.commands
    screen, answers = sys.stdout, []
    for arguments in json.load(sys.stdin):
        written = io.BytesIO()
        sys.argv, sys.stdout = ["gptx", *arguments], io.TextIOWrapper(written, "utf-8")
        try:
            gpt.commands.main()
        except SystemExit as end:
            found = [name for name in ("torch", "torch._dynamo") if name in sys.modules]
            answers.append([arguments, end.code, bool(written.getvalue()), found])
    json.dump(answers, screen)
"""


def test_commands_that_read_import_no_torch_and_training_no_compiler(home: Path) -> None:
    small = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --steps 2 --average 0.5".split()
    missing = ["train", "missing.txt"]  # a text that cannot be read is reported at once
    training = ["train", "corpus.txt", *small, "--checkpoints", "new", "--json"]
    commands = json.dumps([*READING, missing, training])
    done = ended(home, sys.executable, "-c", IMPORTS, stdin=commands)
    assert done.returncode == 0, done.stderr
    expected: list[list[Any]] = [[command, 0, True, []] for command in READING]
    expected += [[missing, 3, False, []], [training, 0, True, ["torch"]]]
    assert json.loads(done.stdout) == expected


#: Completes words, and prints what it imported.
COMPLETION = """if True:
    import sys
    import gpt.commands as commands
    sys.argv[0] = "gptx"
    try:
        commands.main()
    finally:
        names = ("numpy", "torch", *(f"gpt.commands.{name}" for name in commands.COMMANDS))
        print(*(name for name in names if name in sys.modules), file=sys.stderr)
"""


def test_a_shell_completes_without_numpy_and_imports_one_command(home: Path) -> None:
    words = {"COMP_WORDS": "gptx attn --color a", "COMP_CWORD": "3"}
    command = (sys.executable, "-c", COMPLETION)
    done = ended(home, *command, _GPTX_COMPLETE="complete_bash", **words)
    assert (done.returncode, done.stdout.split()) == (0, ["auto", "always"])
    assert done.stderr.split() == ["gpt.commands.attn"]


@pytest.mark.parametrize("arguments", ["sample --seed 1", "train --help"])
def test_closed_pipe_ends_a_command_without_a_message(home: Path, arguments: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = ended(home, *MAIN, *arguments.split(), stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("streams", "arguments", "code", "error"),
    [
        (">/dev/full", "sample --seed 1 --length 5", 6, "cannot write output"),
        (">/dev/full PYTHONUNBUFFERED=1", "runs", 6, "cannot write output"),
        (">&- 2>&-", "eval corpus.txt", 0, ""),
        ("<&-", "eval -", 3, "too short"),
        ("2>&-", "sample the☃ --unknown skip --length 0", 0, ""),
    ],
)
def test_a_full_disk_or_a_closed_stream_is_one_line(
    home: Path, streams: str, arguments: str, code: int, error: str
) -> None:
    done = ended(home, "sh", "-c", f'{streams} "$0" "$@"', *MAIN, *arguments.split())
    assert done.returncode == code
    assert error in done.stderr
    assert done.stderr.count("\n") == bool(error)


def test_ascii_locale_changes_only_labels(home: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = ended(home, *MAIN, "attn", "the cat", PYTHONIOENCODING="ascii", **plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "\\s" in done.stdout


LONG = (
    "train text.txt --steps 100000 --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 "
    "--batch-size 2 --eval-interval 100000"
).split()


@contextmanager
def begun(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Run]]:
    """A long training in another process that has saved its first checkpoint, and its run."""
    (home / "text.txt").write_text(TEXT, encoding="utf-8")
    process = subprocess.Popen(
        [*MAIN, *LONG, *arguments],
        cwd=home,
        env=environment(),
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=listen,
    )
    deadline = time.monotonic() + 120
    while not (saved := [*home.glob("checkpoints/*/step-*/manifest.json")]):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    yield process, Run(saved[0].parents[1])
    process.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_run_stopped_by_a_signal_and_resumed_equals_an_unbroken_run(
    tmp_path: Path, here: Gptx, number: signal.Signals
) -> None:
    flat = ["--schedule", "linear", "--min-lr", "0.001", "--learning-rate", "0.001"]
    # Given explicitly, as the default would fit them to the number of steps.
    flat += ["--warmup-steps", "0", "--dropout", "0.1", "--weight-decay", "0.1"]
    with begun(tmp_path, *flat) as (process, run):
        process.send_signal(number)
        bounces = 15 if number == signal.SIGINT else 0  # of a key, also while the program ends
        for _ in range(bounces):
            time.sleep(0.03)
            process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 128 + number, said
    step = run.last().manifest.step
    assert step > 0
    assert f"after step {step:,}" in said
    assert f"gptx train --resume --run {run.name}" in said
    end = str(step + 5)  # the learning rate is constant
    resumed = here("train", "--resume", "--steps", end)
    assert resumed.code == 0, resumed.err
    whole = here(*LONG, *flat, "--steps", end, "--checkpoints", "whole")
    assert whole.code == 0, whole.err
    unbroken = Run(next((tmp_path / "whole").iterdir()))
    for name in ("model.safetensors", "state.safetensors"):
        first, second = ((each.last().path / name).read_bytes() for each in (run, unbroken))
        assert first == second


def test_second_signal_exits_at_once_and_loses_no_checkpoint(tmp_path: Path) -> None:
    wide = "--n-embd 256 --n-layer 4 --batch-size 64 --block-size 64".split()
    with begun(tmp_path, *wide) as (process, run):  # a step takes seconds, and a signal waits
        process.send_signal(signal.SIGINT)
        time.sleep(1.1)  # what comes sooner is a bounce of the key
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 130
    if not run.last().manifest.step:
        assert f"ended at once; {run.name} is saved up to step 0, and --resume goes on" in said
    assert run.last().manifest.step in (0, 1)
    run.last().verify()


#: Prints the characters of a large text, and by how much encoding it raises the memory.
LARGE = """if True:
    import resource
    from pathlib import Path
    from gpt.corpus.corpus import encode_corpus
    from gpt.corpus.sources import JoinedText, Source
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    Path("small.txt").write_text("the quick brown fox " * 10_000)
    encode_corpus(JoinedText([Source(Path("small.txt"), "small")]), Path("data"))
    before = peak()
    corpus = encode_corpus(JoinedText([Source(Path("text.txt"), "text")]), Path("data"))
    print(len(corpus.ids), peak() - before)
"""


def test_memory_stays_below_the_size_of_a_large_corpus(tmp_path: Path) -> None:
    line = "the quick brown fox, árvíztűrő, 東京\n"
    with open(tmp_path / "text.txt", "w", encoding="utf-8") as file:
        for _ in range(25):
            file.write(line * 100_000)
    assert (tmp_path / "text.txt").stat().st_size > 100 * 2**20
    done = ended(tmp_path, sys.executable, "-c", LARGE)
    assert done.returncode == 0, done.stderr
    characters, kilobytes = map(int, done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert characters == 25 * 100_000 * len(line)
    assert kilobytes * unit < 80 * 2**20


#: Two signals at once, of which the second one ends the program.
TOGETHER = """if True:
    import signal
    from gpt.errors import stop_on_signals
    both = {signal.SIGHUP, signal.SIGTERM}
    with stop_on_signals(print, "SIGINT", "SIGTERM", "SIGHUP"):
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
        print("goes on")
"""
#: Ctrl-C after the command has ended.
AT_THE_END = """if True:
    import atexit, signal, sys
    import gpt.commands
    atexit.register(signal.raise_signal, signal.SIGINT)
    sys.argv = ["gptx", "--version"]
    gpt.commands.main()
"""
#: Ctrl-C in a callback of an import, where Python cannot raise.
IN_AN_IMPORT = """if True:
    import signal, sys
    import gpt.commands
    class Finder:
        def find_spec(self, name, path=None, target=None):
            class Left:
                def __del__(self):
                    signal.raise_signal(signal.SIGINT)
            Left()
    sys.meta_path.insert(0, Finder())
    sys.argv = ["gptx", "--version"]
    gpt.commands.main()
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [(TOGETHER, -signal.SIGTERM), (AT_THE_END, 130), (IN_AN_IMPORT, 130)],
)
def test_program_ends_at_once_without_a_traceback(tmp_path: Path, script: str, code: int) -> None:
    done = ended(tmp_path, sys.executable, "-c", script)
    assert (done.returncode, done.stderr) == (code, "")
    assert "goes on" not in done.stdout


def test_outside_its_environment_gptx_says_what_to_activate(tmp_path: Path) -> None:
    done = ended(tmp_path, sys.executable, "-S", "-m", "gpt", "runs")  # without packages
    assert done.returncode == 10
    assert re.fullmatch(r"gptx: error: there is no package typer; activate .*\n", done.stderr)
