"""What the report of a bug should say of the machine: versions, devices, folders, terminal, and a
self-test. Its texts have neither the user's name nor anything that the user has written.
"""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from gpt.blocks import Block, Cell, Column, Facts, Paragraph, Records, Table, Title
from gpt.checks import Check, TableResult
from gpt.config.fields import with_flags
from gpt.devices import (
    THREAD_VARIABLES,
    available_memory,
    check_device,
    core_rate,
    cores,
    let_threads_sleep,
    resolve_device,
)
from gpt.errors import ConfigError
from gpt.version import __version__
from gpt.words import EXTRAS, INSTALL, counted

ROOT = Path(__file__).parents[2]  # the folder of gptx, unless it was copied to site-packages
#: Environment variables that change what gptx does.
VARIABLE = re.compile(r"(GPTX|OMP|KMP|GOMP)_.*|NO_COLOR|FORCE_COLOR|COLUMNS|TERM|TMPDIR")
VARIABLES = {*THREAD_VARIABLES, "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}
WIDTH = 64  # characters of a line of facts
PAGE = (
    "JavaScript is not tested here, as it runs in a browser: when a page of gptx live opens, it "
    "compares its logits with numpy's, and gptx's own tests run it"
)


@dataclass(frozen=True, repr=False)
class Diagnosis(TableResult):
    """What `examine` found.

    facts: name -> its parts. checks: one for each form and model, of differences of logits. judge:
    what computed the expected ones. problems: what does not work, and what to do. notes: what is
    worth knowing. seconds: time of the self-test.
    """

    facts: Mapping[str, Sequence[str]]
    checks: Sequence[Check]
    judge: str
    problems: Sequence[str]
    notes: Sequence[str]
    seconds: float

    def __repr__(self) -> str:
        return f"<Diagnosis: {counted(len(self.problems), 'problem')}>"

    def blocks(self) -> list[Block]:
        """The facts, a row for each form with its worst model, and what to do."""
        forms: dict[str, list[Check]] = {}
        for check in self.checks:
            forms.setdefault(check.name, []).append(check)
        rows = []
        for each in (max(checks, key=_share) for checks in forms.values()):
            texts = (each.name, f"{each.error:.1e}", f"{each.bound:.1e}")
            sign = Cell("✓", tone="good") if each.passed else Cell("✗ FAILED", tone="gone")
            rows.append([*map(Cell, texts), sign])
        columns = [Column("form", left=True), Column("difference"), Column("allowed"), Column()]
        judged = f"Largest differences from the logits of {self.judge}; {self.seconds:.1f} s."
        return [
            Title("gptx doctor"),
            Facts({name: _in_lines(parts) for name, parts in self.facts.items()}),
            *([Table(columns, rows)] if rows else []),
            Paragraph(f"{judged} {PAGE}.", "dim"),
            *(Paragraph(f"note: {each}") for each in self.notes),
            *(Paragraph(f"problem: {each}", "gone") for each in self.problems),
            *[Paragraph("All is well.", "strong")] * (not self.problems),
        ]

    def records(self) -> Records:
        """A row for each form and model."""
        rows = [(it.name, it.group, it.error, it.bound, it.passed) for it in self.checks]
        names = ("form", "model", "difference", "allowed", "passed") if rows else ()
        facts: dict[str, Any] = {name.lower(): [*parts] for name, parts in self.facts.items()}
        facts |= {"judge": self.judge, "seconds": self.seconds}
        facts |= {"problems": [*self.problems], "notes": [*self.notes]}
        return Records(dict(zip(names, zip(*rows, strict=True), strict=True)), facts)


def examine(checkpoints: Path, data: Path, device: str = "auto") -> Diagnosis:
    """Describes this machine and tests gptx on it. checkpoints, data: the folders of runs and of
    corpora. device: what to test beside the CPU.
    """
    problems, notes = list[str](), list[str]()
    environment = [*_environment()]  # before torch and gptx set some
    packages = [*_packages(problems)]
    let_threads_sleep()
    try:
        import torch

        threads = [f"torch: {counted(torch.get_num_threads(), 'thread')}"]
        devices = dict.fromkeys(("cpu", (found := _device(device, problems))[0]))
    except Exception as error:  # a library that does not fit the system may raise anything
        problems.append(f"torch cannot be used ({_reason(error)}); {INSTALL}")
        threads, devices, found = [], {}, ("cpu", "numpy reads models without torch")
    facts = {
        "gptx": [__version__, str(ROOT)],
        "Python": [platform.python_version(), platform.platform()],
        "packages": packages,
        "extras": [f"{extra}: {name} {_version(name)}" for name, extra in EXTRAS.items()],
        "device": [": ".join(found)],
        "CPU": [*_cpu(bool(devices))],
        "threads": [f"{cores()} of {counted(os.cpu_count() or 1, 'core')}", *threads],
        "libraries": [*_libraries()],
        "memory": [*_memory()],
        "checkpoints": [*_folder("checkpoints", checkpoints, notes)],
        "data": [*_folder("data", data, notes)],
        "terminal": [
            "a terminal" if sys.stdout.isatty() else "a pipe or a file",
            f"{shutil.get_terminal_size().columns} columns",
            f"encoding {sys.stdout.encoding}",
        ],
        "environment": environment,
    }
    began = time.perf_counter()
    checks = _self_test(tuple(devices), problems)
    return Diagnosis(
        {name: tuple(map(_private, parts)) for name, parts in facts.items() if parts},
        tuple(checks),
        "torch in float64" if devices else "numpy in float64, as there is no torch",
        tuple(map(_private, problems)),
        tuple(map(_private, notes)),
        time.perf_counter() - began,
    )


def _self_test(devices: tuple[str, ...], problems: list[str]) -> list[Check]:
    """The checks. Adds one problem for each form of the model that fails a check."""
    checks, failed = list[Check](), dict[str, str]()
    try:
        from gpt.interface.self_test import compared, save_and_open
    except ImportError as error:
        problems.append(f"the self-test cannot run ({_reason(error)}); {INSTALL}")
        return checks
    for check, failure in (*compared(devices), *save_and_open(devices)):
        checks.append(check)
        if not check.passed:
            wrong = f"its logits differ by {check.error:.1e}, allowed {check.bound:.1e}"
            failed.setdefault(check.name, _reason(failure) if failure else wrong)
    problems += [
        f"{form}: the self-test failed ({reason}). Install the versions that gptx was tested with, "
        f"{INSTALL}; if that does not help, report it with this output"
        for form, reason in failed.items()
    ]
    return checks


def _share(check: Check) -> float:
    """The error as a part of its bound; one that is not a number is the largest."""
    share = check.error / check.bound
    return share if math.isfinite(share) else math.inf


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error!s:.300}".split())


def _in_lines(parts: Sequence[str]) -> list[str]:
    """The parts of a fact, as many in a line as fit."""
    lines = [*parts[:1]]
    for part in parts[1:]:
        if len(joined := f"{lines[-1]} · {part}") <= WIDTH:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _private(text: str) -> str:
    """The text with ~ for the home folder, and USER for another folder of the user's name."""
    home = Path(os.path.expanduser("~"))
    if not home.name or not home.is_absolute():
        return text
    for path in {str(home), os.path.realpath(home)}:
        text = re.sub(rf"{re.escape(path)}(?![\w.-])", "~", text)
    return re.sub(rf"(?<=[/\\]){re.escape(home.name)}(?![\w.-])", "USER", text)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is not installed"


def _packages(problems: list[str]) -> Iterator[str]:
    """The dependencies with their versions; one that is missing or too old is a problem."""
    try:
        lines = metadata.requires("gptx") or []
    except metadata.PackageNotFoundError:  # a checkout that runs without being installed
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        lines = tomllib.loads(text)["project"]["dependencies"]
    for line in lines:
        if "extra ==" not in line:
            name, least = line.split(">=")
            found = _version(name)
            yield f"{name} {found}"
            if _numbers(found) < _numbers(least):
                problems.append(f"{name} {found}, but gptx needs {least} or newer; {INSTALL}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _device(asked: str, problems: list[str]) -> tuple[str, str]:
    """The device that trains, and why. One that was asked for and does not work is a problem."""
    import torch

    from gpt.training.step import try_step

    try:
        chosen = check_device(resolve_device(asked), try_step)
    except ConfigError as error:
        problems += [f"--device {asked}: {with_flags(error.reason)}"] * (asked != "auto")
        return "cpu", with_flags(error.reason)
    if chosen == "cpu":
        return chosen, "--device" if asked == "cpu" else "the driver reports no CUDA device"
    name = torch.cuda.get_device_name() if chosen == "cuda" else "Apple GPU"
    return chosen, f"{name}, on which torch has trained a step"


def _cpu(has_torch: bool) -> Iterator[str]:
    name = None
    with suppress(OSError):
        name = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    yield name[1] if name else platform.processor() or platform.machine()
    if has_torch:
        import torch

        from gpt.training.precision import has_fast_bfloat16

        yield str(torch.backends.cpu.get_cpu_capability())
        fast = has_fast_bfloat16()
        yield f"{'' if fast else 'no '}AMX: texts train in {'bfloat16' if fast else 'float32'}"
    yield f"{core_rate() / 1e9:.0f} GFLOP/s a core in numpy"


def _libraries() -> Iterator[str]:
    """The libraries of BLAS and OpenMP in this process, with their threads."""
    from threadpoolctl import threadpool_info

    for each in threadpool_info():
        name = f"{each['internal_api']} {each['version'] or ''}".strip()
        yield f"{name}: {counted(each['num_threads'], 'thread')}"


def _memory() -> Iterator[str]:
    if (free := available_memory()) is not None:
        yield f"{_gigabytes(free)} free"
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield f"{_gigabytes(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))} in all"


def _gigabytes(size: int) -> str:
    return f"{size / 2**30:,.1f} GB"


def _folder(option: str, path: Path, notes: list[str]) -> Iterator[str]:
    """A folder, which need not exist yet: its free space, and whether it can be written."""
    yield str(path)
    try:
        whole = path.absolute()
        there = next(each for each in (whole, *whole.parents) if os.path.lexists(each))
        yield f"{_gigabytes(shutil.disk_usage(there).free)} free"
        with tempfile.TemporaryFile(dir=there):
            pass
    except (OSError, ValueError) as error:
        yield "cannot be written"
        notes.append(
            f"{path} cannot be written ({getattr(error, 'strerror', None) or error}); for gptx "
            f"train, name another folder with --{option} or in GPTX_{option.upper()}"
        )


def _environment() -> Iterator[str]:
    """NAME=VALUE of each variable that changes what gptx does. gptx sets `own` itself."""
    own = (THREAD_VARIABLES[0], "1")
    for name, value in sorted(os.environ.items()):
        if (name in VARIABLES or VARIABLE.fullmatch(name)) and (name, value) != own:
            yield f"{name}={value}"
