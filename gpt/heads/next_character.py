"""The distribution of the next character, as the model computes it and after each sampling filter.

Also the logit lens (nostalgebraist 2020): what the model would predict if it stopped after a layer.
The lens is a heuristic: only the last depth is the model's prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import TableResult
from gpt.config import SampleConfig
from gpt.config.sample import SHAPING
from gpt.counting.mixture import Mixture, continued
from gpt.counting.tables import Numbers
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Memory, Reader
from gpt.reading.layers import Array, softmax
from gpt.reading.sampler import probabilities, window_start
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted


@dataclass(frozen=True, repr=False)
class Experts(TableResult):
    """What the GPT and counting expect at T positions, and both together, the model's prediction.

    gpt, counting, both: (T, V) probabilities. weights: (T, 2), the powers to which the GPT's and
    counting's probabilities enter their product. Of the longest history that counting knows,
    lengths: (T,) its characters; totals: (T,) how often it was counted; kinds: (T,) how many
    distinct characters followed it; pairs: (T,) whether not its occurrences were counted, but the
    distinct pairs of a character before and one after it, as Kneser–Ney does for all but the
    longest n-grams. `at` gives one position, without the axis T. text: the T characters;
    characters: the vocabulary, id -> character; empty if not known.
    """

    gpt: npt.NDArray[np.float64]
    counting: npt.NDArray[np.float64]
    both: npt.NDArray[np.float64]
    weights: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.integer[Any]]
    totals: npt.NDArray[np.float64]
    kinds: npt.NDArray[np.integer[Any]]
    pairs: npt.NDArray[np.bool_]
    text: str = ""
    characters: str = ""

    def __repr__(self) -> str:
        gpt, counting = np.atleast_2d(self.weights).mean(axis=0)
        places = len(np.atleast_1d(self.lengths))
        return (
            f"<Experts at {counted(places, 'position')}: mean weight of the GPT "
            f"{gpt:.2f}, of counting {counting:.2f}>"
        )

    def at(self, position: int) -> Experts:
        arrays = {name: each[position] for name, each in self.to_numpy().items()}
        return replace(self, **arrays, text=self.text[position : position + 1])


@dataclass(frozen=True, repr=False)
class Following(TableResult):
    """For every character of the vocabulary, (V,): its probability before and after the filters.

    expected: the model's probabilities; filtered: those after temperature and filters, from which
    sampling draws. removed: what removed the character, as an index into SHAPING, or −1. experts:
    of a model with counting, this position's, if both together predict. config: the filters;
    characters: the vocabulary, id -> character; text: the text before it; empty if not known.
    """

    expected: npt.NDArray[np.float64]
    filtered: npt.NDArray[np.float64]
    removed: npt.NDArray[np.int64]
    experts: Experts | None = None
    config: SampleConfig = field(default_factory=SampleConfig)
    characters: str = ""
    text: str = ""

    def __repr__(self) -> str:
        best = int(self.expected.argmax())
        name = repr(self.characters[best]) if self.characters else f"id {best}"
        return (
            f"<Following: the next of {len(self.expected)} characters; likeliest {name} "
            f"{self.expected[best]:.3f}, entropy {self.entropies[0]:.2f} bits>"
        )

    @property
    def changed(self) -> bool:
        """Whether temperature or a filter changed any probability."""
        return not np.allclose(self.expected, self.filtered, rtol=1e-9, atol=0)

    @property
    def entropies(self) -> tuple[float, float]:
        """Entropy in bits of the expected and of the filtered distribution."""
        return _bits(self.expected), _bits(self.filtered)


def following(
    reader: Reader,
    ids: Ids,
    config: SampleConfig,
    mixture: Mixture | None = None,
    vocabulary: Vocabulary | None = None,
    memory: Memory | None = None,
) -> Following:
    """(n,) ids, n ≥ 1 -> the next character, in the window of `sample` (sampler.window_start).

    vocabulary: gives the result its characters. memory: what a model with an encoder reads.

    Raises ConfigError if `config.only` asks for a counting expert that there is not.
    """
    seen = ids[window_start(len(ids), reader.config.block_size) :]
    logits = reader.logits(reader.forward(seen[None], memory)[:, -1])  # (1, V)
    counting = continued(mixture, ids, replace(config, n=1))
    experts = None
    if mixture is not None and counting is not None:
        if config.only is None:
            experts = _experts(mixture, logits, counting.histories).at(0)
        logits = counting.scores(logits)
    removed = np.full(logits.shape[1], -1)
    for number in range(len(SHAPING)):
        later: dict[str, Any] = dict.fromkeys(SHAPING[number + 1 :])  # no filter has been applied
        filtered = probabilities(logits, replace(config, **later))[0]
        removed[(filtered == 0) & (removed < 0)] = number
    expected = probabilities(logits, SampleConfig(temperature=1.0))[0]
    known = (vocabulary.characters, vocabulary.decode(ids)) if vocabulary else ("", "")
    return Following(expected, filtered, removed, experts, config, *known)


def all_experts(reader: Reader, attention: AttentionMap, mixture: Mixture) -> Experts:
    """What the GPT, counting and both expect after each character of the map's text.

    Counting uses only characters of this text.
    """
    logits = reader.logits(reader.final_norm(attention.layers[-1].output[None]))[0]  # (T, V)
    histories = mixture.expert.trie.histories(attention.ids)[:, 1:]
    found = _experts(mixture, logits, histories)
    return replace(found, text=attention.text, characters=attention.characters)


def _experts(mixture: Mixture, logits: Array, histories: Numbers) -> Experts:
    """(T, V) logits of the GPT, (N, T) histories -> T positions."""
    found = mixture.predict(logits, histories)
    gpt, counting, both = (np.exp(each) for each in (found.gpt, found.counting, found.both))
    depth, total, kinds = found.counted.depth, found.counted.total, found.counted.kinds
    pairs = depth < mixture.expert.trie.orders
    return Experts(gpt, counting, both, found.weights.T, depth - 1, total, kinds, pairs)


@dataclass(frozen=True, repr=False)
class Lens(TableResult):
    """The K likeliest next characters at each of S = n_layer + 1 depths and T positions.

    Depth 0 is the embedding alone, the last is the model's own prediction. ids, probabilities:
    (S, T, K), likeliest first. text: the T characters; characters: the vocabulary, id ->
    character; empty if not known.
    """

    ids: npt.NDArray[np.int64]
    probabilities: Array
    text: str = ""
    characters: str = ""

    def __repr__(self) -> str:
        depths, places, _ = self.ids.shape
        mean = float(self.probabilities[-1, :, 0].mean())
        return (
            f"<Lens: {counted(places, 'position')} at {depths} depths; the model's "
            f"likeliest character has {mean:.3f} on average>"
        )


def logit_lens(reader: Reader, attention: AttentionMap, most: int = 8) -> Lens:
    """unembed(norm(stream)) at every depth, the `most` likeliest characters of each.

    Raises ValueError for a map of the encoder's or decoder's own attention, which does not have the
    layers' outputs: cross-attention's has them.
    """
    if attention.source and attention.kind != "cross":
        raise ValueError(f"kind: the logit lens needs 'cross', not {attention.kind!r}")
    start = reader.embed(attention.ids[None])[0]
    streams = np.stack([start, *(layer.output for layer in attention.layers)])  # (S, T, C)
    chances = softmax(reader.logits(reader.final_norm(streams)))  # (S, T, vocab_size)
    ids = np.argsort(-chances, axis=-1, kind="stable")[..., :most]
    probabilities = np.take_along_axis(chances, ids, axis=-1)
    return Lens(ids, probabilities, attention.text, attention.characters)


def _bits(chances: npt.NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log2(positive)).sum()) + 0.0
