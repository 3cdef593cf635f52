"""Tests that need a real process: signals, pipes, full disks, locales, imports, memory."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import TEXT
from program import Answer, Gptx, answer_of, at_home

from gpt.storage.run import Checkpoint, Run

MAIN = [sys.executable, "-m", "gpt"]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with one thread, no user settings, and `changes`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPTX_")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd(), **changes}


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
    ["sample", "--length", "5"],
    ["attn", "the cat"],
    ["attn", "the cat", "--format", "html"],
    ["heads", "--ablate", "mean"],
    ["next", "the cat"],
    ["runs"],
    ["eval", "corpus.txt"],
    ["export", "folder", "--json"],
]


def test_commands_that_read_import_no_torch_and_training_no_compiler(home: Path) -> None:
    script = """if True:
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
                answers.append([end.code, bool(written.getvalue()), found])
        json.dump(answers, screen)
    """
    small = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --steps 2 --average 0.5".split()
    missing = ["train", "missing.txt"]  # a text that cannot be read is reported at once
    training = ["train", "corpus.txt", *small, "--checkpoints", "new", "--json"]
    commands = [*READING, missing, training]
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=home,
        env=environment(),
        input=json.dumps(commands).encode(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = [*([0, True, []] for _ in READING), [3, False, []], [0, True, ["torch"]]]
    assert list(zip(commands, json.loads(done.stdout), strict=True)) == list(
        zip(commands, found, strict=True)
    )


@pytest.mark.parametrize(
    ("words", "code", "imported"),
    [
        ("runs", 0, ["gpt.commands.runs"]),
        ("", 0, []),
        ("--help", 0, []),
        ("--version", 0, []),
        ("rnus", 2, []),
        ("-- runs", 0, "all"),
    ],
)
def test_only_the_named_command_is_imported(
    home: Path, words: str, code: int, imported: list[str] | str
) -> None:
    script = """if True:
        import sys
        import gpt.commands as commands
        try:
            commands.main()
        finally:
            modules = (commands.MODULES.get(name, name) for name in commands.COMMANDS)
            known = {f"gpt.commands.{module}" for module in modules}
            found = known & {*sys.modules}
            print("all" if found == known else sorted(found), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", script, *words.split()],
        cwd=home,
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    last = done.stderr.decode().splitlines()[-1]
    assert (done.returncode, last) == (code, str(imported))


@pytest.mark.parametrize(
    ("line", "completed", "imported"),
    [
        ("gptx tr", ["train"], []),
        ("gptx train --n-la", ["--n-layer"], ["train"]),
        ("gptx attn --color a", ["auto", "always"], ["attn"]),
        ("gptx --ver", ["--version"], []),
    ],
)
def test_a_shell_completes_commands_options_and_values_without_numpy(
    home: Path, line: str, completed: list[str], imported: list[str]
) -> None:
    script = """if True:
        import sys
        import gpt.commands as commands
        sys.argv[0] = "gptx"
        try:
            commands.main()
        finally:
            names = ("numpy", "torch", *(f"gpt.commands.{name}" for name in commands.COMMANDS))
            print(*(name for name in names if name in sys.modules), file=sys.stderr)
    """
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=home,
        env=environment(_GPTX_COMPLETE="complete_bash", **words),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.split()) == (0, completed)
    assert done.stderr.split() == [f"gpt.commands.{name}" for name in imported]


@pytest.mark.parametrize("arguments", ["sample -n 50 --length 1000000000 --json", "train --help"])
def test_closed_pipe_ends_a_command_without_a_message(home: Path, arguments: str) -> None:
    """Also a long sample that has nothing to write yet."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*MAIN, *arguments.split()],
            cwd=home,
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("arguments", "unbuffered"), [(["sample", "--length", "5"], ""), (["runs"], "1")]
)
def test_full_disk_behind_stdout_is_reported(
    home: Path, arguments: list[str], unbuffered: str
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*MAIN, *arguments],
            cwd=home,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 6
    assert b"cannot write output" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "says"),
    [
        (">&-", "sample --length 5", 6, b"gptx: error: cannot write output: it is closed\n"),
        (">&- 2>&-", "eval corpus.txt", 6, b""),
        ("<&-", "eval -", 3, b"gptx: error: standard input: the text is too short to score"),
        ("2>&-", "sample the☃ --unknown skip --length 0", 0, b""),
    ],
)
def test_closed_stream_is_not_reported_as_a_bug(
    home: Path, closed: str, arguments: str, code: int, says: bytes
) -> None:
    command = f'exec "$0" "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, *MAIN, *arguments.split()],
        cwd=home,
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == code
    assert done.stderr.startswith(says)
    assert done.stderr.count(b"\n") == bool(says)
    if arguments.startswith("sample") and not code:
        assert done.stdout == b"the\n"


def test_ascii_locale_changes_only_labels(home: Path) -> None:
    plain = environment(
        LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    command = [*MAIN, "attn", "the cat"]
    done = subprocess.run(command, cwd=home, env=plain, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"\\s" in done.stdout


LONG = (
    "train text.txt --steps 100000 --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 "
    "--batch-size 2 --eval-interval 100000"
).split()


def listen() -> None:
    """Resets signals that a shell or nohup has set to be ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def begun(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Run]]:
    """A long training in another process that has saved its first checkpoint, and its run."""
    (home / "text.txt").write_text(TEXT, encoding="utf-8")
    process = subprocess.Popen(
        [*MAIN, *LONG, *arguments],
        cwd=home,
        env=environment(),
        stderr=subprocess.PIPE,
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


def assert_stopped(process: subprocess.Popen[bytes], run: Run, number: signal.Signals) -> None:
    """Sends the signal to a training, which saves its step and says how to continue. Ctrl-C comes
    twice, as from a key that bounces.
    """
    process.send_signal(number)
    if number == signal.SIGINT:
        time.sleep(0.01)
        process.send_signal(number)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 128 + number, said
    step = run.last().manifest.step
    assert step > 0
    ended = "stopped" if number == signal.SIGINT else number.name
    assert "saving, then ending; a second Ctrl-C ends at once, without the steps after " in said
    assert f"{ended} after step {step:,}" in said
    assert f"gptx train --resume --run {run.name}" in said
    run.last().verify()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_saves_and_prints_how_to_continue(tmp_path: Path, number: signal.Signals) -> None:
    with begun(tmp_path) as (process, run):
        assert_stopped(process, run, number)


def test_run_stopped_by_a_signal_and_resumed_equals_an_unbroken_run(
    tmp_path: Path, here: Gptx
) -> None:
    flat = ["--schedule", "linear", "--min-lr", "0.001", "--learning-rate", "0.001"]
    # Given explicitly, as the default would fit them to the number of steps.
    flat += ["--warmup-steps", "0", "--dropout", "0.1", "--weight-decay", "0.1"]
    with begun(tmp_path, *flat) as (process, run):
        assert_stopped(process, run, signal.SIGINT)
    end = str(run.last().manifest.step + 5)  # the learning rate is constant
    resumed = here("train", "--resume", "--steps", end)
    assert resumed.code == 0, resumed.err
    whole = here(*LONG, *flat, "--steps", end, "--checkpoints", "whole")
    assert whole.code == 0, whole.err
    unbroken = Run(next((tmp_path / "whole").iterdir()))
    for name in ("model.safetensors", "state.safetensors"):
        ends = [(each.last().path / name).read_bytes() for each in (run, unbroken)]
        assert ends[0] == ends[1]


@pytest.mark.parametrize(("second", "later"), [(signal.SIGTERM, 0.2), (signal.SIGINT, 1.1)])
def test_second_signal_exits_at_once_and_loses_no_checkpoint(
    tmp_path: Path, second: signal.Signals, later: float
) -> None:
    wide = "--n-embd 256 --n-layer 4 --batch-size 64 --block-size 64 --eval-interval 100000".split()
    with begun(tmp_path, *wide) as (process, run):  # a step takes seconds, and a signal waits
        process.send_signal(signal.SIGINT)
        time.sleep(later)
        process.send_signal(second)
        said = process.communicate(timeout=60)[1].decode()
        # The second one may come as the program ends: then the signal ends it.
        assert process.returncode in (130, -second)
    if second == signal.SIGINT and not run.last().manifest.step:
        assert f"ended at once; {run.name} is saved up to step 0, and --resume goes on" in said
    assert run.last().manifest.step in (0, 1)
    run.last().verify()


def test_file_size_limit_ends_the_run_and_loses_no_checkpoint(
    fresh: Checkpoint, here: Gptx
) -> None:
    run = Run(fresh.path.parent)
    before = {path.name: (path / "manifest.json").read_bytes() for path in run.step_paths()}
    size = (fresh.path / "model.safetensors").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, limits[1]))
    try:
        answer = here("train", "text.txt", "--resume", "--steps", "18")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert answer.code == 6, answer.err
    error = answer.err.splitlines()[-1]
    assert "cannot save step 18" in error
    assert error.endswith("(last good: step 12): File too large")
    for name, manifest in before.items():
        assert (run.path / name / "manifest.json").read_bytes() == manifest
    run.last().verify()


def test_memory_stays_below_the_size_of_a_large_corpus(tmp_path: Path) -> None:
    with open(tmp_path / "text.txt", "w", encoding="utf-8") as file:
        for _ in range(25):
            file.write("the quick brown fox, árvíztűrő, 東京\n" * 100_000)
    size = (tmp_path / "text.txt").stat().st_size
    script = """if True:
        import resource
        from pathlib import Path
        from gpt.corpus.corpus import encode_corpus
        from gpt.corpus.sources import Source
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        Path("small.txt").write_text("the quick brown fox " * 10_000)
        encode_corpus([Source(Path("small.txt"), "small")], Path("data"))
        before = peak()
        corpus = encode_corpus([Source(Path("text.txt"), "text")], Path("data"))
        print(len(corpus.ids), peak() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), capture_output=True
    )
    assert done.returncode == 0, done.stderr
    characters, kilobytes = map(int, done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert characters == 25 * 100_000 * len("the quick brown fox, árvíztűrő, 東京\n")
    assert size > 100 * 2**20
    assert kilobytes * unit < 80 * 2**20


def test_two_trainers_cannot_share_a_run(fresh_run: Run, here: Gptx) -> None:
    again = ("train", "text.txt", "--resume", "--steps", "18")
    with fresh_run.lock():
        second = here(*again)
    assert second.code == 5
    assert "in use by another training" in second.err
    freed = here(*again, "--dry-run")
    assert freed.code == 0, freed.err


def test_no_run_is_left_if_torch_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    command = [*MAIN, "train", "text.txt"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, timeout=60)
    assert (done.returncode, b"no torch here" in done.stderr) == (1, True), done.stderr
    assert not list(tmp_path.glob("checkpoints/*/*"))


#: Two signals at once, of which the second one ends the program.
TOGETHER = """if True:
    import signal
    from gpt.signals import stop_on_signals
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
    [
        (TOGETHER, -signal.SIGTERM),
        (AT_THE_END, -signal.SIGINT),
        (IN_AN_IMPORT, -signal.SIGINT),
    ],
)
def test_program_ends_by_the_signal_without_a_traceback(script: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        timeout=60,
        preexec_fn=listen,
    )
    assert (done.returncode, done.stderr.decode()) == (code, "")
    assert b"goes on" not in done.stdout


def test_outside_its_environment_gptx_says_what_to_activate(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[1])
    command = [sys.executable, "-S", "-m", "gpt", "runs"]  # without installed packages
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(PYTHONPATH=root),
        timeout=60,
    )
    assert done.returncode == 10
    assert re.fullmatch(r"gptx: error: there is no package typer; activate .*\n", done.stderr)
