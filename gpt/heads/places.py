"""Keys that name numbers of a model: (stage, layer, head, position); parts that are left out mean
all.

Attention maps, activations and patches take such keys; the last two also take a text at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias

from gpt.checks import check_number
from gpt.config.model import FINAL_STAGES, HEAD_STAGES, Stage
from gpt.reading.layers import Array

#: A stage, or (stage, layer, head, position, text), where trailing parts may be left out. None
#: means all. Layers and heads count from 0; positions and texts may also count from the end: -1 is
#: the last. A slice selects several positions or texts; so does a range, which can also be a
#: dictionary's key. A position is a row: for k and v the key's, for other stages the query's. A
#: stage without heads has None as its head, a stage after the last layer also as its layer:
#: ("resid_mid", 1, None, 5), ("logits", None, None, 5). "mean" is the mean of the heads, which can
#: only be read.
Key: TypeAlias = (
    Stage | tuple[Stage, *tuple[SupportsIndex | slice | range | Literal["mean"] | None, ...]]
)


class ParsedKey(NamedTuple):
    """A checked key. None means all."""

    stage: Stage
    layer: int | None
    head: int | Literal["mean"] | None
    position: int | slice | None
    text: int | slice | None = None

    def part(self, stage: Array) -> Array:
        """(…, H, T, D) or (…, T, C) -> a view of this head and position; for "mean" a new array."""
        if self.head == "mean":
            stage = stage.mean(axis=-3)
        elif self.head is not None:
            stage = stage[..., self.head, :, :]
        return stage if self.position is None else stage[..., self.position, :]


def parse_key(
    key: Key,
    shapes: Mapping[Any, tuple[int, ...]],
    layers: Sequence[int],
    from_end: bool = True,
    texts: int | None = None,
) -> ParsedKey:
    """Checks a key. shapes: name -> shape of the known stages, (…, H, T, D) or (…, T, C). layers: a
    model's layers, as a range, or the kept ones. from_end: whether a position may count from the
    end. texts: how many there are; None: a key cannot name a text.

    Raises ValueError for an unknown stage or word, and for a layer or head if the stage has none;
    IndexError for a number that does not exist; TypeError for what is not a whole number.
    """
    entries: tuple[Any, ...] = key if isinstance(key, tuple) and key else (key,)
    name, layer, head, position, text = (*entries, None, None, None, None)[:5]
    kept = not isinstance(layers, range)
    if name not in shapes:
        problem = "was not kept; kept:" if kept else "is not one of"
        raise ValueError(f"{name!r} {problem} {', '.join(shapes)}")
    if len(entries) > 4 + (texts is not None):
        also = ", text" if texts is not None else ""
        raise ValueError(f"{key!r}: expected at most (stage, layer, head, position{also})")
    final = name in FINAL_STAGES
    if (head is not None and name not in HEAD_STAGES) or (layer is not None and final):
        lacks, at = ("layers", None) if final else ("heads", "layer")
        raise ValueError(f"{key!r}: {name} has no {lacks}; use ({name!r}, {at}, None, position)")
    if isinstance(head, str) and head != "mean":
        raise ValueError(f"{key!r}: {head!r} is not a head's number or mean")
    if layer is not None and kept and layer not in layers:
        raise IndexError(f"layer {layer} was not kept; kept: {', '.join(map(str, layers))}")
    if layer is not None:
        layer = check_number("layer", layer, max(layers) + 1)
    if head not in (None, "mean"):
        head = check_number("head", head, shapes[name][-3])
    position = _chosen("position", position, shapes[name][-2], from_end)
    return ParsedKey(name, layer, head, position, _chosen("text", text, texts or 0))


def _chosen(what: str, entry: Any, count: int, from_end: bool = True) -> int | slice | None:
    """A checked number, or slice, out of `count` positions or texts."""
    if entry is None:
        return None
    if isinstance(entry, range):
        for end in (*entry[:1], *entry[-1:]):
            check_number(what, end, count)
        entry = slice(entry.start, entry.stop, entry.step)
    if not isinstance(entry, slice):
        return check_number(what, entry, count, -count if from_end else 0)
    start, stop, step = entry.indices(count)
    ends = (entry.start, entry.stop)
    if step < 1 or not (from_end or all(end is None or end >= 0 for end in ends)):
        also = "" if from_end else " and count from 0, as texts differ in length"
        raise ValueError(f"{what}: {entry} must go upwards{also}")
    return slice(start, stop, step)


def head_name(layer: int, head: int) -> str:
    """ "L1H0" """
    return f"L{layer}H{head}"
