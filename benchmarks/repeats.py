"""Tests with several seeds whether `gptx train repeats` trains previous and induction heads.

For each seed, the script prints the time of the training and the names of the heads. For three
measures of `gptx heads`, it prints the largest value, its head, and the loss without that head. The
last line is JSON. The exit code is 1 unless every seed has a head named "previous" and a head named
"induction".

    python benchmarks/repeats.py [--seeds 1 2 3 4 5] [--threads 1] [--arguments "--steps 500"]

With --corpus FILE and --arguments, it measures other models, whose heads may have no names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any

from measure import GPTX, timed, train

MEASURES = ("back", "induction", "induction_synthetic")
NEEDED = {"previous", "induction"}


def best(heads: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Returns the head with the largest value of a measure, with the value, its error and Δloss."""
    head = max(heads, key=lambda row: row[name])

    def of(measure: str) -> list[float]:
        return [round(head[measure], 3), round(head[f"{measure}_error"], 3)]

    row = {"head": f"{head['layer']}.{head['head']}", "value": of(name)}
    return {**row, "uniform": head[f"{name}_uniform"], "loss": of("ablation")}


def one(corpus: str, arguments: str, seed: int, threads: int | None) -> dict[str, Any]:
    """Trains a model, and returns the numbers of the training and of its heads."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getloadavg()[0]
        run = train(corpus, arguments, seed, folder, threads)
        where = ["--checkpoints", f"{folder}/checkpoints", "--data", f"{folder}/data"]
        survey = json.loads(timed([GPTX, "heads", "--ablate", "mean", "--json", *where]).output)
    heads = survey["rows"]
    names = [row["kind"] for row in heads]
    row = {"seed": seed, **run, "load": [round(before, 1), round(os.getloadavg()[0], 1)]}
    return {**row, **{name: best(heads, name) for name in MEASURES}, "names": names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", default="repeats")
    parser.add_argument("--arguments", default="")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        rows.append(one(options.corpus, options.arguments, seed, options.threads))
        print(json.dumps(rows[-1]), flush=True)
    complete = [set(row["names"]) >= NEEDED for row in rows]
    print(json.dumps({"benchmark": "repeats", "corpus": options.corpus, "found": complete}))
    sys.exit(not all(complete))


if __name__ == "__main__":
    main()
