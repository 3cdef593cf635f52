"""What a head does, in numbers: where it looks, beside what looking evenly would give.

Every measure is taken text by text, so that it comes with a standard error. A measure describes
weights; what a head causes is told by ablation.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpt.reading.inspector import AttentionMap
from gpt.reading.reader import Array, Reader, Stages
from gpt.vocabulary import Ids

PERIODS = 3  # different lengths of the random texts that induction is measured on
SEQUENCES = 12  # random texts of each length
SHORTEST_PERIOD = 3  # characters; shorter ones hardly tell the successor from the neighbours
STRONG, CERTAIN = 0.3, 3.0  # of a kind: share of the way from uniform to 1, standard errors


@dataclass(frozen=True)
class Measure:
    """One property of every head, averaged over `windows` texts.

    values (L, H) are means, errors (L, H) their standard errors (NaN for one text), uniform the
    value of a head that looks evenly at all it may see (NaN where that means nothing).
    """

    name: str
    title: str
    explained: str
    values: Array
    errors: Array
    uniform: float
    windows: int


#: name -> (title, what it is).
TITLES = {
    "previous": ("previous", "weight on the character before"),
    "duplicate": ("duplicate", "weight on earlier occurrences of the same character"),
    "induction": (
        "induction",
        "weight on what followed the last occurrence, in random texts that repeat (synthetic; "
        "Olsson et al. 2022)",
    ),
    "sink": ("sink", "weight on the first character, from the second row on (Gu et al. 2024)"),
    "sink_all": ("sink, all rows", "weight on the first character (Gu et al. 2024)"),
    "entropy": ("entropy", "of a row's weights, as a share of the largest possible"),
    "distance": ("distance", "mean characters back (Vig & Belinkov 2019)"),
    "distance_later": ("distance, no sink", "mean characters back, without the first as key"),
    "previous_valued": (
        "previous, by value",
        "share of the character before in what is written, ‖A·v·W‖ (Kobayashi et al. 2020)",
    ),
    "sink_valued": (
        "sink, by value",
        "share of the first character in what is written, ‖A·v·W‖ (Kobayashi et al. 2020)",
    ),
}
#: What a head can be named after, the most specific first.
KINDS = ("induction", "duplicate", "previous", "sink")


def measure(reader: Reader, texts: Iterable[AttentionMap]) -> list[Measure]:
    """All measures that texts of two characters or more can tell; no induction.

    Rows of a measure that a text lacks (no repeated character) are left out of its mean.
    """
    taken: dict[str, list[Array]] = {}
    even: dict[str, list[float]] = {}
    for text in texts:
        if len(text.ids) < 2:
            continue
        weights = np.stack([layer.weights for layer in text.layers]).astype(np.float64)
        valued = np.stack([_shares(reader, n, stages) for n, stages in enumerate(text.layers)])
        uniform = np.tri(len(text.ids)) / np.arange(1, len(text.ids) + 1)[:, None]
        for name, values in _of_weights(weights, text.ids).items():
            taken.setdefault(name, []).append(values)
        for name, value in _of_weights(uniform, text.ids).items():
            even.setdefault(name, []).append(float(value))
        for name, values in _places(valued).items():
            taken.setdefault(f"{name}_valued", []).append(values)
            even.setdefault(f"{name}_valued", []).append(even[name][-1])
    return [_averaged(name, taken[name], even[name]) for name in TITLES if name in taken]


def induction(reader: Reader, seed: int = 0) -> Measure | None:
    """The induction measure on random texts: P distinct characters, and the same once more.

    In the second half, at position i, a head that completes repetitions looks at i − P + 1. None
    if context or vocabulary are too small for it.
    """
    config, random = reader.config, np.random.default_rng(seed)
    longest = min(config.vocab_size, config.block_size // 2)
    if longest < SHORTEST_PERIOD:
        return None
    periods = np.unique(
        np.linspace(max(SHORTEST_PERIOD, longest // 4), longest, PERIODS, dtype=int)
    )
    taken, even = [], []
    for period in np.repeat(periods, SEQUENCES).tolist():
        once = random.permutation(config.vocab_size)[:period]
        kept: list[Stages] = []
        reader.forward(np.tile(once, 2)[None], keep=kept)
        rows = np.arange(period, 2 * period)
        weights = np.stack([layer.weights for layer in kept])
        taken.append(weights[:, :, rows, rows - period + 1].mean(axis=-1, dtype=np.float64))
        even.append(float((1 / (rows + 1)).mean()))
    return _averaged("induction", taken, even)


def kinds(measures: Iterable[Measure]) -> list[list[str]]:
    """(L, H) what each head is, by name: the strongest of KINDS, or "" for none.

    Its value must be STRONG of the way from uniform to 1, and CERTAIN standard errors above.
    """
    known = {measure.name: measure for measure in measures}
    found = [known[name] for name in KINDS if name in known]
    if not found:
        return []
    shares = np.stack([_strength(each) for each in found])  # (kinds, L, H)
    best = shares.argmax(axis=0)
    return [
        [found[n].name if shares[n, layer, head] >= STRONG else "" for head, n in enumerate(row)]
        for layer, row in enumerate(best.tolist())
    ]


def strengths(measures: Iterable[Measure]) -> Array:
    """(L, H) how far each head is on its way from uniform to its kind, 0 … 1."""
    found = [_strength(each) for each in measures if each.name in KINDS]
    return np.max(found, axis=0)  # type: ignore[no-any-return]


def _strength(measure: Measure) -> Array:
    sure = measure.values - CERTAIN * np.nan_to_num(measure.errors) > measure.uniform
    share = (measure.values - measure.uniform) / max(1e-9, 1 - measure.uniform)
    return np.where(sure, share, 0.0)


def _of_weights(weights: Array, ids: Ids) -> dict[str, Array]:
    """(…, T, T) weights of a text, T ≥ 2 -> every measure of them, (…)."""
    T = weights.shape[-1]
    rows, columns = np.arange(1, T), np.arange(T)
    back = np.maximum(columns[:, None] - columns, 0)  # (T, T) characters back
    logs = np.log(np.where(weights > 0, weights, 1.0))
    entropy = -(weights * logs).sum(axis=-1)[..., 1:] / np.log(rows + 1)
    earlier = (ids[:, None] == ids) & (back > 0)
    repeats = earlier.any(axis=-1)
    return {
        **_places(weights),
        "duplicate": (weights * earlier).sum(axis=-1)[..., repeats].mean(axis=-1)
        if repeats.any()
        else np.full(weights.shape[:-2], np.nan),
        "sink_all": weights[..., 0].mean(axis=-1),
        "entropy": entropy.mean(axis=-1),
        "distance": _mean_of(back, weights),
        "distance_later": _mean_of(back[:, 1:], weights[..., 1:]),
    }


def _places(weights: Array) -> dict[str, Array]:
    """What both weights and lengths are asked for: two places, from the second row on."""
    rows = np.arange(1, weights.shape[-1])
    return {
        "previous": weights[..., rows, rows - 1].mean(axis=-1),
        "sink": weights[..., 1:, 0].mean(axis=-1),
    }


def _mean_of(values: npt.NDArray[np.int64], weights: Array) -> Array:
    """(…) weighted mean over the last two axes; 0 where nothing has weight."""
    total = weights.sum(axis=(-2, -1))
    means: Array = (weights * values).sum(axis=(-2, -1)) / np.where(total > 0, total, 1.0)
    return means


def _shares(reader: Reader, layer: int, stages: Stages) -> Array:
    """(H, T, T) each key's share of the lengths ‖A·v·W‖ that a row of a head adds up."""
    weight, _ = reader.linear(f"blocks.{layer}.attention.proj")  # (C, C)
    heads, _, size = stages.v.shape
    slices = weight.T.reshape(heads, size, -1)  # (H, D, C)
    lengths = np.linalg.norm(stages.v @ slices, axis=-1)  # (H, T)
    written = stages.weights * lengths[:, None, :].astype(np.float64)
    total = written.sum(axis=-1, keepdims=True)
    return written / np.where(total > 0, total, 1.0)  # type: ignore[no-any-return]


def _averaged(name: str, taken: list[Array], even: list[float]) -> Measure:
    values = np.stack(taken)  # (windows, L, H)
    known = ~np.isnan(values).any(axis=(1, 2))
    values, uniform = values[known], np.array(even)[known]
    count = len(values)
    means = values.mean(axis=0) if count else np.full(taken[0].shape, np.nan)
    errors = np.full(means.shape, np.nan)
    if count > 1:
        errors = values.std(axis=0, ddof=1) / np.sqrt(count)
    mean = float(uniform.mean()) if count else float("nan")
    return Measure(name, *TITLES[name], means, errors, mean, count)
