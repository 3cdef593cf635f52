"""Finds the machine's devices, cores and free memory, without importing torch.

On Linux, a control group limits the memory and CPU time of its processes, as in a container.
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
#: Environment variables with which users limit numpy's threads; the first that is set counts.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
GPUS = Path("/proc/driver/nvidia/gpus")  # has one folder per GPU
GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # Linux's control groups
SMALL_MEMORY = 2**26  # bytes; every machine has so much free memory


def cuda_device_count() -> int:
    """The number of CUDA devices that the driver reports."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver, count = ctypes.CDLL(library), ctypes.c_int(0)
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))  # count stays 0 if this fails
    except (OSError, AttributeError):
        return 0
    return count.value


def driver_lists_gpu() -> bool:
    """Whether NVIDIA's Linux driver lists a GPU. This is faster than `cuda_device_count`."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and GPUS.is_dir() and any(GPUS.iterdir())


def has_mps() -> bool:
    """Whether this is a Mac whose GPU torch can use."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def resolve_device(device: str) -> str:
    """Returns "cuda" or "cpu" for "auto", and any other device unchanged. "auto" is never MPS,
    because the CPU is often as fast. Raises ConfigError if the device does not exist.
    """
    if device not in get_args(Device):
        raise ConfigError("device", f"{device!r} is not one of {', '.join(get_args(Device))}")
    if device == "auto":
        return "cuda" if cuda_device_count() else "cpu"
    if (device == "cuda" and not cuda_device_count()) or (device == "mps" and not has_mps()):
        raise ConfigError("device", f"there is no device {device}; use `device='cpu'`")
    return device


def check_device(device: str, trial: Callable[[str], object]) -> str:
    """Returns `resolve_device(device)` after `trial` has computed on that device. If `trial` fails,
    logs a note and returns "cpu" for "auto", but raises ConfigError for any other device.
    """
    resolved = resolve_device(device)
    try:
        if resolved != "cpu":
            trial(resolved)
    except Exception as error:  # a driver, a kernel or torch may raise anything
        if device != "auto":
            failure = f"torch cannot compute on {resolved} ({error_summary(error)})"
            advice = "install a version of torch that can, or use `device='cpu'`"
            raise ConfigError("device", f"{failure}; {advice}") from error
        log_cpu_fallback(resolved, error)
        return "cpu"
    return resolved


def log_cpu_fallback(what: str, error: Exception) -> None:
    """Logs that `what` failed, and that the CPU computes instead."""
    import logging

    text = "note: %s failed (%s); the CPU computes instead"
    logging.getLogger("gpt").warning(text, what, error_summary(error))


def error_summary(error: Exception) -> str:
    """The type of an error and the first line of its message."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {lines[0][:200]}"


def available_memory() -> int | None:
    """The number of bytes that this process can still allocate: the smallest number that the
    machine or a control group has free. None if the system does not report it.
    """
    left = [*_left_in_groups()]
    with suppress(AttributeError, ValueError):  # macOS and Linux
        left.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError, LookupError):
        left.append(int(_numbers(Path("/proc/meminfo"))["MemAvailable:"]) * 1024)
    return max(0, min(left)) if left else None


def _left_in_groups() -> Iterator[int]:
    """Yields the free bytes of every control group of this process; file caches count as free."""
    for folder in _own_groups("memory"):
        with suppress(OSError, ValueError, LookupError):
            taken = int(_numbers(folder / "memory.stat")["anon"])
            yield int((folder / "memory.max").read_text()) - taken


def _own_groups(controller: str) -> Iterator[Path]:
    """Yields the folders of this process's control groups, of version 1 or 2, and the folders of
    their parents. In a container, some of these folders do not exist.
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
    """Name -> number, as texts, from a file with a name and a number on every line."""
    return {words[0]: words[1] for words in map(str.split, path.read_text().splitlines())}


def require_memory(
    what: str, characters: int, need: Callable[[int], float], advice: str = "give at most"
) -> None:
    """Raises OutOfMemory if need(characters) bytes are more than this process can allocate. The
    message names a number of characters that fits.
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
        f"GB, but {has / 2**30:,.1f} GB are free; {advice} {fits:,} characters"
    )


def available_cpus() -> int:
    """The number of cores that this process may keep busy, at least 1. It is the smaller of two
    numbers: the cores that the process may run on, and the CPU seconds per second that its control
    groups allow.
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
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


@cache
def cores() -> int:
    """The number of cores to use: the number in one of THREAD_VARIABLES, or all available cores."""
    limit = next((os.environ[name] for name in THREAD_VARIABLES if name in os.environ), "")
    if limit.isdecimal() and int(limit) > 0:
        return min(_own_cores(), int(limit))
    return available_cpus()


def limit_blas_threads() -> None:
    """Makes numpy compute a matrix product in one thread, unless the user has set one of
    THREAD_VARIABLES. Must run before the first import of numpy. With several threads, OpenBLAS's
    waiting threads keep their cores busy, which is slow beside other processes (benchmarks/LOG.md).
    """
    cores()  # reads the variables before this function sets one
    if not any(name in os.environ for name in THREAD_VARIABLES):
        os.environ[THREAD_VARIABLES[0]] = "1"


def let_threads_sleep() -> None:
    """Makes torch's waiting threads sleep, unless the user has set OMP_WAIT_POLICY or
    GOMP_SPINCOUNT. Must run before the first import of torch. Threads that do not sleep keep their
    cores busy, and beside another process a step takes at least twice as long (benchmarks/LOG.md).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
