"""The circuits of a head as tables of characters (Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits"). QK: which character it looks for; OV: which character it then writes.

Both follow direct paths: from a character's embedding through the layer's norm and, for OV, from
the head to the logits, past the other layers. In layer 0, QK is exactly what the model computes. If
positions are added to embeddings, the character that is read stands in the middle of the context.
Tensor names: T time, V characters, C n_embd, D head_size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import (
    Block,
    Cell,
    Checks,
    Column,
    Legend,
    Note,
    Records,
    Table,
    Title,
    format_number,
)
from gpt.characters import label
from gpt.checks import Check, TableResult
from gpt.config.fields import require
from gpt.config.model import CircuitName
from gpt.heads.contributions import BackwardPass
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.proof import worst_row
from gpt.vocabulary import Ids

#: Circuit -> the names of its rows and columns.
SIDES: dict[str, tuple[str, str]] = {"qk": ("query", "key"), "ov": ("attended", "written")}
SHOWN = 24  # characters in a notebook's table
TESTED = 16  # texts that a check uses
AT_ONCE = 2**22  # numbers computed together


@dataclass(frozen=True, repr=False)
class Circuit(TableResult):
    """(V, V) values of a head for the V characters of `text`. kind "qk": q·k/√D for a row's
    character as the query and a column's as the key. "ov": what attending to a row's character with
    weight 1 adds to the logit of a column's character. title, note: what the table shows, and how
    it was computed.

    An attention map has the same attributes, so the same code draws both.
    """

    kind: CircuitName
    layer: int
    head: int
    distance: int
    title: str
    text: str
    values: Array
    allowed: npt.NDArray[np.bool_]
    head_size: int
    note: str
    checks: tuple[Check, ...]

    def __repr__(self) -> str:
        return f"<Circuit {self.kind} of layer {self.layer} head {self.head}: {self.title}>"

    def __getitem__(self, key: Any) -> Array:
        return self.values

    def blocks(self) -> list[Block]:
        """The table of the first characters, shaded, and how it was computed."""
        text, values, (row, column) = self.text[:SHOWN], self.values, SIDES[self.kind]
        low, high = values.min(), values.max()
        rows = [
            [
                Cell(label(each)),
                *(Cell(format_number(v), (v - low) / (high - low or 1)) for v in its),
            ]
            for each, its in zip(text, values[:SHOWN, :SHOWN].tolist(), strict=True)
        ]
        facts = [self.title, f"layer {self.layer} head {self.head}"]
        facts += [f"rows = {row}, columns = {column}", f"{len(text)} of {len(values)} characters"]
        table = Table([Column(), *map(Column, map(label, text))], rows)
        return [Title(self.kind, facts), table, Legend(text), Note(self.note), Checks(self.checks)]

    def records(self) -> Records:
        """A row for each number."""
        sides = np.indices(self.values.shape).reshape(2, -1)
        names = zip(SIDES[self.kind], sides, strict=True)
        columns = {name: [self.text[n] for n in each] for name, each in names}
        about = ("layer", "head", "distance", "title", "note")
        facts = {"of": self.kind} | {name: vars(self)[name] for name in about}
        facts["checks"] = [check.record for check in self.checks]
        return Records({**columns, "value": self.values.ravel()}, facts)


def circuit(
    reader: Reader, of: CircuitName, place: tuple[int, int, int], text: str, ids: Ids, measured: Ids
) -> Circuit:
    """See TrainedGPT.circuit, which raises the same errors. place: layer, head, distance. ids: (V,)
    of the text. measured: (T,) ids for which the norms after the head are computed.
    """
    config, exact, (layer, head, distance) = reader.config, reader.in_float64(), place
    require(of in SIDES, "of", f"{of!r} is not one of {', '.join(SIDES)}")
    bounds = {"layer": config.n_layer, "head": config.n_head, "distance": config.block_size}
    for (name, count), given in zip(bounds.items(), place, strict=True):
        require(0 <= given < count, name, f"{given} is not in 0 … {count - 1}")
    added = config.position in ("learned", "sinusoidal")
    key = (config.block_size - 1 - distance) // 2 if added else 0
    query, norm, root = key + distance, f"blocks.{layer}.norm1", config.head_size**0.5

    def at(place: int) -> list[Array]:
        """(V, D) q, k and v of each character at a position."""
        x = exact.norm(exact.embed(ids[:, None], place), norm)
        q, k, v = exact.heads(x, layer)
        q, k = exact.position.rotate(q, k, slice(place, place + 1))
        return [each[:, head, 0] for each in (q, k, v)]

    count = max(1, min(TESTED, AT_ONCE // (config.n_head * (query + 1) ** 2)))
    texts = np.random.default_rng(0).integers(len(ids), size=(count, query + 1))
    only = np.eye(query + 1, dtype=np.bool_)
    only[query] = np.arange(query + 1) == key  # the query attends to this key only
    found = exact.attend(exact.norm(exact.embed(ids[texts]), norm), layer, allowed=only)
    (q, *_), (_, k, v) = at(query), at(key)
    if of == "qk":
        title, name = f"distance {distance}", "scaled scores in texts"
        values, reach = q @ k.T / root, _length(q) * _length(k) / root
        shown = found["scaled"][:, head, query, key]
        expected = values[texts[:, query], texts[:, key]]
        note = f"q·k/√{config.head_size} of embeddings as the layer reads them"
    else:
        title, name = "to the logits", "what the head adds in texts"
        weight, _ = exact.linear(f"blocks.{layer}.attention.proj")
        columns = np.split(weight, config.n_head, axis=1)[head]  # (C, D)
        out = columns.T @ _to_logits(exact, ids, measured).T
        values, reach = v @ out, _length(v) * _length(out.T)
        shown, expected = found["context"][:, head, query] @ out, values[texts[:, key]]
        note = f"norms after the head: scales as on average over {len(measured)} characters"
    note += f" · of keys at position {key}, queries at {query}" * added
    note += " · only differences within a row matter"
    title = "direct path from the embedding, " * (layer > 0 or of == "ov") + title
    apart = worst_row(shown.reshape(count, -1), expected.reshape(count, -1), reach)
    allowed: npt.NDArray[np.bool_] = np.ones(values.shape, np.bool_)
    about = title, text, values, allowed, config.head_size, note
    return Circuit(of, layer, head, distance, *about, (Check(f"table = {name}", *apart),))


def _to_logits(exact: Reader, ids: Ids, measured: Ids) -> Array:
    """(V, C): the factors by which a head's output gives its part of each logit. The last norm is
    held at its values at each of the (T,) `measured` ids; the factors are the means over these ids.
    """
    last, found = exact.stages(measured)[-1].resid_post, []
    size = len(ids) * len(measured) * exact.config.n_embd
    for some in np.array_split(ids, -(-size // AT_ONCE)):
        back = BackwardPass(exact, np.tile(some, (len(measured), 1)))
        back.through("norm", last)
        found.append(back.vectors.mean(axis=0))
    return np.concatenate(found)


def _length(rows: Array) -> float:
    return float(np.linalg.norm(rows, axis=-1).max())
