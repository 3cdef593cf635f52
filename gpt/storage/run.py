"""Reads and writes the folders of runs, and finds a run by its name.

    checkpoints/RUN/config.toml · metrics.jsonl · samples.jsonl · .lock · step-00001000/ …
    step-00001000/model.safetensors · state.safetensors · manifest.json

A step's folder (class Checkpoint) has the model, the optimizer's state, and a manifest with the
digests of both files. Reading a file fails if its digest differs. A log has one JSON object on
every line: metrics.jsonl has a line for every evaluation, samples.jsonl for every sample. Only the
trainer locks the run; reading needs no lock.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from typing import Any, SupportsIndex

import msgspec

from gpt.config.fields import require
from gpt.errors import CheckpointError, ConfigError, RunInUseError
from gpt.storage import files
from gpt.storage.checkpoint_files import (
    Manifest,
    Shapes,
    StoredModel,
    Tensors,
    check_tensors,
    find_digest,
    open_json,
    read_model,
    read_sealed,
    seal_json,
)

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"

PINNED = ".pinned"  # the file that names the pinned run
_BEFORE_COMMIT = {"config.toml", ".lock", "tensorboard"}  # made before the first checkpoint
_NAME = re.compile(r"[\w][\w.+-]{0,99}", re.UNICODE)
_ASIDE = "damaged-"  # what `rename_damaged_after` puts before the names of folders
_STEP_FOLDER = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,11})")


def step_folder(step: int) -> str:
    """The folder name of a step: "step-00001000"."""
    return f"step-{step:08d}"


@dataclass(frozen=True)
class Checkpoint:
    """A saved step of a run."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Opens a step's folder and reads its manifest. Raises CheckpointError."""
        source = path / MANIFEST
        manifest = open_json(files.read(source), Manifest, source)
        if step_folder(manifest.step) != path.name:
            raise CheckpointError(f"damaged: {source} is of step {manifest.step}")
        return cls(path, manifest)

    def model(self) -> StoredModel:
        """Reads and checks the model file. Raises CheckpointError."""
        return read_model(self.path / MODEL, self.manifest.files[MODEL][1])

    def state(self, expected: Shapes) -> Tensors:
        """Reads and checks the optimizer's state: name -> tensor. Raises CheckpointError."""
        tensors, *_ = read_sealed(self.path / STATE, self.manifest.files[STATE][1])
        check_tensors(tensors, expected, self.path / STATE)
        return tensors

    def verify(self) -> None:
        """Reads and checks every file that the manifest records. Raises CheckpointError."""
        for name, (_, digest) in self.manifest.files.items():
            read_sealed(self.path / name, digest)


@dataclass(frozen=True)
class Run:
    """A run's folder in checkpoints/. The names of its logs are "metrics" and "samples"."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def steps(self) -> list[int]:
        """The numbers of the saved steps, oldest first."""
        try:
            entries = list(os.scandir(self.path))
        except (OSError, ValueError):  # ValueError: a name with a NUL character
            return []
        return sorted(
            int(match[1])
            for entry in entries
            if (match := _STEP_FOLDER.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)
        )

    def step_paths(self) -> list[Path]:
        """The folders of the saved steps, oldest first."""
        return [self.path / step_folder(step) for step in self.steps()]

    def last(self) -> Checkpoint:
        """The newest checkpoint. Raises CheckpointError if there is none, or if it is damaged."""
        return self.at("last")

    def at(self, which: str | SupportsIndex = "best") -> Checkpoint:
        """The checkpoint of a step. which: "last", a step's number, or "best".

        The newest checkpoint names the best step; if that step is not saved, "best" gives the
        newest checkpoint. Raises CheckpointError, ConfigError.
        """
        which = str(which)
        steps = self.steps()
        if which in ("best", "last"):
            if not steps:
                raise CheckpointError(f"no checkpoint in {self.path}; train one with: gptx train")
            newest = self._open(steps[-1])
            best = newest.manifest.best_step
            return self._open(best) if which == "best" and best in steps else newest
        if not which.isdecimal() or len(which) > 12:
            raise ConfigError("step", f"{which!r} is neither best, last nor a step's number")
        if int(which) not in steps:
            saved = ", ".join(map(str, steps)) or "none"
            raise CheckpointError(f"{self.name} has no step {which}; it keeps {saved}")
        return self._open(int(which))

    def _open(self, step: int) -> Checkpoint:
        return Checkpoint.open(self.path / step_folder(step))

    def last_undamaged(self) -> tuple[Checkpoint, list[str]]:
        """The newest undamaged checkpoint, and a warning for every newer checkpoint that is
        damaged. Raises CheckpointError if no checkpoint is undamaged.
        """
        warnings: list[str] = []
        for step in reversed(self.steps()):
            try:
                checkpoint = self._open(step)
                checkpoint.verify()
                return checkpoint, warnings
            except CheckpointError as error:
                renamed = f"{_ASIDE}{step_folder(step)}"
                warnings.append(
                    f"{error}; trying the previous checkpoint (training renames the damaged one to "
                    f"{renamed})"
                )
        raise CheckpointError("\n".join([*warnings, f"no undamaged checkpoint in {self.path}"]))

    def commit(self, manifest: Manifest, contents: Mapping[str, bytes]) -> Checkpoint:
        """Saves a new step as a whole or not at all, then deletes earlier steps.

        Of the earlier steps, it keeps the newest undamaged one and the best one, or, with keep_all,
        all. Steps with higher numbers stay. Raises StorageError; the run is then unchanged.
        """
        target = self.path / step_folder(manifest.step)
        recorded = {
            name: (len(data), find_digest(data, target / name)) for name, data in contents.items()
        }
        manifest = replace(manifest, files=recorded)
        earlier = [step for step in self.steps() if step < manifest.step]
        good = [step for step in earlier if self._seems_whole(step)][-1:]
        last_good = f" (last good: step {good[0]})" if good else ""
        with files.storage_errors(f"save step {manifest.step} in {self.path}{last_good}"):
            files.commit_folder(target, {**contents, MANIFEST: seal_json(manifest)})
        if not manifest.train.keep_all:
            for step in earlier:
                if step not in {*good, manifest.best_step}:
                    files.discard(self.path / step_folder(step))
        return Checkpoint(target, manifest)

    def _seems_whole(self, step: int) -> bool:
        """Whether a step has its manifest, and all files have the sizes in the manifest."""
        with suppress(CheckpointError, OSError):
            path, recorded = self.path / step_folder(step), self._open(step).manifest.files
            return all(
                os.lstat(path / name).st_size == size for name, (size, _) in recorded.items()
            )
        return False

    def rename_damaged_after(self, step: int) -> None:
        """Renames the damaged folders of all later steps to damaged-step-N. Raises StorageError."""
        for path in self.step_paths():
            if int(path.name[5:]) > step:
                target = path.with_name(f"{_ASIDE}{path.name}")
                while os.path.lexists(target):
                    target = target.with_name(f"{target.name}-again")
                with files.storage_errors(f"rename {path}"):
                    files.rename_folder(path, target)

    def replace_manifest(self, manifest: Manifest) -> Checkpoint:
        """Replaces the manifest of a saved step, not its tensors. Raises StorageError."""
        saved = self._open(manifest.step)
        manifest = replace(manifest, files=saved.manifest.files)
        with files.storage_errors(f"save step {manifest.step} in {self.path}"):
            files.replace(saved.path / MANIFEST, seal_json(manifest))
        return Checkpoint(saved.path, manifest)

    def write(self, name: str, text: str) -> None:
        """Writes a text file in the run's folder. Raises StorageError."""
        path = self.path / name
        with files.storage_errors(f"write {path}"):
            files.replace(path, text.encode())

    def append(self, log: str, record: Mapping[str, Any]) -> None:
        """Adds a record as a line to a log. Raises StorageError."""
        path = self._log(log)
        with files.storage_errors(f"write {path}"):
            files.append(path, _json_line(record).encode())

    def records(self, log: str) -> list[dict[str, Any]]:
        """The records of a log, without damaged lines."""
        path, records = self._log(log), []
        for line in files.read(path).splitlines() if os.path.lexists(path) else ():
            with suppress(ValueError, RecursionError):
                record = msgspec.json.decode(line, type=dict[str, Any])
                if isinstance(record.get("step"), int):
                    records.append(record)
        return records

    def cut_logs_after(self, step: int) -> None:
        """Deletes damaged lines of the logs, and the lines of the steps after `step`, which a
        resumed run will write again. Raises StorageError.
        """
        for log in ("metrics", "samples"):
            path = self._log(log)
            if os.path.lexists(path):
                earlier = [record for record in self.records(log) if record["step"] <= step]
                self.write(path.name, "".join(map(_json_line, earlier)))

    def _log(self, log: str) -> Path:
        return self.path / f"{log}.jsonl"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the run for one trainer, and deletes the temporary files of a killed trainer. The
        system releases the lock when the process ends. Raises RunInUseError, StorageError.
        """
        import filelock

        lock = filelock.FileLock(self.path / ".lock", timeout=0)
        with files.storage_errors(f"write {self.path / '.lock'}"):
            try:
                lock.acquire()
            except filelock.Timeout:
                raise RunInUseError(
                    f"{self.name} is in use by another training; wait until it ends, or end it"
                ) from None
        try:
            files.delete_abandoned(self.path, age=0)
            yield
        finally:
            lock.release()


def _json_line(record: Mapping[str, Any]) -> str:
    return f"{json.dumps(record, ensure_ascii=False, allow_nan=False)}\n"


def check_run_name(name: str) -> str:
    """Returns the name. Raises ConfigError if it has a character that a run's name may not have."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"invalid run name {name!a}: use letters, digits, '-', '_', '+' and '.', "
            "not starting with '.' or '-'"
        )
    return name


def all_runs(root: Path) -> list[Run]:
    """The runs in the folder `root` that have a checkpoint, the most recently saved run last."""
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
    """The pinned run; None if no run is pinned or the pinned run has no checkpoint."""
    with suppress(OSError, ValueError):
        name = (root / PINNED).read_text("utf-8").strip()
        run = Run(root / name)
        if _NAME.fullmatch(name) and run.step_paths():
            return run
    return None


def pin_run(root: Path, name: str) -> None:
    """Pins a run: commands without --run then use this run. name: "newest" removes the pin.

    Raises CheckpointError, ConfigError, StorageError.
    """
    if name != "newest":
        find_run(root, name)
    with files.storage_errors(f"write {root / PINNED}"):
        files.replace(root / PINNED, f"{name}\n".encode())


def find_run(root: Path, name: str | None = None) -> Run:
    """The named run; without a name, the pinned run, otherwise the most recently saved run. Raises
    CheckpointError if there is no such run, ConfigError for an invalid name.
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
    """The end of an error message: the most similar name, or the newest runs."""
    lower = {run.name.lower(): run.name for run in runs}
    if similar := get_close_matches(name.lower(), lower, 1):
        return f"; did you mean {lower[similar[0]]}?"
    if not runs:
        return "; train one with: gptx train"
    older = f" and {len(runs) - 5:,} older ones" if len(runs) > 5 else ""
    return f"; there are: {', '.join(run.name for run in runs[-5:])}{older}"


def new_run(root: Path, stem: str, name: str | None = None) -> Run:
    """Makes a run's folder with this name; without a name, with the first free name of "STEM-1",
    "STEM-2" and so on.

    A folder of this name is used again if its training was killed before the first checkpoint.
    Raises ConfigError if the name is taken, StorageError if the folder cannot be made.
    """
    with files.storage_errors(f"make a run in {root}"):
        root.mkdir(parents=True, exist_ok=True)
        if name is not None:
            run = require_unused_run(root, name)
            run.path.mkdir(exist_ok=True)
            return run
        base = re.sub(r"[^\w+-]+", "-", stem).strip("-_+")[:60] or "run"
        for number in count(1):
            with suppress(FileExistsError):
                (root / f"{base}-{number}").mkdir()
                break
        return Run(root / f"{base}-{number}")


def require_unused_run(root: Path, name: str) -> Run:
    """Returns the run with this name, in which a new training may start. Raises ConfigError if its
    folder has a checkpoint, or a file that no training makes before its first checkpoint.
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
    """Deletes a run's folder if it has no checkpoint."""
    if not run.steps():
        files.discard(run.path)
