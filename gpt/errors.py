"""The errors of gptx, each with the exit code of the command line.

A message tells the user what happened, then what to do next. It names options as keywords in
backquotes, as in "`steps`" and "`device='cpu'`"; for the command line,
`gpt.config.fields.error_with_flags` turns them into flags.
"""

from __future__ import annotations


class GptxError(Exception):
    """Base of every error that gptx raises on purpose; users see its text, without a traceback."""

    exit_code = 1


class ConfigError(GptxError, ValueError):
    """An option that is out of range or contradicts another one: ConfigError("n_layer", "0 is …").

    field: the option's name in Python, "" if the error concerns no single option; a value may
    follow the name, as in "config my.toml". reason: what is wrong. ConfigError(reason) has no
    field.
    """

    exit_code = 2

    def __init__(self, *parts: str) -> None:
        super().__init__(*parts)
        *fields, self.reason = parts
        self.field = fields[0] if fields else ""

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


class TextError(GptxError, ValueError):
    """A corpus or a prompt that cannot be used."""

    exit_code = 3


class ForeignModelError(GptxError):
    """A file of another program that is not a model that gptx can import."""

    exit_code = 3


class CheckpointError(GptxError):
    """A checkpoint that is missing, damaged or was not made by gptx."""

    exit_code = 4


class RunInUseError(GptxError):
    """Another process is training this run."""

    exit_code = 5


class StorageError(GptxError):
    """A file cannot be written: the disk is full, read-only or gone."""

    exit_code = 6


class NumericsError(GptxError):
    """A loss or a gradient stopped being a finite number."""

    exit_code = 7


class OutOfMemory(GptxError):
    """The model or the batch does not fit the device."""

    exit_code = 8


class RankError(GptxError):
    """In training on several processes, another process failed or was stopped."""

    exit_code = 9


class InstallationError(GptxError):
    """This installation lacks a package."""

    exit_code = 10
