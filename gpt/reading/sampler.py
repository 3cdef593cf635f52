"""Writes texts: filters a decoder's logits, draws characters, moves the window, stops samples.

Works with any Decoder, in numpy or torch.

The window. A model reads at most block_size characters. It reads a text of this length or less
completely. A longer text of N characters is read from character ceil((N − block_size) / hop) · hop
on, where hop is half of block_size. So the context has at least half of block_size characters, and
the cached keys and values serve for `hop` characters before they are computed again. A drawn
character depends on the text before it, the seed, and the number of characters drawn so far. It
does not depend on where in the text the prompt ended.

Going back. The option `avoid_copies` forbids characters that would complete a passage copied from
the training text. If the allowed characters have less probability than LEAST in total, the
text would break in the middle of a word. So the sample then goes back, and draws another character.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpt.config import FilterOptions, SampleConfig
from gpt.config.fields import require
from gpt.config.model import seed_of
from gpt.counting.mixture import Mixture, counting_streams
from gpt.reading.gpt import Array, Decoder
from gpt.vocabulary import Ids, Vocabulary

if TYPE_CHECKING:
    from gpt.reading.writing import Passages

Probabilities = npt.NDArray[np.float64]
Kept = npt.NDArray[np.bool_]


def window_start(length: int, block_size: int) -> int:
    """Returns where the window of a text of `length` characters begins (see above)."""
    hop = max(1, block_size // 2)
    return max(0, -(-(length - block_size) // hop) * hop)


def _top_k(ranked: Probabilities, k: int) -> Kept:
    """Keeps the k likeliest characters (Fan et al. 2018)."""
    return np.broadcast_to(np.arange(ranked.shape[1]) < k, ranked.shape)


def _top_p(ranked: Probabilities, p: float) -> Kept:
    """Keeps the fewest characters whose probabilities sum to p (Holtzman et al. 2020)."""
    return ranked.cumsum(axis=-1) - ranked < p


def _min_p(ranked: Probabilities, p: float) -> Kept:
    """Keeps characters of at least p times the largest probability (Nguyen et al. 2024)."""
    return ranked >= p * ranked.max(axis=-1, keepdims=True)  # type: ignore[no-any-return]


#: Option -> function that chooses the characters to keep, in the order of application. A function
#: takes (B, vocab_size) probabilities in descending order, equal ones by id, and the option's
#: value. It returns (B, vocab_size) booleans, True for the characters to keep.
FILTERS: dict[str, Callable[[Probabilities, Any], Kept]] = {
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
}
#: Filters that need no descending order. Sorting takes longer than the other steps of a draw.
ORDERLESS = frozenset({"min_p"})


def probabilities(logits: Array, config: FilterOptions) -> Probabilities:
    """(B, vocab_size) logits -> (B, vocab_size) probabilities after temperature and FILTERS.
    Temperature 0 gives all the probability to the likeliest character, or to the first one of
    several equally likely ones. After every filter, the kept probabilities are scaled to sum 1.
    """
    scores = np.asarray(logits, dtype=np.float64)
    if config.temperature == 0:
        greedy = np.zeros_like(scores)
        np.put_along_axis(greedy, scores.argmax(axis=-1)[:, None], 1.0, axis=-1)
        return greedy
    with np.errstate(over="ignore"):  # a tiny temperature may make scores −inf
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
    """Draws by inversion: (B, vocab_size) probabilities, (B,) uniforms in [0, 1) -> (B,) ids."""
    cumulative = weights.cumsum(axis=-1)
    ids = (cumulative <= (uniforms * cumulative[:, -1])[:, None]).sum(axis=-1)
    return np.minimum(ids, weights.shape[-1] - 1)  # type: ignore[no-any-return]


def uniforms(seed: int, sample: int) -> Iterator[float]:
    """Yields one sample's random numbers in [0, 1), which do not depend on the other samples. The
    generator Philox is counter-based (Salmon et al. 2011). Every number uses 53 random bits.
    """
    generator = np.random.Philox(key=np.array([seed, sample], dtype=np.uint64))
    while True:
        for bits in (generator.random_raw(256) >> np.uint64(11)).tolist():
            yield bits * 2.0**-53


REACH = 1000  # repeated passages are searched in this many characters at the end of a text
SHORTEST, LONGEST = 6, 64  # characters of the shortest and the longest repeated passage


def lower_repetition(scores: Array, past: Ids, penalty: float) -> Array:
    """(B, V) logits after (B, n) past ids -> (B, V) logits, lower for ids that repeat passages.

    A repeated passage of n ≥ SHORTEST characters lowers the logit of its last character by
    `penalty` · (n − SHORTEST + 1).
    Only passages are punished (after DRY, p-e-w 2024), because a penalty on single characters
    (Keskar et al. 2019) would ban frequent letters.
    """
    # For every place: the length of the passage before it that also stands at the end of the text.
    repeated = np.zeros(past.shape)
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
    """(n,) prompt ids -> yields (B, vocab_size) logits of the next characters of B samples.

    The caller sends the (B,) ids that it draws. banned: ids whose logits become −inf.
    Keeps only a window of the texts in memory. Raises ConfigError if `config.only` is "counting"
    and the model has no counting expert.
    """
    counting = counting_streams(mixture, prompt, config.only, config.n)
    if config.repetition:
        past: Ids = np.tile(prompt[-REACH:].astype(np.int64), (config.n, 1))
    block_size = decoder.config.block_size
    begin = window_start(len(prompt), block_size)
    size = len(prompt) - begin
    window = np.empty((config.n, block_size + 1), dtype=np.int64)  # with space for the next id
    window[:, :size] = prompt[begin:]
    moved = True
    while True:
        if move := window_start(begin + size, block_size) - begin:
            window[:, : size - move] = window[:, move:size].copy()
            begin, size, moved = begin + move, size - move, True
        logits = decoder.start(window[:, :size]) if moved else decoder.step(window[:, size - 1])
        scores = logits if counting is None else counting.scores(logits)
        if config.repetition:
            scores = lower_repetition(scores, past, config.repetition)
        if banned:
            scores = scores.copy()
            scores[:, banned] = -np.inf
        ids = yield scores
        window[:, size] = ids
        if counting is not None:
            counting.append(ids)
        if config.repetition:
            past = np.concatenate((past, ids[:, None]), axis=1)[:, -REACH:]
        size, moved = size + 1, False


def sample_ids(
    decoder: Decoder,
    prompt: Ids,
    config: SampleConfig,
    mixture: Mixture | None = None,
    banned: Sequence[int] = (),
) -> Iterator[Ids]:
    """Yields (config.n,) ids, one for each sample, config.length times. See `next_scores`."""
    texts, seed = next_scores(decoder, prompt, config, mixture, banned), seed_of(config)
    streams = [uniforms(seed, sample) for sample in range(config.n)]
    ids: Any = None  # to start the generator
    for _ in range(config.length):
        scores = texts.send(ids)
        chances = np.array([next(stream) for stream in streams])
        ids = draw(probabilities(scores, config), chances)
        yield ids


LEAST = 0.1  # if the allowed characters have less probability, the sample goes back
TRIES = 1000  # the sample ends after this many steps back without a yielded character


def sample_without_copies(
    begin: Callable[[Ids], Generator[Array, Ids, None]],
    prompt: Ids,
    config: SampleConfig,
    copies: Passages,
    stream: Iterator[float],
) -> Iterator[int]:
    """Yields the new ids of one sample, which contain none of the passages `copies`.

    begin: starts `next_scores` after a text. See Going back above. Ends early if only copies could
    follow. An id is yielded when `copies.length` further ids are drawn, because until then the
    sample may go back to it.
    """
    text, first, tries, ids = prompt.tolist(), len(prompt), 0, None
    texts: Any = begin(prompt)
    # For every character that may still change: the logits, −inf for forbidden characters, and the
    # model's probabilities.
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
    """Returns the character that a model reads in place of an empty prompt. It is a newline, or
    without newlines the vocabulary's first character. The sample does not contain it.
    """
    return "\n" if "\n" in vocabulary.characters else vocabulary.characters[0]


class StopFilter:
    """Passes on the characters of one sample until a stop string is complete.

    keep: whether the stop string is passed on, too. stop: the stop string that ended the sample, or
    None. ended: why the sample ended: "length", "stop", or "copies" if only copies could follow.
    """

    def __init__(self, stops: Sequence[str], keep: bool = False) -> None:
        self._stops = sorted(filter(None, stops), key=len, reverse=True)  # the longest match wins
        self._keep, self.ended = keep, "length"
        self._held = ""  # text that may become a stop string
        self.stop: str | None = None

    def push(self, character: str) -> str:
        """Returns the text that can be shown now. Sets `stop` when a stop string is complete."""
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
        """Returns the text that is still held back at the end of a sample."""
        held, self._held = self._held, ""
        return held


class DecoderPool:
    """Lends decoders of one model to Samples that may be drawn at the same time. If `first` is
    already lent, lends a twin of it.
    """

    def __init__(self, first: Decoder) -> None:
        self.first, self._free = first, threading.Lock()

    @contextmanager
    def lend_decoder(self) -> Iterator[Decoder]:
        """Lends a decoder that nothing else uses during the `with` block."""
        if not self._free.acquire(blocking=False):
            yield self.first.make_twin()
            return
        try:
            yield self.first
        finally:
            self._free.release()


class Samples(Iterator[list[str]]):
    """Yields a list at every step: the new text of every sample, "" for a stopped sample.

    decoding: lends a decoder until the samples are complete or dropped. copies: passages that the
    new text must not contain; with them, one sample is written after the other. start: a text that
    the model reads before the prompt. If `start` and prompt are empty, the model reads
    start_character. seed: the seed of the samples, drawn if config has none.

    Raises TextError for a prompt with an unknown character, ValueError for an empty stop string,
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
            raise ValueError("stop: an empty stop string would end every sample at once")
        banned = [*map(vocabulary.id_of, {*(config.ban or "")} & {*vocabulary.characters})]
        require(
            len(banned) < len(vocabulary), "ban", "it bans every character that the model knows"
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
        """For every sample, the stop string that ended it, or None."""
        return [gate.stop for gate in self._filters]

    @property
    def ended(self) -> list[str]:
        """For every sample, why it ended; see StopFilter."""
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
    """Yields what Samples yields. Only this generator refers to the decoder. So the
    decoder is given back when a Samples object is dropped.
    """
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
                for token in sample_without_copies(begin, prompt, one, copies, stream):
                    gained, count = [""] * config.n, count + 1
                    gained[number] = gate.push(characters[token])
                    yield gained
                    if gate.stop:
                        break
                if count < config.length and not gate.stop:
                    gate.ended = "copies"
    yield [gate.flush() for gate in filters]
