"""Measures the characters a second of sampling, compared with a loop like nanoGPT's.

"gptx" is the numpy decoder of gptx. "recompute" is the torch model in a plain loop that computes
the whole window again for each character. Both sample from models of the preset classic with random
weights, in turns, each in its own process. In "half", the text grows from a quarter to three
quarters of the window. In "full", the text is longer than the window, so the decoder starts a new
cache after each half of a window. The time of the first character includes reading the prompt. The
last line is JSON.

    python benchmarks/sample.py [--rounds 3] [--models 0.8M 10.7M] [--batches 1 8 64 256]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

from measure import timed

SHAPES = {
    "0.8M": {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64},
    "10.7M": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256},
}
SIDES = ("gptx", "recompute")
SECONDS = 1.5  # duration of a measurement


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 64, 256])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(**json.loads(options.one))))
        return
    rows = []
    for model in options.models:
        for batch in options.batches:
            for fill in ("half", "full"):
                row = compared(model, batch, fill, options.rounds, options.threads)
                rows.append(row)
                print(
                    f"{model:>6} × {batch:<3} {fill}: gptx {row['gptx']:,.0f} char/s, recompute "
                    f"{row['recompute']:,.0f}, ratio {row['ratio']:.1f}, in CPU seconds "
                    f"{row['cpu_ratio']:.1f}; first character {row['first']['gptx'] * 1e3:.1f} ms, "
                    f"{row['first']['recompute'] * 1e3:.1f} ms",
                    flush=True,
                )
    print(json.dumps({"benchmark": "sample", "rounds": options.rounds, "rows": rows}))


def compared(model: str, batch: int, fill: str, rounds: int, threads: int | None) -> dict[str, Any]:
    """Returns the medians of both sides, and the medians of the ratios of the pairs."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            task = json.dumps({"side": side, "model": model, "batch": batch, "fill": fill})
            done = timed([sys.executable, os.path.abspath(__file__), "--one", task], threads)
            found[side].append(json.loads(done.output.splitlines()[-1]))
    pairs = list(zip(*found.values(), strict=True))
    median = statistics.median
    return {
        "model": model,
        "batch": batch,
        "fill": fill,
        **{side: round(median(one["rate"] for one in found[side]), 1) for side in SIDES},
        "ratio": round(median(ours["rate"] / plain["rate"] for ours, plain in pairs), 2),
        "cpu_ratio": round(median(plain["cpu"] / ours["cpu"] for ours, plain in pairs), 2),
        "first": {side: round(median(one["first"] for one in found[side]), 5) for side in SIDES},
    }


def measured(side: str, model: str, batch: int, fill: str) -> dict[str, float]:
    """Returns characters a second, CPU seconds a character, and seconds to the first character."""
    from gpt.config import ModelConfig
    from gpt.config.fields import only_fields
    from gpt.config.train import preset_values

    classic = only_fields(ModelConfig, preset_values("classic", "cpu"))
    config = ModelConfig(vocab_size=65, **{**classic, **SHAPES[model]})
    block = config.block_size
    prompt, most = (block // 4, block // 2) if fill == "half" else (block, 10**6)
    draw = _gptx(config, batch) if side == "gptx" else _recompute(config, batch)
    for _ in zip(range(3), draw(prompt), strict=False):
        pass  # the first characters include work that is done only once
    begun = time.perf_counter()
    next(iter(draw(prompt)))
    first = time.perf_counter() - begun
    count, cpu, wall = 0, 0.0, 0.0
    while wall < SECONDS:
        drawn, more = iter(draw(prompt)), 0
        next(drawn)  # reads the prompt, whose time does not count here
        begun, spent = time.perf_counter(), time.process_time()
        for _ in drawn:
            more += 1
            if more == most or (more % 16 == 0 and time.perf_counter() - begun + wall > SECONDS):
                break
        wall += time.perf_counter() - begun
        cpu += time.process_time() - spent
        count += more
    return {"rate": batch * count / wall, "cpu": cpu / (batch * count), "first": first}


def _gptx(config: Any, batch: int) -> Any:
    import numpy as np

    from gpt.config import SampleConfig
    from gpt.reading.decode import ParallelDecoder
    from gpt.reading.gpt import Reader
    from gpt.reading.sampler import sample_ids

    random = np.random.default_rng(1)
    tensors = {
        name: np.ones(shape, np.float32)
        if "norm" in name
        else (0.02 * random.normal(size=shape)).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    decoder = ParallelDecoder(Reader(config, tensors))
    options = SampleConfig(length=100_000 // batch + 1000, n=batch, seed=1)

    def draw(prompt: int) -> Any:
        return sample_ids(decoder, random.integers(65, size=prompt), options)

    return draw


def _recompute(config: Any, batch: int) -> Any:
    import torch

    from gpt.devices import let_threads_sleep
    from gpt.model import GPT

    let_threads_sleep()
    torch.manual_seed(1)
    model = GPT(config).eval()

    def draw(prompt: int) -> Any:
        ids = torch.randint(65, (1, prompt)).repeat(batch, 1)
        while True:
            with torch.inference_mode():
                logits = model(ids[:, -config.block_size :])[:, -1] / 0.8
                drawn = torch.multinomial(torch.softmax(logits, dim=-1), 1)
                ids = torch.cat((ids, drawn), dim=1)
            yield drawn

    return draw


if __name__ == "__main__":
    main()
