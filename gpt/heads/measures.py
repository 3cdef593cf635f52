"""Measures of what a head attends to, each with its value for a head that attends uniformly.

Every measure is computed for each text, so that it has a standard error. These measures describe
weights; ablation.py measures a head's effect on the loss. `name_heads` names heads by their
measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpt.checks import Arrays
from gpt.config import DrawnStage
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.vocabulary import Ids
from gpt.words import layers_and_heads

PERIODS = (0.25, 0.5, 0.75)  # quantiles of the distances between equal characters of a text
SEQUENCES = 12  # random texts for each period
SHORTEST_PERIOD = 3  # characters; in shorter texts the successor is too near other keys
FARTHEST = 8  # largest distance of the measure `back`, in characters


@dataclass(frozen=True, repr=False)
class Measure(Arrays):
    """One property of every head, averaged over `windows` texts.

    values (L, H) are means, errors (L, H) their standard errors (NaN for one text), uniform the
    value for a head that attends uniformly (NaN where there is none). parts: the same measure for
    each kind of text, if there are several kinds. offsets (L, H): for the measure `back`, the
    number of characters back to which each head's value belongs; uniform is then (L, H), too. least
    (L, H): for the measure `induction`, the part that follows from the head's mean weight at each
    distance, from which a name counts.
    """

    name: str
    title: str
    explained: str
    values: Array
    errors: Array
    uniform: float | Array
    windows: int
    parts: tuple[Measure, ...] = ()
    offsets: npt.NDArray[np.intp] | None = None
    least: Array | None = None

    def __repr__(self) -> str:
        layers, heads = self.values.shape
        layer, head = divmod(int(np.nan_to_num(self.values, nan=-np.inf).argmax()), heads)
        return (
            f"<Measure {self.name} of {layers_and_heads(layers, heads)}: highest "
            f"{self.values[layer, head]:.3f} in layer {layer} head {head}, "
            f"uniform {self.uniform_value(layer, head):.3f}>"
        )

    @property
    def uniform_values(self) -> Array:
        """(L, H) the value of a uniform head that belongs to each head's value."""
        return np.broadcast_to(self.uniform, self.values.shape)

    def uniform_value(self, layer: int, head: int) -> float:
        """The value of a uniform head that belongs to this head's value."""
        return float(self.uniform_values[layer, head])

    @property
    def every(self) -> tuple[Measure, ...]:
        """This measure and its parts."""
        return (self, *self.parts)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """(L, H) values, errors and uniform values of it and its parts, by name."""
        columns: dict[str, npt.NDArray[Any]] = {}
        for part in self.every:
            columns[part.name] = part.values
            columns[f"{part.name}_error"] = part.errors
            columns[f"{part.name}_uniform"] = part.uniform_values
            if part.offsets is not None:
                columns[f"{part.name}_offset"] = part.offsets
        return columns


#: name -> (title, explanation).
TITLES = {
    "back": (
        "n back",
        f"weight on the character n places before; of n = 1 to {FARTHEST} the one with the most",
    ),
    "previous": ("previous", "weight on the character before"),
    "duplicate": ("duplicate", "weight on earlier occurrences of the same character"),
    "induction": (
        "induction in text",
        "weight on the character after the last earlier occurrence of the same character; doubled "
        "characters left out",
    ),
    "induction_synthetic": (
        "induction, synthetic",
        "the same in random texts: P distinct letters or digits, twice, for periods P at which "
        "this text repeats them; the error includes their spread (Olsson et al. 2022)",
    ),
    "sink": ("sink", "weight on the first character, from the second row on (Gu et al. 2024)"),
    "sink_all": ("sink, all rows", "weight on the first character (Gu et al. 2024)"),
    "entropy": ("entropy", "of a row's weights, as a share of the largest possible"),
    "distance": ("distance", "mean characters back (Vig & Belinkov 2019)"),
    "distance_later": ("distance, no sink", "mean characters back, without the first as key"),
}


def measure_heads(texts: Iterable[AttentionMap]) -> list[Measure]:
    """All measures, on texts of two characters or more; `induction` has its own synthetic
    texts.

    A text without rows for a measure (no repeated character) is left out of its mean.
    """
    shape = 0, 0  # (L, H)
    taken: dict[str, list[Array]] = {}  # (L·H + 1,) for each text: every head, and a uniform one
    asked: list[npt.NDArray[np.intp]] = []  # distances of the induction keys in each text
    far: list[Array] = []  # (L·H + 1, T) sums of the weights at each distance
    for text in texts:
        T = len(text.ids)
        if T < 2:
            continue
        shape = len(text.layers), text.heads
        uniform = (np.tri(T) / np.arange(1, T + 1)[:, None])[None]
        # One layer at a time: in float64, all of them are large.
        found = [_of_layer(stages.weights, text.ids) for stages in text.layers]
        found.append(_of_layer(uniform, text.ids))
        for name in found[0]:
            values = np.concatenate([each[name] for each in found])
            (far if name == "far" else taken.setdefault(name, [])).append(values)
        rows, after = _completed(text.ids)
        asked.append(rows - after)
    if not taken:
        return []
    offsets, taken["back"], uniforms = _strongest_offsets(far)
    means = {name: _average(name, taken[name], shape) for name in TITLES if name in taken}
    offsets, uniforms = offsets[:-1].reshape(shape), uniforms[:-1].reshape(shape)
    means["back"] = replace(means["back"], offsets=offsets, uniform=uniforms)
    by_distance = _average("induction", _from_distances(far, asked), shape).values
    means["induction"] = replace(means["induction"], least=by_distance)
    return [*means.values()]


def induction(reader: Reader, text: Ids) -> Measure | None:
    """The synthetic induction measure: P distinct random characters of a text, written twice.

    In the second half, at position i, a head that completes repetitions attends to i − P + 1. text:
    (n,) ids, only of characters of words. Characters are drawn as often as they occur in it, and
    the periods P are distances between its equal characters that fit the context twice. The parts
    of the measure are the periods; its error includes their spread. None if there is no such
    distance.
    """
    config, random = reader.config, np.random.default_rng(0)
    shape = config.n_layer, config.n_head
    characters, counts = np.unique(text, return_counts=True)
    places = np.argsort(text, kind="stable")
    distances = np.diff(places)[np.diff(text[places].astype(int)) == 0]
    longest = min(len(characters), config.block_size // 2)
    distances = distances[(distances >= SHORTEST_PERIOD) & (distances <= longest)]
    if not len(distances):
        return None
    periods = np.unique(np.quantile(distances, PERIODS, method="nearest"))
    parts = []
    for period in periods.tolist():
        rows, taken = np.arange(period, 2 * period), []
        uniform = (1 / (rows + 1)).mean()
        for _ in range(SEQUENCES):
            once = random.choice(characters, period, replace=False, p=counts / len(text))
            weights = np.stack([layer.weights for layer in reader.stages(np.tile(once, 2))])
            means = weights[:, :, rows, rows - period + 1].mean(axis=-1, dtype=np.float64)
            taken.append(np.append(means, uniform))
        part = _average("induction_synthetic", taken, shape)
        parts.append(replace(part, name=f"period_{period}", title=f"P={period}", explained=""))
    values = np.stack([part.values for part in parts])
    within = np.sqrt(np.sum([part.errors**2 for part in parts], axis=0)) / len(parts)
    return Measure(
        "induction_synthetic",
        *TITLES["induction_synthetic"],
        values=values.mean(axis=0),
        errors=np.fmax(within, standard_errors(values)),
        uniform=float(np.mean([part.uniform for part in parts])),
        windows=sum(part.windows for part in parts),
        parts=tuple(parts),
    )


def _of_layer(weights: Array, ids: Ids) -> dict[str, Array]:
    """(H, T, T) weights -> every measure of them, (H,), and "far", (H, T) sums of the weights at
    each distance.
    """
    weights = weights.astype(np.float64)
    far = [np.trace(weights, -back, -2, -1) for back in range(len(ids))]
    return {**_of_weights(weights, ids), "far": np.stack(far, axis=-1)}


def _of_weights(weights: Array, ids: Ids) -> dict[str, Array]:
    """(…, T, T) weights of a text, T ≥ 2 -> every measure of them, (…)."""
    T = weights.shape[-1]
    rows, columns = np.arange(1, T), np.arange(T)
    back = np.maximum(columns[:, None] - columns, 0)  # (T, T) how many characters back
    entropy = _entropies(weights)[..., 1:] / np.log(rows + 1)
    earlier = (ids[:, None] == ids) & (back > 0)
    repeats = earlier.any(axis=-1)
    completed, after = _completed(ids)
    return {
        "previous": weights[..., rows, rows - 1].mean(axis=-1),
        "sink": weights[..., 1:, 0].mean(axis=-1),
        "duplicate": _mean((weights * earlier).sum(axis=-1)[..., repeats]),
        "induction": _mean(weights[..., completed, after]),
        "sink_all": weights[..., 0].mean(axis=-1),
        "entropy": entropy.mean(axis=-1),
        "distance": _mean_of(back, weights),
        "distance_later": _mean_of(back[:, 1:], weights[..., 1:]),
    }


def _completed(ids: Ids) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(N,) rows i whose character occurred before, the last time at j, and (N,) the keys j +
    1.

    Leaves out doubled characters, where j + 1 is i itself: no earlier character followed them.
    """
    places = np.arange(len(ids))
    before = np.where((ids[:, None] == ids) & (places < places[:, None]), places, -1).max(axis=-1)
    rows = np.flatnonzero((before >= 0) & (before + 1 < places))
    return rows, before[rows] + 1


def _from_distances(sums: list[Array], asked: list[npt.NDArray[np.intp]]) -> list[Array]:
    """(…,) for each text, the mean weight of all texts together at the given distances."""
    longest = max(each.shape[-1] for each in sums)
    total, rows = np.zeros((*sums[0].shape[:-1], longest)), np.zeros(longest)
    for each in sums:
        T = each.shape[-1]
        total[..., :T] += each
        rows[:T] += np.arange(T, 0, -1)
    usual = total / rows
    return [_mean(usual[..., back]) for back in asked]


def _strongest_offsets(sums: list[Array]) -> tuple[npt.NDArray[np.intp], list[Array], Array]:
    """(…,) the offset with the most weight in the mean of all texts, each text's weight there, and
    the mean weight there of the last head, which is uniform.

    Offsets are at most FARTHEST and at most half of the shortest text.
    """
    shortest = min(each.shape[-1] for each in sums)
    offsets = np.arange(1, max(1, min(FARTHEST, shortest // 2)) + 1)
    means = np.stack([each[..., offsets] / (each.shape[-1] - offsets) for each in sums])
    of_all = means.mean(axis=0)
    strongest = of_all.argmax(axis=-1)
    values = np.take_along_axis(means, strongest[None, ..., None], axis=-1)
    return offsets[strongest], list(values[..., 0]), of_all[-1, strongest]


def _entropies(weights: Array) -> Array:
    """(…, T, S) -> (…, T) entropy of each row, in nats."""
    logs = np.where(weights > 0, weights, 1.0)
    np.log(logs, out=logs)
    logs *= weights
    return -logs.sum(axis=-1)  # type: ignore[no-any-return]


def _mean(values: Array) -> Array:
    """(…, N) -> (…) mean over the last axis; NaN for N = 0."""
    return values.mean(axis=-1) if values.size else np.full(values.shape[:-1], np.nan)


def _mean_of(values: npt.NDArray[np.int64], weights: Array) -> Array:
    """(…) weighted mean over the last two axes; 0 where all weights are 0."""
    total = weights.sum(axis=(-2, -1))
    means: Array = (weights * values).sum(axis=(-2, -1)) / np.where(total > 0, total, 1.0)
    return means


def _average(name: str, taken: list[Array], shape: tuple[int, int]) -> Measure:
    """(L·H + 1,) for each text, the last value a uniform head's -> the measure of their means."""
    values = np.stack(taken)
    values = values[~np.isnan(values).any(axis=1)]
    count = len(values)
    means = values.mean(axis=0) if count else np.full(values.shape[1], np.nan)
    errors = standard_errors(values)[:-1].reshape(shape)
    return Measure(name, *TITLES[name], means[:-1].reshape(shape), errors, float(means[-1]), count)


def standard_errors(values: Array) -> Array:
    """(N, …) -> (…) standard errors of the means of N values; NaN for N < 2."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    errors: Array = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return errors


#: Thresholds for a name: share of the way from uniform to 1; number of standard errors.
STRONG, CERTAIN = 0.3, 3.0
#: The measures that can name a head, the most specific first. `back` gives the names "previous", "2
#: back", "3 back" …
KINDS = ("induction", "duplicate", "back", "sink")
#: The rule by which `name_heads` names heads, as text.
RULE = (
    f"a head gets a name if its measure is at least {STRONG:g} of the way from uniform to 1, and "
    f"{CERTAIN:g} standard errors above uniform; induction in text counts from the mean weight at "
    "the same distances if that is above uniform; synthetic induction must pass in two periods"
)


def job(name: str) -> str:
    """What a head with this name looks at, in words."""
    if name.endswith(" back"):
        return f"{name.removesuffix(' back')} characters before"
    return JOBS[name]


#: A head's name -> what it looks at; `job` adds "3 back" and others.
JOBS = {
    "induction": "what followed this letter before",
    "duplicate": "the same letter, earlier",
    "previous": "the character before",
    "sink": "the first character",
    "": "everywhere",
}


def name_heads(measures: Sequence[Measure]) -> list[list[str]]:
    """(L, H) the name of each head by RULE: its strongest kind, or "" if none is strong enough."""
    shares = _strengths(measures)  # kind -> (L, H)
    if not shares:
        return []
    stacked = np.stack(list(shares.values()))
    best = np.where(stacked.max(axis=0) >= STRONG, stacked.argmax(axis=0), len(shares))
    names = np.array([*shares, ""], object)[best]
    for measure in measures:
        if measure.offsets is not None:
            back = np.strings.add(measure.offsets.astype(str), " back")
            back = np.where(measure.offsets == 1, "previous", back)
            names = np.where(names == "back", back, names)
    return names.tolist()  # type: ignore[no-any-return]


def strengths(measures: Sequence[Measure]) -> Array:
    """(L, H) where each head lies between a uniform one (0) and its kind at its purest (1)."""
    return np.max(list(_strengths(measures).values()), axis=0)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class StartHead:
    """Which head to show if the user chooses none. why: the reason for this head."""

    layer: int = 0
    head: int | Literal["mean"] = 0
    stage: DrawnStage = "weights"
    why: str = ""


def choose_head(
    measures: Sequence[Measure],
    layer: int | None = None,
    head: int | None = None,
    stage: DrawnStage = "weights",
) -> StartHead:
    """The head to show first, among those in the given layer or with the given number.

    The head nearest to a kind (KINDS), if it is near enough to be named so; else the head with the
    lowest entropy. Heads that mainly attend to the first character ("sink") come last.
    """
    by_name = {measure.name: measure for measure in measures}
    if (layer is not None and head is not None) or "entropy" not in by_name:
        return StartHead(layer or 0, head or 0, stage)
    entropy = by_name["entropy"].values  # (L, H)
    kind = strengths([measure for measure in measures if measure.name != "sink"])
    rank = np.where(kind >= STRONG, 1 + kind, 1 - np.nan_to_num(entropy, nan=1.0))
    names = name_heads(measures)
    rank[np.array(names) == "sink"] -= 3
    for axis, chosen in enumerate((layer, head)):
        others = np.arange(rank.shape[axis]) != chosen
        if chosen is not None:
            rank[(slice(None),) * axis + (others,)] = -np.inf
    place = divmod(int(rank.argmax()), rank.shape[1])
    found, why = by_name["entropy"], "no kind of head stands out; this one has the lowest entropy"
    if name := names[place[0]][place[1]]:
        found = by_name[name if name in KINDS else "back"]
        shown = name if found.offsets is not None else found.title
        why = f"the head nearest to a named kind, {shown}"
    value, even = float(found.values[place]), found.uniform_value(*place)
    return StartHead(place[0], place[1], stage, f"{why}: {value:.2f}, uniform {even:.2f}")


def _strengths(measures: Sequence[Measure]) -> dict[str, Array]:
    """Kind -> (L, H) share of the way from uniform to 1, in the order of KINDS.

    A head that attends at a fixed distance gets a high induction measure in a text that repeats at
    that distance. So its share in text is measured from `least`, if that is higher than uniform,
    and its synthetic share is that of the second best period.
    """
    known = {measure.name: measure for measure in measures}
    found = {name: _strength(known[name], known[name].uniform) for name in KINDS if name in known}
    if "induction" in known and (by_distance := known["induction"].least) is not None:
        least = np.fmax(known["induction"].uniform, by_distance)
        found["induction"] = _strength(known["induction"], least)
    if "induction_synthetic" in known and len(parts := known["induction_synthetic"].parts) > 1:
        second = np.sort([_strength(part, part.uniform) for part in parts], axis=0)[-2]
        found["induction"] = np.maximum(found.get("induction", second), second)
    return {name: found[name] for name in KINDS if name in found}


def _strength(measure: Measure, least: float | Array) -> Array:
    """(L, H) share of the way from `least` to 1; 0 for values within CERTAIN standard errors."""
    sure = measure.values - CERTAIN * np.nan_to_num(measure.errors) > least
    share = (measure.values - least) / np.maximum(1e-9, 1 - least)
    return np.where(sure, share, 0.0)
