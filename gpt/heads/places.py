"""Which numbers of a model are meant: (stage, layer, head, position), with less meaning all.

Attention maps, activations and patches take such keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

from gpt.checks import numbered
from gpt.config import Stage
from gpt.config.model import FINAL, OF_HEADS
from gpt.reading.layers import Array

#: A stage, or (stage, layer, head, position), whose end may be left out. None means all. Layers and
#: heads count from 0, positions also from the end: -1 is the last. A position is a row: of k and v
#: the key's, of other stages the query's. A stage without heads has None as its head, one after the
#: last layer also as its layer: ("resid_mid", 1, None, 5), ("logits", None, None, 5). "mean" is the
#: mean of the heads, which can only be read.
Key: TypeAlias = Stage | tuple[Stage, *tuple[SupportsIndex | Literal["mean"] | None, ...]]


class Place(NamedTuple):
    """A checked key; None: all."""

    stage: Stage
    layer: int | None
    head: int | Literal["mean"] | None
    position: int | None

    def part(self, stage: Array) -> Array:
        """(…, H, T, D) or (…, T, C) -> a view of this head and position; for "mean" a new array."""
        if self.head == "mean":
            stage = stage.mean(axis=-3)
        elif self.head is not None:
            stage = stage[..., self.head, :, :]
        return stage if self.position is None else stage[..., self.position, :]


def parse(
    key: Key,
    shapes: Mapping[Any, tuple[int, ...]],
    layers: Sequence[int],
    from_end: bool = True,
) -> Place:
    """Checks a key. shapes: of the known stages, (…, H, T, D) or (…, T, C). layers: a model's, as a
    range, or the kept ones. from_end: whether a position may count from the end.

    Raises ValueError for an unknown stage or word and for a layer or head that the
    stage does not have, IndexError for a number that does not exist, TypeError for no whole number.
    """
    entries: tuple[Any, ...] = key if isinstance(key, tuple) and key else (key,)
    name, layer, head, position = (*entries, None, None, None)[:4]
    kept = not isinstance(layers, range)
    if name not in shapes:
        problem = "was not kept; kept:" if kept else "is not one of"
        raise ValueError(f"{name!r} {problem} {', '.join(shapes)}")
    if len(entries) > 4:
        raise ValueError(f"{key!r}: expected at most (stage, layer, head, position)")
    if (head is not None and name not in OF_HEADS) or (layer is not None and name in FINAL):
        lacks, at = ("layers", None) if name in FINAL else ("heads", "layer")
        raise ValueError(f"{key!r}: {name} has no {lacks}; use ({name!r}, {at}, None, position)")
    if isinstance(head, str) and head != "mean":
        raise ValueError(f"{key!r}: {head!r} is not a head's number or mean")
    if layer is not None and kept and layer not in layers:
        raise IndexError(f"layer {layer} was not kept; kept: {', '.join(map(str, layers))}")
    if layer is not None:
        layer = numbered("layer", layer, max(layers) + 1)
    if head not in (None, "mean"):
        head = numbered("head", head, shapes[name][-3])
    if position is not None:
        length = shapes[name][-2]
        position = numbered("position", position, length, -length if from_end else 0)
    return Place(name, layer, head, position)


def head_name(layer: int, head: int) -> str:
    """ "L1H0" """
    return f"L{layer}H{head}"
