"""Random hostile inputs for the whole program, and checks of each result.

Every input is a command line in its own folder with a corpus and two small runs, with a random
error of one class (CLASSES below). For each of them gptx must end in time, with a documented exit
code, in at most one line of error, without a traceback, within a bound of memory.
It must lose nothing: no command but train changes a run, the newest whole checkpoint survives, and
a training that succeeds leaves a checkpoint that opens. Linux and macOS.

    python tests/fuzz.py [--inputs 2000] [--seed 1] [--jobs 1] [--only CLASS ...]      (make fuzz)

Prints the inputs and findings of each class; exits with 1 if there is a finding. A finding names
its number: `--seed SEED --first NUMBER --inputs 1` repeats it. Every input runs in a fork of a
process that has imported everything, so that it takes a tenth of a second.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import inspect
import json
import multiprocessing
import os
import pkgutil
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import webbrowser
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

os.environ["OMP_NUM_THREADS"] = "1"  # a forked child cannot use its parent's threads

import typer.main
from typer.main import get_command

import gpt
from gpt import commands
from gpt.errors import CheckpointError
from gpt.storage.run import MANIFEST, MODEL, Run

EXITS = {0, 2, 3, 4, 5, 6, 7, 8, 10, 130, 141}
SECONDS = 20.0  # seconds allowed for an input; a training of a few steps takes one
MEMORY = 250 * 2**20  # bytes beyond those of a process that has imported everything
COMMAND = get_command(commands.make_program())
COMMANDS = COMMAND.commands  # type: ignore[attr-defined]
TRAIN = "train corpus.txt --n-layer 1 --n-head 2 --n-embd 8 --block-size 8 --batch-size 2".split()
NEW = [*TRAIN, "--steps", "1", "--eval-interval", "1", "--run", "new"]
TEXT = "the cat sat on the mat. To be, or not to be: árvíztűrő\n" * 60

NUMBERS = "-1 0 1 2 3 7 2147483648 9223372036854775808 1e3 nan inf -inf 1e308 1e-320 0x10 ٣ 1,5"
TEXTS = [
    *("", "the", "a" * 5000, "\udcff", "\u202e", "[red]x[/red]", "</script>", "😀", "\n", "\t"),
    *("corpus.txt", "~no-such-user/x", "/dev/null", "/dev/full", ".", "..", "-", "--", "--help"),
    *("run", "run:last", "best", "2", "../x", "0:1", "a:b", "none"),
]
JSON_VALUES: list[Any] = [
    *(None, True, -1, 2**70, 1e300, "", "x", "\ud800", [], {}, [[]], "1", 0.5, [1, 2], {"a": 1}),
    *("a" * 5000, 10**9, 2**63, 1e308, [[[[[]]]]], "\x1b]0;x\x07"),
]
READING = ["runs", "runs run", "sample --length 5", "attn", "heads --windows 2"]
READING += ["eval", "next the", "eval corpus.txt", "export x", "why the"]
READING += ["attn --head all -o a.html", "live -o l.html"]
USING = [*READING, *["train --resume --run run --steps 4"] * 3]
Damage = Callable[[random.Random, Path], list[str]]


def options(chance: random.Random, home: Path) -> list[str]:
    """Any options of any command, in any number."""
    name = chance.choice([*COMMANDS])
    kinds = get_type_hints(inspect.unwrap(COMMANDS[name].callback))
    line = [name, "--dry-run"] if name == "train" else [name]
    for parameter in chance.choices(COMMANDS[name].params, k=chance.randrange(5)):
        spelling, kind = chance.choice(parameter.opts), kinds.get(parameter.name, str)
        if spelling in ("--install-completion", "--show-completion"):
            continue
        values = [] if kind is bool else [value_for(kind, chance)]
        line += [spelling, *values] if spelling.startswith("-") else values
    return line


def value_for(kind: Any, chance: random.Random) -> str:
    """A value for an option of this kind, usually a wrong one."""
    choices = [choice for part in (kind, *get_args(kind)) for choice in get_args(part)]
    texts = [*TEXTS, *(choice for choice in choices if isinstance(choice, str))]
    if get_origin(kind) is Literal or choices:
        return chance.choice(texts)
    return chance.choice([*NUMBERS.split(), *TEXTS])


def configs(chance: random.Random, home: Path) -> list[str]:
    """A --config file with any names and values, or broken."""
    name = chance.choice([name for name in COMMANDS if name != "runs"])
    spelled = [name[2:] for p in COMMANDS[name].params for name in p.opts if name[:2] == "--"]
    spelled += ["help_all", "corpus", "text", "", "a b", "config"]
    literals = ["true", "1", "-1", "0.5", "nan", "inf", "'x'", '"a\\u0000b"', "[]", "['x']"]
    literals += ["{}", "1979-05-27", "9223372036854775808", "[[[[]]]]", '"\\ud800"']
    text = []
    for _ in range(chance.randrange(1, 4)):
        key = chance.choice(spelled)
        text.append(f"{key if key.isascii() and key else repr(key)} = {chance.choice(literals)}")
    data = "\n".join(text).encode()
    if chance.random() < 0.1:
        data = chance.choice([b"\xff", b"a = " + b"[" * 10_000, b"", b"\0", b"a = 1\na = 2"])
    (home / "c.toml").write_bytes(data)
    line = [name, "--config", "c.toml"]
    return [*line, "--dry-run"] if name == "train" else line


def changed(document: Any, chance: random.Random) -> Any:
    """The same JSON document with one value, somewhere in it, replaced or left out."""
    if not isinstance(document, dict | list) or not document or chance.random() < 0.1:
        return chance.choice(JSON_VALUES)
    copy = document.copy()
    key = chance.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    if chance.random() < 0.15:
        del copy[key]
    else:
        copy[key] = changed(copy[key], chance)
    return copy


def models(chance: random.Random, home: Path) -> list[str]:
    """A model file with wrong bytes or a wrong header, in its run or alone."""
    path = Run(home / "checkpoints/run").step_paths()[-1] / MODEL
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    if chance.random() < 0.5:
        header = json.loads(bytes(data[8 : 8 + length]))
        if chance.random() < 0.7:
            about = json.loads(header["__metadata__"]["gptx"])
            header["__metadata__"]["gptx"] = json.dumps(changed(about, chance))
        else:
            header = changed(header, chance)
        text = json.dumps(header).encode()
        data = bytearray(len(text).to_bytes(8, "little") + text + data[8 + length :])
    elif chance.random() < 0.5:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        data = data[: chance.randrange(len(data))]
    path.write_bytes(data)
    if chance.random() < 0.3:
        shutil.copy(path, home / "alone.safetensors")
        return [*chance.choice(READING[3:]).split(), "--run", "alone.safetensors"]
    return chance.choice(USING).split()


def folders(chance: random.Random, home: Path) -> list[str]:
    """Changed manifests and logs; missing, cut or other files; stray and copied step folders."""
    run, data = home / "checkpoints/run", home / "data"
    steps = Run(run).step_paths()
    kind = chance.choice(["manifest", "log", "stray", "cut", "other"])
    if kind == "manifest":
        path = chance.choice([steps[-1] / MANIFEST, *sorted(data.glob("*.json"))])
        path.write_text(json.dumps(changed(json.loads(path.read_bytes()), chance)))
    elif kind == "log":
        path = run / chance.choice(["metrics.jsonl", "samples.jsonl"])
        rows = path.read_bytes().splitlines()
        broken = [b"", b"null", b"\xff\xfe", b'{"step": 1', b"1e999"]
        broken.append(json.dumps(changed(json.loads(rows[0]), chance)).encode())
        rows[chance.randrange(len(rows))] = chance.choice(broken)
        path.write_bytes(b"\n".join(rows))
    elif kind == "stray":
        name = chance.choice(["step-00000099", "step-1", "step-", ".tmp-gptx-4"])
        shutil.copytree(Run(home / "checkpoints/other").step_paths()[-1], run / name)
        if chance.random() < 0.5:
            (run / name / MODEL).unlink()
    elif kind == "cut":
        path = chance.choice(
            [path for path in [*run.rglob("*"), *data.iterdir()] if path.is_file()]
        )
        os.truncate(path, chance.randrange(1 + path.stat().st_size))
    else:
        path = chance.choice([*run.rglob("*"), *data.iterdir()])
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if chance.random() < 0.5:
            path.write_bytes(chance.choice([b"", b"\0" * 10, b"[]", b"{}", b"\xff" * 99]))
    return chance.choice([*map(str.split, USING), NEW])


def texts(chance: random.Random, home: Path) -> list[str]:
    """Invalid, binary, empty or tiny texts."""
    made = [b"", b"\xef\xbb\xbf", b"a", b"\xff\xfea\0", b"\x1f\x8b\x08", b"\0" * 100, b"x" * 99]
    made += [b"a\r\nb\r" * 50, TEXT.encode() + b"\xc3", "é".encode() * 40, b"\n" * 99, b"%PDF"]
    made += ["\U0001f600\u200d".encode() * 40, chance.randbytes(200), b"<script>" * 20]
    (home / "odd.txt").write_bytes(chance.choice(made))
    line = chance.choice(["eval odd.txt", "attn --file odd.txt", "heads odd.txt", "train odd.txt"])
    if line == "train odd.txt":
        return [*line.split(), *TRAIN[2:], "--dry-run"]
    return [*line.split(), "--unknown", chance.choice(["skip", "error"])]


CLASSES: dict[str, Damage] = {
    function.__name__: function for function in (options, configs, models, folders, texts)
}


def run_child(line: list[str], home: Path) -> tuple[int, str, int]:
    """Exit code (-1 if it was killed after a hang), stderr, and bytes of memory."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(home)
            os.setsid()
            os.dup2(os.open(home.parent / "stdin", os.O_RDONLY), 0)
            for number, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(home.parent / name, os.O_WRONLY | os.O_CREAT, 0o600), number)
            sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
            sys.stdout, sys.stderr = (
                open(n, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
                for n in (1, 2)
            )
            webbrowser.open = lambda *_, **__: True
            sys.argv = ["gptx", *line]
            commands.main()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
    began = time.monotonic()
    while time.monotonic() < began + SECONDS:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            said = (home.parent / "stderr").read_text(encoding="utf-8", errors="replace")
            unit = 1 if sys.platform == "darwin" else 1024
            return os.waitstatus_to_exitcode(status), said, used.ru_maxrss * unit
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1, "", 0


def problem(code: int, said: str, memory: int) -> str:
    """The finding of one input; "" if there is none. memory: bytes beyond a usual process."""
    errors = said.count("gptx: error: ")
    checks = {
        "hangs": code == -1,
        "traceback": "Traceback" in said or "race condition" in said,
        "a bug in gptx": "a bug in gptx" in said,
        f"exit {code}": code not in EXITS,
        f"{errors} errors": errors != (code not in (0, 130, 141)) and code != 3,
        f"{memory >> 20} MiB": memory > MEMORY,
    }
    return ", ".join(name for name, wrong in checks.items() if wrong)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 2**24)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def newest_whole(checkpoints: Path) -> dict[str, int]:
    """Run -> its newest step without damage."""
    newest = {}
    for run in sorted(checkpoints.iterdir()) if checkpoints.is_dir() else ():
        for step in reversed(Run(run).steps() if not run.is_symlink() else []):
            with contextlib.suppress(CheckpointError):
                Run(run).at(step).verify()
                newest[run.name] = step
                break
    return newest


def lost(
    line: list[str], code: int, home: Path, before: dict[str, bytes], whole: dict[str, int]
) -> str:
    """What an input has lost, from the files and the newest whole steps before it."""
    now, wrong = newest_whole(home / "checkpoints"), ""
    for run, step in whole.items():
        if now.get(run, -1) < step:
            wrong += f", {run} lost step {step}"
    command = line[0] if line else ""
    if command not in ("train", "import"):
        after = tree(home)
        for name, data in before.items():
            if after.get(name) != data and (name.startswith("checkpoints/") or command == "export"):
                return f"{wrong}, changed {name}"
    elif code == 0 and "new" in line and "--dry-run" not in line:
        try:
            gpt.load(home / "checkpoints" / "new")
        except Exception as error:
            wrong += f", what was saved does not open: {error}"
    return wrong


def prepare(folder: Path) -> Path:
    """A home with a corpus and two runs, to be copied for each input."""
    home = folder / "template" / "home"
    home.mkdir(parents=True)
    (home / "corpus.txt").write_text(TEXT, encoding="utf-8")
    for name in ("stdin", "stdout", "stderr"):
        (home.parent / name).touch()
    for name in ("other", "run"):
        line = [*TRAIN, "--steps", "2", "--eval-interval", "1", "--run", name]
        code, said, _ = run_child(line, home)
        if code:
            raise SystemExit(f"the template cannot be trained: {said}")
    return home.parent


def warm_up() -> None:
    """Imports what a child may need."""
    for module in pkgutil.walk_packages(gpt.__path__, "gpt."):
        importlib.import_module(module.name)
    importlib.import_module("typer._adapters")
    typer.main.get_command = lambda _: COMMAND  # built once for all children
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def try_input(
    template: Path, usual: int, seed: int, number: int, only: tuple[str, ...]
) -> tuple[str, str, str, str]:
    """(class, what is wrong, command line, last line of the error) of one input.

    usual: bytes of memory of a process that has imported everything.
    """
    name = random.Random(f"{seed} {number}").choice(only)
    chance = random.Random(f"{seed} {number} {name}")
    work = template.parent / f"work-{os.getpid()}"
    home = work / "home"
    shutil.copytree(template, work)
    line = CLASSES[name](chance, home)
    (work / "stdin").write_bytes(chance.choice([b"", b"the cat\n", b"\xff"]))
    before, whole = tree(home), newest_whole(home / "checkpoints")
    code, said, memory = run_child(line, home)
    wrong = problem(code, said, memory - usual if memory else 0)
    wrong += lost(line, code, home, before, whole)
    shutil.rmtree(work)
    errors = [row for row in said.splitlines() if "rror: " in row]
    last = errors[-1:] or said.splitlines()[-1:] or [""]
    return name, wrong.removeprefix(", "), f"{line!r:.300}", last[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="inputs at the same time")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--only", nargs="+", choices=CLASSES, default=list(CLASSES))
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    findings: Counter[str] = Counter()
    warm_up()
    fork = multiprocessing.get_context("fork")
    with (
        tempfile.TemporaryDirectory() as temporary,
        ProcessPoolExecutor(asked.jobs, mp_context=fork) as processes,
    ):
        template = prepare(Path(temporary))
        usual = run_child(["--version"], template / "home")[2]
        attempt = functools.partial(try_input, template, usual, asked.seed, only=tuple(asked.only))
        numbers = range(asked.first, asked.first + asked.inputs)
        for number, (name, wrong, line, last) in zip(
            numbers, processes.map(attempt, numbers), strict=True
        ):
            counts[name] += 1
            if wrong:
                findings[name] += 1
                print(f"{name} --first {number}: {wrong}: {line} · {last:.300}", flush=True)
    print(json.dumps({"inputs": dict(counts), "findings": dict(findings), "seed": asked.seed}))
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
