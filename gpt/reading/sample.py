"""A generated text, and texts that are still being written."""

from __future__ import annotations

from collections.abc import Sequence

from gpt.checks import Shown
from gpt.devices import available_memory
from gpt.errors import OutOfMemory

PART = 8  # of the memory: a text that is complete is copied several times, as for JSON


class Sample(Shown, str):
    """A prompt with its continuation: a str; a notebook shows the prompt dimmed.

    prompt: how many characters of it are the prompt's.
    """

    prompt: int

    def __new__(cls, prompt: str, continuation: str) -> Sample:
        text = super().__new__(cls, prompt + continuation)
        text.prompt = len(prompt)
        return text

    def __reduce__(self) -> tuple[type[Sample], tuple[str, str]]:
        return Sample, (self[: self.prompt], self[self.prompt :])


class HeldTexts:
    """n texts that grow together and are needed when they are complete: one byte per ASCII
    character.
    """

    def __init__(self, n: int) -> None:
        self._texts = [bytearray() for _ in range(n)]
        memory = available_memory()
        self._most = None if memory is None else memory // PART // n  # bytes of each

    def add(self, gained: Sequence[str]) -> None:
        """Adds the new characters of each. Raises OutOfMemory, and keeps them, once the texts take
        more than a PART of the free memory.
        """
        for text, new in zip(self._texts, gained, strict=True):
            text += new.encode("utf-8", "surrogatepass")
        if self._most is not None and max(map(len, self._texts)) > self._most:
            raise OutOfMemory(
                f"out of memory: {len(self._texts):,} texts of {self._most:,} bytes wait until "
                "they are complete; use a smaller `length` or `n`"
            )

    def text(self, number: int) -> str:
        """One of the texts, as far as it is written."""
        return self._texts[number].decode("utf-8", "surrogatepass")
