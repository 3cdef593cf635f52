"""The distribution of the next character, as the model computes it and after each sampling filter.

Also the logit lens (nostalgebraist 2020): what the model would predict if it stopped after a layer.
The lens is a heuristic: only the last depth is the model's prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import Result
from gpt.config import SampleConfig
from gpt.config.sample import SHAPING
from gpt.counting.mixture import Mixture
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array, softmax
from gpt.reading.sampler import continued, probabilities, window_start
from gpt.vocabulary import Ids


@dataclass(frozen=True)
class Experts(Result):
    """(V,) probabilities of the GPT and of counting. weights: (2,), the powers to which these enter
    the product that is the model's prediction.
    """

    gpt: npt.NDArray[np.float64]
    counting: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Following(Result):
    """For every character of the vocabulary, (V,): its probability before and after the filters.

    expected: the model's probabilities; filtered: those after temperature and filters, from which
    sampling draws. removed: what removed the character, as an index into SHAPING, or −1. experts:
    of a model with counting, what the GPT and counting say alone, and their weights.
    """

    expected: npt.NDArray[np.float64]
    filtered: npt.NDArray[np.float64]
    removed: npt.NDArray[np.int64]
    experts: Experts | None = None

    @property
    def changed(self) -> bool:
        """Whether temperature or a filter changed any probability."""
        return not np.allclose(self.expected, self.filtered, rtol=1e-9, atol=0)

    @property
    def entropies(self) -> tuple[float, float]:
        """Entropy in bits of the expected and of the filtered distribution."""
        return _bits(self.expected), _bits(self.filtered)


def following(
    reader: Reader, ids: Ids, config: SampleConfig, mixture: Mixture | None = None
) -> Following:
    """(n,) ids, n ≥ 1 -> the next character, in the window of `sample` (sampler.window_start).

    Raises ConfigError if `config.only` asks for a counting expert that there is not.
    """
    seen = ids[window_start(len(ids), reader.config.block_size) :]
    logits = reader.logits(reader.forward(seen[None])[:, -1])  # (1, V)
    counting = continued(mixture, ids, replace(config, n=1))
    experts = None
    if mixture is not None and counting is not None:
        found = mixture.predict(logits, counting.histories)
        experts = Experts(np.exp(found.gpt[0]), np.exp(found.counting[0]), found.weights[:, 0])
        logits = counting.scores(logits)
    removed = np.full(logits.shape[1], -1)
    for number in range(len(SHAPING)):
        later: dict[str, Any] = dict.fromkeys(SHAPING[number + 1 :])  # no filter has been applied
        filtered = probabilities(logits, replace(config, **later))[0]
        removed[(filtered == 0) & (removed < 0)] = number
    expected = probabilities(logits, SampleConfig(temperature=1.0))[0]
    return Following(expected, filtered, removed, experts)


@dataclass(frozen=True)
class Lens(Result):
    """The K likeliest next characters at each of S = n_layer + 1 depths and T positions.

    Depth 0 is the embedding alone, the last is the model's own prediction. ids, probabilities:
    (S, T, K), likeliest first.
    """

    ids: npt.NDArray[np.int64]
    probabilities: Array


def logit_lens(reader: Reader, attention: AttentionMap, most: int = 8) -> Lens:
    """unembed(norm(stream)) at every depth, the `most` likeliest characters of each."""
    layers = attention.layers
    streams = np.stack([layers[0].stream, *(layer.output for layer in layers)])  # (S, T, C)
    chances = softmax(reader.logits(reader.final_norm(streams)))  # (S, T, vocab_size)
    ids = np.argsort(-chances, axis=-1, kind="stable")[..., :most]
    return Lens(ids, np.take_along_axis(chances, ids, axis=-1))


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0
