"""Compares whole trainings of the default recipe and of `--preset classic`, with several seeds.

Both run in turns from the shell, as a user runs them, and evaluate once, at the end, on the whole
validation split. "training" is the time of the optimizer steps, "wall" the time from the start of
the process to its end. The last line is JSON.

    python benchmarks/time_to_loss.py CORPUS [--seeds 1 2 3 4 5] [--ours "--minutes 0.1"]
        [--theirs "--preset classic --steps 2000"]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile

from measure import sgemm_rate, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--ours", default="--minutes 0.1")
    parser.add_argument("--theirs", default="--preset classic")
    options = parser.parse_args()
    sides = {"ours": options.ours, "theirs": options.theirs}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    rates = [sgemm_rate()]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(options.seeds):
            for name in list(sides) if number % 2 else list(sides)[::-1]:
                arguments = sides[name]
                if "--eval-interval" not in arguments:
                    arguments += " --eval-interval 1000000000"
                runs[name].append(train(options.corpus, arguments, seed, folder))
                print(f"seed {seed} {name:7} {runs[name][-1]}", flush=True)
            rates.append(sgemm_rate())
    result: dict[str, object] = {"benchmark": "time_to_loss", **sides, "seeds": options.seeds}
    for name, each in runs.items():
        losses = [run["loss"] for run in each]
        spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
        print(
            f"{name:7} loss {statistics.mean(losses):.4f} ± {spread:.4f}, worst {max(losses):.4f}"
        )
        result[f"loss {name}"] = losses
    for what in ("training", "wall", "cpu"):
        pairs = [b[what] / a[what] for a, b in zip(runs["ours"], runs["theirs"], strict=True)]
        medians = {
            name: statistics.median(run[what] for run in each) for name, each in runs.items()
        }
        ratio = statistics.median(pairs)
        print(f"{what:9} {medians['ours']:8.2f} s beside {medians['theirs']:8.2f} s: 1/{ratio:.1f}")
        result[what] = {**medians, "median of ratios": round(ratio, 2)}
    result["sgemm_gflops"] = [round(rate, 1) for rate in rates]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
