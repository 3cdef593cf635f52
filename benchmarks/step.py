"""Measures a training step: its share of the machine's limit, its parts, and a plain loop.

The script first runs every shape of the default preset in turns. It prints each shape's share of
the float32 rate of matrix products, which it measures itself, and the shares of the kinds of work.
Then it runs the classic preset in turns with `plain_steps`, an eager PyTorch loop of the same
shapes (packed qkv, scaled_dot_product_attention, GELU, fused AdamW, gradient clipping). The last
line is JSON.

    python benchmarks/step.py [--rounds 15] [--block 20] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from measure import configs, in_turns, sgemm_rate, training
from torch import nn

from gpt.config import ModelConfig, TrainConfig
from gpt.config.train import preset_values
from gpt.training.plan import SHAPES

VOCAB = 65


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainGPT(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.characters = nn.Embedding(VOCAB, config.n_embd)
        self.positions = nn.Embedding(config.block_size, config.n_embd)
        blocks = (PlainBlock(config.n_embd, config.n_head) for _ in range(config.n_layer))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(config.n_embd, bias=False)
        self.output = nn.Linear(config.n_embd, VOCAB, bias=False)
        self.output.weight = self.characters.weight
        nn.init.normal_(self.characters.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.characters(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.output(self.norm(self.blocks(x)))


def plain_steps(model: ModelConfig, train: TrainConfig, ids: np.ndarray) -> Iterator[float]:
    """Trains PlainGPT in a plain loop; yields the loss of each step."""
    net = PlainGPT(model)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.99), fused=True)
    while True:
        starts = torch.randint(len(ids) - model.block_size, (train.batch_size,)).tolist()
        windows = [ids[start : start + model.block_size + 1].astype(np.int64) for start in starts]
        batch = torch.stack([torch.from_numpy(window) for window in windows])
        loss = F.cross_entropy(net(batch[:, :-1]).view(-1, VOCAB), batch[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        yield loss.item()


def milliseconds(steps: Iterator[object], count: int) -> float:
    """Returns the mean milliseconds of a step over `count` steps."""
    started = time.perf_counter()
    for _ in range(count):
        next(steps)
    return 1000 * (time.perf_counter() - started) / count


#: Kind of work -> how the names of its operations in the profiler begin; the first match counts.
KINDS = {
    "optimizer": ("aten::_fused_adamw", "Optimizer."),
    "attention": ("aten::_scaled_dot_product", "aten::bmm", "aten::_softmax"),
    "matrix products": ("aten::mm", "aten::addmm"),
    "dropout": ("aten::random_", "aten::ge"),
}


def where_time_goes(steps: Iterator[object]) -> dict[str, float]:
    """Returns: kind of work -> its share of a step's CPU time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(5):
            next(steps)
    times: dict[str, float] = dict.fromkeys([*KINDS, "elementwise and the rest"], 0.0)
    for event in profile.key_averages():
        kind = next((k for k, names in KINDS.items() if event.key.startswith(names)), None)
        times[kind or "elementwise and the rest"] += event.self_cpu_time_total
    return {kind: round(value / sum(times.values()), 3) for kind, value in times.items()}


def near_the_limit(ids: np.ndarray, rounds: int) -> list[dict[str, object]]:
    """Returns for each shape of the default preset: milliseconds, characters a second, share of the
    limit, and shares of the kinds of work.
    """
    recipes = [configs({**preset_values("default", "cpu"), **shape}, VOCAB) for *_, shape in SHAPES]
    loops = [training(*recipe, ids) for recipe in recipes]
    times = [statistics.median(taken) for taken in in_turns(loops, rounds)]
    rate = max(sgemm_rate() for _ in range(3))
    rows: list[dict[str, object]] = []
    for (model, train), loop, seconds in zip(recipes, loops, times, strict=True):
        speed = train.batch_size * model.block_size / seconds
        batch = f"{train.batch_size} × {model.block_size}"
        rows.append(
            {
                "shape": f"{model.n_layer} × {model.n_embd}, batch {batch}",
                "ms": round(1000 * seconds, 1),
                "characters_per_second": round(speed),
                "share_of_sgemm": round(speed * model.training_flops / 1e9 / rate, 3),
                "time": where_time_goes(loop),
            }
        )
        print(rows[-1])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--block", type=int, default=20, help="steps in a turn")
    parser.add_argument("--preset", default="classic")
    parser.add_argument("--threads", type=int, default=0, help="0 = torch's choice")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    recipe = configs(preset_values(options.preset, "cpu"), VOCAB)
    ids = np.random.default_rng(1).integers(0, VOCAB, 1_000_000, dtype=np.uint8)
    loops = {"gptx": training(*recipe, ids), "plain": plain_steps(*recipe, ids)}
    before = sgemm_rate()
    limits = near_the_limit(ids, options.rounds)
    times: dict[str, list[float]] = {name: [] for name in loops}
    for loop in loops.values():
        milliseconds(loop, 5)
    for number in range(options.rounds):
        order = list(loops) if number % 2 else list(loops)[::-1]
        for name in order:
            times[name].append(milliseconds(loops[name], options.block))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = [a / b for a, b in zip(times["gptx"], times["plain"], strict=True)]
    for name, median in medians.items():
        print(f"{name:6} {median:7.2f} ms/step (median of {options.rounds} turns)")
    print(
        f"gptx / plain: {medians['gptx'] / medians['plain']:.3f} of medians, "
        f"{statistics.median(ratios):.3f} median of pairs"
    )
    result = {
        "benchmark": "step",
        "preset": options.preset,
        "ms_per_step": {name: round(value, 3) for name, value in medians.items()},
        "ratio_of_medians": round(medians["gptx"] / medians["plain"], 4),
        "median_of_ratios": round(statistics.median(ratios), 4),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "default_shapes": limits,
        "sgemm_gflops": [round(before, 1), round(sgemm_rate(), 1)],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
