"""The steps of one run that a call names: their numbers, and the run that a model file is in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, SupportsIndex

from gpt.errors import CheckpointError, ConfigError
from gpt.storage.checkpoint import step_folder
from gpt.storage.model_file import StoredModel
from gpt.storage.run import Run

#: Steps of a run: "all" that it keeps, or some: numbers, "best", "last".
Steps = Literal["all"] | Iterable[str | SupportsIndex]


def run_of(stored: StoredModel) -> Run:
    """The run that contains a model file. Raises CheckpointError for a file outside a run."""
    folder = stored.source.absolute().parent
    if folder.name != step_folder(stored.step):
        raise CheckpointError(
            f"{stored.source} is a model file without its run, so it has no other steps; open its "
            "run"
        )
    return Run(folder.parent)


def step_numbers(run: Run, steps: Steps, field: str = "steps") -> list[int]:
    """The numbers of two or more steps of a run, ascending, each once. field: for errors.

    Raises CheckpointError for a step that the run does not keep, ConfigError for another word and
    if there is only one step.
    """
    if (isinstance(steps, str) and steps != "all") or not isinstance(steps, Iterable):
        raise ConfigError(field, f"{steps!r} is neither 'all' nor a list of steps")
    every = run.steps()
    numbers = every if isinstance(steps, str) else [run.at(each).manifest.step for each in steps]
    if len(set(numbers)) == 1 < len(numbers):
        kept = ", ".join(map(str, every))
        raise ConfigError(
            field,
            f"all of these are step {numbers[0]}; {run.name} keeps {kept}",
        )
    if len(set(numbers)) < 2:
        kept = ", ".join(map(str, every)) or "none"
        raise ConfigError(
            field,
            f"give two or more steps; {run.name} keeps {kept} (train with `keep_all` to keep all)",
        )
    return sorted(set(numbers))
