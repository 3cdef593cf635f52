"""The counting expert with its gate, beside a GPT: both predict together.

Tensor names: B streams, T positions, N orders, V vocab_size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import SampleConfig
from gpt.config.fields import require
from gpt.counting.expert import Array, CachedExpert, Counted, Expert
from gpt.counting.gate import FEATURES, Gate, Logits, features, log_softmax, parts
from gpt.counting.tables import Numbers, unpacked
from gpt.errors import CheckpointError
from gpt.storage.model_file import StoredModel
from gpt.vocabulary import Ids

LARGEST_WEIGHT = 1e6  # of a gate in a file; fitted ones are below 10
LEAST = -600.0  # logarithm of a probability; below −745, float64 has none


@dataclass(frozen=True)
class Together:
    """Of T characters: (T, V) log-probabilities of the GPT, of counting and of both together;
    (2, T) the weights that the gate gave to the first two; and what counting says.
    """

    gpt: Array
    counting: Array
    both: Array
    weights: Array
    counted: Counted


@dataclass(frozen=True)
class Mixture:
    """The counting expert of a checkpoint, and the gate that mixes it with the GPT."""

    expert: Expert
    gate: Gate

    def predict(self, logits: Logits, histories: Numbers) -> Together:
        """(T, V) logits of the GPT and (N, T) histories -> what each predicts, and both."""
        counted = self.expert.predict(histories)
        seen = features(counted, logits)
        both = log_softmax(self.gate.scores(logits, counted.logs, seen))
        return Together(log_softmax(logits), counted.logs, both, self.gate.shares(seen), counted)

    def losses(self, logits: Logits, histories: Numbers, ids: Ids) -> Array:
        """As `predict`, and the (T,) ids that followed -> (T,) the losses of both, in nats."""
        both = np.empty(len(ids))
        for part in parts(*logits.shape):
            found = log_softmax(self.scores(logits[part], histories[:, part]))
            both[part] = found[np.arange(len(found)), ids[part]]
        return -both

    def scores(self, logits: Logits, histories: Numbers) -> Array:
        """As `predict` -> (T, V) the logits of both together."""
        counted = self.expert.predict(histories)
        return self.gate.scores(logits, counted.logs, features(counted, logits))

    @cached_property
    def cached(self) -> CachedExpert:
        """The expert, for one text at a time."""
        return CachedExpert(self.expert)

    def packed(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that a model file stores (model_file.COUNTING)."""
        return {**self.expert.trie.packed(), "gate": self.gate.weights}


def mixture_of(stored: StoredModel) -> Mixture | None:
    """The mixture in a model file; None without counting. Raises CheckpointError."""
    if stored.counting is None:
        return None
    size, gate = len(stored.vocabulary), stored.counting["gate"]
    try:
        if gate.shape != (2, len(FEATURES)):
            raise ValueError("the gate has another shape")
        if not np.abs(gate).max() <= LARGEST_WEIGHT:
            raise ValueError("the gate has a weight that no text gives")
        expert = Expert(unpacked(stored.counting, size, stored.config.counting), size)
        if expert.least < LEAST:
            raise ValueError("the counts leave some characters no probability")
        return Mixture(expert, Gate(gate))
    except ValueError as error:
        raise CheckpointError(f"damaged: {stored.source} ({error})") from error


class Streams:
    """B texts that continue, and the (N, B) histories of each. alone: without the GPT."""

    def __init__(self, mixture: Mixture, prompt: Ids, count: int = 1, alone: bool = False) -> None:
        """All begin with the same (n,) prompt ids."""
        self.mixture, self.alone, trie = mixture, alone, mixture.expert.trie
        last = trie.histories(prompt[max(0, len(prompt) - trie.orders + 1) :])[:, -1:]
        self._histories = np.repeat(last, count, axis=1)

    def scores(self, logits: Logits) -> Array:
        """(B, V) logits of the GPT -> (B, V) the logits of what predicts."""
        if self.alone:
            return self.mixture.expert.predict(self._histories).logs
        return self.mixture.scores(logits, self._histories)

    def append(self, ids: Ids) -> None:
        """(B,) the characters that were drawn."""
        self._histories = self.mixture.expert.trie.advanced(self._histories, ids)

    @property
    def histories(self) -> npt.NDArray[np.int64]:
        """(N, B), see Trie.histories."""
        return self._histories


class OneStream(Streams):
    """As Streams, for one text: in a third of the time."""

    def __init__(self, mixture: Mixture, prompt: Ids, alone: bool = False) -> None:
        self.mixture, self.alone, self._nodes = mixture, alone, [0]
        self.append(prompt[1 - mixture.expert.trie.orders :])  # earlier ones are in no history

    def scores(self, logits: Logits) -> Array:
        """(1, V) logits of the GPT -> (1, V) the logits of what predicts."""
        chances = self.mixture.cached.predict(self._nodes)
        counting: Array = np.log(chances)
        if self.alone:
            return counting[None]
        gpt = logits[0].astype(np.float64)
        gpt -= gpt.max()
        entropy = -float(chances @ counting)
        agreement = float(chances @ gpt) - math.log(np.exp(gpt).sum())
        a, b = self.mixture.gate.shares_of_one((1.0, entropy, agreement))
        gpt *= a
        counting *= b
        counting += gpt
        return counting[None]

    def append(self, ids: Ids) -> None:
        """(n,) the characters that were drawn, one after the other."""
        for symbol in ids.tolist():
            self._nodes = self.mixture.cached.followed(self._nodes, symbol)

    @property
    def histories(self) -> npt.NDArray[np.int64]:
        """(N, 1)"""
        trie = self.mixture.expert.trie
        found = np.full((trie.orders, 1), trie.unseen)
        found[: len(self._nodes), 0] = self._nodes
        return found


def continued(mixture: Mixture | None, ids: Ids, config: SampleConfig) -> Streams | None:
    """What counts beside the GPT after (n,) ids, config.n times; None if the GPT predicts alone.

    Raises ConfigError if `config.only` asks for a counting expert that there is not.
    """
    require(
        mixture is not None or config.only != "counting",
        "only",
        "this model was trained without counting",
    )
    if mixture is None or config.only == "gpt":
        return None
    alone = config.only == "counting"
    if config.n == 1:
        return OneStream(mixture, ids, alone)
    return Streams(mixture, ids, config.n, alone)
