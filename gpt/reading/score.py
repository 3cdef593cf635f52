"""How well a model predicts a text: its loss, measured as evaluations in training measure it.

Evaluations read windows that do not overlap, so the first characters of each have little or no
context. Such a loss can compare models, but not characters. So the surprisals of single characters
can also come from windows that overlap by half: each character then has the context that the
sampler would have for it (sampler.window_start).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.counting.mixture import Mixture
from gpt.errors import TextError
from gpt.reading.decode import map_on_cores
from gpt.reading.gpt import Array, Reader
from gpt.show.result import Arrays, Passage, Result
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import nats_to_bits, pluralize

NUMBERS_AT_ONCE = 2**20  # logits or attention weights computed together, which fit a CPU's cache
FULL_COLOUR = 10  # bits of surprisal that get the strongest colour; a digit counts one bit


@dataclass(frozen=True)
class Score:
    """nats: mean per character; characters: how many were predicted. For a model with counting
    also: the means of the GPT alone and of counting alone; sum_error: how far from 1 the sum over
    the vocabulary is of the probabilities that `nats` comes from, at the worst position.
    """

    nats: float
    characters: int
    gpt: float | None = None
    counting: float | None = None
    sum_error: float | None = None

    @property
    def bits(self) -> float:
        """Bits per character."""
        return self.nats / math.log(2)

    @property
    def perplexity(self) -> float:
        """e to the nats: the number of equally likely characters with the same loss."""
        return math.exp(self.nats)

    @property
    def numbers(self) -> dict[str, Any]:
        """The loss for programs; for a model with counting, also of both experts alone."""
        numbers: dict[str, Any] = {"nats": self.nats, "bits": self.bits}
        numbers |= {"perplexity": self.perplexity, "characters": self.characters}
        if self.gpt is not None:
            numbers |= {"gpt_nats": self.gpt, "counting_nats": self.counting}
            numbers["sum_error"] = self.sum_error
        return numbers


@dataclass(frozen=True, eq=False)
class Surprisals(Arrays):
    """For each of the (n − 1,) characters after the first: −ln of its probability in nats, the
    likeliest id, and the probability of that id.

    text: the n characters; characters: the vocabulary, id -> character.
    places: (n,) the characters' positions in their file, if some were left out.
    """

    nats: Array
    likeliest: npt.NDArray[np.int64]
    chances: Array
    text: str
    characters: str
    places: npt.NDArray[np.int64] | None = None

    @property
    def score(self) -> Score:
        """The mean of the surprisals."""
        return Score(float(self.nats.mean(dtype=np.float64)), len(self.nats))

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """(n − 1,) the positions of the predicted characters."""
        return np.arange(1, len(self.nats) + 1) if self.places is None else self.places[1:]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """For programs: every character after the first."""
        columns: dict[str, Any] = {
            "position": self.positions.tolist(),
            "character": list(self.text[1:]),
            "nats": self.nats.tolist(),
            "bits": nats_to_bits(self.nats).tolist(),
            "expected_character": [self.characters[token] for token in self.likeliest],
            "expected_id": self.likeliest.tolist(),
            "probability": self.chances.tolist(),
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, repr=False, kw_only=True)
class Evaluation(Score, Result):
    """How well a model predicts the text named `name`.

    surprisals: the surprisal of each character, with `chars`. to_beat: the loss of counting, on the
    validation split. about: what programs get to know about the text and the model.
    """

    name: str
    about: Mapping[str, Any]
    surprisals: Surprisals | None = None
    to_beat: str = ""

    @property
    def title(self) -> str:
        return f"{self.name} · {pluralize(self.characters, 'character')}"

    def facts(self, all: bool = False) -> Mapping[str, str]:
        facts = {
            "loss": f"{self.nats:.4f} nats a character ({self.bits:.3f} bits)",
            "that is": f"as uncertain as among {self.perplexity:.1f} equal characters",
        }
        if self.gpt is not None:
            facts["GPT alone"] = f"{self.gpt:.4f} nats"
        if self.to_beat:
            facts["compared"] = self.to_beat
        elif self.counting is not None:
            facts["counting"] = f"{self.counting:.4f} nats, alone"
        if self.surprisals is not None and self.surprisals.score.nats != self.nats:
            facts["in context"] = (
                f"{self.surprisals.score.nats:.4f} nats, with half a window or more"
            )
        return facts

    def passage(self) -> Passage | None:
        if self.surprisals is None:
            return None
        shades = nats_to_bits(self.surprisals.nats) / FULL_COLOUR
        meaning = "bits of surprisal as colours or digits (9: 9 or more)"
        return Passage(self.surprisals.text, [math.nan, *shades.tolist()], meaning)

    def shown(self, all: bool = False) -> Sequence[Any]:
        """None: the passage has the same."""
        return ()

    @property
    def rows(self) -> Sequence[Any]:
        """A row for each character after the first, with `chars`."""
        return [] if self.surprisals is None else self.surprisals.rows

    def record(self) -> Mapping[str, Any]:
        return self.about


def score(reader: Reader, ids: Ids, mixture: Mixture | None = None) -> Score:
    """The loss over (n,) ids in non-overlapping windows of block_size.

    The first character is context only; the last window may be shorter. Raises TextError if n < 2.
    """

    def total(windows: _Windows) -> Array:
        logits, expected = windows.logits(reader, ids), windows.expected(ids)
        if mixture is None:
            return np.full(4, surprisals(logits, expected).sum(dtype=np.float64))
        predicted = mixture.predict(logits, windows.histories(mixture, ids))
        came = np.arange(len(expected)), expected
        both, gpt, counting = (
            -part[came].sum() for part in (predicted.both, predicted.gpt, predicted.counting)
        )
        sum_error = np.abs(np.exp(predicted.both).sum(axis=-1) - 1).max()
        return np.array([both, gpt, counting, sum_error])

    count, totals = len(ids) - 1, np.array(map_on_cores(total, _windows(reader.config, ids)))
    both, gpt, counting = (totals[:, :3].sum(axis=0) / count).tolist()
    if mixture is None:
        return Score(both, count)
    return Score(both, count, gpt, counting, float(totals[:, 3].max()))


def character_surprisals(
    reader: Reader,
    ids: Ids,
    vocabulary: Vocabulary,
    mixture: Mixture | None = None,
) -> Surprisals:
    """The surprisals of the characters, each with at least half of block_size as context, if the
    text has it. Raises TextError if n < 2.
    """

    def predict(windows: _Windows) -> tuple[Array, Ids, Array]:
        logits = windows.logits(reader, ids)
        if mixture is not None:
            logits = mixture.scores(logits, windows.histories(mixture, ids))
        most = logits.argmax(axis=-1)
        chances = np.exp(-surprisals(logits, most))
        return surprisals(logits, windows.expected(ids)), most, chances

    predicted = map_on_cores(predict, _windows(reader.config, ids, overlapping=True))
    nats, likeliest, chances = (np.concatenate(parts) for parts in zip(*predicted, strict=True))
    return Surprisals(nats, likeliest, chances, vocabulary.decode(ids), vocabulary.characters)


@dataclass(frozen=True)
class _Windows:
    """B windows of a text: (B,) the places of the first characters that they predict, how many
    characters of context come before these, and how many they predict, T.
    """

    starts: Ids
    before: int
    length: int

    def logits(self, reader: Reader, ids: Ids) -> Array:
        """(B · T, vocab_size)"""
        read = self.starts[:, None] + np.arange(-self.before, self.length - 1)
        logits = reader.logits(reader.forward(ids[read])[:, self.before - 1 :])
        return logits.reshape(-1, logits.shape[-1])

    def expected(self, ids: Ids) -> Ids:
        """(B · T,) the characters that really follow."""
        following: Ids = ids[self.starts[:, None] + np.arange(self.length)]
        return following.ravel()

    def histories(self, mixture: Mixture, ids: Ids) -> Ids:
        """The histories of these characters."""
        return mixture.expert.trie.histories_at(ids, self.starts, self.length)


def _windows(config: ModelConfig, ids: Ids, overlapping: bool = False) -> list[_Windows]:
    """The windows of a text in order, grouped as large as one forward pass may be.

    overlapping: windows begin half a window apart, and only the second half of each counts.
    """
    if len(ids) < 2:
        raise TextError("the text is too short to score: it needs two characters")
    block, targets = config.block_size, len(ids) - 1
    scored = max(1, block // 2) if overlapping else block  # the last characters of a window count
    before = min(block - scored, targets)
    windows = [_Windows(np.ones(1, np.int64), 1, before)] if before else []
    starts = np.arange(before, targets, scored)
    rows, whole = windows_at_once(config), (targets - before) // scored
    for group in np.split(starts, [*range(rows, whole, rows), whole]):  # the last one is shorter
        if len(group):
            length = min(scored, targets - int(group[0]))
            windows.append(_Windows(group + 1, before + 1, length))
    return windows


def windows_at_once(config: ModelConfig) -> int:
    """How many windows of block_size one forward pass may take, by the memory that it needs."""
    widest = max(config.widest_layer, config.n_head * config.block_size)
    return max(1, NUMBERS_AT_ONCE // (config.block_size * widest))


def surprisals(logits: Array, expected: Ids) -> Array:
    """(…, vocab_size) logits and (…) ids -> (…) −ln p(id), in nats."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(shifted).sum(axis=-1))
    came = np.take_along_axis(shifted, expected[..., None].astype(np.int64), axis=-1)[..., 0]
    return normaliser - came  # type: ignore[no-any-return]
