"""How much longer a forward takes that keeps activations than one that keeps nothing.

Both read the same windows in groups of the same size, in turns. Prints medians of wall and CPU
seconds and the medians of the ratios. The last line is JSON.

    python benchmarks/activations.py [--windows 1000] [--length 64] [--layers 2] [--columns 128]
        [--keep q k v weights resid_mid] [--rounds 9]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from gpt.config import ModelConfig
from gpt.heads.activations import ActivationPlan
from gpt.reading.gpt import Reader
from gpt.reading.score import windows_at_once


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--keep", nargs="+", default=["q", "k", "v", "weights", "resid_mid"])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    shape = {"block_size": options.length, "n_layer": options.layers, "n_embd": options.columns}
    config, random = ModelConfig(vocab_size=65, **shape), np.random.default_rng(1)
    tensors = {
        name: (random.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    reader, size = Reader(config, tensors), windows_at_once(config)
    ids = random.integers(65, size=(options.windows, options.length)).astype(np.uint8)

    def forward() -> None:
        for first in range(0, len(ids), size):
            reader.forward(ids[first : first + size])

    def kept() -> None:
        ActivationPlan(reader, ids, options.keep).read()

    forward()
    size_kept = ActivationPlan(reader, ids, options.keep).read().nbytes
    rounds = [(seconds(forward), seconds(kept)) for _ in range(options.rounds)]
    ratios = {}
    for number, clock in enumerate(("wall", "cpu")):
        medians = [
            statistics.median(times[number] for times in each) for each in zip(*rounds, strict=True)
        ]
        ratio = statistics.median(two[number] / one[number] for one, two in rounds)
        ratios[clock] = round(ratio, 3)
        print(f"{clock}: forward {medians[0]:.3f} s, kept {medians[1]:.3f} s, ratio {ratio:.2f}")
    result = {"benchmark": "activations", **vars(options), "bytes": size_kept, "ratios": ratios}
    print(json.dumps({**result, "numpy": np.__version__}))


if __name__ == "__main__":
    main()
