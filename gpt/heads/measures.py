"""Measures of what a head attends to, each with its value for a head that attends uniformly.

Every measure is computed for each text, so that it has a standard error. These measures describe
weights; survey.py measures a head's effect on the loss. `name_heads` names heads by their measures.
Tensor names: L layers, H heads, T time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.reading.gpt import Array, Reader
from gpt.show.result import Arrays
from gpt.vocabulary import Ids

PERIODS = (0.25, 0.5, 0.75)  # quantiles of the distances between equal characters of a text
SEQUENCES = 12  # random texts for each period
SHORTEST_PERIOD = 3  # characters; in shorter texts the successor is too near other keys
FARTHEST = 8  # largest distance of the measure `back`, in characters

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
#: A head's name -> what it looks at; `job` adds "3 back" and others.
JOBS = {
    "induction": "what followed this letter before",
    "duplicate": "the same letter, earlier",
    "previous": "the character before",
    "sink": "the first character",
    "": "everywhere",
}
#: name -> (title, explanation).
TITLES = {
    "back": (
        "n back",
        f"weight on the character n places before; of n = 1 to {FARTHEST} the one with the most",
    ),
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
    "entropy": ("entropy", "of a row's weights, as a share of the largest possible"),
    "distance": ("distance", "mean characters back (Vig & Belinkov 2019)"),
}


@dataclass(frozen=True)
class Measure(Arrays):
    """One property of every head, averaged over `windows` texts.

    values (L, H) are means, errors (L, H) their standard errors (NaN for one text), uniform the
    value for a head that attends uniformly (NaN where there is none). offsets (L, H): for the
    measure `back`, the number of characters back to which each head's value belongs; uniform is
    then (L, H), too. strength (L, H): for a measure that can name a head, how far on the way from a
    uniform head (0) to its purest kind (1) each head is; 0 if that is not certain.
    """

    name: str
    title: str
    explained: str
    values: Array
    errors: Array
    uniform: float | Array
    windows: int
    offsets: npt.NDArray[np.intp] | None = None
    strength: Array | None = None

    @property
    def uniform_values(self) -> Array:
        """(L, H) the value of a uniform head that belongs to each head's value."""
        return np.broadcast_to(self.uniform, self.values.shape)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        columns: dict[str, npt.NDArray[Any]] = {
            self.name: self.values,
            f"{self.name}_error": self.errors,
            f"{self.name}_uniform": self.uniform_values,
        }
        if self.offsets is not None:
            columns[f"{self.name}_offset"] = self.offsets
        return columns


def measure_heads(texts: Iterable[tuple[Ids, Sequence[Array]]]) -> list[Measure]:
    """All measures of texts of two characters or more; `induction` has its own synthetic texts.

    texts: the (T,) ids of a text, and the (H, T, T) weights of each layer. A text without rows for
    a measure (no repeated character) is left out of its mean.
    """
    shape = 0, 0  # (L, H)
    values: dict[str, list[Array]] = {}  # (L·H + 1, …) of each text: every head, and a uniform one
    distances: list[npt.NDArray[np.intp]] = []  # of the induction keys in each text
    for ids, layers in texts:
        T = len(ids)
        if T < 2:
            continue
        shape = len(layers), len(layers[0])
        uniform = (np.tri(T) / np.arange(1, T + 1)[:, None])[None]
        # One layer after the other: in float64, all of them are large.
        of_layers = [_of_layer(weights, ids) for weights in (*layers, uniform)]
        for name in of_layers[0]:
            of_text = np.concatenate([layer[name] for layer in of_layers])
            values.setdefault(name, []).append(of_text)
        rows, after = _completed(ids)
        distances.append(rows - after)
    if not values:
        return []
    sums = values.pop("sums")
    offsets, values["back"], uniforms = _strongest_offsets(sums)
    means = {name: _average(name, values[name], shape) for name in TITLES if name in values}
    offsets, uniforms = offsets[:-1].reshape(shape), uniforms[:-1].reshape(shape)
    means["back"] = replace(means["back"], offsets=offsets, uniform=uniforms)
    # A head that attends at a fixed distance has a high induction measure in a text that repeats
    # at that distance. So its strength counts from the mean weight at the same distances.
    by_distance = _average("induction", _from_distances(sums, distances), shape).values
    least = {name: means[name].uniform for name in KINDS}
    least["induction"] = np.fmax(least["induction"], by_distance)
    for name, start in least.items():
        means[name] = replace(means[name], strength=_strength(means[name], start))
    return [*means.values()]


def induction(reader: Reader, text: Ids) -> Measure | None:
    """The synthetic induction measure: P distinct random characters of a text, written twice.

    In the second half, at position i, a head that completes repetitions attends to i − P + 1. text:
    (n,) ids, only of characters of words. Characters are drawn as often as they occur in it, and
    the periods P are distances between its equal characters that fit the context twice. Its error
    includes the spread of the periods, its strength is that of the second best period. None if
    there is no such distance.
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
        rows, means = np.arange(period, 2 * period), []
        uniform = (1 / (rows + 1)).mean()
        for _ in range(SEQUENCES):
            once = random.choice(characters, period, replace=False, p=counts / len(text))
            weights = np.stack([layer.weights for layer in reader.stages(np.tile(once, 2))])
            of_text = weights[:, :, rows, rows - period + 1].mean(axis=-1, dtype=np.float64)
            means.append(np.append(of_text, uniform))
        parts.append(_average("induction_synthetic", means, shape))
    values = np.stack([part.values for part in parts])
    within = np.sqrt(np.sum([part.errors**2 for part in parts], axis=0)) / len(parts)
    strengths = np.sort([_strength(part, part.uniform) for part in parts], axis=0)
    return Measure(
        "induction_synthetic",
        *TITLES["induction_synthetic"],
        values=values.mean(axis=0),
        errors=np.fmax(within, standard_errors(values)),
        uniform=float(np.mean([part.uniform for part in parts])),
        windows=sum(part.windows for part in parts),
        strength=strengths[-2] if len(parts) > 1 else np.zeros(shape),
    )


def _of_layer(weights: Array, ids: Ids) -> dict[str, Array]:
    """(H, T, T) weights of a text, T ≥ 2 -> every measure of them, (H,), and "sums", (H, T) sums of
    the weights at each distance.
    """
    weights, T = weights.astype(np.float64), len(ids)
    rows, columns = np.arange(1, T), np.arange(T)
    back = np.maximum(columns[:, None] - columns, 0)  # (T, T) how many characters back
    earlier = (ids[:, None] == ids) & (back > 0)
    repeats = earlier.any(axis=-1)
    completed, after = _completed(ids)
    entropies = -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=-1)
    return {
        "sink": weights[..., 1:, 0].mean(axis=-1),
        "duplicate": _mean((weights * earlier).sum(axis=-1)[..., repeats]),
        "induction": _mean(weights[..., completed, after]),
        "entropy": (entropies[..., 1:] / np.log(rows + 1)).mean(axis=-1),
        "distance": (weights * back).sum(axis=(-2, -1)) / weights.sum(axis=(-2, -1)),
        "sums": np.stack([np.trace(weights, -n, -2, -1) for n in range(T)], axis=-1),
    }


def _completed(ids: Ids) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(N,) rows i whose character occurred before, the last time at j, and (N,) the keys j + 1.

    Leaves out doubled characters, where j + 1 is i itself: no earlier character followed them.
    """
    places = np.arange(len(ids))
    before = np.where((ids[:, None] == ids) & (places < places[:, None]), places, -1).max(axis=-1)
    rows = np.flatnonzero((before >= 0) & (before + 1 < places))
    return rows, before[rows] + 1


def _from_distances(sums: list[Array], distances: list[npt.NDArray[np.intp]]) -> list[Array]:
    """(…,) for each text, the mean weight of all texts together at its distances."""
    longest = max(of_text.shape[-1] for of_text in sums)
    total, rows = np.zeros((*sums[0].shape[:-1], longest)), np.zeros(longest)
    for of_text in sums:
        T = of_text.shape[-1]
        total[..., :T] += of_text
        rows[:T] += np.arange(T, 0, -1)
    usual = total / rows
    return [_mean(usual[..., back]) for back in distances]


def _strongest_offsets(sums: list[Array]) -> tuple[npt.NDArray[np.intp], list[Array], Array]:
    """(…,) the offset with the most weight in the mean of all texts, each text's weight there, and
    the mean weight there of the last head, which is uniform.

    Offsets are at most FARTHEST and at most half of the shortest text.
    """
    shortest = min(of_text.shape[-1] for of_text in sums)
    offsets = np.arange(1, max(1, min(FARTHEST, shortest // 2)) + 1)
    means = np.stack([of_text[..., offsets] / (of_text.shape[-1] - offsets) for of_text in sums])
    of_all = means.mean(axis=0)
    strongest = of_all.argmax(axis=-1)
    values = np.take_along_axis(means, strongest[None, ..., None], axis=-1)
    return offsets[strongest], list(values[..., 0]), of_all[-1, strongest]


def _mean(values: Array) -> Array:
    """(…, N) -> (…) mean over the last axis; NaN for N = 0."""
    return values.mean(axis=-1) if values.size else np.full(values.shape[:-1], np.nan)


def _average(name: str, of_texts: list[Array], shape: tuple[int, int]) -> Measure:
    """(L·H + 1,) for each text, the last value a uniform head's -> the measure of their means."""
    values = np.stack(of_texts)
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


def _strength(measure: Measure, least: float | Array) -> Array:
    """(L, H) share of the way from `least` to 1; 0 for values within CERTAIN standard errors."""
    sure = measure.values - CERTAIN * np.nan_to_num(measure.errors) > least
    share = (measure.values - least) / np.maximum(1e-9, 1 - least)
    return np.where(sure, share, 0.0)


def head_name(layer: int, head: int) -> str:
    """ "L1H0" """
    return f"L{layer}H{head}"


def job(name: str) -> str:
    """What a head with this name looks at, in words."""
    if name.endswith(" back"):
        return f"{name.removesuffix(' back')} characters before"
    return JOBS[name]


def name_heads(measures: Sequence[Measure]) -> list[list[str]]:
    """(L, H) the name of each head by RULE: its strongest kind, or "" if none is strong enough."""
    strengths = _strengths(measures)
    if not strengths:
        return []
    stacked = np.stack(list(strengths.values()))
    best = np.where(stacked.max(axis=0) >= STRONG, stacked.argmax(axis=0), len(strengths))
    names = np.array([*strengths, ""], object)[best]
    for measure in measures:
        if measure.offsets is not None:
            names = np.where(names == "back", back_names(measure.offsets), names)
    return names.tolist()  # type: ignore[no-any-return]


def back_names(offsets: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """Offsets -> the names "previous", "2 back", …"""
    return np.where(offsets == 1, "previous", np.strings.add(offsets.astype(str), " back"))


def greatest_strengths(measures: Sequence[Measure]) -> Array:
    """(L, H) where each head lies between a uniform one (0) and its kind at its purest (1)."""
    return np.max(list(_strengths(measures).values()), axis=0)  # type: ignore[no-any-return]


def _strengths(measures: Sequence[Measure]) -> dict[str, Array]:
    """Kind -> (L, H) strengths, in the order of KINDS; for induction, the greater one of both."""
    strengths = {}
    for kind in KINDS:
        names = kind, f"{kind}_synthetic"
        of_kind = [m.strength for m in measures if m.name in names and m.strength is not None]
        if of_kind:
            strengths[kind] = np.max(of_kind, axis=0)
    return strengths
