"""Plants faults one by one in a copy of gptx; a test has to find each: `make planted`.

tests/planted/*.toml list the faults: signs, off-by-ones, masks, seeds, a missing fsync, a lost
warning. A fault replaces `old`, which stands once in `file`, by `new`; at least one of `tests` has
to fail then. `python tests/planted.py WORD` plants only those whose name or file contains WORD.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FAILED = 1  # pytest: tests ran and some failed
LONGEST = 600  # seconds; tests that take longer have found the fault, too


def read_faults() -> list[dict[str, Any]]:
    """The faults of every list, in the order of the files' names."""
    lists = sorted((ROOT / "tests" / "planted").glob("*.toml"))
    return [fault for path in lists for fault in tomllib.loads(path.read_text())["fault"]]


def copy_tree(to: Path) -> None:
    """Copies the files that git knows or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    for name in names.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def plant(fault: dict[str, Any], tree: Path) -> bool:
    """Whether a test of `fault` fails in `tree`, which is afterwards as before."""
    path = tree / fault["file"]
    text = path.read_text()
    if text.count(fault["old"]) != 1:
        sys.exit(f"{fault['file']} has {text.count(fault['old'])} times {fault['old']!r}, not once")
    path.write_text(text.replace(fault["old"], fault["new"]))
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *fault["tests"]]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text)
    if done.returncode > FAILED:
        sys.exit(f"{fault['name']}: pytest did not run\n{done.stdout}{done.stderr}")
    return done.returncode == FAILED


def main(word: str = "") -> None:
    faults = [fault for fault in read_faults() if word in fault["name"] or word in fault["file"]]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        for fault in faults:
            found = plant(fault, Path(folder))
            missed += not found
            print("found " if found else "MISSED", fault["name"], f"({fault['file']})", flush=True)
    print(f"{len(faults)} faults, {missed} missed")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:2])
