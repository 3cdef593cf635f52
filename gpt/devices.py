"""What the machine has: devices, cores, memory. Asks the driver for devices, so that a command on a
CPU never imports torch.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from gpt.errors import ConfigError, OutOfMemory

Device = Literal["auto", "cpu", "cuda", "mps"]
#: Environment variables with which users limit numpy's threads.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
GPUS = Path("/proc/driver/nvidia/gpus")  # it has a folder for each GPU
GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # Linux's control groups
SMALL_MEMORY = 2**26  # bytes; every machine has this much


def cuda_devices() -> int:
    """The number of CUDA devices that the driver reports."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver, count = ctypes.CDLL(library), ctypes.c_int(0)
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))  # leaves 0 if it fails
    except (OSError, AttributeError):
        return 0
    return count.value


def lists_gpu() -> bool:
    """Whether NVIDIA's Linux driver lists a GPU; quicker than `cuda_devices`."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and GPUS.is_dir() and any(GPUS.iterdir())


def has_mps() -> bool:
    """Whether this is a Mac whose GPU torch can use."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def resolve_device(device: str) -> str:
    """ "auto" becomes "cuda" or "cpu", which is often as fast as MPS; any other device must exist.
    Raises ConfigError.
    """
    if device not in get_args(Device):
        raise ConfigError("device", f"{device!r} is not one of {', '.join(get_args(Device))}")
    if device == "auto":
        return "cuda" if cuda_devices() else "cpu"
    if (device == "cuda" and not cuda_devices()) or (device == "mps" and not has_mps()):
        raise ConfigError("device", f"no device {device} found; use `device='cpu'`")
    return device


def check_device(device: str, trial: Callable[[str], object]) -> str:
    """Like `resolve_device`, but `trial` computes on the device. If it raises anything, "auto"
    becomes "cpu" with a note; any other choice raises ConfigError.
    """
    resolved = resolve_device(device)
    try:
        if resolved != "cpu":
            trial(resolved)
    except Exception as error:  # a driver, a kernel or torch may raise anything
        if device != "auto":
            failure = f"torch cannot compute on {resolved} ({reason_of(error)})"
            advice = "install a version of torch that can, or use `device='cpu'`"
            raise ConfigError("device", f"{failure}; {advice}") from error
        report_failure(resolved, error)
        return "cpu"
    return resolved


def report_failure(what: str, error: Exception) -> None:
    """Logs that the CPU computes instead."""
    import logging

    text = "note: %s failed (%s); the CPU computes instead"
    logging.getLogger("gpt").warning(text, what, reason_of(error))


def reason_of(error: Exception) -> str:
    """The error's type and first line."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {lines[0][:200]}"


def available_memory() -> int | None:
    """Bytes that this process can still get: the least of what the machine and its control groups
    leave. None if the system does not report it.
    """
    left = [*_left_in_groups()]
    with suppress(AttributeError, ValueError):  # macOS and Linux
        left.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError, LookupError):
        left.append(int(_numbers(Path("/proc/meminfo"))["MemAvailable:"]) * 1024)
    return max(0, min(left)) if left else None


def _left_in_groups() -> Iterator[int]:
    """The bytes that each control group of this process leaves; the file cache counts as free."""
    for folder in _own_groups("memory"):
        with suppress(OSError, ValueError, LookupError):
            taken = int(_numbers(folder / "memory.stat")["anon"])
            yield int((folder / "memory.max").read_text()) - taken


def _own_groups(controller: str) -> Iterator[Path]:
    """The folders of this process's control groups, of either version, and of their parents; a
    container sees only some of them.
    """
    with suppress(OSError, ValueError):
        for line in OWN_GROUPS.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            root = GROUPS / controller if controllers else GROUPS
            folder = root / group.strip("/")
            yield from (folder, *folder.parents)


def _numbers(path: Path) -> dict[str, str]:
    """The names and numbers in the lines of a file."""
    return {words[0]: words[1] for words in map(str.split, path.read_text().splitlines())}


def require_memory(
    what: str, characters: int, need: Callable[[int], float], advice: str = "give at most"
) -> None:
    """Raises OutOfMemory, with a number of characters that fits, if need(characters) bytes are more
    than this process can get.
    """
    needed = need(characters)
    has = available_memory() if needed > SMALL_MEMORY else None
    if has is None or needed <= has:
        return
    fits = characters
    while fits > 1 and need(fits) > 0.9 * has:
        fits = fits * 99 // 100
    raise OutOfMemory(
        f"out of memory: {what} {characters:,} characters needs {needed / 2**30:,.1f} "
        f"GB, {has / 2**30:,.1f} GB are free; {advice} {fits:,} characters"
    )


def available_cpus() -> int:
    """The number of cores whose time this process may use, at least 1: the least of the cores that
    it may run on, and of what its control groups grant.
    """
    limits: list[float] = [_own_cores()]
    for folder in _own_groups("cpu"):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with suppress(OSError, ValueError):  # "max": no limit
                texts = [(folder / name).read_text() for name in names]
                quota, period = map(int, " ".join(texts).split())
                if min(quota, period) > 0:  # -1: no limit
                    limits.append(quota / period)
    return max(1, math.floor(min(limits)))


def _own_cores() -> int:
    """The number of cores that this process may run on."""
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


@cache
def cores() -> int:
    """The number of cores to use: what THREAD_VARIABLES say, or else the available ones."""
    limit = next((os.environ[name] for name in THREAD_VARIABLES if name in os.environ), "")
    if limit.isdecimal() and int(limit) > 0:
        return min(_own_cores(), int(limit))
    return available_cpus()


def limit_blas_threads() -> None:
    """Makes each matrix product of numpy use one thread, unless the user has set one of
    THREAD_VARIABLES; call it before the first import of numpy. Threads of OpenBLAS spin while they
    wait for one another, which is slow beside other processes (benchmarks/LOG.md).
    """
    cores()  # reads the variables before one of them is set
    if not any(name in os.environ for name in THREAD_VARIABLES):
        os.environ[THREAD_VARIABLES[0]] = "1"


def let_threads_sleep() -> None:
    """Makes waiting threads sleep early, unless the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT;
    call it before the first import of torch. GNU's OpenMP spins at every barrier: beside another
    process, a training step takes twice as long or more (benchmarks/LOG.md).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
