"""Measures changes of a recipe one at a time, at equal time, with several seeds.

Equal time without a noisy clock: steps of every variant and of the recipe are timed in turns, and a
variant gets the recipe's number of steps divided by the ratio of the medians. Loss is that of
the GPT without counting, over the whole validation split, final weights. The last line is JSON.

    python benchmarks/ablate.py CORPUS [--steps 500] [--seeds 1 2 3] [--base "n_layer=2 lr=…"]
        [--variant "RMS norm: norm='rms'" …] [--equal steps]
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.config.presets import preset
from gpt.devices import let_threads_sleep
from gpt.model import GPT, initialise
from gpt.training.evaluation import evaluate
from gpt.training.optim import Optimizer
from gpt.training.step import train_step
from gpt.vocabulary import Vocabulary

#: The choices of the default preset, each one changed alone.
VARIANTS = {
    "learned positions": "position='learned'",
    "RMS norm": "norm='rms'",
    "GELU": "activation='gelu'",
    "ReLU": "activation='relu'",
    "tied output": "tied=True",
    "one learning rate": "embedding_lr=0.0",
    "cosine to a tenth": "schedule='cosine' min_lr=2e-4",
    "half the batch": "batch_size=8",
    "half the context": "block_size=64 batch_size=32",
    "windows once an epoch": "window_order='epochs'",
    "averaged weights": "average=0.99",
}


def settings(text: str) -> dict[str, Any]:
    """ "n_layer=2 norm='layer'" -> {"n_layer": 2, "norm": "layer"}"""
    pairs = (part.split("=", 1) for part in text.split())
    return {name: ast.literal_eval(value) for name, value in pairs}


class Recipe:
    """The model and training options of the default preset, with some values changed."""

    def __init__(self, values: dict[str, Any], vocab_size: int) -> None:
        self.model = ModelConfig(vocab_size=vocab_size, **only_fields(ModelConfig, values))
        self.train = TrainConfig(**only_fields(TrainConfig, values))

    @property
    def step_characters(self) -> int:
        return self.train.batch_size * self.model.block_size


def training(recipe: Recipe, ids: np.ndarray) -> Iterator[GPT]:
    """The model after each step."""
    model = GPT(recipe.model)
    initialise(model, recipe.train.seed)
    optimizer = Optimizer(model, recipe.train)
    for step in range(recipe.train.steps):
        train_step(model, optimizer, ids, recipe.train, step)
        yield model


def step_seconds(recipes: dict[str, Recipe], ids: np.ndarray, rounds: int) -> dict[str, float]:
    """Median seconds of a step of each variant, timed in turns."""
    loops = {name: training(recipe, ids) for name, recipe in recipes.items()}
    times: dict[str, list[float]] = {name: [] for name in recipes}
    for number in range(rounds + 2):
        for name, loop in loops.items():
            started = time.perf_counter()
            next(loop)
            if number > 1:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def final_loss(recipe: Recipe, train_ids: np.ndarray, val_ids: np.ndarray) -> float:
    """Nats per character after the whole schedule."""
    *_, model = training(recipe, train_ids)
    return evaluate(model, val_ids, "cpu").nats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--steps", type=int, default=500, help="of the recipe itself")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--base", default="", help="changes to the default preset")
    parser.add_argument("--variant", action="append", help='"name: field=value …"; repeatable')
    parser.add_argument("--equal", choices=["time", "characters"], default="time")
    parser.add_argument("--rounds", type=int, default=15, help="steps timed of each")
    parser.add_argument("--threads", type=int, default=0, help="0 = torch's choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    text = options.corpus.read_bytes().decode()
    vocabulary = Vocabulary("".join(sorted(set(text))))
    ids = vocabulary.encode(text)
    boundary = int(0.9 * len(ids))
    train_ids, val_ids = ids[:boundary], ids[boundary:]
    chosen = VARIANTS
    if options.variant:
        chosen = dict(line.split(":", 1) for line in options.variant)
    base = {**preset("default", "cpu"), **settings(options.base), "steps": options.steps}
    values = {"as it is": base} | {name: {**base, **settings(t)} for name, t in chosen.items()}
    recipes = {name: Recipe(value, len(vocabulary)) for name, value in values.items()}
    seconds = step_seconds(recipes, train_ids, options.rounds) if options.equal == "time" else {}
    reference = next(iter(recipes.values()))
    table: dict[str, dict[str, Any]] = {}
    for name, recipe in recipes.items():
        if options.equal == "time":
            share = seconds["as it is"] / seconds[name]
        else:
            share = reference.step_characters / recipe.step_characters
        losses = []
        for seed in options.seeds:
            changed = {"steps": round(options.steps * share), "seed": seed}
            again = Recipe({**values[name], **changed}, len(vocabulary))
            losses.append(final_loss(again, train_ids, val_ids))
        error = statistics.stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else float("nan")
        table[name] = {
            "loss": round(statistics.mean(losses), 4),
            "standard_error": round(error, 4),
            "steps": round(options.steps * share),
            "step_time": round(1 / share, 3),
        }
        print(f"{name:28} {table[name]}", flush=True)
    result = {"benchmark": "ablate", "corpus": options.corpus.name, "base": base, "table": table}
    print(json.dumps({**result, "seeds": options.seeds, "torch": torch.__version__}))


if __name__ == "__main__":
    let_threads_sleep()
    main()
