"""What a linear probe reads from the stream of a trained model, and of the same one untrained.

A probe (Alain & Bengio 2016) is a linear map from the stream at one place to a property of the
text, here the previous character. That a probe finds it shows only that it is there: the random
weights of an untrained model mix characters, too, so its probe is the comparison. The probe is
fitted on windows of the training text and scored on windows of the validation split.

    python docs/studies/probe.py [FOLDER] [--steps 600] [--windows 200]

Writes probe.svg into the folder (needs matplotlib); two minutes on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

import gpt
from gpt.interface.trained import TrainedGPT

Numbers = npt.NDArray[np.floating]
RIDGE = 1e-2  # keeps weights of the probe small


def examples(run: TrainedGPT, split: str, count: int) -> tuple[dict[str, Numbers], Numbers]:
    """The stream at each place, (count, T − 1, C), and the id of the character before."""
    text, T = run.text(split), run.config.block_size
    starts = np.linspace(0, len(text) - T, count).astype(int).tolist()
    acts = run.activations([text[n : n + T] for n in starts], ["resid_mid", "resid_post"])
    embedded = run.activations([text[n : n + T] for n in starts], "resid_pre", 0)["resid_pre", 0]
    found = {"embedding": embedded[:, 1:]}
    for layer in acts.layers:
        found[f"L{layer} attention"] = acts["resid_mid", layer][:, 1:]
        found[f"L{layer} feed-forward"] = acts["resid_post", layer][:, 1:]
    return found, acts.ids[:, :-1].astype(int)


def accuracy(run: TrainedGPT, count: int) -> dict[str, tuple[float, float]]:
    """Place -> the share of characters whose previous one the probe names, and standard error."""
    (fitted, known), (scored, wanted) = (examples(run, split, count) for split in ("train", "val"))
    targets, result = np.eye(len(run.vocabulary))[known.ravel()], {}
    for place, x in fitted.items():
        rows = x.reshape(-1, x.shape[-1]).astype(float)
        centre, scale, mean = rows.mean(axis=0), rows.std(axis=0) + 1e-9, targets.mean(axis=0)
        rows = (rows - centre) / scale
        gram = rows.T @ rows + RIDGE * len(rows) * np.eye(rows.shape[1])
        weights = np.linalg.solve(gram, rows.T @ (targets - mean))
        guessed = ((scored[place] - centre) / scale @ weights + mean).argmax(axis=-1)
        right = (guessed == wanted).mean(axis=1)  # of each window
        result[place] = float(right.mean()), float(right.std(ddof=1) / np.sqrt(len(right)))
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("checkpoints"))
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--windows", type=int, default=200)
    asked = parser.parse_args(arguments)
    where = {"run": "probed", "checkpoints": asked.folder, "steps": asked.steps, "keep_all": True}
    run = gpt.train(n_layer=2, previous_heads=0, counting=0, **where)
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for name, model in {"trained": run.at("last"), "untrained": run.at(0)}.items():
        places = accuracy(model, asked.windows)
        shares = [f"{place} {share:.3f} ± {error:.3f}" for place, (share, error) in places.items()]
        print(f"{name}:", ", ".join(shares))
        values, errors = zip(*places.values(), strict=True)
        axes.errorbar([*places], values, errors, label=name, marker="o")
    axes.set(ylabel="previous character named", ylim=(0, 1))
    axes.legend()
    figure.savefig(asked.folder / "probe.svg")


if __name__ == "__main__":
    main()
