"""From logits to characters: filters, drawing, the window, stop strings.

Works with any decoder that offers `start` and `step`, numpy's or torch's. Yields; never prints.

The window. A model reads at most block_size characters. A text of N characters is read from its
start while it fits, and then from character ceil((N − block_size) / hop) · hop on, where hop is
half of block_size. So the context has between half of block_size and all of it, and cached keys
serve for `hop` characters before they are computed again. What is drawn depends on the text, the
seed and how many characters were drawn before, not on which part of the text was the prompt.

Going back. `avoid_copies` forbids characters that would complete a copied passage. Where the other
characters together have less than LEAST of the probability, the text would break in the middle of a
word, so the sample goes back to an earlier character and draws another one there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from gpt.config import FilterOptions, ModelConfig, SampleConfig
from gpt.config.fields import require
from gpt.config.model import seed_of
from gpt.counting.mixture import Mixture, counting_streams
from gpt.reading.gpt import Array
from gpt.vocabulary import Ids, Vocabulary

if TYPE_CHECKING:
    from gpt.reading.writing import Passages

Probabilities = npt.NDArray[np.float64]
Kept = npt.NDArray[np.bool_]


class Decoder(Protocol):
    """Continues B streams of ids, in numpy or on a device. `start` begins new ones."""

    config: ModelConfig

    def start(self, ids: Ids) -> Array:
        """(B, n) ids -> (B, vocab_size) logits of the next character."""

    def step(self, ids: Ids) -> Array:
        """(B,) next ids -> (B, vocab_size) logits of the character after them."""

    def make_twin(self) -> Decoder:
        """The same model with streams of its own."""


def window_start(length: int, block_size: int) -> int:
    """Where the context of a text of `length` characters begins (see the window rule above)."""
    hop = max(1, block_size // 2)
    return max(0, -(-(length - block_size) // hop) * hop)


def _top_k(ranked: Probabilities, k: int) -> Kept:
    """Keeps exactly the k likeliest (Fan et al. 2018)."""
    return np.broadcast_to(np.arange(ranked.shape[1]) < k, ranked.shape)


def _top_p(ranked: Probabilities, p: float) -> Kept:
    """Keeps the fewest characters whose sum reaches p, the nucleus (Holtzman et al. 2020)."""
    return ranked.cumsum(axis=-1) - ranked < p


def _min_p(ranked: Probabilities, p: float) -> Kept:
    """Keeps characters with at least p times the largest probability (Nguyen et al. 2024)."""
    return ranked >= p * ranked.max(axis=-1, keepdims=True)  # type: ignore[no-any-return]


#: Name of the option -> function that chooses which characters to keep. It takes (B, vocab_size)
#: probabilities in descending order (equal ones by id) and the option's value; it returns (B,
#: vocab_size) True for those to keep. In order of application.
FILTERS: dict[str, Callable[[Probabilities, Any], Kept]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
}
#: Filters that need no order: ranking takes longer than the rest of a draw.
ORDERLESS = frozenset({"min_p"})


def probabilities(logits: Array, config: FilterOptions) -> Probabilities:
    """(B, vocab_size) logits -> the distribution after temperature and then each of FILTERS.

    Temperature 0 gives everything to the likeliest character (the first one if several are equal).
    Each filter gets what the one before it kept, scaled to sum 1.
    """
    scores = np.asarray(logits, dtype=np.float64)
    if config.temperature == 0:
        greedy = np.zeros_like(scores)
        np.put_along_axis(greedy, scores.argmax(axis=-1)[:, None], 1.0, axis=-1)
        return greedy
    with np.errstate(over="ignore"):  # a tiny temperature may make the others −inf
        scores = (scores - scores.max(axis=-1, keepdims=True)) / config.temperature
    weights: Probabilities = np.exp(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    used = [name for name in FILTERS if getattr(config, name) is not None]
    order, ranked = None, weights
    if any(name not in ORDERLESS for name in used):
        order = np.argsort(-weights, axis=-1, kind="stable")
        ranked = np.take_along_axis(weights, order, axis=-1)
    for name in used:
        value = getattr(config, name)
        ranked = np.where(FILTERS[name](ranked, value), ranked, 0.0)
        ranked /= ranked.sum(axis=-1, keepdims=True)
    if order is None:
        return ranked
    np.put_along_axis(weights, order, ranked, axis=-1)
    return weights


def draw(weights: Probabilities, uniforms: Probabilities) -> Ids:
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


#: A passage to repeat: among the last so many characters, from so many on, and as far as so many.
REACH, SHORTEST, LONGEST = 1000, 6, 64


def lower_repetition(scores: Array, past: Ids, penalty: float) -> Array:
    """(B, V) logits after (B, n) ids -> lower ones for what would repeat a passage of these: by
    `penalty` for each repeated character from the SHORTEST-th on.

    A penalty on single characters (Keskar et al. 2019) would ban frequent letters; this one is for
    passages (after DRY, p-e-w 2024).
    """
    repeated = np.zeros(past.shape)  # characters before each one that also end the text
    same = np.ones(past.shape, bool)
    for back in range(1, min(LONGEST, past.shape[1])):
        same[:, :back] = False
        same[:, back:] &= past[:, :-back] == past[:, -back, None]
        if not same.any():
            break
        repeated += same
    lengths = np.zeros(scores.shape)
    np.maximum.at(lengths, (np.arange(len(past))[:, None], past), repeated + 1)
    lowered: Array = scores - penalty * (lengths - SHORTEST + 1).clip(min=0)
    return lowered


def next_scores(
    decoder: Decoder,
    prompt: Ids,
    config: SampleConfig,
    mixture: Mixture | None,
    banned: Sequence[int],
) -> Generator[Array, Ids, None]:
    """(n,) prompt ids -> yields (B, vocab_size) logits of the next characters; is sent the (B,) ids
    that were drawn. banned: ids that must not be drawn.

    Keeps only a window of the text in memory. Raises ConfigError if `config.only` asks for a
    counting expert and the model has none.
    """
    counting = counting_streams(mixture, prompt, config.only, config.n)
    if config.repetition:
        past: Ids = np.tile(prompt[-REACH:].astype(np.int64), (config.n, 1))
    block_size = decoder.config.block_size
    begin = window_start(len(prompt), block_size)  # where the window begins in the text
    held = len(prompt) - begin
    window = np.empty((config.n, block_size + 1), dtype=np.int64)  # one more than the window
    window[:, :held] = prompt[begin:]
    moved = True
    while True:
        if move := window_start(begin + held, block_size) - begin:
            window[:, : held - move] = window[:, move:held].copy()
            begin, held, moved = begin + move, held - move, True
        logits = decoder.start(window[:, :held]) if moved else decoder.step(window[:, held - 1])
        scores = logits if counting is None else counting.scores(logits)
        if config.repetition:
            scores = lower_repetition(scores, past, config.repetition)
        if banned:
            scores = scores.copy()
            scores[:, banned] = -np.inf
        ids = yield scores
        window[:, held] = ids
        if counting is not None:
            counting.append(ids)
        if config.repetition:
            past = np.concatenate((past, ids[:, None]), axis=1)[:, -REACH:]
        held, moved = held + 1, False


def sample_ids(
    decoder: Decoder,
    prompt: Ids,
    config: SampleConfig,
    mixture: Mixture | None = None,
    banned: Sequence[int] = (),
) -> Iterator[Ids]:
    """Yields up to config.length times (config.n,) next ids, one for each sample. See
    `next_scores`.
    """
    texts, seed = next_scores(decoder, prompt, config, mixture, banned), seed_of(config)
    streams = [uniforms(seed, sample) for sample in range(config.n)]
    ids: Any = None  # to start the generator
    for _ in range(config.length):
        scores = texts.send(ids)
        chances = np.array([next(stream) for stream in streams])
        ids = draw(probabilities(scores, config), chances)
        yield ids


LEAST = 0.1  # of the probability; where less is left, the text would break within a word
TRIES = 1000  # steps back, until the sample ends


def sample_new_ids(
    begin: Callable[[Ids], Generator[Array, Ids, None]],
    prompt: Ids,
    config: SampleConfig,
    copies: Passages,
    stream: Iterator[float],
) -> Iterator[int]:
    """The ids of one sample, without any of `copies` in what is new (see Going back above). Ends
    early if only copies are left to write. begin: starts `next_scores` after a text.

    Yields an id when it can no longer change, which is a passage's length later.
    """
    text, first, tries, ids = prompt.tolist(), len(prompt), 0, None
    texts: Any = begin(prompt)
    #: Of each character that may still change: the logits of what may stand there, and the model's
    #: probabilities.
    places = list[tuple[Probabilities, Probabilities]]()
    while len(text) < first + config.length and tries < TRIES:
        scores = texts.send(ids).astype(np.float64)
        chances = probabilities(scores, FilterOptions(temperature=1))[0]
        new = text[max(first, len(text) - copies.length) :]
        scores[:, copies.completed_by(new, len(chances))] = -np.inf
        went_back = False
        while chances[np.isfinite(scores[0])].sum() < LEAST:
            if not places:
                return
            scores, chances = places.pop()
            scores[:, text.pop()] = -np.inf
            went_back, tries = True, tries + 1
        ids = draw(probabilities(scores, config), np.array([next(stream)]))
        text += ids.tolist()
        places.append((scores, chances))
        if went_back:
            texts, ids = begin(np.array(text)), None
        if len(places) > copies.length:
            del places[0]
            tries = 0
            yield text[-copies.length - 1]
    yield from text[len(text) - len(places) :]


def start_character(vocabulary: Vocabulary) -> str:
    """The character before an empty prompt: a newline, or the vocabulary's first character.

    It is not part of the sample.
    """
    return "\n" if "\n" in vocabulary.characters else vocabulary.characters[0]


class StopFilter:
    """Passes characters on until a stop string is complete; the stop string is not passed on.

    stop: the stop string that has occurred. keep: pass it on as well. ended: why the sample ends:
    "length", "stop", or "copies", if it could only copy.
    """

    def __init__(self, stops: Sequence[str], keep: bool = False) -> None:
        self._stops = sorted(filter(None, stops), key=len, reverse=True)  # the longest matches
        self._keep, self.ended = keep, "length"
        self._held = ""  # text that may become a stop string
        self.stop: str | None = None

    def push(self, character: str) -> str:
        """The text that can be shown now. Sets `stop` when a stop string is complete."""
        if not self._stops:
            return character
        if self.stop:
            return ""
        text = self._held + character
        for stop in self._stops:
            if text.endswith(stop):
                self.stop, self.ended, self._held = stop, "stop", ""
                return text if self._keep else text[: -len(stop)]
        ends = (text[at:] for at in range(len(text) + 1))
        self._held = next(end for end in ends if any(stop.startswith(end) for stop in self._stops))
        return text.removesuffix(self._held)

    def flush(self) -> str:
        """The text that is still held back, when the sample has ended without a stop string."""
        held, self._held = self._held, ""
        return held


class Decoders:
    """Lends decoders of one model to streams that run at the same time: the first one gets `first`,
    each further one a twin.
    """

    def __init__(self, first: Decoder) -> None:
        self.first, self._free = first, threading.Lock()

    @contextmanager
    def lend_decoder(self) -> Iterator[Decoder]:
        """A decoder that no other stream uses meanwhile."""
        if not self._free.acquire(blocking=False):
            yield self.first.make_twin()
            return
        try:
            yield self.first
        finally:
            self._free.release()


class Samples(Iterator[list[str]]):
    """The new text of each of the config.n samples, step by step ("" for a stopped one).

    decoding: lends a decoder until the samples are complete or dropped. copies: what they must not
    have; they are then written one after the other. start: a text that the model reads before the
    prompt; if both are empty, it reads start_character. seed: the seed that they use. Raises
    TextError for a prompt with an unknown character, ValueError if one of `stops` is empty,
    ConfigError if all characters are banned.
    """

    def __init__(
        self,
        decoding: AbstractContextManager[Decoder],
        vocabulary: Vocabulary,
        prompt: str,
        config: SampleConfig,
        *,
        stops: Sequence[str] = (),
        mixture: Mixture | None = None,
        copies: Passages | None = None,
        start: str = "",
    ) -> None:
        if not all(stops):
            raise ValueError("stop: an empty text would stop before anything is written")
        banned = [*map(vocabulary.id_of, {*(config.ban or "")} & {*vocabulary.characters})]
        require(
            len(banned) < len(vocabulary), "ban", "these are all characters that the model knows"
        )
        ids = vocabulary.encode(start + prompt or start_character(vocabulary))
        self.prompt, self.seed = prompt, seed_of(config)
        config = replace(config, seed=self.seed)
        self._filters = [StopFilter(stops, config.keep_stop) for _ in range(config.n)]
        self._steps = _texts(
            decoding,
            ids,
            config,
            mixture=mixture,
            banned=banned,
            copies=copies,
            characters=vocabulary.characters,
            filters=self._filters,
        )

    def __next__(self) -> list[str]:
        return next(self._steps)

    @property
    def stopped(self) -> list[str | None]:
        """The stop string that ended each sample, or None."""
        return [gate.stop for gate in self._filters]

    @property
    def ended(self) -> list[str]:
        """Why each sample ends; see StopFilter."""
        return [gate.ended for gate in self._filters]


def _texts(
    decoding: AbstractContextManager[Decoder],
    prompt: Ids,
    config: SampleConfig,
    *,
    mixture: Mixture | None,
    banned: Sequence[int],
    copies: Passages | None,
    characters: str,
    filters: Sequence[StopFilter],
) -> Iterator[list[str]]:
    """See Samples, which holds no other reference to the decoder: dropping it gives that back."""
    with decoding as decoder:
        if copies is None:
            for ids in sample_ids(decoder, prompt, config, mixture, banned):
                pairs = zip(filters, ids.tolist(), strict=True)
                yield [gate.push(characters[token]) for gate, token in pairs]
                if all(gate.stop for gate in filters):
                    return
        else:
            one = replace(config, n=1)
            begin = partial(next_scores, decoder, config=one, mixture=mixture, banned=banned)
            for number, gate in enumerate(filters):
                stream, count = uniforms(seed_of(config), number), 0
                for token in sample_new_ids(begin, prompt, one, copies, stream):
                    gained, count = [""] * config.n, count + 1
                    gained[number] = gate.push(characters[token])
                    yield gained
                    if gate.stop:
                        break
                if count < config.length and not gate.stop:
                    gate.ended = "copies"
    yield [gate.flush() for gate in filters]
