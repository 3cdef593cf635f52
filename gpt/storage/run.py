"""One run's folder: its steps, its logs, and a lock for the trainer that writes to it.

    checkpoints/RUN/config.toml · metrics.jsonl · samples.jsonl · .lock · step-00001000/ …
    step-00001000/model.safetensors · state.safetensors · manifest.json

A step (class Checkpoint) has the model, the optimizer's state, and the manifest that records both;
opening it fails if any byte differs from the record. A log has one JSON object a line.
metrics.jsonl has two kinds of lines: evaluations ("metrics") and, between them, records of the
training itself ("training"), which have a gradient norm. Readers need no lock.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsIndex, TypedDict

import msgspec

from gpt.config.train import MOST_STEPS
from gpt.errors import CheckpointError, ConfigError, RunInUseError, SchemaError
from gpt.storage import files
from gpt.storage.manifest import Manifest
from gpt.storage.model_file import (
    Shapes,
    StoredModel,
    Tensors,
    check_tensors,
    fingerprint,
    read_model,
    read_sealed,
)
from gpt.storage.sealed import open_json, seal_json

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"
MANIFEST_LIMIT = 16 * 2**20  # bytes
LOG_LIMIT = 2**30  # bytes

_BEFORE_COMMIT = frozenset({"config.toml", ".lock", "tensorboard"})
_UNFINISHED = (".tmp-", ".trash-")  # how the names of unfinished files and folders begin
_ASIDE = "damaged-"  # how the names of folders that `abandon_after` has renamed begin
_STEP_FOLDER = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,11})")


def step_folder(step: int) -> str:
    """The folder name of a step: "step-00001000"."""
    return f"step-{step:08d}"


@dataclass(frozen=True)
class Checkpoint:
    """One committed step of a run."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Reads the manifest. Raises CheckpointError."""
        source = path / MANIFEST
        manifest = open_json(files.read(source, MANIFEST_LIMIT), Manifest, source)
        if step_folder(manifest.step) != path.name:
            raise CheckpointError(f"damaged: {source} is of step {manifest.step}")
        return cls(path, manifest)

    def model(self) -> StoredModel:
        """The verified model file. Raises CheckpointError."""
        return read_model(self.path / MODEL, self._digest(MODEL))

    def state(self, expected: Shapes) -> Tensors:
        """The verified optimizer state. Raises CheckpointError."""
        tensors = read_sealed(self.path / STATE, self._digest(STATE)).tensors
        check_tensors(tensors, expected, self.path / STATE)
        return tensors

    def verify(self) -> StoredModel:
        """Reads and checks every byte that the manifest records. Raises CheckpointError."""
        if STATE in self.manifest.files:
            read_sealed(self.path / STATE, self._digest(STATE))
        return self.model()

    def _digest(self, name: str) -> str:
        if name not in self.manifest.files:
            raise CheckpointError(f"damaged: {self.path / MANIFEST} does not list {name}")
        return self.manifest.files[name][1]


@dataclass(frozen=True)
class Run:
    """A folder in checkpoints/, with its logs "metrics", "training" and "samples"."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def steps(self) -> list[int]:
        """The committed steps, oldest first."""
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
        """The folders of the committed steps, oldest first."""
        return [self.path / step_folder(step) for step in self.steps()]

    def is_uncommitted(self) -> bool:
        """Whether the folder has only files that a training writes before its first commit."""
        try:
            names = {entry.name for entry in os.scandir(self.path)}
        except (OSError, ValueError):
            return False
        return all(name in _BEFORE_COMMIT or name.startswith(_UNFINISHED) for name in names)

    def last(self) -> Checkpoint:
        """The newest commit. Raises CheckpointError if there is none, or it is damaged."""
        return self.at("last")

    def at(self, which: str | SupportsIndex = "best") -> Checkpoint:
        """which: "last", a step's number, or "best", the best step that the newest commit names, or
        the newest commit if it names none. Raises CheckpointError, ConfigError.
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
            kept = ", ".join(map(str, steps)) or "none"
            raise CheckpointError(f"{self.name} has no step {which}; it keeps {kept}")
        return self._open(int(which))

    def model(self, which: str | SupportsIndex = "best") -> StoredModel:
        """The verified model of `at(which)`. Raises CheckpointError, ConfigError."""
        return self.read(which)[1]

    def read(self, which: str | SupportsIndex = "best") -> tuple[Checkpoint, StoredModel]:
        """`at(which)` and its verified model. Raises CheckpointError, ConfigError."""
        steps = self.steps()
        try:
            return self._read(which)
        except CheckpointError:
            if self.steps() == steps:
                raise
            return self._read(which)  # a training has removed the step meanwhile

    def _read(self, which: str | SupportsIndex) -> tuple[Checkpoint, StoredModel]:
        checkpoint = self.at(which)
        return checkpoint, checkpoint.model()

    def _open(self, step: int) -> Checkpoint:
        return Checkpoint.open(self.path / step_folder(step))

    def last_undamaged(self) -> tuple[Checkpoint, list[str]]:
        """The newest undamaged commit, and a warning for each newer one that is damaged.

        Raises CheckpointError if there is none, SchemaError for a commit of another schema.
        """
        warnings: list[str] = []
        for step in reversed(self.steps()):
            try:
                commit = self._open(step)
                commit.verify()
            except SchemaError:
                raise
            except CheckpointError as error:
                renamed = f"{_ASIDE}{step_folder(step)}"
                warnings.append(
                    f"{error}; trying the previous checkpoint (training renames this to {renamed})"
                )
            else:
                return commit, warnings
        raise CheckpointError("\n".join([*warnings, f"no undamaged checkpoint in {self.path}"]))

    def commit(self, manifest: Manifest, contents: Mapping[str, bytes]) -> Checkpoint:
        """Saves a new step as a whole or not at all, then removes earlier steps.

        Keeps the newest two undamaged steps and the best one, or all. Steps with higher numbers
        stay. Raises StorageError; then nothing has changed.
        """
        target = self.path / step_folder(manifest.step)
        recorded = {name: fingerprint(data, target / name) for name, data in contents.items()}
        manifest = replace(manifest, files=recorded)
        earlier = [step for step in self.steps() if step < manifest.step]
        good = [step for step in earlier if self._seems_whole(step)][-1:]
        last_good = f" (last good: step {good[0]})" if good else ""
        with files.storage_errors(f"save step {manifest.step} in {self.path}{last_good}"):
            files.commit_folder(target, {**contents, MANIFEST: seal_json(manifest)})
        if not manifest.train.keep_all:
            for step in earlier:
                if step not in {*good, manifest.best_step}:
                    with suppress(OSError):  # an old step that cannot be removed does no harm
                        files.remove_folder(self.path / step_folder(step))
        return Checkpoint(target, manifest)

    def _seems_whole(self, step: int) -> bool:
        """Whether a step has its manifest, and every file with the recorded size."""
        with suppress(CheckpointError, OSError):
            found = self._open(step)
            sizes = {name: size for name, (size, _) in found.manifest.files.items()}
            return all(os.lstat(found.path / name).st_size == sizes[name] for name in sizes)
        return False

    def abandon_after(self, step: int) -> None:
        """Renames the folders of later, damaged steps to damaged-step-N. Raises StorageError."""
        for path in self.step_paths():
            if int(path.name[5:]) > step:
                target = path.with_name(f"{_ASIDE}{path.name}")
                while os.path.lexists(target):
                    target = target.with_name(f"{target.name}-again")
                with files.storage_errors(f"rename {path}"):
                    files.rename_folder(path, target)

    def replace_manifest(self, manifest: Manifest) -> Checkpoint:
        """Replaces the manifest of a saved step; its tensors stay. Raises StorageError."""
        saved = self._open(manifest.step)
        manifest = replace(manifest, files=saved.manifest.files)
        with files.storage_errors(f"save step {manifest.step} in {self.path}"):
            files.replace(saved.path / MANIFEST, seal_json(manifest))
        return Checkpoint(saved.path, manifest)

    def write(self, name: str, text: str) -> None:
        """Writes a file of the run beside its steps. Raises StorageError."""
        path = self.path / name
        with files.storage_errors(f"write {path}"):
            files.replace(path, text.encode())

    def append(self, log: str, record: Mapping[str, Any]) -> None:
        """Adds a line to a log. Lines of "training" are not flushed to the disk; the next
        evaluation flushes them. Raises StorageError.
        """
        path = self.path / FILES[log]
        with files.storage_errors(f"write {path}"):
            line = json.dumps(record, ensure_ascii=False, allow_nan=False)
            files.append_line(path, line, flush=log != "training")

    def records(self, log: str) -> list[dict[str, Any]]:
        """The valid lines of a log."""
        return self.read_log(log)[0]

    def read_log(self, log: str) -> tuple[list[dict[str, Any]], int]:
        """The valid lines of a log, and the number of damaged lines in its file; an incomplete last
        line does not count.
        """
        whole, damaged = self._lines(FILES[log])
        return [record for record in whole if log in ("samples", _kind(record))], damaged

    def forget_after(self, step: int, evaluated: bool = True) -> None:
        """Deletes the log lines of later steps, which a resumed run will write again.

        evaluated: whether to keep the evaluation and sample of the step itself.
        """
        for name in dict.fromkeys(FILES.values()):
            records, _ = self._lines(name)
            kept = [
                record
                for record in records
                if record["step"] <= step - (not evaluated and _kind(record) != "training")
            ]
            if len(kept) < len(records):
                lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
                self.write(name, "".join(lines))

    def _lines(self, name: str) -> tuple[list[dict[str, Any]], int]:
        """The valid lines of a file, and the number of others, without an incomplete last one."""
        path = self.path / name
        if not os.path.lexists(path):
            return [], 0
        *lines, last = files.read(path, LOG_LIMIT).split(b"\n")
        read = [_record(name, line) for line in lines]
        whole = [record for record in (*read, _record(name, last)) if record is not None]
        return whole, read.count(None)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the run for one trainer, and removes unfinished files of a killed trainer.

        The system releases the lock if the process dies. Raises RunInUseError, StorageError.
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
            for path in self.path.iterdir():
                if path.name.startswith(_UNFINISHED):
                    files.discard(path)
            yield
        finally:
            lock.release()


class Sample(TypedDict):
    """A line of samples.jsonl."""

    step: int
    text: str


#: Kind of line -> the log file that contains it.
FILES = {"metrics": "metrics.jsonl", "training": "metrics.jsonl", "samples": "samples.jsonl"}
_TYPES: dict[str, Any] = {"metrics.jsonl": dict[str, int | float], "samples.jsonl": Sample}
#: The numbers in each kind of line in metrics.jsonl; each line may have more.
_NUMBERS = (
    {"train_loss", "val_loss"},
    {"whole_loss"},
    {"train_loss", "gradient_norm", "learning_rate"},
)


def _kind(record: Mapping[str, Any]) -> str:
    """The kind of a line of metrics.jsonl."""
    return "training" if "gradient_norm" in record else "metrics"


def _record(name: str, line: bytes) -> dict[str, Any] | None:
    """A line of a log; None if it is damaged."""
    try:
        record: dict[str, Any] = msgspec.json.decode(line, type=_TYPES[name])
    except (ValueError, RecursionError):
        return None
    step = record.get("step")
    whole = name == FILES["samples"] or any(names <= record.keys() for names in _NUMBERS)
    return record if whole and isinstance(step, int) and 0 <= step <= MOST_STEPS else None
