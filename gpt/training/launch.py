"""The processes that torchrun starts: how many there are, and how they find the same run and text.

torchrun starts all processes again after one has died. A run has a file with the launch's name, so
that the next attempt resumes this run. The first rank finds the corpus and the checkpoint and tells
the others where they are; `--data` and `--checkpoints` must be the same folders on all machines.
A single process imports no torch here.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpt.errors import CheckpointError, GptxError, RankError, StorageError
from gpt.storage import files
from gpt.storage.run import Run
from gpt.storage.runs import all_runs

MARK = ".launch"
MARK_LIMIT = 2**12  # bytes
Found = TypeVar("Found")


@dataclass(frozen=True)
class Launch:
    """rank: among `size` processes in all; local_rank: among those of this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    name: str = ""  # "": torchrun has not started this process
    attempt: int = 0
    attempts: int = 0  # that may follow the first one

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """From the environment variables that torchrun sets."""
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return cls()
        numbers = (
            *("RANK", "WORLD_SIZE", "LOCAL_RANK"),
            *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
        )
        rank, size, local, *attempts = (int(environment.get(name, "0")) for name in numbers)
        return cls(rank, size, local, environment.get("TORCHELASTIC_RUN_ID", "none"), *attempts)

    @property
    def first(self) -> bool:
        """Whether this is the process that prints and saves."""
        return self.rank == 0

    @property
    def comes_again(self) -> bool:
        """Whether torchrun starts all again if this process does not end with exit code 0."""
        return self.attempt < self.attempts

    def mark(self, run: Run) -> None:
        """Writes the launch's name into a run. Raises StorageError."""
        if self.name:
            run.write(MARK, self._mark)

    def interrupted(self, root: Path) -> Run | None:
        """The run that an earlier attempt of this launch has begun and saved, or None; the same on
        all ranks, which must all call this.
        """
        if self.attempt == 0:  # the name may have been used before
            return None
        found = filter(self._has_marked, reversed(all_runs(root))) if self.first else ()
        path = self.from_first(next((str(run.path) for run in found), None))
        return Run(Path(path)) if path else None

    def _has_marked(self, run: Run) -> bool:
        with suppress(CheckpointError):
            return files.read(run.path / MARK, MARK_LIMIT) == self._mark.encode()
        return False

    @property
    def _mark(self) -> str:
        """The same in all attempts: the launch's name; without one ("none"), torchrun's process."""
        return f"{socket.gethostname()}:{os.getppid()}" if self.name == "none" else self.name

    def from_first(self, value: Any) -> Any:
        """The first rank's value, as JSON has it. All ranks must call this. Raises RankError."""
        if self.size == 1:
            return value
        from gpt.training.ranks import errors, from_rank

        with errors():
            return json.loads(from_rank(0, json.dumps(value)))

    def shared(
        self,
        find: Callable[[], Found],
        describe: Callable[[Found], Any],
        follow: Callable[[Any], Found],
    ) -> Found:
        """What the first rank finds; the others follow its description, which JSON can hold. All
        ranks must call this.

        Raises what `find` raises; elsewhere RankError, or StorageError if `follow` finds nothing.
        """
        message = None
        try:
            if self.first:
                found = find()
                message = describe(found)
        finally:
            message = self.from_first(message)
        if self.first:
            return found
        if message is None:
            raise RankError("the first rank has failed")
        try:
            return follow(message)
        except GptxError as error:
            advice = "give all machines the same folders: --checkpoints, --data"
            raise StorageError(f"{error}; {advice}") from None


ALONE = Launch()
