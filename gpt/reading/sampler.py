"""From logits to characters: the filters, the draw, the window, the stop strings.

Works with any decoder that offers `start` and `step`, numpy's or torch's. Yields; never prints.

The window. A model sees at most block_size characters. A text of N characters is continued from
its start while it fits; after that from character ceil((N − block_size) / hop) · hop on, where hop
is half of block_size. So the context has between half of block_size and all of it, the cached keys
serve for `hop` characters before they are computed anew, and what is drawn depends on the text
alone, not on which part of it was the prompt. A hop of a quarter predicts no better: the second
half of a window is worth less than 0.001 nats (benchmarks/LOG.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig, SampleConfig
from gpt.vocabulary import Vocabulary

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]


class Decoder(Protocol):
    """What continues B streams of ids (parallel.ParallelDecoder)."""

    config: ModelConfig

    def start(self, ids: Integers) -> Floats:
        """(B, n) ids -> (B, vocab_size) logits of what follows."""

    def step(self, ids: Integers) -> Floats:
        """(B,) next ids -> (B, vocab_size) logits of what follows."""


@runtime_checkable
class DrawingDecoder(Decoder, Protocol):
    """A decoder that can draw by itself, many characters at once (model.decoder.TorchDecoder)."""

    @property
    def most_ahead(self) -> int:
        """How many; 0 where it cannot."""

    def ahead(self, ids: Integers, uniforms: Floats, config: SampleConfig) -> Integers:
        """(B,) next ids and (n, B) uniforms -> (n, B) ids, one after the other."""


def window_start(length: int, block_size: int) -> int:
    """Where the context of a text of `length` characters begins (see the window rule above)."""
    hop = max(1, block_size // 2)
    return max(0, -(-(length - block_size) // hop) * hop)


def probabilities(logits: Floats, config: SampleConfig) -> npt.NDArray[np.float64]:
    """(B, vocab_size) logits -> what is drawn from: temperature, then top-k, top-p, min-p.

    Temperature 0 gives all to the likeliest (the first of equals). top-k keeps exactly k, ties by
    id. top-p keeps the smallest set of the likeliest whose mass reaches p. min-p keeps what has at
    least min_p times the largest probability. Each filter works on what the one before left.
    """
    scores = np.asarray(logits, dtype=np.float64)
    if config.temperature == 0:
        chosen = np.zeros_like(scores)
        np.put_along_axis(chosen, scores.argmax(axis=-1)[:, None], 1.0, axis=-1)
        return chosen
    with np.errstate(over="ignore"):  # a tiny temperature may make −inf of the others
        scores = (scores - scores.max(axis=-1, keepdims=True)) / config.temperature
    weights: npt.NDArray[np.float64] = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    if config.top_k is not None or config.top_p is not None:
        order = np.argsort(-weights, axis=-1, kind="stable")
        ranked = np.take_along_axis(weights, order, axis=-1)
        if config.top_k is not None:
            ranked[:, config.top_k :] = 0.0
            ranked /= ranked.sum(axis=-1, keepdims=True)
        if config.top_p is not None:
            before = ranked.cumsum(axis=-1) - ranked  # the mass of the likelier ones
            ranked[before >= config.top_p] = 0.0
        np.put_along_axis(weights, order, ranked, axis=-1)
    if config.min_p is not None:
        weights[weights < config.min_p * weights.max(axis=-1, keepdims=True)] = 0.0
    if config.top_p is not None or config.min_p is not None:
        weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def draw(weights: npt.NDArray[np.float64], uniforms: npt.NDArray[np.float64]) -> Integers:
    """(B, vocab_size) probabilities and (B,) uniforms in [0, 1) -> (B,) ids, by inversion."""
    cumulative = weights.cumsum(axis=-1)
    ids = (cumulative <= (uniforms * cumulative[:, -1])[:, None]).sum(axis=-1)
    return np.minimum(ids, weights.shape[-1] - 1)  # type: ignore[no-any-return]


def uniforms(seed: int, sample: int) -> Iterator[float]:
    """The random numbers of one sample: the same whether it is drawn alone or among others.

    Philox is counter-based (Salmon et al. 2011); 53 bits make a float in [0, 1).
    """
    generator = np.random.Philox(key=np.array([seed, sample], dtype=np.uint64))
    while True:
        for bits in (generator.random_raw(256) >> np.uint64(11)).tolist():
            yield bits * 2.0**-53


def sample_ids(decoder: Decoder, prompt: Integers, config: SampleConfig) -> Iterator[Integers]:
    """(n,) prompt ids -> up to config.length times (config.n,) next ids, one for each sample."""
    block_size = decoder.config.block_size
    text = np.tile(prompt.astype(np.int64), (config.n, 1))  # (n samples, characters so far)
    text = np.concatenate((text, np.zeros((config.n, config.length), dtype=np.int64)), axis=1)
    streams = [uniforms(config.seed, sample) for sample in range(config.n)]
    length, end, begin = len(prompt), len(prompt) + config.length, -1
    drawing = decoder if isinstance(decoder, DrawingDecoder) and decoder.most_ahead else None
    while length < end:
        start, count = window_start(length, block_size), 1
        if start == begin and drawing:
            room = block_size - (length - begin) + 1  # until the window moves
            count = min(room, end - length, drawing.most_ahead)
            chances = np.array([[next(stream) for stream in streams] for _ in range(count)])
            text[:, length : length + count] = drawing.ahead(text[:, length - 1], chances, config).T
        else:
            if start == begin:
                logits = decoder.step(text[:, length - 1])
            else:
                begin, logits = start, decoder.start(text[:, start:length])
            chances = np.array([next(stream) for stream in streams])
            text[:, length] = draw(probabilities(logits, config), chances)
        for _ in range(count):
            length += 1
            yield text[:, length - 1]


def before_all(vocabulary: Vocabulary) -> str:
    """What an empty prompt begins after: a newline, or the vocabulary's first character.

    It is not part of the sample.
    """
    return "\n" if "\n" in vocabulary.characters else vocabulary.characters[0]


class StopFilter:
    """Passes characters on until a stop string is complete, which it keeps to itself."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted(filter(None, stops), key=len, reverse=True)  # the longest counts
        self._held = ""  # what may yet become a stop string
        self.stopped = False

    def push(self, character: str) -> str:
        """What can be shown now. Sets `stopped` once a stop string has appeared."""
        if self.stopped or not self._stops:
            return "" if self.stopped else character
        held = self._held + character
        for stop in self._stops:
            if held.endswith(stop):
                self.stopped, self._held = True, ""
                return held[: -len(stop)]
        keep = max(
            (
                size
                for stop in self._stops
                for size in range(1, len(stop))
                if held.endswith(stop[:size])
            ),
            default=0,
        )
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """What was held back when the text ended without a stop."""
        held, self._held = self._held, ""
        return held


def sample_texts(
    decoder: Decoder,
    vocabulary: Vocabulary,
    prompt: str,
    config: SampleConfig,
    stops: Sequence[str] = (),
) -> Iterator[list[str]]:
    """Yields, a step at a time, what each of the config.n samples gained ("" once stopped)."""
    ids = vocabulary.encode(prompt or before_all(vocabulary))
    filters = [StopFilter(stops) for _ in range(config.n)]
    for row in sample_ids(decoder, ids, config):
        characters = vocabulary.decode(row)
        yield [each.push(character) for each, character in zip(filters, characters, strict=True)]
        if all(each.stopped for each in filters):
            return
    yield [each.flush() for each in filters]
