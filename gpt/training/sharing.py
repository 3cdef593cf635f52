"""How all ranks come to the same text and the same checkpoint: the first one finds, others follow.

They have not met yet: encoding may take hours, and only messages pass. `data` and `checkpoints`
must be the same folders on all machines. Knows no training.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus, reopen
from gpt.errors import CheckpointError, RankError, TextError
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.manifest import CorpusId
from gpt.storage.run import Run
from gpt.training.distributed import Ranks

Found = TypeVar("Found")


def shared_corpus(
    ranks: Ranks, data: Path, config: TrainConfig, read: Callable[[], Corpus]
) -> Corpus:
    """The corpus that the first rank reads; the others open it in `data`.

    Raises what `read` raises; elsewhere RankError, or TextError if it is not there.
    """

    def follow(told: str) -> Corpus:
        identity = CorpusId(**json.loads(told))
        corpus = reopen(identity, data, config)
        if corpus is None:
            raise TextError(
                f"{data.resolve()} on this machine does not hold the encoded corpus; give all "
                "machines one folder: --data"
            )
        return corpus

    return _shared(ranks, "corpus", read, lambda it: json.dumps(asdict(it.identity)), follow)


def shared_checkpoint(ranks: Ranks, run: Run) -> tuple[Checkpoint, list[str]]:
    """The newest whole checkpoint of a run, as the first rank finds it, and its warnings.

    Raises CheckpointError; RankError on the others if the first has found none.
    """

    def follow(told: str) -> tuple[Checkpoint, list[str]]:
        path = Path(told)
        if not os.path.isdir(path):
            raise CheckpointError(
                f"{path.resolve()} is not on this machine; give all machines one folder: "
                "--checkpoints"
            )
        return Checkpoint.open(path), []

    return _shared(ranks, "checkpoint", run.last_valid, lambda it: str(it[0].path), follow)


def _shared(
    ranks: Ranks,
    key: str,
    find: Callable[[], Found],
    told: Callable[[Found], str],
    follow: Callable[[str], Found],
) -> Found:
    if not ranks.first:
        heard = ranks.hear(key)
        if not heard:
            raise RankError(f"the first rank could not open its {key}")
        return follow(heard)
    try:
        found = find()
    except BaseException:
        ranks.tell(key, "")
        raise
    ranks.tell(key, told(found))
    return found
