"""Where to compute: found by asking the driver, so that choosing a CPU never imports torch."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Literal

from gpt.errors import ConfigError

Device = Literal["auto", "cpu", "cuda", "mps"]


def cuda_devices() -> int:
    """How many CUDA devices the driver offers (it honours CUDA_VISIBLE_DEVICES)."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(library)
        count = ctypes.c_int(0)
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value


def has_mps() -> bool:
    """Whether this is a Mac whose GPU torch can use."""
    return sys.platform == "darwin" and platform.machine() == "arm64"


def choose(device: str) -> str:
    """ "auto" resolved to "cuda" or "cpu"; a device that is asked for must exist.

    MPS is used only when asked for: at these model sizes a CPU often keeps up with it.
    Raises ConfigError.
    """
    if device == "auto":
        return "cuda" if cuda_devices() else "cpu"
    if device == "cuda" and not cuda_devices():
        raise ConfigError("--device: no CUDA device found; use --device cpu")
    if device == "mps" and not has_mps():
        raise ConfigError("--device: no Apple GPU found; use --device cpu")
    return device


def physical_memory() -> int | None:
    """Bytes that this machine has; None where the system does not say."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def share_cores() -> None:
    """Lets waiting threads sleep soon; call it before torch is first imported.

    GNU's OpenMP spins for milliseconds at every barrier. Where something else wants a core, that
    doubles a training step and more; where nothing does, sleeping costs a few per cent
    (benchmarks/LOG.md). A user's own setting stands.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
