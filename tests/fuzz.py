"""Random hostile inputs for the whole program, and checks of each result.

Every input is a command line in its own folder with a corpus and two small runs, with a random
error of one class (CLASSES below). For each of them gptx must end in time, with a documented exit
code, in at most one line of error, without a traceback, within a bound of memory.
It must lose nothing: no file outside the folder changes, no command but train changes a run, the
newest whole checkpoint survives, and a training that succeeds leaves a checkpoint that opens. On a
terminal it prints no control character of a foreign name. Linux and macOS.

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
import io
import json
import multiprocessing
import os
import pickle
import pkgutil
import random
import re
import resource
import select
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

os.environ["OMP_NUM_THREADS"] = "1"  # a forked child cannot use its parent's threads

import numpy as np
import torch
import typer.main
from foreign import CHARACTERS, checkpoint_of, meta_of, state_of
from program import Screen
from typer.main import get_command

import gpt
from gpt import commands
from gpt.errors import CheckpointError
from gpt.storage.run import MANIFEST, MODEL, Run

EXITS = {0, 2, 3, 4, 5, 6, 7, 8, 10, 129, 130, 137, 141, 143}
SECONDS = 20.0  # seconds allowed for an input; a training of a few steps takes one
MEMORY = 250 * 2**20  # bytes beyond those of a process that has imported everything
COMMAND = get_command(commands.make_program())
COMMANDS = COMMAND.commands  # type: ignore[attr-defined]
TRAIN = "train corpus.txt --n-layer 1 --n-head 2 --n-embd 8 --block-size 8 --batch-size 2".split()
NEW = [*TRAIN, "--steps", "1", "--eval-interval", "1", "--run", "new"]
TEXT = "the cat sat on the mat. To be, or not to be: árvíztűrő\n" * 60

NUMBERS = "-1 0 1 2 3 7 2147483648 9223372036854775808 1e3 nan inf -inf 1e308 1e-320 0x10 ٣ 1,5"
NUMBERS += f" 18446744073709551616 {'9' * 400} {'9' * 5000} -{'9' * 400} 1e300 0.{'0' * 400}1"
TEXTS = [
    *("", "the", "a" * 5000, "字" * 10**5, "\udcff", "\u202e", "[red]x[/red]", "</script>"),
    *("😀", "\n", "\t", "pipe", "link", "corpus.txt"),
    *("~no-such-user/x", "/dev/null", "/dev/full", ".", "..", "/"),
    *("-", "--", "--help", "run", "run:last", "best", "last", "2", "../x", "0:1", "a:b", "none"),
]
JSON_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**70, 1e300, "", "x", "\ud800", [], {}, [[]], [None], "1"),
    *(0.5, [1, 2], {"a": 1}, "a" * 5000, 2**20, 10**9, "sha256:0", ["x"] * 50),
    *(2**63, 10**12, -(2**70), 1e99, 1e308, 10**400, [[[[[]]]]], "\x1b]0;x\x07", {"a": {"b": [0]}}),
]
#: Names of files: with control characters, not UTF-8, formulas of spreadsheets, or very long.
NAMES = [
    *(b"a\x1b]0;x\x07", b"\xff\xfe", "a\u202eb".encode(), b"=1+1", b"a\nb", "\x9b31m".encode()),
    *(b"a\x7f", b"[red]x[/red]", "é".encode() * 100, b"-rf", b" ", b"a\tb", b"@x", b"{x}", b"%s"),
    *("\u2067a".encode(), "\u200f".encode(), b"<b>", b"'", b'"', b"\\", b"`steps`", b"\x08\x08"),
]
WAITING = {"config", "corpus", "file", "files", "output", "path"}
READING = ["runs", "runs run", "runs *", "sample --length 5", "attn", "heads --windows 2"]
READING += ["eval", "next the", "sample --novelty --length 5", "eval corpus.txt"]
READING += ["export x", "why the"]
READING += ["heads", "attn --head all -o a.html", "live -o l.html", "runs run other -o c.csv"]
USING = [*READING, "train --resume --run run --dry-run --steps 4"]
USING += ["train --resume --run run --steps 4"] * 3


@dataclass
class Input:
    """A command line, on a terminal or not, perhaps ended by a signal.

    ends: seconds until the signal. closes: whether the reader of stdout leaves at once.
    """

    line: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    terminal: bool = False
    ends: tuple[int, float] | None = None
    closes: bool = False


Damage = Callable[[random.Random, Path], list[str] | Input]


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
    spelled += ["help_all", "context", "corpus", "text", "", "a b", "config"]
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


def manifests(chance: random.Random, home: Path) -> list[str]:
    """A manifest with other values or broken bytes; or the same of the record of an encoded
    corpus.
    """
    path = chance.choice(Run(home / "checkpoints/run").step_paths()) / MANIFEST
    line = chance.choice(USING).split()
    if chance.random() < 0.25:
        path = chance.choice(sorted((home / "data").glob("*.json")))
        line = chance.choice([NEW, [*TRAIN, "--dry-run"], ["eval"], *map(str.split, USING[-2:])])
    path.write_text(json.dumps(changed(json.loads(path.read_bytes()), chance)))
    return line


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
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    else:
        data = data[: chance.randrange(len(data))] + bytes(chance.randrange(3))
    path.write_bytes(data)
    if chance.random() < 0.3:
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
    """A folder, other bytes or nothing in the place of a file of the run or of the encoded corpus,
    or a file of another length.
    """
    run, data = home / "checkpoints/run", home / "data"
    places = [path for path in [run, *run.rglob("*")] if path != run or chance.random() < 0.2]
    places += [run / ".lock", run / "step-00000099", run / ".tmp-step-00000004"]
    of_data = chance.random() < 0.4
    if of_data:
        places = [*data.iterdir(), data / "x.json", data / "x.ids", data]
    place, kind = chance.choice(places), chance.randrange(4)
    if kind == 3 and place.is_file():
        size = place.stat().st_size
        os.truncate(place, chance.choice([0, size // 2, max(0, size - 1), size + 1]))
    else:
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    if kind == 0:
        place.mkdir()
    elif kind == 1:
        made = [b"", b"\0" * 10, b"[]", b"123456", b"[" * 10**5, b"{}", b"\xff" * 99, b"null"]
        place.write_bytes(chance.choice(made))
    if of_data:
        return chance.choice([NEW, [*TRAIN, "--dry-run"], ["eval"], *map(str.split, USING[-2:])])
    return chance.choice(USING).split()


def texts(chance: random.Random, home: Path) -> list[str]:
    """Invalid, binary, empty or tiny texts."""
    made = [b"", b"\xef\xbb\xbf", b"a", b"\xff\xfea\0", b"\x1f\x8b\x08", b"\0" * 100, b"x" * 99]
    made += [b"a\r\nb\r" * 50, TEXT.encode() + b"\xc3", "é".encode() * 40, b"\n" * 99, b"%PDF"]
    made += ["\U0001f600\u200d".encode() * 40, chance.randbytes(200), b"<script>" * 20]
    made += ["\u2028\u0085".encode() * 30]
    (home / "odd.txt").write_bytes(chance.choice(made))
    line = chance.choice(["eval odd.txt", "attn --file odd.txt", "sample --file odd.txt"])
    line = chance.choice([line, "heads odd.txt", "next --file odd.txt", "eval --chars odd.txt"])
    if chance.random() < 0.15:
        return ["train", "odd.txt", *TRAIN[2:], "--dry-run"]
    return [*line.split(), *(["--unknown", "skip"] * chance.randrange(2))]


def steps(chance: random.Random, home: Path) -> list[str]:
    """Stray, empty, copied, truncated and unfinished step folders beside the whole ones."""
    run = home / "checkpoints/run"
    whole, others = Run(run).step_paths(), Run(home / "checkpoints/other").step_paths()
    for _ in range(chance.randrange(1, 5)):
        name = chance.choice(
            ["step-", "step-", "step-", ".tmp-step-", ".trash-step-", "damaged-step-"]
        )
        digits = chance.choice([1, 8, 8, 8, 9, 12, 13])
        place = (
            run / f"{name}{chance.choice([0, 1, 2, 3, 4, 5, 100, 101, 10**digits - 1]):0{digits}d}"
        )
        if place.is_dir():
            shutil.rmtree(place) if place not in whole[-1:] else None
        if place.exists():
            continue
        kind = chance.randrange(4)
        if kind == 0:
            place.mkdir()
        elif kind == 1:
            place.write_bytes(b"x")
        else:
            shutil.copytree(chance.choice(others), place)
            damaged = chance.choice(sorted(place.iterdir()))
            if kind == 3:
                damaged.write_bytes(damaged.read_bytes()[:-1])
    if chance.random() < 0.3:
        path = chance.choice(sorted(Run(run).path.glob("step-*/*")))
        os.truncate(path, chance.randrange(1 + path.stat().st_size))
    return chance.choice(USING).split()


def imports(chance: random.Random, home: Path) -> list[str]:
    """nanoGPT's checkpoint and vocabulary with wrong names, types, structures and pickles."""
    shared: Any = "x"
    for _ in range(chance.choice([3, 30, 60])):
        shared = chance.choice([[shared, shared], {0: shared, 1: shared}])
    state: dict[Any, Any] = {**state_of(len(CHARACTERS))}
    key = chance.choice(sorted(state))
    tensor = state[key]
    types = [torch.float8_e4m3fn, torch.float64, torch.int8, torch.complex64, torch.bfloat16]
    odd = [tensor.to(chance.choice(types)), tensor[:1], tensor.to_sparse(), tensor.to("meta")]
    odd += [tensor * np.nan, torch.zeros(1).expand(10**12), shared, *JSON_VALUES]
    others = [key.replace("h.0", "h.00"), key.replace("h.0", "h.٠"), f"{key} ", "x", "h.0."]
    state[chance.choice([key, *others])] = chance.choice([tensor, *odd])
    document, meta = checkpoint_of(state, len(CHARACTERS)), meta_of(CHARACTERS)
    table: dict[Any, Any] = chance.choice([document, document["model_args"], meta, meta["itos"]])
    if chance.random() < 0.7:
        table[chance.choice([*table, "x", 0])] = chance.choice(odd)
    folder = home / "nano"
    folder.mkdir()
    with contextlib.suppress(Exception):  # what cannot be pickled is tried otherwise
        torch.save(
            changed(document, chance) if chance.random() < 0.3 else document, folder / "ckpt.pt"
        )
    with contextlib.suppress(Exception):
        (folder / "meta.pkl").write_bytes(pickle.dumps(meta, chance.choice([0, 2, 4])))
    for path in (folder / "ckpt.pt", folder / "meta.pkl"):
        if path.exists() and path.stat().st_size and chance.random() < 0.2:
            data = bytearray(path.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data[: chance.choice([len(data), chance.randrange(len(data))])])
    chosen = chance.choice(["nano/ckpt.pt"] * 6 + ["/dev/zero", "nano", "corpus.txt", "/dev/null"])
    return ["import", chosen, "--run", "imported"]


def exports(chance: random.Random, home: Path) -> list[str]:
    """An export onto a file or a folder that exists."""
    places = [path for path in home.rglob("*") if not path.is_fifo()]
    if chance.random() < 0.3:
        (home / "own").mkdir()
        (home / "own/README.md").write_text(chance.choice(["---\ntags:\n- gptx\n---\n", "mine"]))
        place = home / "own" / chance.choice(["model.safetensors", "config.json", "x"])
        model = Run(home / "checkpoints/run").step_paths()[-1] / MODEL
        how = chance.choice([os.link, os.symlink, shutil.copy])
        how(model, place)
        places = [home / "own", place]
    place = chance.choice([*places, home / "checkpoints/run", home])
    return ["export", os.path.relpath(place, home), "--force"]


#: Command lines of `names`, which replaces the words in capitals.
NAMED = """
heads TEXT; eval TEXT; eval --chars TEXT; attn --file TEXT; sample --file TEXT; train --config TEXT;
attn --run MODEL; heads --run MODEL; eval --run MODEL; next the --run MODEL; live --run MODEL;
sample --length 5 --run MODEL; sample --novelty --length 5 --run MODEL; import MODEL;
attn --run MODEL -o y.html; heads --run MODEL -o h.html; eval TEXT --against MODEL;
attn -o FILE.html; attn -o FILE.png; attn -o FILE.svg; attn -o FILE.json; attn -o FILE.csv;
heads TEXT -o FILE.html; heads TEXT -o FILE.csv; heads TEXT -o FILE.json; live -o FILE.html;
train TEXT NEW; train TEXT --dry-run NEW; train NAME NEW; export FILE2;
train corpus.txt NEW --init-from MODEL; train corpus.txt corpus.txt --separator=NAME NEW;
runs FILE; runs --checkpoints FILE; runs * --checkpoints FILE; NAME; attn --NAME;
attn NAME; next NAME; sample --prompt NAME; sample --stop NAME --length 9
"""


def names(chance: random.Random, home: Path) -> Input:
    """Hostile names of files, texts and runs, on a terminal or in a pipe."""
    name = os.fsdecode(chance.choice(NAMES))
    step = Run(home / "checkpoints/run").step_paths()[-1]
    with contextlib.suppress(OSError):
        shutil.copy(home / "corpus.txt", home / f"{name}.txt")
        shutil.copy(step / MODEL, home / f"{name}.safetensors")
        shutil.copytree(home / "checkpoints", home / name)
    means = {"NAME": name, "TEXT": f"./{name}.txt", "MODEL": f"./{name}.safetensors"}
    means["FILE"] = f"./{name}"
    line = []
    for part in chance.choice(NAMED.split(";")).split():
        for word, meant in means.items():
            part = part.replace(word, meant)
        line += NEW[2:] if part == "NEW" else [part]
    if chance.random() < 0.3 and COMMANDS.get(line[0]) is not None:
        line = [*line, "--json"]
    return Input(line, terminal=chance.random() < 0.7)


def environments(chance: random.Random, home: Path) -> Input:
    """Hostile values of environment variables."""
    names = ["COLUMNS", "LINES", "GPTX_CHECKPOINTS", "GPTX_DATA", "TERM", "NO_COLOR"]
    names += ["FORCE_COLOR", "OMP_NUM_THREADS", "LC_ALL", "TMPDIR", "HOME", "TERMINAL_WIDTH"]
    pool = [each for each in [*NUMBERS.split(), *TEXTS] if "\0" not in each and each != "pipe"]
    chosen = {name: chance.choice(pool) for name in chance.sample(names, 2)}
    line = chance.choice([*READING, "--help", "train --help", "attn --help", "--version"])
    return Input(line.split(), environment=chosen, terminal=chance.random() < 0.5)


def signals(chance: random.Random, home: Path) -> Input:
    """A signal at a random moment, or a reader that leaves."""
    lines = [" ".join([*TRAIN, "--steps", "30", "--eval-interval", "3", "--run", "new"])] * 3
    lines += [*READING, "sample -n 50 --length 1000000000", "sample --length 20000", USING[-1]]
    line = chance.choice(lines).split()
    if line[0] == "sample" and chance.random() < 0.5:
        return Input(["sample", "-n", "50", "--length", "1000000000"], closes=True)
    number = chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
    return Input(line, ends=(number, chance.random() ** 2))


CLASSES: dict[str, Damage] = {
    each.__name__: each
    for each in (
        *(options, toml, manifests, models, logs, folders, texts, steps, imports),
        *(exports, names, environments, signals),
    )
}


def run_child(asked: Input, home: Path) -> tuple[int, str, int]:
    """Exit code (-1 if it was killed after a hang), stderr, and bytes of memory."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.chdir(home)
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # `nohup … &` ignores both
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.dup2(os.open(home.parent / "stdin", os.O_RDONLY), 0)
            for number, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(home.parent / name, os.O_WRONLY | os.O_CREAT, 0o600), number)
            if asked.closes:
                os.dup2(writing, 1)
            os.close(reading)
            os.close(writing)
            sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115
            kind = Screen if asked.terminal else io.TextIOWrapper
            sys.stdout, sys.stderr = (
                kind(open(n, "wb", closefd=False), encoding="utf-8", line_buffering=n == 2)  # noqa: SIM115
                for n in (1, 2)
            )
            webbrowser.open = lambda *_, **__: True
            os.environ.update(asked.environment)
            sys.argv = ["gptx", *asked.line]
            commands.main()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except KeyboardInterrupt:  # before the program has handled signals
            status = 130
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
    os.close(writing)
    began, sent, left = time.monotonic(), False, False
    while time.monotonic() < began + SECONDS:
        waited = time.monotonic() - began
        if not left and (select.select([reading], [], [], 0)[0] or not asked.closes or waited > 1):
            left = True
            os.close(reading)
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            said = (home.parent / "stderr").read_text(encoding="utf-8", errors="replace")
            unit = 1 if sys.platform == "darwin" else 1024
            code = os.waitstatus_to_exitcode(status)
            if asked.ends and code == -asked.ends[0]:  # before the program has handled signals
                code = 128 + asked.ends[0]
            return code, said, used.ru_maxrss * unit
        if asked.ends and not sent and waited > asked.ends[1]:
            sent = True
            os.kill(child, asked.ends[0])
        time.sleep(0.002)
    if not left:
        os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1, "", 0


def problem(code: int, said: str, memory: int) -> str:
    """The finding of one input; "" if there is none. memory: bytes beyond a usual process."""
    errors = said.count("gptx: error: ")
    signalled = (129, 130, 137, 141, 143)
    checks = {
        "hangs": code == -1,
        "traceback": "Traceback" in said or "race condition" in said,
        "a bug in gptx": "a bug in gptx" in said,
        f"exit {code}": code not in EXITS,
        f"{errors} errors": errors != (code not in (0, *signalled)) and code != 3,
        f"{memory >> 20} MiB": memory > MEMORY,
    }
    return ", ".join(name for name, found in checks.items() if found)


#: What a program may send to a terminal, colours and moves of the cursor, and what it may not.
SENT = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def hidden(folder: Path) -> str:
    """A control character that was printed, with its surroundings; "" if there is none."""
    for name in ("stdout", "stderr"):
        text = SENT.sub("", (folder / name).read_text(encoding="utf-8", errors="replace"))
        if found := HIDDEN.search(text):
            return f", {name} shows {text[max(0, found.start() - 20) : found.end() + 20]!a}"
    return ""


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 2**24)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def newest_whole(checkpoints: Path) -> dict[str, int]:
    """Run -> its newest step without damage."""
    found = {}
    for run in sorted(checkpoints.iterdir()) if checkpoints.is_dir() else ():
        for step in reversed(Run(run).steps() if not run.is_symlink() else []):
            with contextlib.suppress(CheckpointError):
                Run(run).at(step).verify()
                found[run.name] = step
                break
    return found


def lost(
    asked: Input, code: int, home: Path, before: dict[str, bytes], whole: dict[str, int]
) -> str:
    """What an input has lost, from the files and the newest whole steps before it."""
    command = asked.line[0] if asked.line else ""
    now, wrong = newest_whole(home / "checkpoints"), ""
    for run, step in whole.items():
        if now.get(run, -1) < step:
            wrong += f", {run} lost step {step}"
    trains = command in ("train", "import")
    if not trains:
        files = {name: data for name, data in before.items() if name.startswith("checkpoints/")}
        after = tree(home)
        files = before if command == "export" else files
        changed = [name for name, data in files.items() if after.get(name) != data]
        wrong += f", changed {changed[0]}" if changed else ""
    for run in ("new", "imported"):
        saved = (
            trains and code == 0 and "--dry-run" not in asked.line and "--help" not in asked.line
        )
        if saved and run in asked.line and "--run" in asked.line:
            try:
                gpt.load(home / "checkpoints" / run)
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
        code, said, _ = run_child(Input(line), home)
        if code:
            raise SystemExit(f"the template cannot be trained: {said}")
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
    template: Path, usual: int, seed: int, number: int, only: tuple[str, ...]
) -> tuple[str, str, str, str]:
    """(class, what is wrong, command line, last line of the error) of one input.

    usual: bytes of memory of a process that has imported everything.
    """
    name = random.Random(f"{seed} {number}").choice(only)
    chance = random.Random(f"{seed} {number} {name}")
    work = template.parent / f"work-{os.getpid()}"
    precious, home = work / "precious", work / "home"
    shutil.copytree(template, work, symlinks=True)
    os.mkfifo(home / "pipe")
    precious.mkdir()
    (precious / "file").write_text('{"step": 1}\n')
    made = CLASSES[name](chance, home)
    asked = made if isinstance(made, Input) else Input(made)
    (work / "stdin").write_bytes(chance.choice([b"", b"the cat\n", b"\xff"]))
    outside, before = tree(precious), tree(home)
    whole = newest_whole(home / "checkpoints")
    code, said, memory = run_child(asked, home)
    wrong = problem(code, said, memory - usual if memory else 0)
    if tree(precious) != outside:
        wrong += ", a file outside was changed"
    if asked.terminal:
        wrong += hidden(work)
    wrong += lost(asked, code, home, before, whole)
    shutil.rmtree(work)
    errors = [each for each in said.splitlines() if "rror: " in each]
    last = errors[-1:] or said.splitlines()[-1:] or [""]
    return name, wrong.removeprefix(", "), f"{asked.line!r:.300}", last[0]


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
        usual = run_child(Input(["--version"]), template / "home")[2]
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
