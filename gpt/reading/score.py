"""How well a model predicts a text: its loss, measured as evaluations in training measure it.

Evaluations read windows that do not overlap, so the first characters of each have little or no
context. Such a loss can compare models, but not characters. So the surprisals of single characters
can also come from windows that overlap by half: each character then has the context that the
sampler would have for it (sampler.window_start).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Fold,
    Legend,
    Note,
    Passage,
    Records,
    Table,
    Title,
    format_number,
)
from gpt.characters import in_line, label
from gpt.checks import TableResult
from gpt.config import ModelConfig
from gpt.counting.mixture import Mixture
from gpt.errors import TextError
from gpt.reading.decode import map_on_cores
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import bits, counted

NUMBERS_AT_ONCE = 2**20  # logits or attention weights computed together, which fit a CPU's cache
WORST = 10  # surprisals to list
BEFORE, AFTER = 20, 8  # characters of context to show beside a surprisal
LONGEST_HINTED = 1_500  # in a text up to this length, the mouse shows each character's surprisal


@dataclass(frozen=True, repr=False)
class Score(TableResult):
    """nats: mean per character; characters: how many were predicted. For a model with counting
    also: the means of the GPT alone and of counting alone; sum_error: how far from 1 the sum over
    the vocabulary is of the probabilities that `nats` comes from, at the worst position.
    """

    nats: float
    characters: int
    gpt: float | None = None
    counting: float | None = None
    sum_error: float | None = None

    def __repr__(self) -> str:
        return f"<Score {self.loss}: {self.characters:,} characters predicted>"

    @property
    def bits(self) -> float:
        """Bits per character."""
        return self.nats / math.log(2)

    @property
    def perplexity(self) -> float:
        """e to the nats: the number of equally likely characters with the same loss."""
        return math.exp(self.nats)

    @property
    def loss(self) -> str:
        """ "1.6693 nats, 2.408 bits a character" """
        return f"{self.nats:.4f} nats, {self.bits:.3f} bits a character"

    @property
    def numbers(self) -> dict[str, Any]:
        """The loss for programs; for a model with counting, also of both experts alone."""
        found: dict[str, Any] = {"nats": self.nats, "bits": self.bits}
        found |= {"perplexity": self.perplexity, "characters": self.characters}
        if self.gpt is not None:
            found |= {"gpt_nats": self.gpt, "counting_nats": self.counting}
            found["sum_error"] = self.sum_error
        return found

    def blocks(self) -> list[Block]:
        """The loss for people; for a model with counting, also of both experts alone."""
        equal = "as uncertain as among so many equal characters"
        facts = {"perplexity": f"{self.perplexity:.3f}: {equal}"}
        for name, nats in (("the GPT alone", self.gpt), ("counting alone", self.counting)):
            facts[name] = "" if nats is None else f"{nats:.4f} nats"
        if self.sum_error is not None:
            facts["sum"] = f"all characters' probabilities sum to 1 within {self.sum_error:.0e}"
        predicted = f"{counted(self.characters, 'character')} predicted"
        return [Title("score", [self.loss, predicted]), Facts(facts)]

    def records(self) -> Records:
        """One row."""
        return Records({name: [value] for name, value in self.numbers.items()})


@dataclass(frozen=True, repr=False)
class Surprisals(TableResult):
    """For each of the (n − 1,) characters after the first: −ln of its probability in nats, the
    likeliest id, and the probability of that id.

    text: the n characters; characters: the vocabulary, id -> character; both are empty if unknown.
    places: (n,) the characters' positions in their file, if some were left out.
    """

    nats: Array
    likeliest: npt.NDArray[np.int64]
    chances: Array
    text: str = ""
    characters: str = ""
    places: npt.NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        worst = int(self.nats.argmax())
        character = f" ({self.text[worst + 1]!r})" if self.text else ""
        return (
            f"<Surprisals of {len(self.nats):,} characters: mean {self.score.bits:.3f} bits, "
            f"highest {self.nats[worst] / math.log(2):.2f} at {worst + 1:,}{character}>"
        )

    @property
    def score(self) -> Score:
        """The mean of the surprisals."""
        return Score(float(self.nats.mean(dtype=np.float64)), len(self.nats))

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """(n − 1,) the positions of the predicted characters."""
        return np.arange(1, len(self.nats) + 1) if self.places is None else self.places[1:]

    def blocks(self, most: int = WORST) -> list[Block]:
        """The text, coloured by surprisal, and the `most` largest surprisals."""
        facts = [counted(len(self.nats), "character"), f"mean {self.score.loss}"]
        title = Title("surprisal", facts)
        if not self.text:
            why = (
                "made without its text; run.eval(text, chars=True) shows every character in colour"
            )
            return [title, Note(why)]
        text, surprisal = self.text, bits(self.nats)
        hints: list[str] = []
        if len(text) <= LONGEST_HINTED:
            expected = map(self._expected, range(len(surprisal)))
            hints = ["the first character is not predicted"]
            for value, guess in zip(surprisal.tolist(), expected, strict=True):
                hints.append(f"{value:.2f} bits; expected {guess}")
        coloured = Passage(text, [math.nan, *surprisal.tolist()], "bits of surprisal", hints=hints)
        worst = np.argsort(-self.nats, kind="stable")[: max(0, most)].tolist()
        titles = ["bits", "at", "character", "expected", "in the text"]
        columns = [Column(title, left=n > 1) for n, title in enumerate(titles)]
        table = Table(columns, [self._row(place) for place in worst])
        listed = [Fold("the largest surprisals", [table], opened=True)] * bool(worst)
        named = [text[at + 1] + self.characters[self.likeliest[at]] for at in worst]
        return [title, coloured, *listed, Legend("".join(named))]

    def _row(self, place: int) -> list[Cell]:
        """Bits, position, character, the expected one, and the text around it."""
        text, at = self.text, place + 1
        before, after = text[max(0, at - BEFORE) : at], text[at + 1 : at + 1 + AFTER]
        around = f"{in_line(before)}[{label(text[at])}]{in_line(after)}"
        cells = [format_number(float(bits(self.nats[place]))), f"{self.positions[place]:,}"]
        return [*map(Cell, (*cells, label(text[at]), self._expected(place), around))]

    def _expected(self, place: int) -> str:
        """The likeliest character and its probability."""
        name = label(self.characters[self.likeliest[place]])
        return f"{name} {format_number(float(self.chances[place]))}"

    def records(self) -> Records:
        """A row for every character after the first."""
        columns: dict[str, Any] = {"position": self.positions}
        if self.text:
            columns["character"] = list(self.text[1:])
        columns |= {"nats": self.nats, "bits": bits(self.nats)}
        if self.characters:
            columns["expected_character"] = [self.characters[each] for each in self.likeliest]
        columns |= {"expected_id": self.likeliest, "probability": self.chances}
        return Records(columns)


def score(reader: Reader, ids: Ids, mixture: Mixture | None = None) -> Score:
    """The loss over (n,) ids in non-overlapping windows of block_size.

    The first character is context only; the last window may be shorter. Raises TextError if n < 2.
    """

    def total(windows: _Windows) -> Array:
        logits, expected = windows.logits(reader, ids), windows.expected(ids)
        if mixture is None:
            return np.full(4, surprisals(logits, expected).sum(dtype=np.float64))
        found = mixture.predict(*_flat(mixture, ids, logits, windows))
        came = np.arange(expected.size), expected.ravel()
        losses = [-each[came].sum() for each in (found.both, found.gpt, found.counting)]
        return np.array([*losses, np.abs(np.exp(found.both).sum(axis=-1) - 1).max()])

    count, totals = len(ids) - 1, np.array(map_on_cores(total, _windows(reader.config, ids)))
    both, gpt, counting = (totals[:, :3].sum(axis=0) / count).tolist()
    if mixture is None:
        return Score(both, count)
    return Score(both, count, gpt, counting, float(totals[:, 3].max()))


def character_surprisals(
    reader: Reader,
    ids: Ids,
    mixture: Mixture | None = None,
    vocabulary: Vocabulary | None = None,
    *,
    overlapping: bool = False,
) -> Surprisals:
    """The surprisals of the characters, whose mean is `score`. Raises TextError if n < 2.

    overlapping: every character gets at least half of block_size as context, if the text has it.
    vocabulary: gives the result its text.
    """

    def each(windows: _Windows) -> tuple[Array, Ids, Array]:
        logits = windows.logits(reader, ids)
        if mixture is not None:
            scores = mixture.scores(*_flat(mixture, ids, logits, windows))
            logits = scores.reshape(logits.shape)
        most = logits.argmax(axis=-1)
        chances = np.exp(-surprisals(logits, most))
        return surprisals(logits, windows.expected(ids)).ravel(), most.ravel(), chances.ravel()

    found = zip(*map_on_cores(each, _windows(reader.config, ids, overlapping)), strict=True)
    nats, likeliest, chances = (np.concatenate(parts) for parts in found)
    text = vocabulary.decode(ids) if vocabulary else ""
    return Surprisals(nats, likeliest, chances, text, vocabulary.characters if vocabulary else "")


@dataclass(frozen=True)
class _Windows:
    """B windows of a text: (B,) the places of the first characters that they predict, how many
    characters of context come before these, and how many they predict, T.
    """

    starts: Ids
    before: int
    length: int

    def logits(self, reader: Reader, ids: Ids) -> Array:
        """(B, T, vocab_size)"""
        read = self.starts[:, None] + np.arange(-self.before, self.length - 1)
        return reader.logits(reader.forward(ids[read])[:, self.before - 1 :])

    def expected(self, ids: Ids) -> Ids:
        """(B, T) the characters that really follow."""
        found: Ids = ids[self.starts[:, None] + np.arange(self.length)]
        return found


def _windows(config: ModelConfig, ids: Ids, overlapping: bool = False) -> list[_Windows]:
    """The windows of a text in order, grouped as large as one forward pass may be.

    overlapping: windows begin half a window apart, and only the second half of each counts.
    """
    if len(ids) < 2:
        raise TextError("the text is too short to score: it needs two characters")
    block, targets = config.block_size, len(ids) - 1
    scored = max(1, block // 2) if overlapping else block  # the last characters of a window count
    before = min(block - scored, targets)
    found = [_Windows(np.ones(1, np.int64), 1, before)] if before else []
    starts = np.arange(before, targets, scored)
    rows, whole = windows_at_once(config), (targets - before) // scored
    for group in np.split(starts, [*range(rows, whole, rows), whole]):  # the last one is shorter
        if len(group):
            found.append(_Windows(group + 1, before + 1, min(scored, targets - int(group[0]))))
    return found


def _flat(mixture: Mixture, ids: Ids, logits: Array, windows: _Windows) -> tuple[Array, Ids]:
    """(B · T, vocab_size) logits, and the histories of the characters that they predict."""
    _, T, size = logits.shape
    return logits.reshape(-1, size), mixture.expert.trie.histories_at(ids, windows.starts, T)


def windows_at_once(config: ModelConfig) -> int:
    """How many windows of block_size one forward pass may take, by the memory that it needs."""
    widest = max(config.widest_layer, config.n_head * config.block_size)
    return max(1, NUMBERS_AT_ONCE // (config.block_size * widest))


def surprisals(logits: Array, expected: Ids) -> Array:
    """(…, vocab_size) logits and (…) ids -> (…) −ln p(id), in nats."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(shifted).sum(axis=-1))
    chosen = np.take_along_axis(shifted, expected[..., None].astype(np.int64), axis=-1)[..., 0]
    return normaliser - chosen  # type: ignore[no-any-return]
