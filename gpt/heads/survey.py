"""All measures of a model's heads: on the windows of a text, on synthetic texts, by ablation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import TableResult
from gpt.config import AttentionKind
from gpt.devices import cores, require_memory
from gpt.errors import TextError
from gpt.heads.ablation import Ablation, ablate
from gpt.heads.attention_map import KIND_TITLES, AttentionMap
from gpt.heads.kinds import RULE, RULE_OF_ALL, kinds
from gpt.heads.measures import Measure, induction, measure
from gpt.reading.gpt import MATRICES, Reader
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
