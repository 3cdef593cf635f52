"""A run's logs, one JSON object a line: metrics.jsonl and samples.jsonl.

metrics.jsonl has two kinds of lines: evaluations ("metrics") and, between them, records of the
training itself ("training"), which have a gradient norm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt.config.fields import LARGEST
from gpt.config.train import MOST_STEPS
from gpt.storage import files
from gpt.storage.json_values import loads

LOG_LIMIT = 2**30  # bytes

#: Kind of line -> the file that has it.
FILES = {"metrics": "metrics.jsonl", "training": "metrics.jsonl", "samples": "samples.jsonl"}
#: The value that shows what a line of metrics.jsonl is -> the numbers that the line must have.
_METRICS = {
    "whole_loss": ("step", "whole_loss"),
    "gradient_norm": ("step", "train_loss", "gradient_norm", "learning_rate"),
    "val_loss": ("step", "train_loss", "val_loss"),
}
_OPTIONAL = frozenset(
    {"best_step", "val_characters", "learning_rate", "seconds", "gpt_loss", "characters_per_second"}
)


@dataclass(frozen=True)
class Logs:
    """The logs in a folder: "metrics", "training" and "samples"."""

    path: Path

    def append(self, log: str, record: Mapping[str, Any]) -> None:
        """Adds a line. Lines of "training" are not flushed to the disk: the next evaluation flushes
        them. Raises StorageError.
        """
        path = self.path / FILES[log]
        with files.storage_errors(f"write {path}"):
            line = json.dumps(record, ensure_ascii=False, allow_nan=False)
            files.append_line(path, line, flush=log != "training")

    def records(self, log: str) -> list[dict[str, Any]]:
        """The valid lines of a log. Raises CheckpointError for a link."""
        return self.read_log(log)[0]

    def read_log(self, log: str) -> tuple[list[dict[str, Any]], int]:
        """The valid lines of a log, and the number of damaged lines in its file, except an
        incomplete last one. Raises CheckpointError for a link.
        """
        whole, damaged = self._read(FILES[log])
        return [record for record in whole if log in ("samples", _kind(record))], damaged

    def forget_after(self, step: int, evaluated: bool = True) -> None:
        """Deletes the lines of later steps, which a resumed run will write again.

        evaluated: whether the step's own evaluation and sample stay, too.
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
                path = self.path / name
                with files.storage_errors(f"write {path}"):
                    files.replace(path, "".join(lines).encode())

    def _read(self, name: str) -> tuple[list[dict[str, Any]], int]:
        """The valid lines of a file, and the number of others, except an incomplete last line."""
        path = self.path / name
        if not os.path.lexists(path):
            return [], 0
        *lines, last = files.read(path, LOG_LIMIT).split(b"\n")
        read = [_record(name, line) for line in lines]
        whole = [record for record in (*read, _record(name, last)) if record is not None]
        return whole, read.count(None)


def _kind(record: Mapping[str, Any]) -> str:
    """The kind of a line of metrics.jsonl."""
    return "training" if _shown_by(record) == "gradient_norm" else "metrics"


def _shown_by(record: Mapping[str, Any]) -> str:
    return next((name for name in _METRICS if name in record), "val_loss")


def _record(name: str, line: bytes) -> dict[str, Any] | None:
    """A line of a log, if all values that gptx reads have the right types."""
    try:
        record = loads(line)
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
        return abs(value) < 2**63  # as numpy's
    return type(value) is float and abs(value) < LARGEST
