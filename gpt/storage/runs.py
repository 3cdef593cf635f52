"""The folder of runs: finds a run by its name or makes one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import count
from pathlib import Path

from gpt.config.fields import require
from gpt.errors import CheckpointError, ConfigError, GptxError
from gpt.storage import files
from gpt.storage.run import Run

PINNED = ".pinned"  # the file that names the pinned run
_BEFORE_COMMIT = {"config.toml", ".lock", "tensorboard"}  # written before the first checkpoint
_NAME = re.compile(r"[\w][\w.+-]{0,99}", re.UNICODE)


def check_run_name(name: str) -> str:
    """Returns the name. Raises ConfigError unless it is one plain folder name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"invalid run name {name!a}: use letters, digits, '-', '_', '+' and '.', "
            "not starting with '.' or '-'"
        )
    return name


def all_runs(root: Path) -> list[Run]:
    """The runs in a folder that have a checkpoint; the most recently saved one is the last."""
    try:
        folders = [Path(entry.path) for entry in os.scandir(root) if entry.is_dir()]
    except (OSError, ValueError):
        return []
    saved = []
    for folder in folders:
        paths = Run(folder).step_paths() if _NAME.fullmatch(folder.name) else []
        if paths:
            with suppress(OSError):
                saved.append((paths[-1].stat().st_mtime_ns, folder.name, Run(folder)))
    return [run for *_, run in sorted(saved, key=lambda item: item[:2])]


def pinned_run(root: Path) -> Run | None:
    """The run that was pinned, if it still has a checkpoint."""
    with suppress(OSError, ValueError):
        name = (root / PINNED).read_text("utf-8").strip()
        run = Run(root / name)
        if _NAME.fullmatch(name) and run.step_paths():
            return run
    return None


def pin_run(root: Path, name: str) -> None:
    """Makes this run the one that commands take by themselves; "newest": they take the newest.
    Raises CheckpointError, ConfigError, StorageError.
    """
    if name != "newest":
        find_run(root, name)
    with files.storage_errors(f"write {root / PINNED}"):
        files.replace(root / PINNED, f"{name}\n".encode())


def find_run(root: Path, name: str | None = None) -> Run:
    """The named run; without a name, the pinned one, otherwise the most recently saved one. Raises
    CheckpointError, ConfigError.
    """
    if name is None:
        runs = all_runs(root)
        if not runs:
            raise CheckpointError(f"no checkpoint in {root.absolute()}{_hint(runs)}")
        return pinned_run(root) or runs[-1]
    run = Run(root / check_run_name(name))
    if run.steps():
        return run
    raise CheckpointError(f"no run {name!r} in {root}{_hint(all_runs(root), name)}")


def _hint(runs: Sequence[Run], name: str = "") -> str:
    """The end of an error: the most similar name, or the newest runs."""
    lower = {run.name.lower(): run.name for run in runs}
    if similar := get_close_matches(name.lower(), lower, 1):
        return f"; did you mean {lower[similar[0]]}?"
    if not runs:
        return "; train one with: gptx train"
    older = f" and {len(runs) - 5:,} older ones" if len(runs) > 5 else ""
    return f"; there are: {', '.join(run.name for run in runs[-5:])}{older}"


def new_run(root: Path, stem: str, name: str | None = None) -> Run:
    """Makes a run's folder with the given name, or with the corpus's name and the next free
    number.

    If a run was killed before its first checkpoint, its folder is used again. Raises ConfigError if
    the name is taken, StorageError if the folder cannot be made.
    """
    with files.storage_errors(f"make a run in {root}"):
        root.mkdir(parents=True, exist_ok=True)
        if name is not None:
            run = check_free(root, name)
            with suppress(FileExistsError):  # a training was killed before its first checkpoint
                run.path.mkdir()
            return run
        base = re.sub(r"[^\w+-]+", "-", stem).strip("-_+")[:60] or "run"
        for number in count(1):
            with suppress(FileExistsError):
                (root / f"{base}-{number}").mkdir()
                break
        return Run(root / f"{base}-{number}")


def check_free(root: Path, name: str) -> Run:
    """The run with this name. Raises ConfigError if the name is taken by a folder with other files
    than a training makes before its first save.
    """
    run = Run(root / check_run_name(name))
    advice = f"choose another name, or continue it: `resume` `run={run.name!r}`"
    require(not run.steps(), "run", f"{run.name!r} exists already; {advice}")
    if os.path.lexists(run.path):
        names = os.listdir(run.path) if run.path.is_dir() else [""]
        free = all(name in _BEFORE_COMMIT or name.startswith(files.TEMPORARY) for name in names)
        require(free, "run", f"{run.path} exists already and is not a run; choose another name")
    return run


def discard_if_empty(run: Run) -> None:
    """Removes a run's folder if nothing was saved in it."""
    if not run.steps():
        with suppress(OSError, GptxError):
            shutil.rmtree(run.path)
