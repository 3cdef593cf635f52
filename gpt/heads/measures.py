"""Measures what attention heads attend to, and names heads by these measures.

Every measure has a standard error over several texts, and its value for a head that attends
uniformly. The measures describe attention weights. survey.py measures a head's effect on the loss.
Tensor names: L layers, H heads, T time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.reading.gpt import Array, Reader
from gpt.show.result import ReadOnlyArrays
from gpt.vocabulary import Ids

PERIODS = (0.25, 0.5, 0.75)  # quantiles of the distances between equal characters in a text
SEQUENCES = 12  # random texts for each period
SHORTEST_PERIOD = 3  # characters
FARTHEST = 8  # largest distance of the measure `back`, in characters

#: Thresholds of RULE: share of the way from uniform to 1, and number of standard errors.
STRONG, CERTAIN = 0.3, 3.0
#: The measures that can name a head, the most specific ones first. The measure `back` gives the
#: names "previous", "2 back", "3 back" …
KINDS = ("induction", "duplicate", "back", "sink")
#: The rule by which `name_heads` names heads, as text.
RULE = (
    f"a head gets a name if its measure is at least u + {STRONG:g} · (1 − u), and more than "
    f"{CERTAIN:g} standard errors above u, its value for uniform attention; for induction in text, "
    "u is the mean weight at the same distances if that is larger; synthetic induction must pass "
    "for two distances P"
)
#: A head's name -> what the head looks at. `describe_attention` adds "2 back", "3 back" …
LOOKS_AT = {
    "induction": "what followed this letter before",
    "duplicate": "the same letter, earlier",
    "previous": "the character before",
    "sink": "the first character",
    "": "everywhere",
}
#: Name of a measure -> (title, explanation).
TITLES = {
    "back": (
        "n back",
        f"weight on the character n places before; n: from 1 to {FARTHEST}, where this is most",
    ),
    "duplicate": ("duplicate", "weight on earlier occurrences of the same character"),
    "induction": (
        "induction in text",
        "weight on the character after the last earlier occurrence of the same character; without "
        "doubled characters",
    ),
    "induction_synthetic": (
        "induction, synthetic",
        "the same in random texts of P distinct letters or digits, written twice; P is a distance "
        "at which they recur in this text; the error includes the spread over P (Olsson et al. "
        "2022)",
    ),
    "sink": ("sink", "weight on the first character, from the second row on (Gu et al. 2024)"),
    "entropy": ("entropy", "of a row's weights, as a share of the largest possible"),
    "distance": ("distance", "mean characters back (Vig & Belinkov 2019)"),
}


@dataclass(frozen=True)
class Measure(ReadOnlyArrays):
    """One measure of all heads, averaged over `windows` texts.

    values: (L, H) means. errors: (L, H) their standard errors, NaN for one text. uniform: the value
    of a head that attends uniformly, NaN if there is none. offsets: only for the measure `back`,
    (L, H) distances in characters at which the values are measured; uniform is then (L, H), too.
    strength: only for a measure that can name a head, (L, H) places of the heads between a uniform
    head (0) and a pure one (1), or 0 if the difference from a uniform head may be chance.
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
        """(L, H) values of a uniform head, for comparison with `values`."""
        return np.broadcast_to(self.uniform, self.values.shape)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Returns name in --json -> (L, H) numbers."""
        columns: dict[str, npt.NDArray[Any]] = {
            self.name: self.values,
            f"{self.name}_error": self.errors,
            f"{self.name}_uniform": self.uniform_values,
        }
        if self.offsets is not None:
            columns[f"{self.name}_offset"] = self.offsets
        return columns


def measure_heads(texts: Iterable[tuple[Ids, Sequence[Array]]]) -> list[Measure]:
    """Computes all measures of texts except the synthetic one. Leaves out texts of one character.

    texts: (T,) ids and the (H, T, T) weights of all layers, for every text. A measure leaves out
    texts in which it has no rows, for example because no character occurs twice.
    """
    shape = 0, 0  # (L, H)
    values: dict[str, list[Array]] = {}  # (L·H + 1, …) of every text; the last head is uniform
    distances: list[npt.NDArray[np.intp]] = []  # of the induction keys in every text
    for ids, layers in texts:
        T = len(ids)
        if T < 2:
            continue
        shape = len(layers), len(layers[0])
        uniform = (np.tri(T) / np.arange(1, T + 1)[:, None])[None]
        # One layer after the other, to save memory, because the weights become float64.
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
    # A head that attends at a fixed distance has a high induction measure in a text that repeats at
    # that distance. So induction must exceed the mean weight at the distances of its keys.
    by_distance = _average("induction", _from_distances(sums, distances), shape).values
    least = {name: means[name].uniform for name in KINDS}
    least["induction"] = np.fmax(least["induction"], by_distance)
    for name, start in least.items():
        means[name] = replace(means[name], strength=_strength(means[name], start))
    return [*means.values()]


def synthetic_induction(reader: Reader, text: Ids) -> Measure | None:
    """Measures induction in random texts, which are P distinct characters, written twice.

    At position i of the second half, an induction head attends to i − P + 1. text: (n,) ids of
    letters and digits. Characters are drawn with their frequencies in `text`. The periods P are
    distances between equal characters in `text`, if 2·P fits the context. The measure's error
    includes the spread over the periods, and its strength is that of the second best period.
    Returns None if no distance fits.
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
    """(H, T, T) weights of a text, T ≥ 2 -> name of a measure -> (H,) values. "sums" is (H, T), the
    sums of the weights at every distance.
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
    """Returns (N,) rows i whose character occurred before, and (N,) keys j + 1. j is the last place
    before i with the same character. Leaves out doubled characters, for which j + 1 is i itself.
    """
    places = np.arange(len(ids))
    before = np.where((ids[:, None] == ids) & (places < places[:, None]), places, -1).max(axis=-1)
    rows = np.flatnonzero((before >= 0) & (before + 1 < places))
    return rows, before[rows] + 1


def _from_distances(sums: list[Array], distances: list[npt.NDArray[np.intp]]) -> list[Array]:
    """Returns for every text the (…,) mean weights of all texts at the text's distances."""
    longest = max(of_text.shape[-1] for of_text in sums)
    total, rows = np.zeros((*sums[0].shape[:-1], longest)), np.zeros(longest)
    for of_text in sums:
        T = of_text.shape[-1]
        total[..., :T] += of_text
        rows[:T] += np.arange(T, 0, -1)
    usual = total / rows
    return [_mean(usual[..., back]) for back in distances]


def _strongest_offsets(sums: list[Array]) -> tuple[npt.NDArray[np.intp], list[Array], Array]:
    """Finds the offset with the largest mean weight for every head. Returns (…,) offsets, the (…,)
    weights there in every text, and the (…,) mean weights there of the last head, which is uniform.
    Offsets are at most FARTHEST and half of the shortest text.
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
    """(L·H + 1,) values of every text, the last one of a uniform head -> their average."""
    values = np.stack(of_texts)
    values = values[~np.isnan(values).any(axis=1)]
    count = len(values)
    means = values.mean(axis=0) if count else np.full(values.shape[1], np.nan)
    errors = standard_errors(values)[:-1].reshape(shape)
    return Measure(name, *TITLES[name], means[:-1].reshape(shape), errors, float(means[-1]), count)


def standard_errors(values: Array) -> Array:
    """(N, …) values -> (…) standard errors of their means; NaN for N < 2."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    errors: Array = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return errors


def _strength(measure: Measure, least: float | Array) -> Array:
    """Returns (L, H) shares of the way from `least` to 1, 0 if not CERTAIN errors above it."""
    sure = measure.values - CERTAIN * np.nan_to_num(measure.errors) > least
    share = (measure.values - least) / np.maximum(1e-9, 1 - least)
    return np.where(sure, share, 0.0)


def head_name(layer: int, head: int) -> str:
    """Returns a name such as "L1H0"."""
    return f"L{layer}H{head}"


def describe_attention(name: str) -> str:
    """Returns what a head with this name looks at, in words."""
    if name.endswith(" back"):
        return f"{name.removesuffix(' back')} characters before"
    return LOOKS_AT[name]


def name_heads(measures: Sequence[Measure]) -> list[list[str]]:
    """Returns (L, H) names of the heads by RULE: the strongest kind, or "" if none is strong."""
    strengths = _strengths(measures)
    if not strengths:
        return []
    stacked = np.stack(list(strengths.values()))
    best = np.where(stacked.max(axis=0) >= STRONG, stacked.argmax(axis=0), len(strengths))
    names = np.array([*strengths, ""], object)[best]
    for measure in measures:
        if measure.offsets is not None:
            names = np.where(names == "back", offset_names(measure.offsets), names)
    return names.tolist()  # type: ignore[no-any-return]


def offset_names(offsets: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """Offsets in characters -> the names "previous", "2 back", …"""
    return np.where(offsets == 1, "previous", np.strings.add(offsets.astype(str), " back"))


def greatest_strengths(measures: Sequence[Measure]) -> Array:
    """Returns (L, H) strengths: for every head, the one of its strongest kind."""
    return np.max(list(_strengths(measures).values()), axis=0)  # type: ignore[no-any-return]


def _strengths(measures: Sequence[Measure]) -> dict[str, Array]:
    """Returns kind -> (L, H) strengths. For induction, takes the larger of the two measures."""
    strengths = {}
    for kind in KINDS:
        names = kind, f"{kind}_synthetic"
        of_kind = [m.strength for m in measures if m.name in names and m.strength is not None]
        if of_kind:
            strengths[kind] = np.max(of_kind, axis=0)
    return strengths
