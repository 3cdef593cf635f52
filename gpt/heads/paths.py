"""The effects of heads along single paths: path patching (Wang et al. 2023, Goldowsky-Dill et al.
2023), computed for every pair of heads.

A head's output is replaced while all other heads and feed-forward layers keep theirs. The queries,
keys or values of a later head that result are put into the model, and everything after them is
computed again. So the effect is exact, not approximated by a gradient.
Tensor names: B texts, T time, C n_embd, H heads, D head_size, R paths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import call
from typing import Any, Literal, NamedTuple

import numpy as np

from gpt.blocks import Block, Cell, Column, Note, Records, Table, Title
from gpt.checks import TableResult
from gpt.heads.ablation import Done
from gpt.heads.measures import standard_errors, with_error
from gpt.heads.places import head_name
from gpt.reading.decode import map_on_cores
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.vocabulary import Ids

Read = Literal["q", "k", "v"]
READ: dict[Read, str] = {"q": "queries", "k": "keys", "v": "values"}


class Route(NamedTuple):
    """From a head to an input of a later head. to None: directly to the logits; reads "all": along
    all paths at once, as if the head itself were replaced; `to` is then that head.
    """

    sender: tuple[int, int]
    to: tuple[int, int]
    read: Read | Literal["all"] | None


@dataclass(frozen=True, repr=False)
class Paths(TableResult):
    """The effect of every path from a head, over `texts` texts.

    routes: the R paths. effects (R,): how much `unit` changes if only this path carries the
    replaced output; errors (R,): their standard errors, NaN for one text. replaced: what replaces
    the output, as text.
    """

    routes: tuple[Route, ...]
    effects: Array
    errors: Array
    unit: str
    replaced: str
    texts: int = 1

    def __repr__(self) -> str:
        return f"<Paths: {len(self.routes)}, strongest {self._names(self.order[0])}>"

    @property
    def order(self) -> list[int]:
        """The numbers of the paths; the path with the largest effect first."""
        return [int(path) for path in np.argsort(-np.abs(self.effects), kind="stable")]

    def _names(self, path: int) -> str:
        sender, to, read = self.routes[path]
        if read is None or read == "all":
            return f"{head_name(*sender)} → {'all' if read else 'logits directly'}"
        return f"{head_name(*sender)} → {head_name(*to)} {READ[read]}"

    def blocks(self, most: int = 16) -> list[Block]:
        """The `most` paths with the largest effects."""
        largest, rows = float(np.abs(self.effects).max()) or 1.0, []
        for path in self.order[:most]:
            value = float(self.effects[path])
            text = with_error(value, float(self.errors[path]), 4)
            rows.append([Cell(self._names(path)), Cell(text, abs(value) / largest)])
        shown, R = min(most, len(self.routes)), len(self.routes)
        note = (
            f"how {self.unit} changes if only this connection gets {self.replaced} in place of the "
            "head's output · what lies between keeps its outputs, what follows is computed again · "
            "all: every connection of the head gets it, also that to feed-forward layers"
        )
        columns = [Column("path", left=True), Column("change")]
        return [
            Title("paths", [f"the strongest {shown} of {R}" if shown < R else f"all {R}"]),
            Table(columns, rows),
            Note(note),
        ]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The records as dictionaries, one for each row."""
        columns = self.records().columns
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def records(self) -> Records:
        """A row for each path, the strongest first."""
        routes = [self.routes[path] for path in self.order]
        columns: dict[str, Any] = {"path": [self._names(path) for path in self.order]}
        for n, name in enumerate(("layer", "head")):
            columns[f"from_{name}"] = [route.sender[n] for route in routes]
            columns[f"to_{name}"] = [r.to[n] if r.read in READ else None for r in routes]
        columns["read"] = [route.read for route in routes]
        columns |= {"change": self.effects[self.order], "error": self.errors[self.order]}
        facts = {"unit": self.unit, "replaced_by": self.replaced, "texts": self.texts}
        return Records(columns, facts)


class PathPatching:
    """Some (B, T) texts computed by the whole model, and what its heads send along single
    paths.

    replaced: for each layer, what replaces its heads' outputs, an array that broadcasts to (B, H,
    T, D). value: a function, (B, T, C) output of the last layer -> (B,); its change is measured.
    """

    def __init__(
        self, reader: Reader, ids: Ids, replaced: Sequence[Array], value: Callable[[Array], Array]
    ) -> None:
        self.reader, self._replaced, self._value = reader, replaced, value
        self._kept = dict[tuple[str, int], Array]()

        def keep(name: str, layer: int, stage: Array) -> Array:
            if name in ("resid_pre", "context", "ffn_out"):
                self._kept[name, layer] = stage
            return stage

        x = reader.blocks(reader.embed(ids), range(reader.config.n_layer), keep)
        self._before = value(x)

    def paths_from_head(self, layer: int, head: int) -> dict[Route, Callable[[], Array]]:
        """Each path from a head, and a function that computes its (B,) effect."""
        sender, (found, x) = (layer, head), self._sent(layer, head)
        direct = self._value(x) - self._before
        inputs = {Route(sender, sender, "all"): self._new(layer, head), **found}
        paths = {route: partial(self._effect, route, new) for route, new in inputs.items()}
        return {Route(sender, sender, None): lambda: direct, **paths}

    def _new(self, layer: int, head: int) -> Array:
        """What replaces a head's output; it broadcasts to (B, T, D)."""
        return self._replaced[layer][..., head, :, :]

    def reads(self, layer: int, head: int) -> dict[Route, Array]:
        """Each path from a head to a later head, and (B, T, D) what that head then reads."""
        return self._sent(layer, head)[0]

    def _sent(self, layer: int, head: int) -> tuple[dict[Route, Array], Array]:
        """What the later heads read, and (B, T, C) the output of the last layer, if a head's output
        is replaced and all other outputs are kept.
        """
        found = dict[Route, Array]()

        def freeze(name: str, at: int, stage: Array) -> Array:
            if name in READ and at > layer:
                for to in range(self.reader.config.n_head):
                    found[Route((layer, head), (at, to), name)] = stage[:, to]
            if name in ("context", "ffn_out"):
                stage = self._kept[name, at]
            if (name, at) == ("context", layer):
                stage = stage.copy()
                stage[:, head] = self._new(layer, head)
            return stage

        layers = range(layer, self.reader.config.n_layer)
        return found, self.reader.blocks(self._kept["resid_pre", layer], layers, freeze)

    def _effect(self, route: Route, new: Array) -> Array:
        """(B,) the effect of new (B, T, D) queries, keys, values or outputs at the path's end."""
        layer, head = route.to
        changed = "context" if route.read == "all" else route.read

        def hook(name: str, at: int, stage: Array) -> Array:
            if (name, at) == (changed, layer):
                stage[:, head] = new
            return stage

        layers = range(layer, self.reader.config.n_layer)
        x = self.reader.blocks(self._kept["resid_pre", layer], layers, hook)
        return self._value(x) - self._before


def path_effects(parts: Sequence[PathPatching], unit: str, replaced: str, done: Done) -> Paths:
    """The effect of every path over the texts of all parts."""
    config = parts[0].reader.config
    effects = dict[Route, Array]()
    senders = [*np.ndindex(config.n_layer, config.n_head)]
    for number_of, sender in enumerate(senders):
        each = [part.paths_from_head(*sender) for part in parts]
        works = [work for paths in each for work in paths.values()]
        results = map_on_cores(call, works)
        columns = [results[n :: len(each[0])] for n in range(len(each[0]))]
        effects |= {r: np.concatenate(c) for r, c in zip(each[0], columns, strict=True)}
        done((number_of + 1) / len(senders))
    rises = np.stack([*effects.values()], axis=-1)  # (N, R)
    errors = standard_errors(rises)
    return Paths(tuple(effects), rises.mean(axis=0), errors, unit, replaced, len(rises))
