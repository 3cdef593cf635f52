"""Plants faults one by one in a copy of gptx; a test has to find each: `make planted`.

tests/planted/*.toml list the faults: signs, off-by-ones, masks, seeds, a missing fsync, a lost
warning. A fault replaces `old`, which stands once in `file`, by `new`. tests/planted/found.txt
lists the tests that fail then, the quickest first; `make planted` runs the first of them, and the
others only if it passes. A fault that is not recorded yet runs the `tests` of its own list.

    python tests/planted.py [WORD]           plants the faults whose name or file contains WORD
    python tests/planted.py --record [WORD]  plants each against all tests that execute its line,
                                             and writes found.txt (hours; can be continued)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOUND = ROOT / "tests" / "planted" / "found.txt"
RECORDS = ROOT / "build" / "planted"  # which tests execute a line, and what is recorded so far
FAILED = 1  # pytest: tests ran and some failed
LONGEST = 600  # seconds; tests that take longer have found the fault, too
ALONE = "  the only test that finds it"

Fault = dict[str, Any]


def read_faults() -> list[Fault]:
    """The faults of every list, in the order of the files' names."""
    lists = sorted((ROOT / "tests" / "planted").glob("*.toml"))
    return [fault for path in lists for fault in tomllib.loads(path.read_text())["fault"]]


def read_found() -> dict[str, list[str]]:
    """A fault's name -> the tests that find it, the quickest first; without tests that left."""
    tests: dict[str, list[str]] = {}
    name = ""
    for line in FOUND.read_text().splitlines() if FOUND.exists() else ():
        if line.startswith("    "):
            test = line.strip().removesuffix(ALONE.strip()).strip()
            if exists(test):
                tests[name].append(test)
        elif line and not line.startswith("#"):
            name = line
            tests[name] = []
    return tests


def exists(test: str) -> bool:
    """Whether there is a test of this name, "tests/test_cli.py::test_help"."""
    name, *_, function = test.split("::")
    path = ROOT / name
    return path.is_file() and f"def {function}(" in path.read_text()


def write_found(tests: dict[str, list[str]]) -> None:
    lines = [
        "# Written by `python tests/planted.py --record`: each planted fault and the tests that",
        "# find it, the quickest first. One name stands for all parameters of a test.",
    ]
    for name, finders in sorted(tests.items()):
        lines += ["", name]
        lines += [f"    {test}{ALONE if len(finders) == 1 else ''}" for test in finders]
    FOUND.write_text("\n".join(lines) + "\n")


def copy_tree(to: Path) -> None:
    """Copies the files that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in names.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def run_tests(tree: Path, tests: Iterable[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in `tree`. Raises TimeoutExpired after LONGEST seconds."""
    arguments = tree / "arguments.txt"  # a command line may be too short for all tests
    arguments.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, f"@{arguments}"]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LONGEST
    )


class planted:
    """While it is open, `tree` has the fault."""

    def __init__(self, fault: Fault, tree: Path) -> None:
        self.fault, self.path = fault, tree / fault["file"]
        self.text = self.path.read_text()

    def __enter__(self) -> None:
        old, new = self.fault["old"], self.fault["new"]
        if self.text.count(old) != 1:
            sys.exit(f"{self.fault['file']} has {self.text.count(old)} times {old!r}, not once")
        self.path.write_text(self.text.replace(old, new))

    def __exit__(self, *error: object) -> None:
        self.path.write_text(self.text)


def finds(tests: list[str], fault: Fault, tree: Path) -> bool:
    """Whether one of the tests fails, or hangs, with the fault."""
    with planted(fault, tree):
        try:
            done = run_tests(tree, tests, "-x")
        except subprocess.TimeoutExpired:
            return True
    if done.returncode > FAILED:
        sys.exit(f"{fault['name']}: pytest did not run\n{done.stdout}{done.stderr}")
    return done.returncode == FAILED


def check(faults: list[Fault], tree: Path) -> int:
    """Plants every fault and returns how many no test found."""
    recorded, missed = read_found(), 0
    for fault in faults:
        first, *others = recorded.get(fault["name"]) or [""]
        found = bool(first) and finds([first], fault, tree)
        found = found or finds(others or fault["tests"], fault, tree)
        missed += not found
        print("found " if found else "MISSED", fault["name"], f"({fault['file']})", flush=True)
    return missed


def record_coverage() -> Path:
    """The database of which test executes which line of gpt/; made by one run of the suite."""
    database = RECORDS / "coverage"
    if not database.exists():
        RECORDS.mkdir(parents=True, exist_ok=True)
        print("running all tests once, to see which lines each executes", flush=True)
        options = ["--cov=gpt", "--cov-context=test", "--cov-report=", "--numprocesses=2"]
        options += ["--dist=loadfile", "--no-loadscope-reorder"]
        environment = {**os.environ, "COVERAGE_FILE": f"{database}.part"}
        subprocess.run([sys.executable, "-m", "pytest", *options], cwd=ROOT, env=environment)
        os.rename(f"{database}.part", database)
    return database


def contexts_of(database: Path) -> dict[str, dict[int, set[str]]]:
    """File -> line -> the contexts ("test|phase", or "" at import) that execute it."""
    from coverage import CoverageData

    data = CoverageData(str(database))
    data.read()
    contexts = {}
    for name in data.measured_files():
        lines = data.contexts_by_lineno(name)
        contexts[str(Path(name).relative_to(ROOT))] = {at: set(of) for at, of in lines.items()}
    return contexts


def tests_of(fault: Fault, contexts: dict[str, dict[int, set[str]]]) -> list[str]:
    """The tests to plant the fault against.

    Those that execute its lines, and all of a file whose shared setup executes them. Where a
    module's import, another process or JavaScript executes them: all tests of the folders that the
    fault's own list names.
    """
    text = (ROOT / fault["file"]).read_text()
    first = text[: text.index(fault["old"])].count("\n") + 1
    lines = range(first, first + fault["old"].count("\n") + 1)
    executed = contexts.get(fault["file"], {})
    names = {name for line in lines for name in executed.get(line, ())}
    tests = {name.removesuffix("|run") for name in names if name.endswith("|run")}
    tests |= {name.partition("::")[0] for name in names if name.endswith("|setup")}
    tests |= set(fault["tests"])
    if "" in names or not names:
        folders = {str(Path(test.partition("::")[0]).parent) for test in fault["tests"]}
        tests |= folders - {"tests"}
    whole = {test for test in tests if "::" not in test}
    return sorted(
        test
        for test in tests
        if test.partition("::")[0] not in whole - {test}
        and not any(str(parent) in whole for parent in Path(test.partition("::")[0]).parents)
    )


def pytest_runtest_logreport(report: Any) -> None:
    """As a plugin of pytest: writes each test's result at once, so that a hang loses none."""
    if report.when == "call" or report.failed:
        with open(os.environ["PLANTED_RESULTS"], "a") as file:
            row = (report.nodeid.partition("[")[0], report.failed, round(report.duration, 3))
            file.write(json.dumps(row) + "\n")


def record_fault(fault: Fault, tests: list[str], tree: Path) -> list[str]:
    """The tests that fail with the fault, the quickest first."""
    results = tree / "results.jsonl"
    results.write_text("")
    os.environ["PLANTED_RESULTS"] = str(results)
    options = ["-p", "planted", "--tb=no", "--numprocesses=2", "--dist=loadfile"]
    hung = False
    with planted(fault, tree):
        try:
            run_tests(tree, tests, *options)
        except subprocess.TimeoutExpired:
            hung = True
    seconds: dict[str, float] = {}
    failing = set()
    for name, failed, duration in map(json.loads, results.read_text().splitlines()):
        seconds[name] = seconds.get(name, 0.0) + duration
        if failed:
            failing.add(name)
    if hung and not failing:
        return fault["tests"]
    return sorted(failing, key=lambda name: (seconds[name], name))


def record(faults: list[Fault], tree: Path) -> None:
    """Records the tests that find each fault, those with few tests first; can be stopped."""
    contexts = contexts_of(record_coverage())
    work = [(fault, tests_of(fault, contexts)) for fault in faults]
    work.sort(key=lambda item: sum(100 if "::" not in test else 1 for test in item[1]))
    names = {fault["name"] for fault in read_faults()}
    recorded = {name: tests for name, tests in read_found().items() if name in names}
    for fault, tests in work:
        if fault["name"] in recorded:
            continue
        began = time.monotonic()
        recorded[fault["name"]] = record_fault(fault, tests, tree)
        write_found(recorded)
        count, took = len(recorded[fault["name"]]), time.monotonic() - began
        print(f"{took:5.0f} s, {count:3} of {len(tests)} found {fault['name']}", flush=True)


def main(*words: str) -> None:
    recording = "--record" in words
    word = next((word for word in words if word != "--record"), "")
    faults = [fault for fault in read_faults() if word in fault["name"] or word in fault["file"]]
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        if recording:
            record(faults, Path(folder))
            return
        missed = check(faults, Path(folder))
    print(f"{len(faults)} faults, {missed} missed")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
