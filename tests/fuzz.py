"""Random hostile inputs for the whole program, and checks of each result.

Every input is a command line in its own folder with a corpus and a small run, with a random
error of one class: in options, config files, manifests, model files, logs, the
run's folder, or texts. For each of them gptx must end in time, with a documented exit code, in at
most one line of error, without a traceback, within a bound of memory, and without changing a file
outside that folder. Linux and macOS.

    python tests/fuzz.py [--inputs 2000] [--seed 1] [--jobs 1] [--only CLASS ...]      (make fuzz)

Prints the inputs and findings of each class; exits with 1 if there is a finding. A finding names
its number: `--seed SEED --first NUMBER --inputs 1` repeats it. Every input runs in a fork of a
process that has imported everything, so that it takes a tenth of a second.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
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
from gpt.storage.checkpoint import MANIFEST, MODEL
from gpt.storage.json_values import sealed
from gpt.storage.run import Run

EXITS = {0, 2, 3, 4, 5, 6, 7, 8, 129, 130, 141, 143}
SECONDS = 30.0  # seconds allowed for an input; a training of a few steps takes one
MEMORY = 800 * 2**20  # bytes; torch takes a quarter of it
COMMAND = get_command(commands.application())
COMMANDS = COMMAND.commands  # type: ignore[attr-defined]
TRAIN = "train corpus.txt --n-layer 1 --n-head 2 --n-embd 8 --block-size 8 --batch-size 2".split()
TEXT = "the cat sat on the mat. To be, or not to be: árvíztűrő\n" * 60

NUMBERS = "-1 0 1 2 3 7 2147483648 9223372036854775808 1e3 nan inf -inf 1e308 1e-320 0x10 ٣ 1,5"
TEXTS = [
    *("", "the", "a" * 5000, "\udcff", "\u202e", "[red]x[/red]", "</script>", "😀", "\n", "\t"),
    *("~no-such-user/x", "/dev/null", "/dev/full", ".", "..", "/", "pipe", "link", "corpus.txt"),
    *("-", "--", "--help", "run", "run:last", "best", "last", "2", "../x", "0:1", "a:b", "none"),
]
JSON_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**70, 1e300, "", "x", "\ud800", [], {}, [[]], [None], "1"),
    *(0.5, [1, 2], {"a": 1}, "a" * 5000, 2**20, 10**9, "sha256:0", ["x"] * 50),
]
WAITING = {"config", "corpus", "file", "files", "output", "path"}
READING = ["runs", "runs run", "runs --verify", "sample --length 5", "attn", "heads --windows 2"]
READING += ["eval", "next the", "explain mine", "sample --novelty --length 5", "eval corpus.txt"]
READING += ["export x", "export x.onnx"]
USING = [*READING, "train --resume --dry-run --steps 4", "train --resume --steps 4"]

Damage = Callable[[random.Random, Path], list[str]]


def value_for(kind: Any, chance: random.Random) -> str:
    """A value for an option of this kind, usually a wrong one."""
    choices = [each for part in (kind, *get_args(kind)) for each in get_args(part)]
    texts = [*TEXTS, *(each for each in choices if isinstance(each, str))]
    if get_origin(kind) is Literal or choices:
        return chance.choice(texts)
    return chance.choice([*NUMBERS.split(), *TEXTS])


def options(chance: random.Random, home: Path) -> list[str]:
    """Any options of any command, in any number."""
    name = chance.choice([each for each in COMMANDS if each != "train" or chance.random() < 0.1])
    kinds = get_type_hints(inspect.unwrap(COMMANDS[name].callback))
    line = [name, *(["--dry-run"] if name == "train" else [])]
    for parameter in chance.choices(COMMANDS[name].params, k=chance.randrange(5)):
        spelling = chance.choice(parameter.opts)
        if spelling in ("--install-completion", "--show-completion"):
            continue
        flag = kinds.get(parameter.name) is bool
        values = [] if flag else [value_for(kinds.get(parameter.name, str), chance)]
        if (parameter.name in WAITING and values[0] == "pipe") or values == ["/"]:
            continue  # gptx waits for a pipe without a writer, as a shell does
        line += [spelling, *values] if spelling.startswith("-") else values
    return line


def toml(chance: random.Random, home: Path) -> list[str]:
    """A --config file with any names and values, or broken."""
    name = chance.choice(
        [n for n in COMMANDS if n != "runs" and (n != "train" or chance.random() < 0.2)]
    )
    spelled = [each[2:] for p in COMMANDS[name].params for each in p.opts if each.startswith("--")]
    spelled += ["as_json", "context", "corpus", "text", "", "a b", "config"]
    literals = ["true", "1", "-1", "0.5", "nan", "inf", "'x'", '"a\\u0000b"', "[]", "['x']", "[1]"]
    literals += ["{}", "1979-05-27", "9223372036854775808", "'''\n'''", "[[[[]]]]", '"\\ud800"']
    lines = []
    for _ in range(chance.randrange(1, 4)):
        key = chance.choice(spelled)
        lines.append(f"{key if key.isascii() and key else repr(key)} = {chance.choice(literals)}")
    data = "\n".join(lines).encode()
    if chance.random() < 0.1:
        data = chance.choice([b"\xff", b"a = " + b"[" * 10_000, b"", b"\0", b"a = 1\na = 2"])
    (home / "c.toml").write_bytes(data)
    return [name, "--config", "c.toml", *(["--dry-run"] if name == "train" else [])]


def changed(document: Any, chance: random.Random) -> Any:
    """The same JSON document with one value, somewhere in it, replaced or left out."""
    if not isinstance(document, dict | list) or not document or chance.random() < 0.1:
        return chance.choice(JSON_VALUES)
    copy = document.copy()
    key = chance.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    if chance.random() < 0.15:
        del copy[key]
    elif chance.random() < 0.1 and isinstance(copy, dict):
        copy[chance.choice(["x", "", "step", "schema"])] = chance.choice(JSON_VALUES)
    else:
        copy[key] = changed(copy[key], chance)
    return copy


def resealed(path: Path, document: dict[str, Any]) -> None:
    """Writes a manifest with a correct checksum."""
    document = {name: value for name, value in document.items() if name != "sha256"}
    body = json.dumps(document, indent=1).encode()
    path.write_bytes(sealed(body) if document else b"{}")


def manifests(chance: random.Random, home: Path) -> list[str]:
    """A manifest with wrong values and a correct checksum, or a broken one."""
    path = chance.choice(Run(home / "checkpoints/run").step_paths()) / MANIFEST
    document = changed(json.loads(path.read_bytes()), chance)
    if isinstance(document, dict) and chance.random() < 0.9:
        resealed(path, document)
    else:
        path.write_text(json.dumps(document))
    return chance.choice(USING).split()


def models(chance: random.Random, home: Path) -> list[str]:
    """A model file with wrong bytes or a wrong header; its manifest has the correct digest."""
    step = Run(home / "checkpoints/run").step_paths()[-1]
    path, data = step / MODEL, bytearray((step / MODEL).read_bytes())
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
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        data = data[: chance.randrange(len(data))] + bytes(chance.randrange(3))
    path.write_bytes(data)
    if chance.random() < 0.8:
        document = json.loads((step / MANIFEST).read_bytes())
        document["files"][MODEL] = [len(data), hashlib.sha256(data).hexdigest()]
        resealed(step / MANIFEST, document)
    elif chance.random() < 0.5:
        shutil.copy(path, home / "alone.safetensors")
        return [*chance.choice(READING[3:]).split(), "--run", "alone.safetensors"]
    return chance.choice(USING).split()


def logs(chance: random.Random, home: Path) -> list[str]:
    """metrics.jsonl or samples.jsonl with changed, nested or broken lines."""
    path = home / "checkpoints/run" / chance.choice(["metrics.jsonl", "samples.jsonl"])
    lines = path.read_bytes().splitlines()
    at = chance.randrange(len(lines))
    broken = [b"", b"null", b"[" * 100_000, b"\xff\xfe", b'{"step": 1', b"{}", b"1e999", b"\0" * 50]
    line = json.dumps(changed(json.loads(lines[at]), chance)).encode()
    lines[at] = line if chance.random() < 0.7 else chance.choice(broken)
    path.write_bytes(b"\n".join(lines) + b"\n" * chance.randrange(2))
    return chance.choice(["runs", "runs run", "runs run --json", *USING[-2:]]).split()


def folders(chance: random.Random, home: Path) -> list[str]:
    """A link, a pipe, a folder or nothing in the place of a file of the run."""
    run = home / "checkpoints/run"
    places = [path for path in [run, *run.rglob("*")] if path != run or chance.random() < 0.2]
    places += [run / ".owner", run / ".lock", run / "step-00000099", run / ".tmp-step-00000004"]
    place = chance.choice(places)
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    kind = chance.randrange(5)
    if kind == 0:
        place.symlink_to(
            chance.choice(["../../../precious/file", "/dev/zero", "nowhere", ".", place])
        )
    elif kind == 1:
        os.mkfifo(place)
    elif kind == 2:
        place.mkdir()
    elif kind == 3:
        place.write_bytes(chance.choice([b"", b"\0" * 10, b"[]", b"123456"]))
    return chance.choice(USING).split()


def texts(chance: random.Random, home: Path) -> list[str]:
    """Invalid, binary, empty or tiny texts."""
    made = [
        b"",
        b"\xef\xbb\xbf",
        b"a",
        b"\xff\xfea\0",
        b"\x1f\x8b\x08",
        b"\0" * 100,
        b"a\r\nb\r" * 50,
    ]
    made += [
        TEXT.encode() + b"\xc3",
        "é".encode() * 40,
        "\U0001f600\u200d".encode() * 40,
        b"x" * 99,
    ]
    made += [
        chance.randbytes(200),
        "\u2028\u0085".encode() * 30,
        b"<script>" * 20,
        b"%PDF",
        b"\n" * 99,
    ]
    (home / "odd.txt").write_bytes(chance.choice(made))
    line = chance.choice(["eval odd.txt", "attn --file odd.txt", "sample --file odd.txt"])
    line = chance.choice([line, "heads odd.txt", "next --file odd.txt", "eval --chars odd.txt"])
    if chance.random() < 0.15:
        return ["train", "odd.txt", *TRAIN[2:], "--dry-run"]
    return [*line.split(), *(["--unknown", "skip"] * chance.randrange(2))]


CLASSES: dict[str, Damage] = {
    each.__name__: each for each in (options, toml, manifests, models, logs, folders, texts)
}


def run_child(line: list[str], home: Path) -> tuple[int, str, int]:
    """Exit code (-1 if it was killed after a hang), stderr, and bytes of memory."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(home)
            os.setsid()
            for number, name, flags in (
                (0, "stdin", os.O_RDONLY),
                (1, "stdout", os.O_WRONLY | os.O_CREAT),
                (2, "stderr", os.O_WRONLY | os.O_CREAT),
            ):
                os.dup2(os.open(home.parent / name, flags, 0o600), number)
            for name in ("stdin", "stdout", "stderr"):
                mode = "r" if name == "stdin" else "w"
                number = {"stdin": 0, "stdout": 1, "stderr": 2}[name]
                setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115
            webbrowser.open = lambda *_, **__: True
            sys.argv = ["gptx", *line]
            commands.main()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
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
    """The finding of one input; "" if there is none."""
    errors = said.count("gptx: error: ")
    checks = {
        "hangs": code == -1,
        "traceback": "Traceback" in said,
        "a bug in gptx": "a bug in gptx" in said,
        f"exit {code}": code not in EXITS,
        f"{errors} errors": errors != (code not in (0, 129, 130, 141, 143)) and code != 3,
        f"{memory >> 20} MiB": memory > MEMORY,
    }
    return ", ".join(name for name, found in checks.items() if found)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def prepare(folder: Path) -> Path:
    """A home with a corpus and a run, to be copied for each input."""
    home = folder / "template" / "home"
    home.mkdir(parents=True)
    (home / "corpus.txt").write_text(TEXT, encoding="utf-8")
    for name in ("stdin", "stdout", "stderr"):
        (home.parent / name).touch()
    line = [*TRAIN, "--steps", "2", "--eval-interval", "1", "--run", "run"]
    code, said, _ = run_child(line, home)
    if code:
        raise SystemExit(f"the template cannot be trained: {said}")
    os.mkfifo(home / "pipe")
    (home / "link").symlink_to("corpus.txt")
    return home.parent


def warm_up() -> None:
    """Imports what a child may need."""
    for module in pkgutil.walk_packages(gpt.__path__, "gpt."):
        importlib.import_module(module.name)
    importlib.import_module("typer._adapters")
    typer.main.get_command = lambda _: COMMAND  # built once for all children
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def try_input(
    template: Path, seed: int, number: int, only: tuple[str, ...]
) -> tuple[str, str, str, str]:
    """(class, what is wrong, command line, last line of the error) of one input."""
    name = random.Random(f"{seed} {number}").choice(only)
    chance = random.Random(f"{seed} {number} {name}")
    work = template.parent / f"work-{os.getpid()}"
    precious = work / "precious"
    shutil.copytree(template, work, symlinks=True, ignore=shutil.ignore_patterns("pipe"))
    os.mkfifo(work / "home" / "pipe")
    precious.mkdir()
    (precious / "file").write_text('{"step": 1}\n')
    line = CLASSES[name](chance, work / "home")
    (work / "stdin").write_bytes(chance.choice([b"", b"the cat\n", b"\xff"]))
    before = tree(precious)
    code, said, memory = run_child(line, work / "home")
    wrong = problem(code, said, memory)
    if tree(precious) != before:
        wrong += ", a file outside was changed"
    shutil.rmtree(work)
    errors = [each for each in said.splitlines() if "error: " in each]
    last = errors[-1:] or said.splitlines()[-1:] or [""]
    return name, wrong, f"{line!r:.300}", last[0]


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
        attempt = functools.partial(
            try_input, prepare(Path(temporary)), asked.seed, only=tuple(asked.only)
        )
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
