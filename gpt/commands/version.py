"""What `gptx --version` shows: versions, device and threads, for the report of a bug.

Imports neither numpy nor torch.
"""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

from gpt.devices import cores, cuda_devices, has_mps
from gpt.version import __version__
from gpt.words import counted

CPU_INFO = Path("/proc/cpuinfo")


def version_text() -> str:
    """Six lines. They contain no name of the user and nothing of the user's texts."""
    lines = (
        f"gptx {__version__}",
        f"Python {platform.python_version()}, {platform.platform()}",
        f"torch {_version('torch')}, numpy {_version('numpy')}",
        f"device: {_device()}",
        f"threads: {cores()} of {counted(os.cpu_count() or 1, 'core')}",
        f"AMX: {_amx()}",
    )
    return "".join(f"{line}\n" for line in lines)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is not installed"


def _device() -> str:
    """What --device auto trains on, as the driver reports it; and an Apple GPU."""
    if count := cuda_devices():
        return f"cuda ({counted(count, 'GPU')})"
    return "cpu; --device mps uses the Apple GPU" if has_mps() else "cpu"


def _amx() -> str:
    """Whether the CPU has bfloat16 matrix units, with which texts train faster."""
    try:
        flags = re.search(r"^flags\s*:(.*)$", CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        return "not known on this system"
    return "yes" if flags and "amx_bf16" in flags[1].split() else "no"
