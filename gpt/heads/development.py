"""The measures of all heads at several steps of a training: when each head became what it is.

A phase change, such as the sudden rise of induction heads (Olsson et al. 2022), is a jump of a
measure from one step to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.checks import TableResult
from gpt.heads.kinds import kinds
from gpt.heads.measures import Measure
from gpt.heads.survey import Survey
from gpt.reading.layers import Array
from gpt.words import layers_and_heads


@dataclass(frozen=True, repr=False)
class Development(TableResult):
    """M measures of the H heads of L layers, at S steps of a training, on the same text.

    steps (S,), ascending. names: those of the measures. values and errors (S, M, L, H): means over
    the windows of text, and their standard errors. uniform (S, M, L, H): those of a head that
    attends uniformly. kinds (S, L, H): the names of the heads, "" for none. surveys: the same, step
    by step.
    """

    steps: npt.NDArray[np.int64]
    names: tuple[str, ...]
    values: Array
    errors: Array
    uniform: Array
    kinds: npt.NDArray[np.str_]
    surveys: tuple[Survey, ...]

    def __repr__(self) -> str:
        S, _, layers, heads = self.values.shape
        return (
            f"<Development of {layers_and_heads(layers, heads)} at {S} steps, {self.steps[0]:,} to "
            f"{self.steps[-1]:,}, on {self.measured}>"
        )

    @property
    def measured(self) -> str:
        """The measured text, and how much of it was measured."""
        return self.surveys[-1].measured

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures at the last step, with their titles and explanations."""
        return self.surveys[-1].measures

    def of(self, name: str) -> Array:
        """(S, L, H) the values of one measure. Raises ValueError for an unknown name."""
        return self.values[:, self._number(name)]

    def change(self, name: str) -> Array:
        """(L, H) the largest minus the smallest value of a measure; 0 where it is unknown.

        Raises ValueError for an unknown name.
        """
        spread: Array = np.ptp(self.of(name), axis=0)
        return np.nan_to_num(spread)

    def named_since(self) -> npt.NDArray[np.int64]:
        """(L, H) the first step from which on a head has the name that it has at the last step.

        −1 for heads without a name at the last step.
        """
        same = self.kinds == self.kinds[-1]
        since = len(same) - np.logical_and.accumulate(same[::-1]).sum(axis=0)
        return np.where(self.kinds[-1] == "", -1, self.steps[since])

    def figure(self, path: str | Path, *, every: bool = False) -> Path:
        """Draws each measure over the steps into a .svg, .pdf or .png file; needs matplotlib.

        every: all measures. Raises ConfigError for another ending, StorageError.
        """
        found: Path = showing.renderer().save_development(self, path, every=every)
        return found

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"{name!r} is not one of {', '.join(self.names)}")
        return self.names.index(name)


def development(steps: Sequence[int], surveys: Iterable[Survey]) -> Development:
    """The surveys of one text at ascending steps, side by side."""
    every = tuple(surveys)

    def stacked(name: str) -> npt.NDArray[Any]:
        return np.stack([[getattr(each, name) for each in one.measures] for one in every])

    return Development(
        steps=np.array(steps, np.int64),
        names=tuple(measure.name for measure in every[-1].measures),
        values=stacked("values"),
        errors=stacked("errors"),
        uniform=np.stack(
            [
                [np.broadcast_to(each.uniform, each.values.shape) for each in one.measures]
                for one in every
            ]
        ),
        kinds=np.array([kinds(one.measures) for one in every]),
        surveys=every,
    )
