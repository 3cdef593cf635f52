"""One run's folder: its name, its checkpoints, its logs.

    checkpoints/RUN/config.toml · metrics.jsonl · samples.jsonl · .lock
    checkpoints/RUN/step-00001000/model.safetensors · state.safetensors · manifest.json

A checkpoint counts once its manifest is in place, and opens only if every byte is what the
manifest says. Knows no torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar

from gpt.config.fields import LARGEST
from gpt.errors import CheckpointError, ConfigError, GptxError, RunInUseError
from gpt.storage import files
from gpt.storage.manifest import Manifest
from gpt.storage.migration import migrate
from gpt.storage.model_file import Shapes, StoredModel, Tensors, read_header, read_model, unpack

MODEL, STATE, MANIFEST = "model.safetensors", "state.safetensors", "manifest.json"
MANIFEST_LIMIT = 16 * 2**20  # bytes
LOG_LIMIT = 2**30  # bytes of metrics.jsonl or samples.jsonl
PID_LIMIT = 100  # bytes of .owner

#: What a line of metrics.jsonl must have, and what it may have.
_METRICS = {"val_loss": ("step", "train_loss", "val_loss"), "whole_loss": ("step", "whole_loss")}
_OPTIONAL = frozenset({"since", "best_step", "val_characters", "learning_rate", "seconds"})
_BEFORE_COMMIT = frozenset({"config.toml", ".lock", ".owner"})
_STEP_FOLDER = re.compile(r"step-(\d{8,12})")
Read = TypeVar("Read")

_RUN_NAME = re.compile(r"[\w][\w.+-]{0,99}", re.UNICODE)


def step_folder(step: int) -> str:
    """The folder name of a step: "step-00001000"."""
    return f"step-{step:08d}"


def check_run_name(name: str) -> str:
    """The name itself. Raises ConfigError unless it is one plain folder name."""
    if not _RUN_NAME.fullmatch(name):
        raise ConfigError(
            f"invalid run name {name!a}: use letters, digits, '-', '_', '+' and '.', "
            "not starting with '.' or '-'"
        )
    return name


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
            raise CheckpointError(f"damaged: {source} speaks of step {manifest.step}")
        return cls(path, manifest)

    def _recorded(self, name: str) -> tuple[int, str]:
        if name not in self.manifest.files:
            raise CheckpointError(f"damaged: {self.path / MANIFEST} does not list {name}")
        return self.manifest.files[name]

    def model(self) -> StoredModel:
        """The verified model file. Raises CheckpointError."""
        stored = read_model(self.path / MODEL, self._recorded(MODEL))
        described = (stored.config, stored.vocabulary.characters, stored.step)
        if described != (self.manifest.model, self.manifest.characters, self.manifest.step):
            raise CheckpointError(f"damaged: {self.path} (model and manifest differ)")
        return stored

    def state(self, expected: Shapes) -> Tensors:
        """The verified optimizer state. Raises CheckpointError."""
        path = self.path / STATE
        size, digest = self._recorded(STATE)
        data = files.read(path, limit=size)
        if (len(data), hashlib.sha256(data).hexdigest()) != (size, digest):
            raise CheckpointError(f"damaged: {path} is not as it was written")
        tensors = unpack(data, read_header(data, path), expected, path)
        return migrate(tensors, self.manifest.model, self.manifest.schema)

    def verify(self) -> None:
        """Reads every byte that the manifest vouches for. Raises CheckpointError."""
        self.model()
        for name, (size, digest) in self.manifest.files.items():
            if name not in (MODEL, STATE):
                raise CheckpointError(f"damaged: {self.path} lists a foreign file {name!a}")
            data = files.read(self.path / name, limit=size)
            if (len(data), hashlib.sha256(data).hexdigest()) != (size, digest):
                raise CheckpointError(f"damaged: {self.path / name} is not as it was written")


@dataclass(frozen=True)
class Run:
    """A folder in checkpoints/."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def step_paths(self) -> list[Path]:
        """The committed steps, oldest first."""
        try:
            entries = list(os.scandir(self.path))
        except (OSError, ValueError):  # ValueError: a NUL character
            return []
        found = [
            (int(match[1]), Path(entry.path))
            for entry in entries
            if (match := _STEP_FOLDER.fullmatch(entry.name)) and entry.is_dir(follow_symlinks=False)
        ]
        return [path for _, path in sorted(found)]

    def is_begun(self) -> bool:
        """Whether the folder holds nothing but what a training makes before its first commit."""
        try:
            names = {entry.name for entry in os.scandir(self.path)}
        except (OSError, ValueError):
            return False
        return all(name in _BEFORE_COMMIT or name.startswith(".tmp-step-") for name in names)

    def last(self) -> Checkpoint:
        """The newest commit, damaged or not found: CheckpointError."""
        return self._steadily(self._last)

    def best(self) -> Checkpoint:
        """The commit with the lowest validation loss on the text of the newest commit.

        The newest commit if none was evaluated on that text.
        """
        return self._steadily(self._best)

    def at(self, which: str | SupportsIndex = "best") -> Checkpoint:
        """ "best", "last" or a step's number. Raises CheckpointError, ConfigError."""
        return self._steadily(lambda: self._at(str(which)))

    def model(self, which: str | SupportsIndex = "best") -> StoredModel:
        """The verified model of `at(which)`. Raises CheckpointError, ConfigError."""
        return self.read(which)[1]

    def read(self, which: str | SupportsIndex = "best") -> tuple[Checkpoint, StoredModel]:
        """`at(which)` and its verified model, of one step even if a trainer saves meanwhile.

        Raises CheckpointError, ConfigError.
        """

        def both() -> tuple[Checkpoint, StoredModel]:
            checkpoint = self._at(str(which))
            return checkpoint, checkpoint.model()

        return self._steadily(both)

    def verify(self, path: Path) -> StoredModel | None:
        """Reads every byte of a step; None if a trainer has removed the step meanwhile.

        Raises CheckpointError.
        """
        while True:
            before = self._stamps()
            try:
                checkpoint = Checkpoint.open(path)
                checkpoint.verify()
                return checkpoint.model()
            except CheckpointError:
                after = self._stamps()
                if path not in (step for step, *_ in after):
                    return None
                if after == before:
                    raise

    def _steadily(self, read: Callable[[], Read]) -> Read:
        """Reads again if a trainer saved or removed a step meanwhile, as it may be this one."""
        while True:
            before = self._stamps()
            try:
                return read()
            except CheckpointError as error:
                if self._stamps() == before:
                    raise CheckpointError(f"{error}{self._instead()}") from error

    def _stamps(self) -> list[tuple[Path, int, int]]:
        """A value that changes when a step is saved, saved again or removed."""
        stamps = []
        for path in self.step_paths():
            with suppress(OSError):
                found = path.stat()
                stamps.append((path, found.st_ino, found.st_mtime_ns))
        return stamps

    def _instead(self) -> str:
        """Which steps are whole, where some are and others are not."""
        paths, whole = self.step_paths(), []
        for path in paths:
            with suppress(CheckpointError):
                Checkpoint.open(path).verify()
                whole.append(str(int(path.name[5:])))
        return f"; whole: --step {' or '.join(whole)}" if 0 < len(whole) < len(paths) else ""

    def _last(self) -> Checkpoint:
        paths = self.step_paths()
        if not paths:
            raise CheckpointError(f"no checkpoint in {self.path}; train one with: gptx train")
        return Checkpoint.open(paths[-1])

    def _best(self) -> Checkpoint:
        commits = [Checkpoint.open(path) for path in self.step_paths()]
        newest = self._last()
        scored = [
            commit
            for commit in commits
            if commit.manifest.val_loss is not None
            and commit.manifest.compares_with(newest.manifest)
            and commit.manifest.earlier_corpora == newest.manifest.earlier_corpora
        ]
        if not scored:
            return newest
        return min(scored, key=lambda commit: _val_loss(commit.manifest))

    def _at(self, which: str) -> Checkpoint:
        if which in ("best", "last"):
            return self._best() if which == "best" else self._last()
        if not which.isdecimal() or len(which) > 12:
            raise ConfigError("step", f"{which!r} is neither best, last nor a step's number")
        path = self.path / step_folder(int(which))
        if path not in self.step_paths():
            kept = ", ".join(str(int(path.name[5:])) for path in self.step_paths())
            raise CheckpointError(f"{self.name} has no step {which}; it keeps {kept or 'none'}")
        return Checkpoint.open(path)

    def last_valid(self) -> tuple[Checkpoint, list[str]]:
        """The newest commit that is whole, and a warning for each newer one that is not."""
        warnings: list[str] = []
        for path in reversed(self.step_paths()):
            try:
                commit = Checkpoint.open(path)
                commit.verify()
            except CheckpointError as error:
                warnings.append(f"{error}; trying the one before")
            else:
                return commit, warnings
        raise CheckpointError("\n".join([*warnings, f"no whole checkpoint in {self.path}"]))

    def commit(self, manifest: Manifest, contents: Mapping[str, bytes]) -> Checkpoint:
        """Saves a step, whole or not at all, then removes old steps.

        It keeps the newest two and the best, or all; if the corpus was changed, also every step
        from before. Raises StorageError, and then nothing has changed.
        """
        target = self.path / step_folder(manifest.step)
        recorded = {
            name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()
        }
        manifest = replace(manifest, files=recorded)
        steps = [int(path.name[5:]) for path in self.step_paths()]
        good = f" (last good: step {steps[-1]})" if steps else ""
        with files.storage_errors(f"save step {manifest.step} in {self.path}{good}"):
            if self._has(target, contents):
                files.replace(target / MANIFEST, manifest.to_json())
            else:
                files.commit_folder(target, [*contents.items(), (MANIFEST, manifest.to_json())])
        if manifest.train.keep_all:
            return Checkpoint(target, manifest)
        keep = {path.name for path in self.step_paths()[-2:]}
        if manifest.best_step is not None:
            keep.add(step_folder(manifest.best_step))
        if manifest.earlier_corpora:
            keep.update(step_folder(step) for step in steps if step <= manifest.since)
        for path in self.step_paths():
            if path.name not in keep:
                with suppress(OSError):  # an old step too many harms nobody
                    files.remove_folder(path)
        return Checkpoint(target, manifest)

    def amend(self, manifest: Manifest) -> None:
        """Replaces the manifest of a saved step whose tensors stay. Raises StorageError."""
        step = self.path / step_folder(manifest.step)
        saved = Checkpoint.open(step).manifest
        with files.storage_errors(f"save step {manifest.step} in {self.path}"):
            files.replace(step / MANIFEST, replace(manifest, files=saved.files).to_json())

    @staticmethod
    def _has(step: Path, contents: Mapping[str, bytes]) -> bool:
        """Whether the same step was saved with the same bytes; then only its manifest is new."""
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
        """Adds a line to metrics.jsonl or samples.jsonl. Raises StorageError."""
        path = self.path / f"{log}.jsonl"
        with files.storage_errors(f"write {path}"):
            files.append_line(path, json.dumps(record, ensure_ascii=False, allow_nan=False))

    def records(self, log: str) -> list[dict[str, Any]]:
        """The whole lines of metrics.jsonl or samples.jsonl. Raises CheckpointError for a link."""
        return self.read_log(log)[0]

    def read_log(self, log: str) -> tuple[list[dict[str, Any]], int]:
        """The whole lines of a log, and how many others there are, but for a torn last one.

        Raises CheckpointError for a link.
        """
        path = self.path / f"{log}.jsonl"
        if not os.path.lexists(path):
            return [], 0
        *lines, last = files.read(path, LOG_LIMIT).split(b"\n")
        read = [_record(log, line) for line in lines]
        whole = [record for record in (*read, _record(log, last)) if record is not None]
        return whole, read.count(None)

    def forget_after(self, step: int) -> None:
        """Drops log lines of later steps, which a resumed run will write again."""
        for log in ("metrics", "samples"):
            records = self.records(log)
            kept = [record for record in records if record["step"] <= step]
            if len(kept) < len(records):
                lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
                path = self.path / f"{log}.jsonl"
                with files.storage_errors(f"write {path}"):
                    files.replace(path, "".join(lines).encode())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the run for one trainer; the system frees it if the process dies.

        Raises RunInUseError with the other's process id.
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
                raise RunInUseError(f"{self.name} is in use by process {pid}") from None
        try:
            with files.storage_errors(f"write {owner}"):
                files.write_note(owner, str(os.getpid()))
            yield
        finally:
            with suppress(OSError):
                owner.unlink(missing_ok=True)
            lock.release()


def _record(log: str, line: bytes) -> dict[str, Any] | None:
    """A line of a log, if every value that is read from it is of its kind."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if type(record.get("step")) is not int or record["step"] < 0:
        return None
    if log == "samples":
        return record if isinstance(record.get("text"), str) else None
    needed = _METRICS["whole_loss" if "whole_loss" in record else "val_loss"]
    numbers = (*needed, *(_OPTIONAL & record.keys()))
    return record if all(_is_number(record.get(name)) for name in numbers) else None


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST  # type: ignore[operator]


def _val_loss(manifest: Manifest) -> float:
    return math.inf if manifest.val_loss is None else manifest.val_loss


def all_runs(root: Path) -> list[Run]:
    """The runs in a folder that have a checkpoint, the most recently saved last."""
    try:
        folders = [Path(entry.path) for entry in os.scandir(root) if entry.is_dir()]
    except (OSError, ValueError):
        return []
    saved = []
    for folder in folders:
        paths = Run(folder).step_paths() if _RUN_NAME.fullmatch(folder.name) else []
        if paths:
            with suppress(OSError):
                saved.append((paths[-1].stat().st_mtime_ns, folder.name, Run(folder)))
    return [run for *_, run in sorted(saved, key=lambda item: item[:2])]


def find_run(root: Path, name: str | None = None) -> Run:
    """The named run, or the most recently saved. Raises CheckpointError, ConfigError."""
    if name is not None:
        run = Run(root / check_run_name(name))
        if not run.step_paths() and os.path.isfile(run.path / ".lock") and run.is_begun():
            raise CheckpointError(
                f"run {name!r} in {root} was stopped before its first checkpoint; train it again: "
                f"gptx train … --run {name}"
            )
        if not run.step_paths():
            known = ", ".join(run.name for run in all_runs(root)[-5:])
            hint = f"; there are: {known}" if known else "; train one with: gptx train"
            raise CheckpointError(f"no run {name!r} in {root}{hint}")
        return run
    runs = all_runs(root)
    if not runs:
        raise CheckpointError(f"no checkpoint in {root}; train one with: gptx train")
    return runs[-1]


def new_run(root: Path, stem: str, name: str | None = None) -> Run:
    """Makes a run's folder: the given name, or the corpus's with the next free number.

    The folder of a training that was killed before its first checkpoint is used again. Raises
    ConfigError if the name is taken, StorageError if the folder cannot be made.
    """
    with files.storage_errors(f"make a run in {root}"):
        root.mkdir(parents=True, exist_ok=True)
        if name is not None:
            run = Run(root / check_run_name(name))
            try:
                run.path.mkdir()
            except FileExistsError:
                if run.step_paths():
                    raise ConfigError(
                        "run",
                        f"{name!r} exists already; choose another name, or continue it with "
                        f"--resume --run {name}",
                    ) from None
                if not run.is_begun():
                    raise ConfigError(
                        "run",
                        f"{run.path} exists already and is not a run; choose another name",
                    ) from None
            return run
        base = re.sub(r"[^\w+-]+", "-", stem).strip("-_+")[:60] or "run"
        number = 1
        while True:
            with suppress(FileExistsError):
                (root / f"{base}-{number}").mkdir()
                return Run(root / f"{base}-{number}")
            number += 1


def discard_if_empty(run: Run) -> None:
    """Takes back a run's folder in which nothing was ever saved."""
    if not run.step_paths():
        with suppress(OSError, GptxError):
            shutil.rmtree(run.path)
