"""Installs gptx under every installed Python and runs the tests there. Searches PATH and pyenv's
versions for python3.11 and newer; of each minor version it takes the first that runs. Each gets its
own virtual environment, with the versions of constraints.txt, in a temporary folder. Exits with 1
if a version fails, or if none is found.

    python tests/versions.py [--folder DIR] [PYTEST ARGUMENTS]      (make versions)
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"python3\.(\d+)")


def oldest() -> int:
    """The minor version of Python 3 that pyproject.toml requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return int(project["requires-python"].removeprefix(">=3."))


def candidates() -> Iterator[Path]:
    """Files whose name is that of a Python 3 interpreter."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = map(Path, os.environ.get("PATH", "").split(os.pathsep))
    for folder in (*on_path, *sorted(pyenv.glob("versions/*/bin"))):
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name))


def interpreters() -> dict[int, Path]:
    """Minor version -> an interpreter that runs, from the oldest allowed version on."""
    found: dict[int, Path] = {}
    for path in candidates():
        match = NAME.fullmatch(path.name)
        minor = int(match[1]) if match else 0
        if minor < oldest() or minor in found:
            continue
        # A version manager's stand-in for a version that is not active exits with an error.
        if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            found[minor] = path
    return dict(sorted(found.items()))


def try_version(python: Path, folder: Path, arguments: list[str]) -> str:
    """The first failure under this interpreter: "install", "tests", or "" for none."""
    own = folder / "bin" / "python"
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps = {
        "install": [
            [python, "-m", "venv", "--clear", folder],
            [*install, "--constraint", "constraints.txt", "--editable", ".[dev]"],
        ],
        "tests": [[own, "-m", "pytest", *arguments]],
    }
    for name, commands in steps.items():
        for command in commands:
            if subprocess.run(command, cwd=ROOT).returncode:
                return name
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keeps the virtual environments here")
    options, arguments = parser.parse_known_args()
    found = interpreters()
    if not found:
        print(f"no python3.{oldest()} or newer on PATH or among pyenv's versions", file=sys.stderr)
        return 1
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for minor, python in found.items():
            print(f"== Python 3.{minor}: {python}", flush=True)
            started = time.monotonic()
            folder = (options.folder or Path(temporary)) / f"python3.{minor}"
            failed = try_version(python, folder, arguments)
            results[minor] = f"{failed + ' FAILED' if failed else 'passed'} after "
            results[minor] += f"{time.monotonic() - started:.0f} s"
    for minor, result in results.items():
        print(f"Python 3.{minor}: {result}")
    return any("FAILED" in result for result in results.values())


if __name__ == "__main__":
    sys.exit(main())
