"""Compares training on a small text from another run's weights with training from random weights.

The script trains a parent once on a large text. Then it trains on a small text: from random weights
("nothing") for 25 epochs, the most that the default allows, and from the parent's weights for a
third of these steps. All models have the same shape. The loss of a run is the lowest of ten
evaluations, in nats per character of the small text's validation split. The last line is JSON.

    python benchmarks/warm_start.py SMALL [--large TEXT] [--seeds 1 2 3] [--characters 50000]
        [--options "n_embd=64 …"] [--parent-steps 1500] [--variant "name: learning_rate=1e-3 …"]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import gpt

OPTIONS = "n_layer=1 n_head=4 n_embd=64 block_size=64 batch_size=8 counting=0 dropout=0.1"
EPOCHS = 25  # MOST_EPOCHS in gpt/training/plan.py


def options_in(text: str) -> dict[str, Any]:
    """Parses "a=1 b=x" to {"a": 1, "b": "x"}."""
    options: dict[str, Any] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def outcome(text: str, folder: str, **options: Any) -> dict[str, Any]:
    """Trains a run; returns its lowest loss, the step of it, and the loss at each evaluation."""
    with tempfile.TemporaryDirectory(dir=folder) as runs:
        run = gpt.train(
            text=text, checkpoints=runs, data=f"{folder}/data", progress=False, **options
        )
        curve, manifest = run.curve, run.manifest
        return {
            "loss": manifest.best_loss,
            "step": manifest.best_step,
            "curve": dict(zip(curve.steps.tolist(), curve.val.round(4).tolist(), strict=True)),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("small", type=Path)
    parser.add_argument("--large", type=Path, help="default: the Python language reference")
    parser.add_argument("--characters", type=int, default=50_000, help="of the small text")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--options", default=OPTIONS, help="of all runs")
    parser.add_argument("--parent-steps", type=int, default=1500)
    parser.add_argument("--variant", action="append", default=[], help='"name: option=value …"')
    arguments = parser.parse_args()
    small = arguments.small.read_bytes().decode()[: arguments.characters]
    every, rows = options_in(arguments.options), dict[str, Any]()
    steps = EPOCHS * int(0.9 * len(small)) // (every["batch_size"] * every["block_size"])
    with tempfile.TemporaryDirectory() as folder:
        parent = gpt.train(
            None if arguments.large is None else str(arguments.large),
            steps=arguments.parent_steps,
            evaluations=1,
            checkpoints=f"{folder}/parent",
            data=f"{folder}/data",
            progress=False,
            **every,
        )
        new = "".join(sorted(set(small) - set(parent.vocabulary.characters)))
        print(f"parent: {parent.manifest.best_loss:.4f}; {len(new)} new characters {new!a}")
        free = {name: each for name, each in every.items() if name in ("dropout", "counting")}
        warm = {**free, "batch_size": every["batch_size"], "init_from": parent, "steps": steps // 3}
        variants = {
            "nothing": {**every, "steps": steps},
            "parent": warm,
            **{
                name: {**warm, **options_in(text)}
                for name, _, text in (each.partition(":") for each in arguments.variant)
            },
        }
        for name, options in variants.items():
            runs = [outcome(small, folder, seed=seed, **options) for seed in arguments.seeds]
            losses = [run["loss"] for run in runs]
            spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
            print(
                f"{name:12} {options['steps']:6,} steps   {statistics.mean(losses):.4f} ± "
                f"{spread:.4f}   {[round(loss, 4) for loss in losses]}",
                flush=True,
            )
            rows[name] = {"steps": options["steps"], "runs": runs}
    aim = statistics.mean(run["loss"] for run in rows["nothing"]["runs"])
    reached = [
        next((int(step) for step, loss in run["curve"].items() if loss <= aim), None)
        for run in rows["parent"]["runs"]
    ]
    print(f"the loss from nothing, {aim:.4f}, is reached from the parent at step {reached}")
    print(json.dumps({"benchmark": "warm_start", "seeds": arguments.seeds, "rows": rows}))


if __name__ == "__main__":
    main()
