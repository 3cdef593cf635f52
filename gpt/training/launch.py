"""The processes that torchrun starts: how many there are, and how they find the same run and text.

torchrun starts all processes again after one has died. A run has a file with the launch's name, so
that the next attempt resumes this run. The first rank finds the corpus and the checkpoint and
publishes where they are; `--data` and `--checkpoints` must be the same folders on all machines.
A single process imports no torch here.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpt.config import TrainConfig
from gpt.config.fields import require
from gpt.corpus.corpus import Corpus, reopen
from gpt.errors import CheckpointError, ConfigError, RankError, TextError
from gpt.storage import files
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.run import Run
from gpt.storage.runs import all_runs
from gpt.vocabulary import Vocabulary

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

MARK = ".launch"
MARK_LIMIT = 2**12  # bytes
POLL = 0.05  # seconds
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
        if not 0 <= rank < size < 2**31:
            raise ConfigError(f"RANK is {rank} of WORLD_SIZE {size}; use torchrun")
        name = environment.get("TORCHELASTIC_RUN_ID", "none")
        return cls(rank, size, local, name, *attempts)

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
            run.write(MARK, json.dumps({"launch": self.name, "agent": _agent()}) + "\n")

    def interrupted(self, root: Path) -> Run | None:
        """The run that an earlier attempt of this launch has begun and saved, or None.

        Names of launches may be used again: a run of another torchrun process counts only for an
        attempt after the first, and only if the launch has a name (not torchrun's default "none").
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
    """The process that started this one: it stays the same when it starts all ranks again."""
    return f"{socket.gethostname()}:{os.getppid()}"


ALONE = Launch()


class Messages:
    """Texts that ranks leave for each other, before they exchange numbers. Several ranks wait for
    each other here.
    """

    def __init__(self, launch: Launch = ALONE, store: Store | None = None) -> None:
        self.launch, self.store = launch, store
        self.rank, self.size, self.first = launch.rank, launch.size, launch.first
        if self.size > 1 and store is None:
            from torch.distributed.distributed_c10d import PrefixStore
            from torch.distributed.rendezvous import rendezvous

            found, _, _ = next(rendezvous("env://"))
            # The store outlives an attempt; messages of an earlier attempt must not be read.
            self.store = PrefixStore(f"attempt {launch.attempt} of {launch.size}", found)

    def publish(self, key: str, text: str) -> None:
        """Writes a message for all ranks."""
        if self.store is not None:
            self.store.set(f"gptx/{key}", text)

    def wait(self, key: str) -> str:
        """Waits for a message without a time limit; a signal may interrupt it."""
        assert self.store is not None
        while not self.store.check([f"gptx/{key}"]):
            time.sleep(POLL)
        return str(self.store.get(f"gptx/{key}"), "utf-8")


def shared_interrupted(ranks: Messages, root: Path) -> Run | None:
    """The run that this launch created before torchrun restarted it; the same on all ranks."""
    if ranks.size == 1 and not ranks.launch.name:
        return None
    if ranks.first:
        found = ranks.launch.interrupted(root)
        ranks.publish("interrupted", str(found.path) if found else "")
        return found
    path = ranks.wait("interrupted")
    return Run(Path(path)) if path else None


def shared_corpus(
    ranks: Messages, data: Path, config: TrainConfig, read: Callable[[], Corpus]
) -> Corpus:
    """The corpus that the first rank reads; the others open it in `data`.

    Raises what `read` raises; elsewhere RankError, or TextError if it is not there.
    """

    def follow(message: str) -> Corpus:
        identity, characters = json.loads(message)
        corpus = reopen(CorpusId(**identity), data, Vocabulary(characters), config)
        if corpus is None:
            raise TextError(
                f"{data.resolve()} on this machine does not hold the encoded corpus; give all "
                "machines one folder: --data"
            )
        return corpus

    def describe(corpus: Corpus) -> str:
        return json.dumps([asdict(corpus.identity), corpus.vocabulary.characters])

    return shared(ranks, "corpus", read, describe, follow)


def shared_checkpoint(ranks: Messages, run: Run) -> tuple[Checkpoint, list[str]]:
    """The newest whole checkpoint of a run, as the first rank finds it, and its warnings.

    Raises CheckpointError; RankError on the others if the first has found none.
    """

    def follow(message: str) -> tuple[Checkpoint, list[str]]:
        path = Path(message)
        if not os.path.isdir(path):
            raise CheckpointError(
                f"{path.resolve()} is not on this machine; give all machines one folder: "
                "--checkpoints"
            )
        return Checkpoint.open(path), []

    return shared(ranks, "checkpoint", run.last_valid, lambda it: str(it[0].path), follow)


def shared(
    ranks: Messages,
    key: str,
    find: Callable[[], Found],
    describe: Callable[[Found], str],
    follow: Callable[[str], Found],
) -> Found:
    """The result of the first rank; the others get it through its description. "": no result."""
    if not ranks.first:
        message = ranks.wait(key)
        if not message:
            raise RankError(f"the first rank could not open its {key}")
        return follow(message)
    message = ""
    try:
        found = find()
        message = describe(found)
        return found
    finally:
        ranks.publish(key, message)


def check_resumable(manifest: Manifest) -> None:
    """Raises ConfigError for a model that was imported."""
    require(
        not manifest.imported,
        "resume",
        "this run was imported without the state of its optimizer; begin a new run with its "
        "weights: gptx train TEXT --from RUN",
    )
