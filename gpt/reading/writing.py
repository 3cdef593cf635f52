"""Texts while they are written: samples of one prompt after another, as pieces to show and as whole
texts.

Knows no options and no output; gets samples, returns strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt.devices import available_memory
from gpt.errors import GptxError, OutOfMemory, TextError

if TYPE_CHECKING:
    from gpt.reading.novelty import Novelty
    from gpt.reading.sampler import Samples

SCHEMA = 1
DIVIDER = "\n---\n"  # stands between two samples
ONLY_COPIES = (
    "the text ends where all that the model would write next stands in the training text; "
    "another seed or a larger --avoid-copies goes on"
)
#: Waiting texts may take the free memory divided by this: a complete text is copied several times,
#: e.g. for JSON.
MEMORY_DIVISOR = 8


class Sample(str):
    """A prompt with its continuation. prompt: how many of its characters are the prompt. seed: the
    one that repeats it. ended: why: "length", "stop", "copies" (it could only copy) or
    "interrupted".
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


class GrowingTexts:
    """n texts that grow together until they are complete: one byte per ASCII character."""

    def __init__(self, n: int) -> None:
        self._texts = [bytearray() for _ in range(n)]
        memory = available_memory()
        self._most = None if memory is None else memory // MEMORY_DIVISOR // n  # bytes of each text

    def add(self, gained: Sequence[str]) -> None:
        """Adds the new characters of each text. Raises OutOfMemory if the texts take more than
        1/MEMORY_DIVISOR of the free memory; the texts stay.
        """
        for text, new in zip(self._texts, gained, strict=True):
            text += new.encode("utf-8", "surrogatepass")
        if self._most is not None and max(map(len, self._texts)) > self._most:
            raise OutOfMemory(
                f"out of memory: {len(self._texts):,} texts of {self._most:,} bytes wait until "
                "they are complete; use a smaller `length` or `n`"
            )

    def text(self, number: int) -> str:
        """One of the texts, as far as it has been written."""
        return self._texts[number].decode("utf-8", "surrogatepass")


class Writing:
    """Writes the samples of one prompt after another.

    stream: begins the samples of a prompt. file: the prompts are its lines; empty ones and those
    that the model cannot read are left out. holds: keep whole texts, which several samples of a
    prompt need. failures: Ctrl-C or a lack of memory, after which the texts end where they are, as
    they do if the caller adds to it; and an error for the lines that were left out. samples: the
    complete texts, if they are kept. ended: see Sample.
    """

    def __init__(
        self,
        stream: Callable[[str], Samples],
        prompts: Sequence[str],
        file: Path | None = None,
        holds: bool = True,
        shows_prompt: bool = True,
    ) -> None:
        self._stream, self._prompts, self._file = stream, prompts, file
        self._holds, self._shows_prompt = holds, shows_prompt
        self.failures = list[KeyboardInterrupt | GptxError]()
        self.samples, self.ended = list[Sample](), list[str]()

    def pieces(self) -> Iterator[str]:
        """What to show: the samples, one after the other, while they grow."""
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
            yield (DIVIDER if self.ended else "") + begin
            yield from self._written(samples, begin)
        if wrong:
            self.failures.append(TextError(f"{self._file}: {'; '.join(wrong)}"))
            if not self.ended:
                raise self.failures[0]

    def records(
        self, about: Mapping[str, Any], novelties: Sequence[Novelty]
    ) -> Iterator[dict[str, Any]]:
        """A record of each sample, for programs. about: what made all of them. novelties: of each
        sample, or none.
        """
        for number, sample in enumerate(self.samples):
            text = sample if self._shows_prompt else sample.new
            record = {"schema": SCHEMA, "sample": number, "text": text, **about}
            record |= {"prompt": sample[: sample.prompt], "ended": sample.ended}
            if novelties:
                start = len(text) - len(sample.new) + novelties[number].longest.start
                record["novelty"] = {**novelties[number].numbers, "start": start}
            yield record

    def _written(self, samples: Samples, begin: str) -> Iterator[str]:
        """The pieces of one prompt's samples. begin: what each shows of the prompt."""
        n, growing = len(samples.stopped), 0  # the sample that is shown while it grows
        held = GrowingTexts(n) if self._holds else None

        def whole(number: int) -> str:
            return DIVIDER + begin + (held.text(number) if held else "")

        try:
            for gained in samples:
                if held:
                    held.add(gained)
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
            self.ended.append(ended)
            if held:
                text = held.text(number)
                self.samples.append(Sample(samples.prompt, text, samples.seed, ended))
