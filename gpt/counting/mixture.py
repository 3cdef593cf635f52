"""The counting expert with its gate, beside a GPT: both predict together.

Tensor names: B streams, T positions, N orders, V vocab_size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.counting.expert import Array, Expert
from gpt.counting.gate import Gate, Logits, features, log_softmax
from gpt.counting.tables import Numbers
from gpt.vocabulary import Ids


@dataclass(frozen=True)
class Together:
    """Of T characters: (T, V) log-probabilities of the GPT, of counting and of both together; and
    (2, T) the weights that the gate gave to the first two.
    """

    gpt: Array
    counting: Array
    both: Array
    weights: Array


@dataclass(frozen=True)
class Mixture:
    """What a checkpoint with counting has beside its GPT."""

    expert: Expert
    gate: Gate

    def predict(self, logits: Logits, histories: Numbers) -> Together:
        """(T, V) logits of the GPT and (N, T) histories -> what each predicts, and both."""
        gpt, counting, seen = experts(self.expert, logits, histories)
        both = log_softmax(self.gate.scores(gpt, counting, seen))
        return Together(gpt, counting, both, self.gate.shares(seen))

    def scores(self, logits: Logits, histories: Numbers) -> Array:
        """(T, V) logits of the GPT and (N, T) histories -> (T, V) the logits of both together."""
        return self.gate.scores(*experts(self.expert, logits, histories))

    def histories(self, ids: Ids, start: int, end: int) -> npt.NDArray[np.int64]:
        """(N, end − start) the histories before the characters start … end − 1 of a text."""
        first = max(0, start - self.expert.trie.orders + 1)
        return self.expert.trie.histories(ids[first : max(first, end - 1)])[:, start - first :]


def experts(expert: Expert, logits: Logits, histories: Numbers) -> tuple[Array, Array, Array]:
    """(T, V) logits of the GPT and (N, T) histories -> (T, V) log-probabilities of the GPT and of
    counting, and (T, F) the gate's features.
    """
    gpt, counted = log_softmax(logits), expert.predict(histories)
    return gpt, np.log(counted.chances), features(gpt, counted, expert.trie.orders)


class Streams:
    """B texts that continue, and the history of each."""

    def __init__(self, mixture: Mixture, prompt: Ids, count: int) -> None:
        """All begin with the same (n,) prompt ids."""
        self._mixture = mixture
        after = mixture.histories(prompt, len(prompt), len(prompt) + 1)
        self._histories = np.repeat(after, count, axis=1)

    def scores(self, logits: Logits) -> Array:
        """(B, V) logits of the GPT -> (B, V) the logits of both together."""
        return self._mixture.scores(logits, self._histories)

    def append(self, ids: Ids) -> None:
        """(B,) the characters that were drawn."""
        self._histories = self._mixture.expert.trie.advanced(self._histories, ids)
