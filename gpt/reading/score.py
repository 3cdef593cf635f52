"""Measures how well a model predicts a text: the loss of the text, and surprisals of characters.

`score` measures the loss as evaluations during training do, over windows that do not overlap. The
first characters of a window have little context, so this loss can compare models, but not
characters. `character_surprisals` reads windows that overlap by half, so every character has the
context that the sampler would have for it (sampler.window_start).
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
from gpt.show.result import Passage, ReadOnlyArrays, Result
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import nats_to_bits, pluralize

NUMBERS_AT_ONCE = 2**20  # logits or attention weights computed at once, which fit a CPU's cache
FULL_COLOUR = 10  # bits of surprisal that get the strongest colour


@dataclass(frozen=True)
class Score:
    """The loss of a text. nats: the mean per character. characters: how many were predicted.

    The other fields are None for a model without counting. gpt, counting: the losses, in nats, of
    the GPT alone and of counting alone. sum_error: the largest difference, over all positions,
    between the sum of the predicted probabilities and 1.
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
        """e^nats, the number of equally likely characters with the same loss."""
        return math.exp(self.nats)

    @property
    def loss_record(self) -> dict[str, Any]:
        """The loss for --json. For a model with counting, also the losses of both experts alone."""
        numbers: dict[str, Any] = {"nats": self.nats, "bits": self.bits}
        numbers |= {"perplexity": self.perplexity, "characters": self.characters}
        if self.gpt is not None:
            numbers |= {"gpt_nats": self.gpt, "counting_nats": self.counting}
            numbers["sum_error"] = self.sum_error
        return numbers


@dataclass(frozen=True, eq=False)
class Surprisals(ReadOnlyArrays):
    """How well a model predicts every character of a text after the first.

    nats: (n − 1,) −ln of the character's probability. likeliest: (n − 1,) the likeliest ids there.
    chances: (n − 1,) the probabilities of the likeliest ids. text: the n characters. characters:
    the vocabulary, id -> character. places: (n,) the characters' positions in their file, if
    `text` lacks characters of the file.
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
        """A row for every character after the first, for --json and csv."""
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
    """The result of `eval`: how well a model predicts the text named `name`.

    surprisals: of all characters, with the option `chars`. to_beat: a sentence that compares
    the loss with that of counting, on the validation split. about: more entries of --json.
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
            "that is": f"as uncertain as among {self.perplexity:.1f} equally likely characters",
        }
        if self.gpt is not None:
            facts["GPT alone"] = f"{self.gpt:.4f} nats"
        if self.to_beat:
            facts["compared"] = self.to_beat
        elif self.counting is not None:
            facts["counting"] = f"{self.counting:.4f} nats, alone"
        if self.surprisals is not None and self.surprisals.score.nats != self.nats:
            nats = self.surprisals.score.nats
            facts["in context"] = f"{nats:.4f} nats, with half a window before each character"
        return facts

    def passage(self) -> Passage | None:
        if self.surprisals is None:
            return None
        shades = nats_to_bits(self.surprisals.nats) / FULL_COLOUR
        meaning = "bits of surprisal as colours or digits (9: 9 or more)"
        return Passage(self.surprisals.text, [math.nan, *shades.tolist()], meaning)

    def table_rows(self, all: bool = False) -> Sequence[Any]:
        """Returns no rows, because the passage shows the same."""
        return ()

    @property
    def rows(self) -> Sequence[Any]:
        """A row for every character after the first, with the option `chars`."""
        return [] if self.surprisals is None else self.surprisals.rows

    def record(self) -> Mapping[str, Any]:
        return self.about


def score(reader: Reader, ids: Ids, mixture: Mixture | None = None) -> Score:
    """Returns the loss of (n,) ids in windows of block_size that do not overlap. The first
    character is not predicted. The last window may be shorter. Raises TextError if n < 2.
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
    """Returns the surprisals of (n,) ids. Raises TextError if n < 2. Every character has at least
    half of block_size characters as context, if so many precede it.
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
    """B windows of a text, in each of which T characters are predicted.

    starts: (B,) the places of the first predicted characters. before: how many characters of
    context precede a window's first predicted character. length: T.
    """

    starts: Ids
    before: int
    length: int

    def logits(self, reader: Reader, ids: Ids) -> Array:
        """Returns (B · T, vocab_size) logits of the predicted characters."""
        read = self.starts[:, None] + np.arange(-self.before, self.length - 1)
        logits = reader.logits(reader.forward(ids[read])[:, self.before - 1 :])
        return logits.reshape(-1, logits.shape[-1])

    def expected(self, ids: Ids) -> Ids:
        """Returns the (B · T,) ids that the text has at the predicted positions."""
        following: Ids = ids[self.starts[:, None] + np.arange(self.length)]
        return following.ravel()

    def histories(self, mixture: Mixture, ids: Ids) -> Ids:
        """Returns (N, B · T) histories of the predicted characters (Trie.histories_at)."""
        return mixture.expert.trie.histories_at(ids, self.starts, self.length)


def _windows(config: ModelConfig, ids: Ids, overlapping: bool = False) -> list[_Windows]:
    """Divides a text into windows, and groups as many windows as one forward pass can take.

    overlapping: every window begins half a window after the one before it, and predicts only the
    characters of its second half.
    """
    if len(ids) < 2:
        raise TextError("the text is too short to score: it needs two characters")
    block, targets = config.block_size, len(ids) - 1
    scored = max(1, block // 2) if overlapping else block  # at the end of each window
    before = min(block - scored, targets)
    windows = [_Windows(np.ones(1, np.int64), 1, before)] if before else []
    starts = np.arange(before, targets, scored)
    rows, whole = windows_at_once(config), (targets - before) // scored
    # The last window may be shorter, so it has a group of its own.
    for group in np.split(starts, [*range(rows, whole, rows), whole]):
        if len(group):
            length = min(scored, targets - int(group[0]))
            windows.append(_Windows(group + 1, before + 1, length))
    return windows


def windows_at_once(config: ModelConfig) -> int:
    """Returns how many windows of block_size one forward pass takes, so that it fits the cache."""
    widest = max(config.widest_layer, config.n_head * config.block_size)
    return max(1, NUMBERS_AT_ONCE // (config.block_size * widest))


def surprisals(logits: Array, expected: Ids) -> Array:
    """(…, vocab_size) logits and (…) ids -> (…) −ln of the ids' probabilities, in nats."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(shifted).sum(axis=-1))
    came = np.take_along_axis(shifted, expected[..., None].astype(np.int64), axis=-1)[..., 0]
    return normaliser - came  # type: ignore[no-any-return]
