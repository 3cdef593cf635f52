"""Measures changes of a recipe one at a time, at equal time, with several seeds.

The script first times steps of every variant and of the recipe in turns. A variant then gets the
recipe's number of steps, divided by the ratio of the median times. So equal time does not depend on
the clock during the trainings. The loss is that of the GPT without counting on the whole validation
split, with the final weights. The last line is JSON.

    python benchmarks/ablate.py CORPUS [--steps 500] [--seeds 1 2 3] [--base "n_layer=2 lr=…"]
        [--variant "ReLU: activation='relu'" …] [--equal steps]
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import configs, in_turns, split_ids, training

from gpt.config import ModelConfig, TrainConfig
from gpt.config.train import preset_values
from gpt.devices import let_threads_sleep
from gpt.training.step import evaluate

#: Variants of the default preset: each changes one of its choices.
VARIANTS = {
    "learned positions": "position='learned'",
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
    """ "n_layer=2 activation='gelu'" -> {"n_layer": 2, "activation": "gelu"}"""
    pairs = (part.split("=", 1) for part in text.split())
    return {name: ast.literal_eval(value) for name, value in pairs}


def final_loss(
    model_config: ModelConfig, config: TrainConfig, train_ids: np.ndarray, val_ids: np.ndarray
) -> float:
    """Returns the nats per character of the validation split after the whole schedule."""
    *_, (model, _) = islice(training(model_config, config, train_ids), config.steps)
    return evaluate(model, val_ids, "cpu").nats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--steps", type=int, default=500, help="steps of the recipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--base", default="", help="changes to the default preset")
    parser.add_argument("--variant", action="append", help='"name: field=value …"; repeatable')
    parser.add_argument("--equal", choices=["time", "characters"], default="time")
    parser.add_argument("--rounds", type=int, default=15, help="timed steps of each")
    parser.add_argument("--threads", type=int, default=0, help="0 = torch's choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    train_ids, val_ids, size = split_ids(options.corpus.read_bytes().decode())
    chosen = VARIANTS
    if options.variant:
        chosen = dict(line.split(":", 1) for line in options.variant)
    base = {**preset_values("default", "cpu"), **settings(options.base), "steps": options.steps}
    values = {"as it is": base} | {name: {**base, **settings(t)} for name, t in chosen.items()}
    recipes = {name: configs(value, size) for name, value in values.items()}
    if options.equal == "time":
        loops = [training(*recipe, train_ids) for recipe in recipes.values()]
        costs = [statistics.median(times) for times in in_turns(loops, options.rounds)]
    else:
        costs = [float(train.batch_size * model.block_size) for model, train in recipes.values()]
    table: dict[str, dict[str, Any]] = {}
    for name, cost in zip(recipes, costs, strict=True):
        share = costs[0] / cost
        losses = []
        for seed in options.seeds:
            changed = {"steps": round(options.steps * share), "seed": seed}
            again = configs({**values[name], **changed}, size)
            losses.append(final_loss(*again, train_ids, val_ids))
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
