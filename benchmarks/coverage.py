"""How often the 95 % intervals of `gptx eval --against` and of release 0.3 contain the true mean.

Two tests. Noise with a known mean: first-order autoregressive, by characters and by windows of 128
characters, with normal and with heavy tails (Student's t with 4 degrees of freedom). And real text:
for two neighbouring stretches, how often the interval of the first one's mean difference, widened
by the error of the second one's (variance e1² + e2², degrees of freedom by Welch 1947), contains
the second one's mean difference. A pair of stretches counts once for each pair of models.

    python benchmarks/coverage.py TEXT MODEL MODEL … [--val-fraction 0.1] [--repeats 1000]

MODEL: a run's folder or a model file. The last --val-fraction of TEXT is scored, which a `gptx
train` with the same fraction never saw. Without TEXT only the noise. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gpt
from gpt.reading.paired import mean_error
from gpt.reading.score import character_surprisals

Numbers = npt.NDArray[np.floating[Any]]
#: (R, n) differences -> (R,) errors of their means, (R,) degrees of freedom.
Estimate = Callable[[Numbers], tuple[Numbers, npt.NDArray[np.int64]]]

WINDOW = 128
AT_ONCE = 2**23  # length of the noise


def by_windows(values: Numbers) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Release 0.3's estimate: means of neighbouring windows, treated as independent."""
    n = values.shape[-1]
    borders = np.arange(0, n, min(WINDOW, max(16, n // 10)))
    counts = np.diff([*borders, n])
    means, weights = np.add.reduceat(values, borders, axis=-1) / counts, counts / n
    spread = means - (means @ weights)[:, None]
    pieces = len(borders)
    error = np.sqrt(pieces / (pieces - 1) * (weights**2 * spread**2).sum(axis=-1))
    return error, np.full(len(values), pieces - 1)


ESTIMATES: dict[str, Estimate] = {"old": by_windows, "new": mean_error}
LOW = (12.706, 4.303, 3.182, 2.776, 2.571)  # quantiles for 1 to 5 degrees of freedom


def quantile(freedom: float) -> float:
    """The 97.5 % quantile of Student's t with so many degrees of freedom, rounded to 0.002.

    Above five degrees: the expansion in 1/freedom (Abramowitz & Stegun 1964, 26.7.5); up to five:
    the value of the next lower whole number.
    """
    if freedom <= len(LOW):
        return LOW[int(freedom) - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (first + (second + third / freedom) / freedom) / freedom


def noise(
    random: np.random.Generator, count: int, length: int, lag1: float, heavy: bool
) -> Numbers:
    """(count, length) autoregressive noise around 0, with constant variance."""
    shape = (length, count)
    steps = random.standard_t(4, shape) if heavy else random.standard_normal(shape)
    steps[0] /= math.sqrt(1 - lag1**2)
    for at in range(1, length):
        steps[at] += lag1 * steps[at - 1]
    return np.ascontiguousarray(steps.T)


def simulated(repeats: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of coverage for every kind and length of noise."""
    random = np.random.default_rng(seed)
    cases = [(1, length) for length in (300, 1000, 10_000, 100_000)]
    cases += [(WINDOW, length) for length in (12_800, 102_400)]
    for unit, length in cases:
        for lag1 in (0.0, 0.1, 0.42, 0.7):
            for heavy in (False, True):
                held = {name: 0 for name in ESTIMATES}
                left = repeats
                while left:
                    count = min(left, max(1, AT_ONCE // length))
                    values = noise(random, count, length // unit, lag1, heavy)
                    if unit > 1:  # dependent windows, independent characters within them
                        values = np.repeat(values, unit, axis=1)
                        values += 2 * random.standard_normal(values.shape)
                    for name, estimate in ESTIMATES.items():
                        error, freedom = estimate(values)
                        reach = np.array([quantile(each) for each in freedom.tolist()]) * error
                        held[name] += int((np.abs(values.mean(axis=1)) <= reach).sum())
                    left -= count
                share = {name: round(number / repeats, 4) for name, number in held.items()}
                kind = {"unit": unit, "lag1": lag1, "tails": "t4" if heavy else "normal"}
                yield {"characters": length, **kind, **share}


def neighbours(differences: Numbers, length: int, estimate: Estimate) -> npt.NDArray[np.bool_]:
    """For each two neighbouring stretches: whether the interval of one contains the other's mean.

    Stretches do not overlap: the first and second, the third and fourth …
    """
    pairs = len(differences) // (2 * length)
    stretches = differences[: pairs * 2 * length].reshape(2 * pairs, length)
    error, freedom = estimate(stretches)
    means, squares = stretches.mean(axis=1), error**2
    both = squares[::2] + squares[1::2]
    welch = both**2 / (squares[::2] ** 2 / freedom[::2] + squares[1::2] ** 2 / freedom[1::2])
    reach = np.array([quantile(each) for each in welch.tolist()]) * np.sqrt(both)
    held: npt.NDArray[np.bool_] = np.abs(means[::2] - means[1::2]) <= reach
    return held


def halves(differences: list[Numbers]) -> Iterator[dict[str, Any]]:
    """Rows of coverage for stretches of every length that gives at least three pairs."""
    length = 256
    while len(differences[0]) >= 6 * length:
        row: dict[str, Any] = {"characters": length, "pairs": 0}
        for name, estimate in ESTIMATES.items():
            held = np.concatenate([neighbours(each, length, estimate) for each in differences])
            row["pairs"], row[name] = len(held), round(float(held.mean()), 4)
        yield row
        length *= 2


def shown(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, each printed as soon as it is computed."""
    found = []
    for row in rows:
        print(" · ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--val-fraction", type=float, default=0.1)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "coverage", "seed": options.seed}
    if options.repeats:
        result["noise"] = shown(simulated(options.repeats, options.seed))
    if options.text:
        text = options.text.read_bytes().decode()
        text = text[int(len(text) * (1 - options.val_fraction)) :]
        nats = []
        for name in options.models:
            model = gpt.load(name)
            ids = model.vocabulary.encode(text)
            found = character_surprisals(model.reader, ids, model.mixture).nats.astype(np.float64)
            print(f"{name}: {found.mean():.4f} nats a character", flush=True)
            nats.append(found)
        result["models"] = options.models
        result["halves"] = rows = shown(halves([b - a for a, b in combinations(nats, 2)]))
        pairs = [row["pairs"] for row in rows]
        result["all halves"] = {
            name: round(float(np.average([row[name] for row in rows], weights=pairs)), 4)
            for name in ESTIMATES
        }
        print(f"all halves: {result['all halves']}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
