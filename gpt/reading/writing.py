"""Writes samples of several prompts and new items of a list, and finds what a text copies.

A copied passage also stands in another text, mostly the training text. `longest_copies` finds the
longest copied passage of a text. Hashes find the copied passages of one length (Karp & Rabin 1987),
and a binary search finds the largest length. `Passages` tells which characters complete a copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpt.config import SampleConfig
from gpt.errors import GptxError, OutOfMemory, TextError
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import cut, label, pluralize, to_json

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT
    from gpt.reading.sampler import Samples

SCHEMA = 1
DIVIDER = "\n---\n"  # between two samples
ONLY_COPIES = (
    "the text ends here, because the model would only copy the training text; "
    "try another seed or a larger --avoid-copies"
)
AT_ONCE = 64  # samples in a round of new_items
MOST_ROUNDS = 20  # rounds without a new item, after which new_items ends
NEXT_SEED = 2**32  # the difference between the seeds of successive rounds
MOST = 32_000_000  # the most characters searched for copies; every hash takes 8 bytes
CHUNK = 2**16  # characters hashed at once, which fit a core's cache
LONGEST = 60  # the most columns of a copied passage on the screen
BASE = 0x9E3779B97F4A7C15  # base of the hashes, which are modulo 2⁶⁴
INVERSE = pow(BASE, -1, 2**64)


class Sample(str):
    """A prompt and its continuation, as one text.

    prompt: the number of characters of the prompt. seed: the seed that repeats the sample. ended:
    why it ended: "length", "stop", "copies" (the model could only copy) or "interrupted".
    """

    prompt: int
    seed: int
    ended: str

    def __new__(cls, prompt: str, new: str, seed: int, ended: str) -> Sample:
        text = super().__new__(cls, prompt + new)
        text.prompt, text.seed, text.ended = len(prompt), seed, ended
        return text

    @property
    def new(self) -> str:
        """The text without the prompt."""
        return self[self.prompt :]

    def __reduce__(self) -> tuple[type[Sample], tuple[str, str, int, str]]:
        return Sample, (self[: self.prompt], self.new, self.seed, self.ended)


class SampleWriter:
    """Writes samples for one prompt after another.

    stream: starts the samples of a prompt. file: the file whose lines are the prompts, if any;
    empty lines, and lines that the model cannot read, get no samples. samples: the written texts.
    novelties: how much every sample copies; `measure` sets it. failures: Ctrl-C, too little memory,
    and unreadable lines. A failure during the writing ends it; the caller may append a failure.
    """

    def __init__(
        self,
        stream: Callable[[str], Samples],
        prompts: Sequence[str],
        file: Path | None = None,
        *,
        shows_prompt: bool = True,
    ) -> None:
        self._stream, self._prompts, self._file = stream, prompts, file
        self._shows_prompt = shows_prompt
        self.failures = list[KeyboardInterrupt | GptxError]()
        self.samples, self.novelties = list[Sample](), list[Novelty]()

    def text_pieces(self) -> Iterator[str]:
        """Yields the text to show: the samples one after the other, each as it grows."""
        wrong = []
        for number, prompt in enumerate(self._prompts, start=1):
            if self.failures:
                return
            if self._file and not prompt:
                continue
            try:
                samples = self._stream(prompt)
            except TextError as error:
                if not self._file:
                    raise
                wrong.append(f"line {number}: {error}")
                continue
            begin = samples.prompt if self._shows_prompt else ""
            yield (DIVIDER if self.samples else "") + begin
            yield from self._written(samples, begin)
        if wrong:
            self.failures.append(TextError(f"{self._file}: {'; '.join(wrong)}"))
            if not self.samples:
                raise self.failures[0]

    def measure(self, novelty: Callable[[Sequence[str]], list[Novelty]]) -> None:
        """Measures what the samples copy, unless a sample was interrupted. Adds to `failures`."""
        try:
            if all(sample.ended != "interrupted" for sample in self.samples):
                self.novelties = novelty(self.samples)
        except (KeyboardInterrupt, GptxError) as error:
            self.failures.append(error)

    def records(self, about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields a record of every sample for --json. about: entries that all records have."""
        for number, sample in enumerate(self.samples):
            text = sample if self._shows_prompt else sample.new
            record = {"schema": SCHEMA, "sample": number, "text": text, **about}
            record |= {"prompt": sample[: sample.prompt], "ended": sample.ended}
            if self.novelties:
                novelty = self.novelties[number]
                start = len(text) - len(sample.new) + novelty.longest.start
                record["novelty"] = {**novelty.record, "start": start}
            yield record

    def notes(self) -> Iterator[str]:
        """Yields what to tell people about the samples: their copies, and why one ended early."""
        for number, sample in enumerate(self.samples):
            name = f"sample {number}: " if len(self.samples) > 1 else ""
            if self.novelties:
                yield f"{name}{self.novelties[number]}"
            if sample.ended == "copies":
                yield name + ONLY_COPIES

    def _written(self, samples: Samples, begin: str) -> Iterator[str]:
        """Yields one prompt's samples in pieces. begin: the prompt, if it is shown."""
        n, growing = len(samples.stopped), 0  # growing: the sample that is shown while it grows
        texts = [StringIO() for _ in range(n)]  # the new texts so far

        def whole(number: int) -> str:
            return DIVIDER + begin + texts[number].getvalue()

        try:
            for gained in samples:
                for text, more in zip(texts, gained, strict=True):
                    text.write(more)
                yield gained[growing]
                if self.failures:
                    break
                while growing < n - 1 and samples.stopped[growing]:
                    growing += 1
                    yield whole(growing)
        except (KeyboardInterrupt, OutOfMemory) as error:
            self.failures.append(error)
        yield from map(whole, range(growing + 1, n))
        for number, ended in enumerate(samples.ended):
            if self.failures and ended == "length":
                ended = "interrupted"
            new = texts[number].getvalue()
            self.samples.append(Sample(samples.prompt, new, samples.seed, ended))


def new_items(model: TrainedGPT, config: SampleConfig, data: Path = Path("data")) -> Iterator[str]:
    """Yields config.n items that are not in the run's text, or fewer if the model finds no more.

    config: must have a seed. Longer items than config.length are left out. data: the folder of the
    encoded corpora. Raises TextError if the run's text is not a list, or is gone.
    """
    from gpt.corpus.corpus import splits_of_run

    separator = model.item_separator
    if not separator:
        raise TextError("`new`: this run has learned no list of items; train one with `items`")
    old_items = {""}
    for ids in splits_of_run(model.name, model.manifest_or_none, data, "`new`"):
        old_items |= {*model.vocabulary.decode(ids).split(separator)}
    left, seed, rounds = config.n, config.seed or 0, 0
    config = replace(config, n=min(config.n, AT_ONCE), keep_stop=False)
    while left and rounds < MOST_ROUNDS:
        samples = model.stream("", replace(config, seed=seed), data=data)
        texts = [""] * len(samples.stopped)
        for gained in samples:
            texts = [text + new for text, new in zip(texts, gained, strict=True)]
        rounds += 1
        for item, stop in zip(texts, samples.stopped, strict=True):
            if left and stop and item not in old_items:
                old_items.add(item)
                yield item
                left, rounds = left - 1, 0
        seed = (seed + NEXT_SEED) % 2**63


def item_lines(model: TrainedGPT, config: SampleConfig, data: Path, as_json: bool) -> Iterator[str]:
    """Yields new items, each with its separator, or as a JSON record. See new_items."""
    for number, item in enumerate(new_items(model, config, data)):
        record = {"schema": SCHEMA, "sample": number, "text": item, "seed": config.seed}
        yield f"{to_json(record | model.origin)}\n" if as_json else item + model.item_separator


@dataclass(frozen=True)
class Copy:
    """A passage that a text shares with another text. start: its position in the text. at: its
    first position in the other text. times: how often the other text contains it.
    """

    text: str = ""
    start: int = 0
    at: int = 0
    times: int = 0

    def __len__(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class Novelty:
    """How much a text copies. characters: its length. longest: its longest copied passage."""

    characters: int
    longest: Copy

    def __str__(self) -> str:
        copy = self.longest
        if not copy.text:
            return f"none of the {self.characters:,} characters is in the training text"
        copied = "".join(label(sign) if sign in "\n\t\r" else sign for sign in copy.text)
        times = "" if copy.times == 1 else f", and {pluralize(copy.times - 1, 'more time')}"
        return (
            f"the longest copied passage has {len(copy):,} of {self.characters:,} characters: "
            f"“{cut(copied, LONGEST)}”, at character {copy.at:,} of the training text{times}"
        )

    @property
    def record(self) -> dict[str, Any]:
        """Entries of --json: the lengths of text and copy, and the fields of Copy."""
        return {"characters": self.characters, "copied": len(self.longest), **vars(self.longest)}


def longest_copies(texts: Sequence[str], other: Ids, vocabulary: Vocabulary) -> list[Copy]:
    """Returns every text's longest passage that stands in the other text, empty if none does. If
    several passages of a text are equally long, returns the first one.
    """
    hashed, whole = [_Hashes(vocabulary.encode(text)) for text in texts], _Hashes(other)

    @cache
    def copies(length: int) -> list[Copy]:
        """The first passage of this length of every text that stands in the other text."""
        if not length:
            return [Copy()] * len(texts)
        hashes = [text.of(0, text.count(length), length) for text in hashed]
        wanted = np.unique(np.concatenate(hashes))
        first, times = np.zeros((2, len(wanted)), np.int64)
        for begin, chunk in whole.chunks(length):
            numbers = wanted.searchsorted(chunk).clip(max=len(wanted) - 1)
            places = (wanted[numbers] == chunk).nonzero()[0]
            new, where, counts = np.unique(numbers[places], return_index=True, return_counts=True)
            first[new] = np.where(times[new], first[new], begin + places[where])
            times[new] += counts
        passages = []
        for number, text in enumerate(texts):
            at, copy = wanted.searchsorted(hashes[number]), Copy()
            for start in times[at].nonzero()[0][:1].tolist():
                place, passage = int(first[at[start]]), slice(start, start + length)
                same = whole.ids[place : place + length]
                # Different passages may have equal hashes.
                if np.array_equal(hashed[number].ids[passage], same):
                    copy = Copy(text[passage], start, place, int(times[at[start]]))
            passages.append(copy)
        return passages

    def longest(number: int) -> int:
        lengths = range(1, len(texts[number]) + 1)
        return bisect_left(lengths, True, key=lambda length: not copies(length)[number])

    return [copies(longest(number))[number] for number in range(len(texts))]


class Passages:
    """The hashes of all passages of `length` characters of a text."""

    def __init__(self, text: Ids, length: int) -> None:
        self.length, largest = length, np.array([2**64 - 1], np.uint64)
        hashes = [chunk for _, chunk in _Hashes(text).chunks(length)]
        self._hashes = np.concatenate([*hashes, largest])
        self._hashes.sort()
        self._powers = _power(BASE, np.arange(1, length + 1))

    def completed_by(self, text: Sequence[int], vocab_size: int) -> npt.NDArray[np.bool_]:
        """Returns (vocab_size,) booleans: whether an id after the text would complete a passage."""
        begin = len(text) - self.length + 1
        if begin < 0:
            return np.zeros(vocab_size, bool)
        before = np.array(text[begin:], np.uint64) + np.uint64(1)
        ids = np.arange(1, vocab_size + 1, dtype=np.uint64)
        hashes = (before * self._powers[:-1]).sum() + ids * self._powers[-1]
        completes: npt.NDArray[np.bool_] = self._hashes[self._hashes.searchsorted(hashes)] == hashes
        return completes


class _Hashes:
    """Hashes of a text's passages: the sum of (id + 1) · BASE^(1 + place in the passage)."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self._sums = np.zeros(len(ids) + 1, np.uint64)  # 8 bytes for each character
        for begin in range(0, len(ids), CHUNK):
            at = np.arange(begin, min(begin + CHUNK, len(ids)))
            self._sums[at + 1] = (ids[at].astype(np.uint64) + np.uint64(1)) * _power(BASE, at)
        np.cumsum(self._sums, out=self._sums)

    def count(self, length: int) -> int:
        return max(0, len(self.ids) - length + 1)

    def chunks(self, length: int) -> Iterator[tuple[int, npt.NDArray[np.uint64]]]:
        """Yields the hashes of all passages of this length in chunks, and where a chunk begins."""
        count = self.count(length)
        for begin in range(0, count, CHUNK):
            yield begin, self.of(begin, min(begin + CHUNK, count), length)

    def of(self, begin: int, end: int, length: int) -> npt.NDArray[np.uint64]:
        """Returns the hashes of the passages of this length that begin at begin … end − 1."""
        sums = self._sums[begin + length : end + length] - self._sums[begin:end]
        hashes: npt.NDArray[np.uint64] = sums * _power(INVERSE, np.arange(begin, end))
        return hashes * np.uint64(BASE)


def _power(base: int, exponents: Ids) -> npt.NDArray[np.uint64]:
    """base to the power of these exponents, modulo 2⁶⁴. The exponents are below CHUNK²."""
    near, far = _powers(base, CHUNK), _powers(pow(base, CHUNK, 2**64), CHUNK)
    result: npt.NDArray[np.uint64] = near[exponents % CHUNK] * far[exponents // CHUNK]
    return result


@cache
def _powers(base: int, count: int) -> npt.NDArray[np.uint64]:
    """(count,) base⁰, base¹, …, modulo 2⁶⁴."""
    powers = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)
