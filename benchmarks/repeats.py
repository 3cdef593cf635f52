"""Whether `gptx train repeats` trains its heads, with several seeds, one whole command after
another.

For each seed: the time of the training, the largest value of each measure of `gptx heads`,
its head, the loss without that head, and the names of the heads. The last line is
JSON; the exit code is 1 unless every seed has a head named "previous" and one named "induction".

    python benchmarks/repeats.py [--seeds 1 2 3 4 5] [--threads 1] [--arguments "--steps 500"]

With --corpus FILE and --arguments it measures other models, whose heads may have no names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any

from measure import GPTX, timed, train

MEASURES = ("previous", "induction", "induction_synthetic")
NEEDED = {"previous", "induction"}


def best(survey: dict[str, Any], name: str) -> dict[str, Any]:
    """The head with the largest value of a measure: its place, the value, its error and Δloss."""
    measures = {measure["name"]: measure for measure in survey["measures"]}
    measure = measures[name]
    values = measure["values"]
    layer, head = max(
        ((layer, head) for layer, row in enumerate(values) for head, _ in enumerate(row)),
        key=lambda place: values[place[0]][place[1]],
    )

    def of(measure: dict[str, Any]) -> list[float]:
        return [round(measure[key][layer][head], 3) for key in ("values", "errors")]

    found = {"head": f"{layer}.{head}", "value": of(measure), "uniform": measure["uniform"]}
    found["parts"] = {part["name"]: of(part) for part in measure.get("parts", [])}
    return {**found, "loss": of(measures["ablation"])}


def one(corpus: str, arguments: str, seed: int, threads: int | None) -> dict[str, Any]:
    """A training and its heads."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.getloadavg()[0]
        run = train(corpus, arguments, seed, folder, threads)
        where = ["--checkpoints", f"{folder}/checkpoints", "--data", f"{folder}/data"]
        survey = json.loads(timed([GPTX, "heads", "--ablate", "mean", "--json", *where]).output)
    names = [name for row in survey["kinds"] for name in row]
    row = {"seed": seed, **run, "load": [round(before, 1), round(os.getloadavg()[0], 1)]}
    return {**row, **{name: best(survey, name) for name in MEASURES}, "names": names}


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
    found = [set(row["names"]) >= NEEDED for row in rows]
    print(json.dumps({"benchmark": "repeats", "corpus": options.corpus, "found": found}))
    sys.exit(not all(found))


if __name__ == "__main__":
    main()
