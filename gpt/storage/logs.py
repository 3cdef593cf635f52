"""A run's logs, one JSON object a line: metrics.jsonl and samples.jsonl."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt.config.fields import LARGEST
from gpt.storage import files

LOG_LIMIT = 2**30  # bytes

#: The values that a line of metrics.jsonl must have, and those that it may have.
_METRICS = {"val_loss": ("step", "train_loss", "val_loss"), "whole_loss": ("step", "whole_loss")}
_OPTIONAL = frozenset({"since", "best_step", "val_characters", "learning_rate", "seconds"})


@dataclass(frozen=True)
class Logs:
    """The logs in a folder, named "metrics" and "samples"."""

    path: Path

    def append(self, log: str, record: Mapping[str, Any]) -> None:
        """Adds a line. Raises StorageError."""
        path = self._log(log)
        with files.storage_errors(f"write {path}"):
            files.append_line(path, json.dumps(record, ensure_ascii=False, allow_nan=False))

    def records(self, log: str) -> list[dict[str, Any]]:
        """The valid lines of a log. Raises CheckpointError for a link."""
        return self.read_log(log)[0]

    def read_log(self, log: str) -> tuple[list[dict[str, Any]], int]:
        """The valid lines of a log, and the number of others, except an incomplete last line.

        Raises CheckpointError for a link.
        """
        path = self._log(log)
        if not os.path.lexists(path):
            return [], 0
        *lines, last = files.read(path, LOG_LIMIT).split(b"\n")
        read = [_record(log, line) for line in lines]
        whole = [record for record in (*read, _record(log, last)) if record is not None]
        return whole, read.count(None)

    def forget_after(self, step: int) -> None:
        """Deletes the lines of later steps, which a resumed run will write again."""
        for log in ("metrics", "samples"):
            records = self.records(log)
            kept = [record for record in records if record["step"] <= step]
            if len(kept) < len(records):
                lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in kept)
                path = self._log(log)
                with files.storage_errors(f"write {path}"):
                    files.replace(path, "".join(lines).encode())

    def _log(self, log: str) -> Path:
        return self.path / f"{log}.jsonl"


def _record(log: str, line: bytes) -> dict[str, Any] | None:
    """A line of a log, if all values that gptx reads have the right types."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("step")) is not int or record["step"] < 0:
        return None
    if log == "samples":
        return record if isinstance(record.get("text"), str) else None
    needed = _METRICS["whole_loss" if "whole_loss" in record else "val_loss"]
    numbers = (*needed, *(_OPTIONAL & record.keys()))
    return record if all(_is_number(record.get(name)) for name in numbers) else None


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST  # type: ignore[operator]
