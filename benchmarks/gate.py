"""Computes the prior of the gate's weights: `USUAL` of gpt/counting/gate.py.

For each text, the default trains on the first 18,000 characters; the gate is then fitted to the
characters after them, up to the 40,000th, which no run may do. Prints means and standard deviations
of the weights. Texts whose names differ only in digits are of one language, and languages count
equally in the means. Nothing that uses these numbers may be scored on the texts.

    python benchmarks/gate.py TEXT … [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import gpt
from gpt.counting import gate
from gpt.counting.gate import Block, features, fit_gate
from gpt.reading.score import windows_at_once
from gpt.trained import TrainedGPT
from gpt.training.counting import TRUST
from gpt.vocabulary import Ids

TRAINED, READ = 20_000, 40_000  # characters; a tenth of the first ones validates


def blocks(model: TrainedGPT, ids: Ids) -> list[Block]:
    """What the GPT and counting predict in the (n,) ids, in windows of block_size."""
    length, trie = model.config.block_size, model.mixture.expert.trie
    starts = np.arange(1, len(ids) - length, length)
    found = []
    for group in np.array_split(starts, len(starts) // windows_at_once(model.config) + 1):
        rows = ids[group[:, None] + np.arange(-1, length)]
        logits = model.reader.logits(model.reader.forward(rows[:, :-1]))
        logits = logits.reshape(-1, logits.shape[-1])
        counted = model.mixture.expert.predict(trie.histories_at(ids, group, length))
        seen = features(counted, logits, np.tile(np.arange(1, length + 1), len(group)))
        found.append(Block(logits, counted.logs, seen, rows[:, 1:].ravel()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if len(options.texts) < 2 or any(len(each.read_bytes()) < READ for each in options.texts):
        parser.error(f"needs two texts or more, each of {READ:,} characters")
    unknown = np.ones_like(gate.USUAL[1])  # hardly any prior
    gate.USUAL = np.stack([unknown * np.eye(1, len(gate.FEATURES)) / 2, unknown])
    languages: dict[str, list[np.ndarray]] = {}
    for path in options.texts:
        text = path.read_bytes().decode()[:READ]
        with tempfile.TemporaryDirectory() as folder:
            where = {"checkpoints": f"{folder}/checkpoints", "data": f"{folder}/data"}
            model = gpt.train(text=text[:TRAINED], seed=options.seed, progress=False, **where)
            model = model.at("last")
        known = "".join(filter(set(model.vocabulary.characters).__contains__, text))
        fitted = fit_gate(blocks(model, model.vocabulary.encode(known)[int(0.9 * TRAINED) :]))
        weights = fitted.scaled(1 / TRUST).weights
        languages.setdefault(path.stem.rstrip("0123456789"), []).append(weights)
        print(path.name, weights.round(3).tolist(), flush=True)
    mean = np.mean([np.mean(each, axis=0) for each in languages.values()], axis=0)
    every = np.concatenate([np.stack(each) for each in languages.values()])
    spread = np.sqrt(((every - mean) ** 2).sum(axis=0) / (len(every) - 1))
    usual = np.stack([mean, spread]).round(3).tolist()
    print(json.dumps({"benchmark": "gate", "texts": len(every), "usual": usual}))


if __name__ == "__main__":
    main()
