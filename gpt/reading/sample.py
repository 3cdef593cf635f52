"""A generated text."""

from __future__ import annotations

from gpt.checks import Shown


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
