"""What `gptx --version` shows: versions, device and threads, for the report of a bug.

Imports neither numpy nor torch.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata

from gpt.devices import cores, cuda_devices, has_mps
from gpt.version import __version__
from gpt.words import counted


def version_text() -> str:
    """Five lines. They contain no name of the user and nothing of the user's texts."""
    lines = (
        f"gptx {__version__}",
        f"Python {platform.python_version()}, {platform.platform()}",
        f"torch {_version('torch')}, numpy {_version('numpy')}",
        f"device: {_device()}",
        f"threads: {cores()} of {counted(os.cpu_count() or 1, 'core')}",
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
