"""What the machine has: devices, cores, memory. Asks the driver for devices, so that a command on a
CPU never imports torch.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from gpt.errors import ConfigError, OutOfMemory

Device = Literal["auto", "cpu", "cuda", "mps"]
#: Environment variables with which users limit the threads of numpy's matrix products.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
GPUS = Path("/proc/driver/nvidia/gpus")  # it has a folder for each GPU
GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # Linux's control groups
SMALL_MEMORY = 2**26  # bytes; every machine has this much
PRODUCT, RATED = 64, 0.02  # rows and columns of the timed products; seconds of timing


def cuda_devices() -> int:
    """The number of CUDA devices that the driver reports; it respects CUDA_VISIBLE_DEVICES."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
        count = ctypes.c_int(0)
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value


def lists_gpu() -> bool:
    """Whether NVIDIA's Linux driver lists a GPU and CUDA_VISIBLE_DEVICES does not hide it. Reads
    files only, as asking the driver (`cuda_devices`) can take longer than a short command.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and GPUS.is_dir() and any(GPUS.iterdir())


def has_mps() -> bool:
    """Whether this is a Mac whose GPU torch can use."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def resolve_device(device: str) -> str:
    """ "auto" becomes "cuda" or "cpu"; any other device must exist.

    "auto" never chooses MPS: at these model sizes a CPU is often as fast. Raises ConfigError.
    """
    if device not in get_args(Device):
        raise ConfigError("device", f"{device!r} is not one of {', '.join(get_args(Device))}")
    if device == "auto":
        return "cuda" if cuda_devices() else "cpu"
    if device == "cuda" and not cuda_devices():
        raise ConfigError("device", "no CUDA device found; use `device='cpu'`")
    if device == "mps" and not has_mps():
        raise ConfigError("device", "no Apple GPU found; use `device='cpu'`")
    return device


def check_device(device: str, trial: Callable[[str], object]) -> str:
    """Like `resolve_device`, but tests the device: `trial` computes on it, and may raise
    anything.

    If the trial fails, "auto" becomes "cpu" with one line of output; any other choice raises
    ConfigError.
    """
    resolved = resolve_device(device)
    if resolved == "cpu":
        return resolved
    try:
        trial(resolved)
    except Exception as error:  # a driver, a kernel or torch may raise anything
        if device != "auto":
            raise ConfigError(
                "device",
                f"torch cannot compute on {resolved} ({reason_of(error)}); install a version "
                "of torch that can, or use `device='cpu'`",
            ) from error
        report_failure(resolved, error, "the CPU computes instead")
        return "cpu"
    return resolved


def report_failure(what: str, error: Exception, instead: str) -> None:
    """Writes one line to the log "gpt", which Python writes to stderr by default."""
    import logging

    logging.getLogger("gpt").warning("note: %s failed (%s); %s", what, reason_of(error), instead)


def reason_of(error: Exception) -> str:
    """The error's type and first line."""
    lines = str(error).strip().splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {lines[0][:200]}"


def available_memory() -> int | None:
    """Bytes that this process can still get: the minimum of what the machine, its control groups
    and its address space limit leave. None if the system does not report it.
    """
    left = [*_left_in_groups()]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        left.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError, LookupError):
        left.append(int(_numbers("/proc/meminfo")["MemAvailable:"]) * 1024)
    with suppress(ImportError, OSError, ValueError):
        import resource

        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            pages = Path("/proc/self/statm").read_text().split()[0]
            left.append(limit - int(pages) * resource.getpagesize())
    return max(0, min(left)) if left else None


def _left_in_groups() -> Iterator[int]:
    """The bytes that each control group of this process leaves; the file cache counts as free."""
    for folder in _own_groups("memory"):
        for limit, used in (("memory.max", "anon"), ("memory.limit_in_bytes", "total_rss")):
            with suppress(OSError, ValueError, LookupError):
                taken = int(_numbers(folder / "memory.stat")[used])
                yield int((folder / limit).read_text()) - taken


def _own_groups(controller: str) -> Iterator[Path]:
    """The folders of this process's control groups that limit memory or CPU time, in either version
    of control groups, and those of their parents. A container sees only some of them.
    """
    with suppress(OSError, ValueError):
        for line in OWN_GROUPS.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            root = GROUPS / controller if controllers else GROUPS
            folder = root / group.strip("/")
            yield from (folder, *folder.parents)


def _numbers(path: str | Path) -> dict[str, str]:
    """The names and numbers in the lines of a file."""
    lines = map(str.split, Path(path).read_text().splitlines())
    return {words[0]: words[1] for words in lines if len(words) > 1}


def require_memory(
    what: str, characters: int, need: Callable[[int], float], advice: str = "give at most"
) -> None:
    """Raises OutOfMemory, with a number of characters that fits, if need(characters) bytes are more
    than this process can get: Linux would grant them, then kill the process that uses them.
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


def core_rate() -> float:
    """Floating-point operations per second of one core, in small float32 matrix products. The
    fastest one counts, so other work on the machine changes the rate by a few per cent only.
    """
    import numpy as np

    a, b = np.random.default_rng(1).random((2, PRODUCT, PRODUCT), np.float32)
    product = np.empty_like(a)
    fastest, began = math.inf, time.perf_counter()
    while (started := time.perf_counter()) < began + RATED or fastest == math.inf:
        np.matmul(a, b, out=product)
        fastest = min(fastest, time.perf_counter() - started)
    return 2 * PRODUCT**3 / fastest


def available_cpus() -> int:
    """The number of cores whose time this process may use: the least of the cores that it may run
    on, and of what its control groups grant; at least 1.

    Threads that share less than a core each wait for one another.
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
    if re.fullmatch("0*[1-9][0-9]{0,3}", limit):
        return min(_own_cores(), int(limit))
    return available_cpus()


def limit_blas_threads() -> None:
    """Makes each matrix product of numpy use one thread, unless the user has set one of
    THREAD_VARIABLES; call it before the first import of numpy.

    Threads of OpenBLAS wait for one another by spinning: while another process uses a core, a
    product of small matrices takes milliseconds instead of microseconds (benchmarks/LOG.md). gptx
    distributes texts over the cores instead.
    """
    cores()  # reads the variables before one of them is set
    if not any(name in os.environ for name in THREAD_VARIABLES):
        os.environ[THREAD_VARIABLES[0]] = "1"


def let_threads_sleep() -> None:
    """Makes waiting threads sleep early, unless the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT;
    call it before the first import of torch.

    GNU's OpenMP spins for milliseconds at every barrier. If another process needs a core, a
    training step then takes twice as long or more; if none does, sleeping costs a few per cent
    (benchmarks/LOG.md).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
