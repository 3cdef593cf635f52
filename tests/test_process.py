"""Tests that need a real process: signals, pipes, full disks, locales, terminals, imports."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from conftest import TEXT, train_tiny

from gpt.storage.run import Run

MAIN = [sys.executable, "-m", "gpt"]


def without(module: str) -> list[str]:
    """Runs the program, which fails if it imports the given module."""
    check = f"assert {module!r} not in sys.modules, 'imported'"
    return [
        sys.executable,
        "-c",
        f"import sys, gpt.commands\ntry: gpt.commands.main()\nfinally: {check}",
    ]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment with one thread, no user settings, and `changes`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPTX_")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd(), **changes}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one tiny run, of a shape that export knows."""
    folder = tmp_path_factory.mktemp("process")
    train_tiny(folder, norm="layer")
    return folder


def gptx(home: Path, *arguments: str, main: list[str] = MAIN) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*main, *arguments], cwd=home, env=environment(), capture_output=True, timeout=60
    )


#: Commands that answer without torch.
READING = [
    ["--help"],
    ["train", "--help"],
    ["--version"],
    ["sample", "--length", "5"],
    ["attn", "the cat"],
    ["attn", "the cat", "--format", "html"],
    ["heads", "--ablate", "mean"],
    ["next", "the cat"],
    ["runs"],
    ["eval", "text.txt"],
    ["explain"],
    ["explain", "--help"],
    ["explain", "mine", "--text", "the cat"],
    ["export", "folder", "--json"],
]


def test_commands_that_read_never_import_torch(home: Path) -> None:
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
                answers.append([end.code, bool(written.getvalue()), "torch" in sys.modules])
        json.dump(answers, screen)
    """
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=home,
        env=environment(),
        input=json.dumps(READING).encode(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = json.loads(done.stdout)
    assert dict(zip(map(tuple, READING), answers, strict=True)) == {
        tuple(arguments): [0, True, False] for arguments in READING
    }


def test_only_the_named_command_is_imported(home: Path) -> None:
    code = """if True:
        import sys
        import gpt.commands as commands
        try:
            commands.main()
        finally:
            known = {f"gpt.commands.{module}" for module, _ in commands.COMMANDS.values()}
            print(*sorted(known & {*sys.modules}), file=sys.stderr)
    """
    done = gptx(home, "runs", main=[sys.executable, "-c", code])
    assert (done.returncode, done.stderr.decode().split()) == (0, ["gpt.commands.runs"])


def test_import_gpt_imports_neither_numpy_nor_torch() -> None:
    code = "import sys, gpt; assert gpt.__version__; assert not {'numpy', 'torch'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(), timeout=60)


def test_tab_completion_shows_every_public_name() -> None:
    import gpt

    assert sorted(dir(gpt)) == sorted(gpt.__all__)
    assert all(getattr(gpt, name) for name in gpt.__all__)
    with pytest.raises(AttributeError, match="module 'gpt' has no attribute 'lode'"):
        gpt.lode  # noqa: B018


def test_timed_run_on_a_busy_machine_finishes_its_schedule(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 20, encoding="utf-8")
    options = "--n-layer 1 --n-head 2 --n-embd 32 --block-size 32 --batch-size 8 --json"
    command = [*MAIN, "train", "text.txt", *options.split(), "--minutes", "0.05"]
    spin = [sys.executable, "-c", "while True: pass"]
    busy: list[subprocess.Popen[bytes]] = []
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while process.poll() is None:
                if not busy and [*tmp_path.glob("checkpoints/*/metrics.jsonl")]:
                    busy = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
                time.sleep(0.05)
        finally:
            for each in busy:
                each.kill()
                each.wait()
        assert process.stdout is not None
        result = json.loads(process.stdout.read())
    assert busy
    assert result["reason"] == "finished"
    assert result["elapsed"] < 9  # seconds of three; test_timed.py tests the limit of a tenth
    (run,) = (tmp_path / "checkpoints").iterdir()
    rates = [each for each in Run(run).records("metrics") if "learning_rate" in each]
    assert rates[-1]["step"] == result["step"]
    assert rates[-1]["learning_rate"] == 0


def test_closed_pipe_is_no_error(home: Path) -> None:
    command = [*MAIN, "sample", "--length", "20000"]
    with subprocess.Popen(
        command, cwd=home, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(timeout=60) == 141
    assert said == b""


@pytest.mark.parametrize("form", [(), ("--json",), ("--novelty",)])
def test_closed_pipe_ends_many_long_samples_at_once(home: Path, form: tuple[str, ...]) -> None:
    many = ["sample", "-n", "50", "--length", "1000000000", "--device", "cpu", *form]
    assert_closed_pipe_ends(home, many, 20)


def assert_closed_pipe_ends(home: Path, arguments: list[str], seconds: float) -> None:
    """Asserts that a command whose reader has left ends in time, without a message."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*MAIN, *arguments],
            cwd=home,
            env=environment(),
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=seconds,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_closed_pipe_during_help_is_no_error(home: Path) -> None:
    assert_closed_pipe_ends(home, ["train", "--help"], 60)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", [["sample", "--length", "5"], ["attn", "the"], ["runs"], ["train", "--help"], []]
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
        (">&-", "attn the", 6, b"gptx: error: cannot write output: it is closed\n"),
        (">&-", "--help", 6, b"gptx: error: cannot write output: it is closed\n"),
        (">&- 2>&-", "eval text.txt", 6, b""),
        ("<&-", "eval text.txt", 0, b"warning: text.txt is in the text that this run was trained"),
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
    command = [*MAIN, "sample", "--length", "5"]
    done = subprocess.run(command, cwd=home, env=plain, capture_output=True, timeout=60)
    assert done.returncode == 0


def test_error_names_invalid_bytes_in_an_argument(home: Path) -> None:
    done = subprocess.run(
        [os.fsencode(part) for part in (*MAIN, "sample", "--prompt")] + [b"th\xffe"],
        cwd=home,
        env=environment(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert b"U+DCFF" in done.stderr
    assert b"position 2" in done.stderr


def test_terminal_output_escapes_control_characters(tmp_path: Path) -> None:
    text = "ab\x1b[31m\x07\x9b\u202ecd\r\x08\n" * 60
    done = gptx(tmp_path, "--version")
    assert done.returncode == 0
    (tmp_path / "evil.txt").write_bytes(text.encode())
    options = ("--steps 2 --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 --batch-size 2").split()
    trained = gptx(tmp_path, "train", "evil.txt", *options)
    assert trained.returncode == 0, trained.stderr
    arguments = ["sample", "--prompt", "ab\x1b", "--length", "300", "--temperature", "3"]
    raw = gptx(tmp_path, *arguments).stdout.decode()
    seen = on_terminal(tmp_path, *arguments)
    assert "\x1b" in raw
    unescaped = re.sub(
        r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\(r)",
        lambda match: "\r" if match[3] else chr(int(match[1] or match[2], 16)),
        seen.replace("\r\n", "\n"),
    )
    assert unescaped == raw
    assert not re.search("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202e]", seen)


def on_terminal(home: Path, *arguments: str) -> str:
    """The output of the program on a terminal."""
    primary, secondary = pty.openpty()
    process = subprocess.Popen(
        [*MAIN, *arguments],
        cwd=home,
        env=environment(),
        stdout=secondary,
        stderr=subprocess.DEVNULL,
    )
    os.close(secondary)
    received = b""
    while True:
        ready, _, _ = select.select([primary], [], [], 30)
        assert ready, "the program went quiet"
        try:
            received += os.read(primary, 65536)
        except OSError:  # the other side is closed
            break
        if not received:
            break
    os.close(primary)
    assert process.wait(timeout=60) == 0
    return received.decode()


LONG = (
    "train text.txt --steps 100000 --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 "
    "--batch-size 2 --eval-interval 100000"
).split()


def listen() -> None:
    """Resets signals that a shell or nohup has set to be ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def stopped_by(home: Path, number: signal.Signals, *arguments: str) -> tuple[int, str, Run]:
    """Starts a long training, sends the signal once it has begun, and waits."""
    process = subprocess.Popen(
        [*MAIN, *LONG, *arguments],
        cwd=home,
        env=environment(),
        stderr=subprocess.PIPE,
        preexec_fn=listen,
    )
    runs = home / "checkpoints"
    deadline = time.monotonic() + 60
    while not list(runs.glob("*/step-*/manifest.json")):  # the first checkpoint is saved
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said.decode(), Run(next(runs.iterdir()))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signal_saves_and_prints_how_to_continue(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    returned, said, run = stopped_by(tmp_path, number)
    assert returned == code, said
    step = run.last().manifest.step
    assert step > 0
    assert f"{number.name} after step {step:,}" in said
    assert f"gptx train --resume --run {run.name}" in said
    run.last().verify()


def test_run_stopped_by_a_signal_and_resumed_equals_an_unbroken_run(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    flat = ["--schedule", "linear", "--min-lr", "0.001", "--learning-rate", "0.001"]
    # Given explicitly, as the default would fit them to the number of steps.
    flat += ["--warmup-steps", "0", "--dropout", "0.1"]
    _, _, run = stopped_by(tmp_path, signal.SIGINT, *flat)
    end = run.last().manifest.step + 5  # the learning rate is constant
    resumed = gptx(tmp_path, "train", "--resume", "--steps", str(end))
    assert resumed.returncode == 0, resumed.stderr
    whole = gptx(tmp_path, *LONG, *flat, "--steps", str(end), "--checkpoints", "whole")
    assert whole.returncode == 0, whole.stderr
    unbroken = Run(next((tmp_path / "whole").iterdir()))
    for name in ("model.safetensors", "state.safetensors"):
        ends = [(each.last().path / name).read_bytes() for each in (run, unbroken)]
        assert ends[0] == ends[1]


def test_second_signal_exits_at_once_and_loses_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    wide = "--n-embd 256 --n-layer 4 --batch-size 64 --block-size 64 --eval-interval 100000".split()
    process = subprocess.Popen(
        [*MAIN, *LONG, *wide],  # a step takes seconds, and the first signal waits for its end
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.DEVNULL,
        preexec_fn=listen,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("checkpoints/*/step-*/manifest.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) in (130, -signal.SIGTERM)
    run = Run(next((tmp_path / "checkpoints").iterdir()))
    assert run.last().manifest.step in (0, 1)
    run.last().verify()


def test_file_size_limit_ends_the_run_and_loses_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    steps = [*LONG[:2], *"--steps 20 --eval-interval 10".split(), *LONG[4:-2]]
    first = gptx(tmp_path, *steps)
    assert first.returncode == 0, first.stderr
    run = Run(next((tmp_path / "checkpoints").iterdir()))
    before = {path.name: (path / "manifest.json").read_bytes() for path in run.step_paths()}
    size = (run.last().path / "model.safetensors").stat().st_size

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, resource.RLIM_INFINITY))

    done = subprocess.run(
        [*MAIN, "train", "--resume", "--steps", "30"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=60,
        preexec_fn=limited,
    )
    assert done.returncode == 6
    assert b"cannot save step 30" in done.stderr.splitlines()[-1]
    assert b"(last good: step 20): File too large" in done.stderr.splitlines()[-1]
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
        from gpt.corpus.corpus import encode
        from gpt.corpus.sources import Source
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        Path("small.txt").write_text("the quick brown fox " * 10_000)
        encode([Source(Path("small.txt"), "small")], Path("data"))
        before = peak()
        corpus = encode([Source(Path("text.txt"), "text")], Path("data"))
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


def test_two_trainers_cannot_share_a_run(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    process = subprocess.Popen(
        [*MAIN, *LONG], cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("checkpoints/*/step-*/manifest.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        second = gptx(tmp_path, "train", "--resume")
        assert second.returncode == 5
        assert f"in use by process {process.pid}".encode() in second.stderr
    finally:
        process.kill()
        process.wait()
    freed = gptx(tmp_path, "train", "--resume", "--dry-run")
    assert freed.returncode == 0, freed.stderr


def test_checkpoints_contain_only_safetensors_and_json(home: Path) -> None:
    path = Run(home / "checkpoints" / "tiny").last().path
    tensors = safetensors.numpy.load((path / "model.safetensors").read_bytes())
    assert all(np.isfinite(tensor).all() for tensor in tensors.values())
    assert {file.name for file in path.iterdir()} == {
        "manifest.json",
        "model.safetensors",
        "state.safetensors",
    }


def test_reading_the_text_needs_no_torch(tmp_path: Path) -> None:
    """A text that cannot be read is reported, even if torch cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    cases = {"missing.txt": (3, b"cannot read corpus"), "text.txt": (1, b"no torch here")}
    for name, (code, said) in cases.items():
        done = subprocess.run(
            [*MAIN, "train", name],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            timeout=60,
        )
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
        assert not list(tmp_path.glob("checkpoints/*/*"))


def test_training_imports_no_compiler(home: Path) -> None:
    small = "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --steps 2 --average 0.5".split()
    done = gptx(home, "train", "text.txt", *small, "--run", "plain", main=without("torch._dynamo"))
    assert done.returncode == 0, done.stderr
