"""Names of heads: what kind of head each is, by its measures, and which one to show first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gpt.config import DrawnStage
from gpt.heads.measures import Measure
from gpt.reading.layers import Array

#: Thresholds for a name: share of the way from uniform to 1, standard errors.
STRONG, CERTAIN = 0.3, 3.0
#: The measures that name a head, the most specific first. `back` gives the names "previous",
#: "2 back", "3 back" …
KINDS = ("induction", "duplicate", "back", "sink")
#: Those of models with an encoder only (pair_measures.py).
PAIR_KINDS = ("left", "itself", "right", "copy", "monotone")
_ALL = (*KINDS, *PAIR_KINDS)
#: The rule of `kinds`, as text.
RULE_OF_ALL = (
    f"a head gets a name if its measure is at least {STRONG:g} of the way from uniform to 1, and "
    f"{CERTAIN:g} standard errors above uniform"
)
RULE = (
    f"{RULE_OF_ALL}; induction in text counts from the mean weight at "
    "the same distances if that is above uniform; synthetic induction must pass in two periods"
)


def kinds(measures: Sequence[Measure]) -> list[list[str]]:
    """(L, H) the name of each head by RULE: its strongest kind, or "" for none."""
    shares = _strengths(measures)  # kind -> (L, H)
    if not shares:
        return []
    stacked = np.stack(list(shares.values()))
    best = np.where(stacked.max(axis=0) >= STRONG, stacked.argmax(axis=0), len(shares))
    names = np.array([*shares, ""], object)[best]
    for measure in measures:
        if measure.offsets is not None:
            names = np.where(names == "back", _names_of(measure.offsets), names)
    return names.tolist()  # type: ignore[no-any-return]


def _names_of(offsets: npt.NDArray[np.intp]) -> npt.NDArray[np.object_]:
    """ "previous", "2 back", "3 back" … for heads that attend so many characters back."""
    names = [["previous" if n == 1 else f"{n} back" for n in row] for row in offsets.tolist()]
    return np.array(names, object)


def measure_of(kind: str, measures: Sequence[Measure]) -> Measure:
    """The measure that gives heads this name."""
    name = kind if kind in _ALL else "back"
    return next(measure for measure in measures if measure.name == name)


def strengths(measures: Sequence[Measure]) -> Array:
    """(L, H) where each head lies between uniform (0) and its kind (1)."""
    return np.max(list(_strengths(measures).values()), axis=0)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Start:
    """What to show if the reader chooses no head. why: the reason for the head."""

    layer: int = 0
    head: int | Literal["mean", "rollout"] = 0
    stage: DrawnStage = "weights"
    why: str = ""


def opening(
    measures: Sequence[Measure],
    layer: int | None = None,
    head: int | None = None,
    stage: DrawnStage = "weights",
) -> Start:
    """The head to show first, of those in the given layer or with the given number.

    The head nearest to a kind (KINDS), if it is near enough to have its name; else the
    head with the lowest entropy. Heads that mainly attend to the first character ("sink") come
    last.
    """
    by_name = {measure.name: measure for measure in measures}
    if (layer is not None and head is not None) or "entropy" not in by_name:
        return Start(layer or 0, head or 0, stage)
    entropy = by_name["entropy"].values  # (L, H)
    kind = strengths([measure for measure in measures if measure.name != "sink"])
    rank = np.where(kind >= STRONG, 1 + kind, 1 - np.nan_to_num(entropy, nan=1.0))
    rank[np.array(kinds(measures)) == "sink"] -= 3
    for axis, chosen in enumerate((layer, head)):
        others = np.arange(rank.shape[axis]) != chosen
        if chosen is not None:
            rank[(slice(None),) * axis + (others,)] = -np.inf
    place = divmod(int(rank.argmax()), rank.shape[1])
    name = kinds(measures)[place[0]][place[1]]
    found, why = by_name["entropy"], "no kind of head stands out; this one has the lowest entropy"
    if name:
        found = measure_of(name, measures)
        shown = name if found.offsets is not None else found.title
        why = f"the head nearest to a named kind, {shown}"
    value, even = float(found.values[place]), found.uniform_of(*place)
    return Start(place[0], place[1], stage, f"{why}: {value:.2f}, uniform {even:.2f}")


def _strengths(measures: Sequence[Measure]) -> dict[str, Array]:
    """Kind -> (L, H) share of the way from uniform to 1, in the order of _ALL.

    A head that attends at fixed distances gets a high induction measure in a text that repeats at
    such a distance. So the share in text starts from `induction_distance`, if that is higher than
    uniform, and the synthetic share is that of the second best period.
    """
    known = {measure.name: measure for measure in measures}
    found = {name: _strength(known[name], known[name].uniform) for name in _ALL if name in known}
    if "induction_distance" in known and "induction" in known:
        measure = known["induction"]
        least = np.fmax(measure.uniform, known["induction_distance"].values)
        found["induction"] = _strength(measure, least)
    if "induction_synthetic" in known and len(parts := known["induction_synthetic"].parts) > 1:
        second = np.sort([_strength(part, part.uniform) for part in parts], axis=0)[-2]
        found["induction"] = np.maximum(found.get("induction", second), second)
    return {name: found[name] for name in _ALL if name in found}


def _strength(measure: Measure, least: float | Array) -> Array:
    """(L, H) share of the way from `least` to 1; 0 below CERTAIN standard errors."""
    sure = measure.values - CERTAIN * np.nan_to_num(measure.errors) > least
    share = (measure.values - least) / np.maximum(1e-9, 1 - least)
    return np.where(sure, share, 0.0)
