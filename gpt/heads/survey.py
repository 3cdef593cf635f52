"""All measures of a model's heads: on the windows of a text, on synthetic texts, by ablation; at
several steps of a training they show when each head became what it is.

A phase change, such as the sudden rise of induction heads (Olsson et al. 2022), is a jump of a
measure from one step to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.checks import TableResult
from gpt.config import AttentionKind
from gpt.devices import cores, require_memory
from gpt.errors import TextError
from gpt.heads.ablation import Ablation, ablate
from gpt.heads.attention_map import KIND_TITLES, AttentionMap
from gpt.heads.kinds import RULE, RULE_OF_ALL, kinds
from gpt.heads.measures import Measure, induction, measure
from gpt.reading.gpt import MATRICES, Reader
from gpt.reading.layers import Array
from gpt.vocabulary import Ids
from gpt.words import counted, layers_and_heads

ADVICE = "give a text of at most"
SHORTEST = 3  # characters of a text: a query with two keys, and the next character


@dataclass(frozen=True, repr=False)
class Survey(TableResult):
    """The measures of all heads, on `windows` windows of `characters` characters.

    text: the name of the text. For the same text and windows, the command and Python give equal
    surveys. kind: of a model with an encoder, which attention the heads belong to; windows are then
    pairs, of at most `characters` characters a side.
    """

    measures: tuple[Measure, ...]
    windows: int
    characters: int
    text: str = "a text"
    kind: AttentionKind | None = None

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Measure -> (L, H) values."""
        return {each.name: each.values for each in self.measures}

    def __repr__(self) -> str:
        layers, heads = self.measures[0].values.shape
        names = [name for row in kinds(self.measures) for name in row if name]
        named = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        whose = f" of {KIND_TITLES[self.kind]}" if self.kind else ""
        return (
            f"<Survey of {layers_and_heads(layers, heads)}{whose} on {self.measured}: "
            f"{named or 'no head of a named kind'}>"
        )

    @property
    def title(self) -> str:
        """Whose heads these are."""
        return f"heads of {KIND_TITLES[self.kind]}" if self.kind else "heads"

    @property
    def rule(self) -> str:
        """When a head gets a name, as text."""
        return RULE_OF_ALL if self.kind in ("cross", "encoder") else RULE

    @property
    def measured(self) -> str:
        """The measured text, and how much of it was measured."""
        if self.kind:
            return f"{counted(self.windows, 'pair')} of {self.text}"
        return f"{counted(self.windows, 'window')} of {self.characters} characters of {self.text}"


def survey(
    reader: Reader,
    ids: Ids,
    most: int = 32,
    ablation: Ablation | None = None,
    done: Callable[[float], object] = lambda share: None,
    text: str = "a text",
    words: Ids | None = None,
) -> Survey:
    """(n,) ids -> every measure over at most `most` windows of block_size, spread over the text.

    done: receives the share of the work that is done; text: the text's name; words: the ids of the
    characters of words, None: all. Raises TextError if the text is too short.
    """
    windows = spread(ids, reader.config.block_size, most)
    config = reader.config
    heads = config.n_layer * config.n_head
    # Four matrices for each head, and a layer's measures in float64; or an ablation's forwards.
    H, ablated = config.n_head, MATRICES * cores() if ablation else 0
    matrices = max((4 * config.n_layer + 6.25) * H + 4, ablated * H)
    rows = 10 * config.n_layer * config.n_embd
    length = windows.shape[1] - 1
    require_memory("measuring", length, lambda n: 4 * n * (matrices * n + rows), ADVICE)
    # A head's ablation takes half a forward over all windows, on average; the measures take two.
    work = 2.0 + (heads / 2 if ablation else 0.0)

    def maps() -> Iterator[AttentionMap]:  # one at a time: all stages of a window are large
        for number, window in enumerate(windows):
            yield AttentionMap("", window[:-1], reader.stages(window[:-1]), ())
            done(2 * (number + 1) / len(windows) / work)

    measures = measure(reader, maps())
    letters = windows.ravel() if words is None else windows[np.isin(windows, words)]
    if found := induction(reader, letters):
        after = 1 + max(n for n, each in enumerate(measures) if each.name.startswith("induction"))
        measures.insert(after, found)
    if ablation:
        measures.append(
            ablate(reader, windows, ablation, lambda number: done((2 + number / 2) / work))
        )
    return Survey(tuple(measures), len(windows), windows.shape[1] - 1, text)


def spread(ids: Ids, length: int, most: int) -> npt.NDArray[np.integer[Any]]:
    """At most `most` windows of `length` + 1 ids, evenly over the text; no two share a target.

    A shorter text is one window. Raises TextError below SHORTEST characters.
    """
    if len(ids) < SHORTEST:
        raise TextError(f"the text is too short for measures: it needs {SHORTEST} characters")
    length = min(length, len(ids) - 1)
    count = min(most, (len(ids) - 1) // length)
    starts = np.linspace(0, len(ids) - 1 - length, count).astype(np.int64)
    return np.stack([ids[start : start + length + 1] for start in starts])


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
