"""Induction's circuit: which heads copy, what they need, and when they appear in the training.

The texts are random letters that come twice. At the second `a`, an induction head attends to the
character after the first `a` (Elhage et al. 2021; Olsson et al. 2022). Its keys must know which
character stands before them; heads of an earlier layer look back and write this into the residual
stream. The study switches these heads off: for everything after them, or only for the queries, the
keys or the values of the induction head's layer (path patching, Wang et al. 2023).

    python docs/studies/induction.py [RUN]

Without RUN, the script first trains `repeats`, in about a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gpt

PERIOD, TEXTS = 12, 100


def repeated_letters(run: gpt.TrainedGPT) -> npt.NDArray[np.int64]:
    """Returns ids, (TEXTS, 2 · PERIOD): each text has different letters in random order, twice."""
    letters = [n for n, character in enumerate(run.vocabulary.characters) if character.isalpha()]
    orders = np.random.default_rng(0).permuted(np.tile(letters, (TEXTS, 1)), axis=1)[:, :PERIOD]
    return np.concatenate((orders, orders), axis=1)


def measure(
    run: gpt.TrainedGPT, ids: npt.NDArray[np.int64], patch: Mapping[Any, Any] | None = None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
    """Returns two mean weights of each head, (L, H) each: on the previous character, and on the
    character after the same letter; and the loss of the second copy, in nats per character.
    """
    acts = run.activations(ids, ["weights", "logits"], patch=patch)
    weights, logits = acts["weights"].astype(float), acts["logits"].astype(float)
    previous = weights.diagonal(-1, 3, 4).mean(axis=(0, -1))
    copied = weights.diagonal(1 - PERIOD, 3, 4)[..., 1:].mean(axis=(0, -1))
    logits, targets = logits[:, PERIOD:-1], ids[:, PERIOD + 1 :, None]
    logs = np.take_along_axis(logits, targets, axis=-1)[..., 0]
    return previous, copied, float((np.log(np.exp(logits).sum(axis=-1)) - logs).mean())


def study_paths(run: gpt.TrainedGPT, ids: npt.NDArray[np.int64]) -> dict[str, float]:
    """Returns the losses with and without the heads that look back, by what cannot read them."""
    previous, copied, loss = measure(run, ids)
    layer = 1 + int(copied[1:].max(axis=1).argmax())
    earlier = previous[:layer]
    heads = np.argwhere(earlier >= min(0.3, earlier.max())).tolist()
    print(f"layer {layer} copies; these look back:", *(f"L{n}H{head}" for n, head in heads))
    off = {("context", n, head): 0 for n, head in heads}
    acts = run.activations(ids, ["q", "k", "v"], patch=off)
    losses = {"with": loss, "without": measure(run, ids, off)[2]}
    for name, stage in {"queries": "q", "keys": "k", "values": "v"}.items():
        losses[f"for {name}"] = measure(run, ids, {(stage, layer): acts[stage, layer]})[2]
    return losses


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", type=Path, help="a folder; default: train repeats")
    path = parser.parse_args(arguments).run
    run = gpt.load(path) if path else gpt.train("repeats", keep_all=True, evaluations=20)
    ids = repeated_letters(run)
    print(*(f"{name} {loss:.3f}" for name, loss in study_paths(run, ids).items()), sep=" · ")
    for step in run.steps:
        previous, copied, loss = measure(run.at(step), ids)
        print(f"step {step:4}: back {previous.max():.2f}, copies {copied.max():.2f}, {loss:.3f}")


if __name__ == "__main__":
    main()
