"""The birth of induction: 40 checkpoints of 5 trainings on `repeats` that differ in their seed.

Olsson et al. (2022) saw heads that copy appear suddenly, together with a fall of the loss. Here:
the largest weight of any head on the previous character, the largest synthetic induction of any
head, and the loss, over training; and the step at which each is half of the way to its last value.

    python docs/studies/induction.py [FOLDER] [--seeds 5] [--steps 800]

Writes induction.svg into the folder (needs matplotlib); six minutes on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

import gpt

Numbers = npt.NDArray[np.float64]
TITLES = {
    "previous": "weight on the previous character",
    "induction": "synthetic induction",
    "loss": "validation loss, nats/char",
}


def of_training(folder: Path, seed: int, steps: int) -> dict[str, Numbers]:
    """Trains with a seed: (S,) values of each name in TITLES, and the steps."""
    kept = {"keep_all": True, "eval_interval": max(1, steps // 40), "steps": steps}
    run = gpt.train("repeats", run=f"seed-{seed}", checkpoints=folder, seed=seed, **kept)
    found = run.heads(steps="all", windows=8)
    values = {
        "steps": found.steps.astype(float),
        "previous": found.of("previous").max(axis=(1, 2)),
        "induction": found.of("induction_synthetic").max(axis=(1, 2)),
    }
    evaluated = np.isin(found.steps, run.curve.steps)  # not step 0
    return {name: each[evaluated] for name, each in values.items()} | {"loss": run.curve.val}


def half_way(steps: Numbers, values: Numbers) -> float:
    """The first step at which a value has gone half of the way from the first to the last one."""
    share = (values - values[0]) / (values[-1] - values[0])
    return float(steps[int(np.argmax(share >= 0.5))])


def draw(trainings: list[dict[str, Numbers]], path: Path) -> None:
    """Draws a panel for each title, with a line for each training."""
    figure, panels = plt.subplots(1, len(TITLES), figsize=(10, 2.8), layout="constrained")
    for axes, (name, title) in zip(panels, TITLES.items(), strict=True):
        for each in trainings:
            axes.plot(each["steps"], each[name], linewidth=1)
        axes.set(title=title, xlabel="step")
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("checkpoints"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=800)
    asked = parser.parse_args(arguments)
    found = [of_training(asked.folder, seed, asked.steps) for seed in range(asked.seeds)]
    for seed, each in enumerate(found):
        halves = [f"{name} {half_way(each['steps'], each[name]):.0f}" for name in TITLES]
        print(f"seed {seed}: half-way at step:", ", ".join(halves))
    draw(found, asked.folder / "induction.svg")


if __name__ == "__main__":
    main()
