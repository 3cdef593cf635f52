"""One run's folder: its steps, its logs, and a lock for the trainer that writes to it.

    checkpoints/RUN/config.toml · metrics.jsonl · samples.jsonl · .lock · step-00001000/ …
    step-00001000/model.safetensors · state.safetensors · manifest.json

A step (class Checkpoint) has the model, the optimizer's state, and the manifest that records both.
It exists once its manifest is in place; opening it fails if any byte differs from the record. A log
has one JSON object a line. metrics.jsonl has two kinds of lines: evaluations ("metrics") and,
between them, records of the training itself ("training"), which have a gradient norm. Readers need
no lock: if a read fails while a trainer saves or removes a step, it is repeated.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar

from gpt.config.fields import LARGEST
from gpt.config.train import MOST_STEPS
from gpt.errors import CheckpointError, ConfigError, RunInUseError, SchemaError
from gpt.storage import files
from gpt.storage.json_values import load_json
from gpt.storage.manifest import Manifest
from gpt.storage.model_file import (
    Shapes,
    StoredModel,
    Tensors,
    fingerprint,
    read_model,
    read_sealed,
    unpack,
)
from gpt.words import short_repr

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"
MANIFEST_LIMIT = 16 * 2**20  # bytes
PID_LIMIT = 100  # bytes of .owner

_BEFORE_COMMIT = frozenset({"config.toml", ".lock", ".owner", "tensorboard"})
_UNFINISHED = (".tmp-", ".trash-")  # how the names of unfinished files and folders begin
_ASIDE = "damaged-"  # how the names of folders that `abandon_after` has renamed begin
_STEP_FOLDER = re.compile(r"step-([0-9]{8}|[1-9][0-9]{8,11})")
Read = TypeVar("Read")


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
        manifest = Manifest.from_json(files.read(source, MANIFEST_LIMIT), source)
        if step_folder(manifest.step) != path.name:
            raise CheckpointError(f"damaged: {source} is of step {manifest.step}")
        return cls(path, manifest)

    def model(self) -> StoredModel:
        """The verified model file. Raises CheckpointError."""
        stored = read_model(self.path / MODEL, self._recorded(MODEL))
        described = (stored.config, stored.vocabulary, stored.step)
        if described != (self.manifest.model, self.manifest.vocabulary, self.manifest.step):
            raise CheckpointError(f"damaged: {self.path} (model and manifest differ)")
        return stored

    def state(self, expected: Shapes) -> Tensors:
        """The verified optimizer state. Raises CheckpointError."""
        path = self.path / STATE
        data, header, _ = read_sealed(path, self._recorded(STATE))
        return unpack(data, header, expected, path)

    def verify(self) -> StoredModel:
        """Reads and checks every byte that the manifest records. Raises CheckpointError."""
        stored = self.model()
        for name in self.manifest.files.keys() - {MODEL, STATE}:
            raise CheckpointError(f"damaged: {self.path} lists an unknown file {short_repr(name)}")
        if STATE in self.manifest.files:
            read_sealed(self.path / STATE, self._recorded(STATE))
        return stored

    def _recorded(self, name: str) -> tuple[int, str]:
        if name not in self.manifest.files:
            raise CheckpointError(f"damaged: {self.path / MANIFEST} does not list {name}")
        return self.manifest.files[name]


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
        return self._steadily(lambda: self._at(str(which)))

    def model(self, which: str | SupportsIndex = "best") -> StoredModel:
        """The verified model of `at(which)`. Raises CheckpointError, ConfigError."""
        return self.read(which)[1]

    def read(self, which: str | SupportsIndex = "best") -> tuple[Checkpoint, StoredModel]:
        """`at(which)` and its verified model; both are of one step even if a trainer saves
        another.

        Raises CheckpointError, ConfigError.
        """

        def both() -> tuple[Checkpoint, StoredModel]:
            checkpoint = self._at(str(which))
            return checkpoint, checkpoint.model()

        return self._steadily(both)

    def _steadily(self, read: Callable[[], Read]) -> Read:
        """Repeats a failed read if a trainer has saved or removed a step meanwhile. An error names
        the undamaged steps.
        """
        while True:
            before = self._stamps()
            try:
                return read()
            except CheckpointError as error:
                if self._stamps() == before:
                    raise CheckpointError(f"{error}{self._whole()}") from error

    def _stamps(self) -> list[tuple[Path, int, int]]:
        """A value that changes when a step is saved, saved again or removed."""
        stamps = []
        for path in self.step_paths():
            with suppress(OSError):
                found = path.stat()
                stamps.append((path, found.st_ino, found.st_mtime_ns))
        return stamps

    def _whole(self) -> str:
        """The end of an error: which steps are undamaged, if some are damaged and some are not."""
        steps, whole = self.steps(), []
        for step in steps:
            with suppress(CheckpointError):
                self._open(step).verify()
                whole.append(str(step))
        return f"; undamaged: `step` {' or '.join(whole)}" if 0 < len(whole) < len(steps) else ""

    def _at(self, which: str) -> Checkpoint:
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
        """Saves a step as a whole or not at all, then removes earlier steps.

        Keeps the newest two undamaged steps and the best one, or all. Steps with higher numbers
        stay. Raises StorageError, and CheckpointError for a manifest that could not be read again;
        in both cases nothing has changed.
        """
        target = self.path / step_folder(manifest.step)
        recorded = {name: fingerprint(data, target / name) for name, data in contents.items()}
        manifest = replace(manifest, files=recorded)
        about = _readable_json(manifest, target)
        before = [step for step in self.steps() if self._seems_whole(step)]
        good = f" (last good: step {before[-1]})" if before else ""
        with files.storage_errors(f"save step {manifest.step} in {self.path}{good}"):
            if self._has(target, contents):
                files.replace(target / MANIFEST, about)
            else:
                files.commit_folder(target, [*contents.items(), (MANIFEST, about)])
        if not manifest.train.keep_all:
            earlier = [step for step in before if step < manifest.step]
            keep = {*earlier[-1:], manifest.step, manifest.best_step}
            for step in self.steps():
                if step < manifest.step and step not in keep:
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
                with files.storage_errors(f"rename {path}"):
                    files.rename_folder(path, path.with_name(f"{_ASIDE}{path.name}"))

    def replace_manifest(self, manifest: Manifest) -> None:
        """Replaces the manifest of a saved step; its tensors stay. Raises StorageError."""
        saved = self._open(manifest.step)
        with files.storage_errors(f"save step {manifest.step} in {self.path}"):
            amended = replace(manifest, files=saved.manifest.files)
            files.replace(saved.path / MANIFEST, _readable_json(amended, saved.path))

    @staticmethod
    def _has(step: Path, contents: Mapping[str, bytes]) -> bool:
        """Whether the step's files have these contents, so that only the manifest is saved."""
        with suppress(CheckpointError):
            return all(
                files.read(step / name, len(data)) == data for name, data in contents.items()
            )
        return False

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
        """The valid lines of a log. Raises CheckpointError if the log is a link."""
        return self.read_log(log)[0]

    def read_log(self, log: str) -> tuple[list[dict[str, Any]], int]:
        """The valid lines of a log, and the number of damaged lines in its file; an incomplete last
        line does not count. Raises CheckpointError if the log is a link.
        """
        whole, damaged = self._read(FILES[log])
        return [record for record in whole if log in ("samples", _kind(record))], damaged

    def forget_after(self, step: int, evaluated: bool = True) -> None:
        """Deletes the log lines of later steps, which a resumed run will write again.

        evaluated: whether to keep the evaluation and sample of the step itself.
        """
        for name in dict.fromkeys(FILES.values()):
            records, _ = self._read(name)
            kept = [
                record
                for record in records
                if record["step"] <= step - (not evaluated and _kind(record) != "training")
            ]
            if len(kept) < len(records):
                lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
                self.write(name, "".join(lines))

    def _read(self, name: str) -> tuple[list[dict[str, Any]], int]:
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

        The system releases the lock if the process dies. Raises RunInUseError with the other
        trainer's process id.
        """
        import filelock

        owner = self.path / ".owner"
        lock = filelock.FileLock(self.path / ".lock", timeout=0)
        with files.storage_errors(f"write {self.path / '.lock'}"):
            files.check_plain(self.path / ".lock")
            try:
                lock.acquire()
            except filelock.Timeout:
                pid = "unknown"
                with suppress(CheckpointError):
                    pid = files.read(owner, PID_LIMIT).decode("ascii", "replace")
                raise RunInUseError(
                    f"{self.name} is in use by process {pid}; wait until it ends, or end it"
                ) from None
        try:
            for path in self.path.iterdir():
                if path.name.startswith(_UNFINISHED):
                    files.discard_folder(path)
            with files.storage_errors(f"write {owner}"):
                files.write_note(owner, str(os.getpid()))
            yield
        finally:
            with suppress(OSError):
                owner.unlink(missing_ok=True)
            lock.release()


def _readable_json(manifest: Manifest, folder: Path) -> bytes:
    """The JSON of a manifest. Raises CheckpointError if it could not be read again."""
    data = manifest.to_json()
    Manifest.from_json(data, folder / MANIFEST)
    return data


LOG_LIMIT = 2**30  # bytes

#: Kind of line -> the log file that contains it.
FILES = {"metrics": "metrics.jsonl", "training": "metrics.jsonl", "samples": "samples.jsonl"}
#: Field that identifies the kind of a line in metrics.jsonl -> the numbers that the line must have.
_METRICS = {
    "whole_loss": ("step", "whole_loss"),
    "gradient_norm": ("step", "train_loss", "gradient_norm", "learning_rate"),
    "val_loss": ("step", "train_loss", "val_loss"),
}
_OPTIONAL = frozenset(
    {"best_step", "val_characters", "learning_rate", "seconds", "gpt_loss", "characters_per_second"}
)


def _kind(record: Mapping[str, Any]) -> str:
    """The kind of a line of metrics.jsonl."""
    return "training" if _shown_by(record) == "gradient_norm" else "metrics"


def _shown_by(record: Mapping[str, Any]) -> str:
    return next((name for name in _METRICS if name in record), "val_loss")


def _record(name: str, line: bytes) -> dict[str, Any] | None:
    """A line of a log, if all values that gptx reads have the right types."""
    try:
        record = load_json(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        return None
    if not 0 <= record["step"] <= MOST_STEPS:
        return None
    if name == FILES["samples"]:
        return record if isinstance(record.get("text"), str) else None
    numbers = (*_METRICS[_shown_by(record)], *(_OPTIONAL & record.keys()))
    return record if all(_is_number(record.get(name)) for name in numbers) else None


def _is_number(value: object) -> bool:
    if type(value) is int:
        return abs(value) < 2**63  # numpy's range
    return type(value) is float and abs(value) < LARGEST
