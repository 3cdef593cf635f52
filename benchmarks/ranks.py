"""The cost of several ranks: a shared training step, and all-reduces of gradients.

Each process runs this; the first one prints. An all-reduce is timed in float32, as large as the
gradients of 0.8 M, 10.7 M and 85 M parameters. The last line is JSON.

    torchrun --standalone --nproc-per-node=2 benchmarks/ranks.py [--device cuda]
    python benchmarks/ranks.py                                   one process, for comparison
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
from measure import step_seconds, training

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.config.presets import preset
from gpt.devices import let_threads_sleep
from gpt.training import ranks

PARAMETERS = (800_000, 10_700_000, 85_000_000)
SHAPES = {
    "0.8M": ({"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64}, 48),
    "10.7M": ({"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256}, 16),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    options = parser.parse_args()
    let_threads_sleep()
    if ranks.world_size() > 1:
        ranks.join(options.device)
    ids = np.random.default_rng(1).integers(65, size=1_000_000, dtype=np.uint8)
    steps = {}
    for name in options.models:
        shape, batch_size = SHAPES[name]
        classic = only_fields(ModelConfig, preset("classic", options.device))
        config = ModelConfig(vocab_size=65, **{**classic, **shape})
        train = TrainConfig(
            batch_size=batch_size,
            precision="bfloat16" if options.device == "cuda" else "float32",
        )
        seconds = step_seconds(training(config, train, ids, options.device), 5.0)
        characters = batch_size * config.block_size
        steps[name] = {
            "ms": round(1e3 * seconds, 2),
            "characters_per_second": round(characters / seconds),
        }
    rounds = {f"{count / 1e6:.1f}M": round_trip(count, options.device) for count in PARAMETERS}
    if ranks.is_first():
        result = {"benchmark": "ranks", "ranks": ranks.world_size(), "steps": steps}
        print(json.dumps({**result, "all_reduce": rounds, "threads": torch.get_num_threads()}))
    ranks.leave()


def round_trip(count: int, device: str) -> dict[str, float] | None:
    """Seconds of an all-reduce of `count` numbers, and bytes a second of one rank."""
    if ranks.world_size() == 1:
        return None
    numbers = torch.ones(count, device=device)
    times = []
    for _ in range(7):
        if device == "cuda":
            torch.cuda.synchronize()
        ranks.sum_over_ranks(0.0)  # all ranks begin at the same time
        started = time.perf_counter()
        dist.all_reduce(numbers)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(ranks.max_over_ranks(time.perf_counter() - started))
    seconds = statistics.median(times[1:])
    return {"ms": round(1e3 * seconds, 3), "GB_per_second": round(4 * count / seconds / 1e9, 3)}


if __name__ == "__main__":
    main()
