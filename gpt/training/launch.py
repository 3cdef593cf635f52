"""What torchrun says to the processes that it starts: how many there are, and which one this is.

Knows no torch. A launch may start its processes several times, after one of them has died; a run
carries the launch's mark, so that the next attempt goes on with it instead of beginning another.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpt.errors import CheckpointError, ConfigError
from gpt.storage import files
from gpt.storage.run import Run
from gpt.storage.runs import all_runs

MARK = ".launch"
MARK_LIMIT = 2**12  # bytes


@dataclass(frozen=True)
class Launch:
    """rank: among `size` processes in all; local_rank: among those of this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    name: str = ""  # "": nobody has launched us
    attempt: int = 0
    attempts: int = 0  # that may follow the first

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """From the environment variables that torchrun sets. Raises ConfigError."""
        if "RANK" not in environment or "WORLD_SIZE" not in environment:
            return cls()
        numbers = (
            *("RANK", "WORLD_SIZE", "LOCAL_RANK"),
            *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
        )
        try:
            rank, size, local, *attempts = (int(environment.get(name, "0")) for name in numbers)
        except ValueError as error:
            raise ConfigError(f"RANK, WORLD_SIZE, LOCAL_RANK: {error}; use torchrun") from None
        if not 0 <= rank < size:
            raise ConfigError(f"RANK is {rank} of WORLD_SIZE {size}; use torchrun")
        name = environment.get("TORCHELASTIC_RUN_ID", "none")
        return cls(rank, size, local, name, *attempts)

    @property
    def first(self) -> bool:
        """Whether this process speaks and saves for all."""
        return self.rank == 0

    @property
    def comes_again(self) -> bool:
        """Whether all are started again if this process does not end with exit code 0."""
        return self.attempt < self.attempts

    def mark(self, run: Run) -> None:
        """Notes in a run that it is this launch's. Raises StorageError."""
        if self.name:
            run.write(MARK, json.dumps({"launch": self.name, "agent": _agent()}) + "\n")

    def interrupted(self, root: Path) -> Run | None:
        """The run that an earlier attempt of this launch has begun and saved, or None.

        Names of launches may be used again: only an attempt after the first may take another
        machine's run, and no nameless launch another process's.
        """
        if not self.name:
            return None
        for run in reversed(all_runs(root)):
            with suppress(CheckpointError, ValueError, KeyError, TypeError, RecursionError):
                found = json.loads(files.read(run.path / MARK, MARK_LIMIT))
                same = found["agent"] == _agent()
                again = self.attempt > 0 and self.name != "none"
                if found["launch"] == self.name and (same or again):
                    return run
        return None


def _agent() -> str:
    """The process that has started us: it stays when it starts us again."""
    return f"{socket.gethostname()}:{os.getppid()}"


ALONE = Launch()
