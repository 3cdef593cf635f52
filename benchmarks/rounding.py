"""Rounding errors of random models as a share of their bounds.

    python benchmarks/rounding.py

For each stage of `gptx attn` and for the probe's logits: the largest error as a part of its bound.
Also the number of models that a fixed tolerance, 1e-4 between torch's and numpy's float32, would
refuse. The last line is JSON.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import torch

from gpt.config import ModelConfig
from gpt.model import GPT
from gpt.reading.gpt import Reader
from gpt.reading.proof import UNITS, WHOLE, allowed_difference, check_stages, prove
from gpt.storage.model_file import Tensors
from gpt.training.checkpoint import probe_of

#: Layers, columns, heads, context, characters, seeds.
SIZES = [
    (1, 16, 2, 16, 15, 12),
    (2, 32, 2, 32, 30, 12),
    (3, 96, 3, 64, 65, 3),
    (4, 128, 4, 128, 65, 1),
    (6, 384, 6, 256, 65, 1),
]
KINDS: list[dict[str, Any]] = [
    {},
    {"position": "learned", "activation": "gelu", "tied": True},
    {"position": "sinusoidal", "activation": "relu", "bias": True},
    {"position": "learned", "activation": "gelu", "tied": True, "bias": True},
    {"activation": "gelu", "tied": True, "bias": True},
]
#: Factor of queries and keys, factor of logits, whether weights are rounded to bfloat16.
FACTORS = [(1, 1, False), (3, 1, False), (10, 1, False), (10, 30, True)]


def weights(config: ModelConfig, seed: int, sharper: int, larger: int, rounded: bool) -> Tensors:
    random, tensors = np.random.default_rng(seed), dict[str, Any]()
    output = "token_embedding.weight" if config.tied else "lm_head.weight"
    for name, shape in config.shapes().items():
        if len(shape) == 1:
            weight = 0.2 * random.normal(size=shape) + name.endswith("weight")
        else:
            wide = shape[1] ** 0.5 if "embedding" not in name and "position" not in name else 1
            weight = random.normal(size=shape) / wide
        if "qkv" in name:
            weight[: 2 * config.n_embd] *= sharper
        weight = torch.from_numpy(weight * (larger if name == output else 1)).float()
        tensors[name] = (weight.bfloat16().float() if rounded else weight).numpy()
    return tensors


def main() -> None:
    results = []
    for layers, columns, heads, context, characters, seeds in SIZES:
        for sharper, larger, rounded in FACTORS:
            used, refused, models = defaultdict(float), 0, 0
            for kind, seed in [(kind, seed) for kind in KINDS for seed in range(seeds)]:
                config = ModelConfig(
                    **{"vocab_size": characters, "block_size": context, "n_layer": layers},
                    **{"n_head": heads, "n_embd": columns, **kind},
                )
                tensors = weights(config, seed, sharper, larger, rounded)
                model, reader = GPT(config), Reader(config, tensors)
                model.load_parameters({n: torch.from_numpy(each) for n, each in tensors.items()})
                probe = probe_of(model, np.random.default_rng(3).integers(0, characters, 1000))
                if not prove(reader, probe).passed:
                    raise SystemExit(f"refused: {config}")
                with torch.no_grad():
                    theirs = probe.of(model(torch.from_numpy(probe.ids.astype(np.int64))).numpy())
                ours = probe.of(reader.logits(reader.forward(probe.ids)))
                error, largest = np.abs(ours - probe.logits).max(), np.abs(probe.logits).max()
                promise = allowed_difference(reader, probe.ids, probe.logits, np.inf, probe.of)
                parts = {
                    "logits, of what nudges do": error / promise,
                    "logits, of the least": error / (WHOLE * UNITS[reader.dtype] * largest),
                }
                ids = probe.ids[0]
                *stages, _, _ = check_stages(reader, ids, reader.stages(ids))
                parts["stages"] = max(each.error / each.bound for each in stages if each.bound)
                for name, part in parts.items():
                    used[name] = max(used[name], float(part))
                refused += bool(np.abs(ours - theirs).max() > 1e-4)
                models += 1
            results.append(
                {"size": f"{layers} x {columns}", "sharper": sharper, "larger": larger}
                | {"models": models, "refused at 1e-4": refused}
                | {name: round(part, 3) for name, part in used.items()}
            )
            print(results[-1], flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
