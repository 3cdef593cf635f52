"""Tests whether two checkouts compute the same weights, sampled texts, and numbers of `--json`.

Each checkout trains four small models with its own code, stops each once in the middle and resumes
it. Then it runs attn, heads, next, why, eval, runs and sample with them. Both checkouts work at the
same time, with one thread each. The script compares the numbers of each command exactly. A key may
be renamed. A number that only one checkout writes is a difference, and so is another order of the
numbers under one key. The script does not compare other texts than the sampled ones, times and
versions (NEVER), and numbers that same.toml excuses.

    python benchmarks/same.py OLD NEW [--corpus FILE] [--excuses benchmarks/same.toml]

OLD, NEW: a checkout's folder, or a revision of this repository. The last line is JSON; the exit
code is 1 if something differs. Results of two machines are not comparable.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CORPUS_CHARACTERS = 150_000  # how much of Python's own texts is the corpus without --corpus
#: Options of every run, so that nothing depends on the clock or on the machine's speed.
EVERY_RUN = "--seed 1 --micro-batch-size 0 --eval-interval 75"
SHAPE = "--n-layer 2 --n-head 4 --n-embd 64 --block-size 64 --batch-size 16 --precision float32"
FIXED = f"{EVERY_RUN} {SHAPE} --dropout 0.1 --weight-decay 0.1 --warmup-steps 20"
#: Name of a run -> the arguments of its training, without the number of steps.
TRAININGS = {
    "classic": f"{{corpus}} --preset classic {FIXED}",
    "alone": f"{{corpus}} --preset default --counting 0 {FIXED}",
    "counting": f"{{corpus}} --preset default --counting 8 {FIXED}",
    "repeats": f"repeats {EVERY_RUN}",
}
STAGES = ("scores", "scaled", "masked", "weights", "context", "concat", "proj", "resid_mid")
TEXT = "'the value of the values'"  # every model knows all characters of it
#: Name of a command that reads a run -> its spellings. The first spelling that is no usage error
#: counts: if a checkout spells a command differently, the command has one more spelling here.
COMMANDS: dict[str, tuple[str, ...]] = {
    **{
        f"attn {stage}": (
            f"attn {TEXT} --run {{run}} --layer all --head all --stage {stage} --json",
        )
        for stage in STAGES
    },
    "heads": ("heads --run {run} --ablate mean --windows 8 --json",),
    "next": (f"next {TEXT} --run {{run}} --temperature 0.8 --top-p 0.9 --json",),
    "why": (f"why {TEXT} --run {{run}} --json",),
    "eval": ("eval --run {run} --json",),
    "eval --chars": ("eval --run {run} --chars --json",),
    "runs NAME": ("runs {run} --json",),
    "sample, greedy": ("sample 'the ' --run {run} --length 300 --seed 1 --temperature 0",),
    "sample, at random": (
        "sample 'the ' --run {run} --length 300 --seed 1 --temperature 0.8 --top-k 20",
    ),
}
#: The two commands that train a run, as in COMMANDS.
TRAIN: dict[str, tuple[str, ...]] = {
    "train": (
        "train {training} --run {run} --steps 150 --eval-part 4096 --json",
        "train {training} --run {run} --steps 150 --eval-chars 4096 --json",
    ),
    "train --resume": ("train --resume --run {run} --steps 300 --json",),
}
#: Commands about all runs, as in COMMANDS.
COMMON: dict[str, tuple[str, ...]] = {"runs": ("runs --json",)}
MODELS = ("checkpoints/{run}/step-*300/model.safetensors",)  # patterns of a run's last model
#: Patterns of keys whose numbers are never compared: times, speeds, and versions of formats.
NEVER = ("*seconds", "*elapsed", "*minutes", "*_per_second", "spent*", "*schema", "*version")
USAGE_ERROR = 2  # exit code
STATUS, SUCCEEDS = "command", "succeeds"  # key and value of a command that succeeds
VALUES, KEYS, WIDTH = 4, 8, 60  # the most values, lines and characters shown of a difference

#: Key in the JSON -> its values as texts, in order. All objects in a list share their keys.
Found = dict[str, list[str]]
#: (Run, command) -> what the checkout computes.
Results = dict[tuple[str, str], Found]


@dataclass
class Excuse:
    """Patterns of the keys that a change alters on purpose, and the reason."""

    reason: str
    run: str = "*"
    command: str = "*"
    key: str = "*"
    used: int = 0  # how many numbers it has excused

    def covers(self, run: str, command: str, key: str) -> bool:
        pairs = ((run, self.run), (command, self.command), (key, self.key))
        return all(fnmatch.fnmatchcase(name, pattern) for name, pattern in pairs)


@dataclass(frozen=True)
class Place:
    """A checkout, and the folder in which its commands work."""

    checkout: Path
    folder: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs Python with the checkout's package and one thread."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GPTX_")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        threads = ("OMP", "OPENBLAS", "MKL", "GOTO", "VECLIB_MAXIMUM")
        environment |= {f"{name}_NUM_THREADS": "1" for name in threads}
        environment["PYTHONPATH"] = str(self.checkout)
        environment["PYTHONPYCACHEPREFIX"] = str(self.folder / "bytecode")
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, encoding="utf-8"
        )

    def gptx(self, spellings: Sequence[str], **values: str) -> subprocess.CompletedProcess[str]:
        """Runs the first spelling of a command that is no usage error."""
        for spelling in spellings:
            done = self.python("-m", "gpt", *shlex.split(spelling.format(**values)))
            if done.returncode != USAGE_ERROR:
                break
        return done

    def check(self) -> None:
        """Raises SystemExit unless Python imports the checkout's package."""
        imported = self.python("-c", "import gpt; print(gpt.__path__[0])").stdout.strip()
        if Path(imported) != self.checkout / "gpt":
            raise SystemExit(f"{self.checkout}: has no package gpt (Python imports {imported!r})")


def numbers(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yields the numbers in a JSON value as texts, each with its key."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from numbers(part, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for part in value:
            yield from numbers(part, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, repr(value + 0.0).removesuffix(".0")  # -0.0 + 0.0 = 0.0


def found_in(done: subprocess.CompletedProcess[str], is_json: bool) -> Found:
    """Returns the status of a command, and its numbers or the lines of its text."""
    if done.returncode:
        return {STATUS: [f"fails with exit code {done.returncode}", *done.stderr.splitlines()[-1:]]}
    found: Found = {STATUS: [SUCCEEDS]}
    if is_json:
        for line in done.stdout.splitlines():
            for key, number in numbers(json.loads(line)):
                if not any(fnmatch.fnmatchcase(key, pattern) for pattern in NEVER):
                    found.setdefault(key, []).append(number)
    else:
        found["line"] = done.stdout.splitlines()
    return found


def weights(place: Place, run: str) -> Found:
    """Returns for each tensor of a run's last model the digest of its type, shape and bytes."""
    files = [file for name in MODELS for file in place.folder.glob(name.format(run=run))]
    if len(files) != 1:
        return {STATUS: [f"fails: {len(files)} files of the last model"]}
    data = files[0].read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    found: Found = {STATUS: [SUCCEEDS]}
    for name, tensor in header.items():
        first, end = tensor["data_offsets"]
        content = f"{tensor['dtype']} {tensor['shape']} ".encode()
        digest = hashlib.sha256(content + data[start + first : start + end])
        found[name] = [digest.hexdigest()[:16]]
    return found


def results(place: Place, corpus: Path, name: str) -> Results:
    """Trains and reads all runs; prints its progress on stderr."""
    found: Results = {}
    for run, training in TRAININGS.items():
        words = training.format(corpus=shlex.quote(str(corpus)))
        for command, spellings in TRAIN.items():
            done = place.gptx(spellings, run=run, training=words)
            found[run, command] = found_in(done, is_json=True)
        found[run, "weights"] = weights(place, run)
        print(f"{name}: {run} is trained", file=sys.stderr, flush=True)
    for run in TRAININGS:
        for command, spellings in COMMANDS.items():
            done = place.gptx(spellings, run=run)
            found[run, command] = found_in(done, is_json="--json" in spellings[0])
        print(f"{name}: {run} is read", file=sys.stderr, flush=True)
    for command, spellings in COMMON.items():
        found["all", command] = found_in(place.gptx(spellings), is_json=True)
    return found


def described(what: str, values: Counter[str]) -> list[str]:
    """Returns one line with the first of these values, or no line if there are none."""
    texts = list(values.elements())
    shown = [text if len(text) < WIDTH else f"{text[:WIDTH]}…" for text in texts[:VALUES]]
    return [f"{what}: {', '.join(shown)} ({len(texts)} in all)"] if texts else []


def renamed(old: Found, new: Found) -> list[str]:
    """Returns a line for each key of OLD that has another name, but the same values, in NEW."""
    came = {tuple(values): key for key, values in new.items() if key not in old}
    gone = {key: came.get(tuple(values)) for key, values in old.items() if key not in new}
    return [f"renamed: {key} -> {name}" for key, name in gone.items() if name]


def differences(old: Found, new: Found) -> list[str]:
    """Returns a line for each key of a command whose values differ. A key may be renamed, so
    numbers under a key that only one checkout has may stand under any such key of the other.
    """
    lines = []
    for key in [key for key in old if key in new]:
        before, after = Counter(old[key]), Counter(new[key])
        lines += described(f"only in OLD: {key}", before - after)
        lines += described(f"only in NEW: {key}", after - before)
        if before == after and old[key] != new[key]:
            lines.append(f"in another order: {key}")
    gone = {key: Counter(values) for key, values in old.items() if key not in new}
    came = {key: Counter(values) for key, values in new.items() if key not in old}
    for side, some, others in (("OLD", gone, came), ("NEW", came, gone)):
        left = sum(others.values(), Counter[str]())
        for key, values in some.items():
            matched = values & left
            left -= matched
            lines += described(f"only in {side}: {key}", values - matched)
    return lines


def without_excused(found: Found, where: tuple[str, str], excuses: Sequence[Excuse]) -> Found:
    """Returns the keys that no excuse covers, and counts the numbers that each excuse covers."""
    kept = {}
    for key, values in found.items():
        covering = [excuse for excuse in excuses if excuse.covers(*where, key)]
        for excuse in covering:
            excuse.used += len(values)
        if not covering:
            kept[key] = values
    return kept


def compare(old: Results, new: Results, excuses: Sequence[Excuse]) -> dict[str, Any]:
    """Prints differences; returns how many values were compared and which commands differ."""
    compared, differing = 0, []
    for where in old:
        before, after = (without_excused(side[where], where, excuses) for side in (old, new))
        compared += sum(len(values) for values in before.values())
        lines = differences(before, after)
        status = before.get(STATUS, [SUCCEEDS])
        if status == after.get(STATUS) != [SUCCEEDS]:
            lines.append(f"{status[0]} in both, so nothing is compared")
        if lines:
            differing.append(" · ".join(where))
        notes = lines[:KEYS]
        if len(lines) > KEYS:
            notes.append(f"… and {len(lines) - KEYS} more lines")
        notes += renamed(before, after)
        if notes:
            print("\n  ".join([" · ".join(where), *notes]))
    return {"compared": compared, "differing": differing}


@contextmanager
def checked_out(name: str, folder: Path) -> Iterator[Path]:
    """Yields the folder `name`, or a new checkout of the revision `name`, removed afterwards."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), name], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def default_corpus(folder: Path) -> Path:
    """Writes a text that comes with Python; returns its path."""
    from pydoc_data.topics import topics

    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(topics.values())[:CORPUS_CHARACTERS], encoding="utf-8")
    return corpus


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--corpus", type=Path, help="a text (default: one that Python has)")
    parser.add_argument("--excuses", type=Path, default=ROOT / "benchmarks/same.toml")
    options = parser.parse_args()
    listed = tomllib.loads(options.excuses.read_text(encoding="utf-8")).get("excuse", [])
    excuses = [Excuse(**excuse) for excuse in listed]
    started = time.perf_counter()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        corpus = options.corpus.resolve() if options.corpus else default_corpus(folder)
        places = []
        for side, name in (("old", options.old), ("new", options.new)):
            checkout = stack.enter_context(checked_out(name, folder / f"{side}-checkout"))
            (folder / side).mkdir()
            places.append(Place(checkout, folder / side))
            places[-1].check()
        with ThreadPoolExecutor(2) as pool:
            old, new = pool.map(results, places, (corpus, corpus), ("OLD", "NEW"))
    found = compare(old, new, excuses)
    for excuse in excuses:
        print(f"excused: {excuse.reason}: {excuse.used} numbers of both checkouts")
    minutes = round((time.perf_counter() - started) / 60, 2)
    excused = sum(excuse.used for excuse in excuses)
    print(json.dumps({"benchmark": "same", **found, "excused": excused, "minutes": minutes}))
    sys.exit(bool(found["differing"]))


if __name__ == "__main__":
    main()
