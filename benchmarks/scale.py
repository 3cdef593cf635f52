"""The arithmetic of docs/scale.md: what a corpus and a model cost on 1 … 512 GPUs.

Prints its tables from the assumptions below; another machine's numbers go in as options. Nothing is
measured here: where an assumption was measured, docs/scale.md says where.

    python benchmarks/scale.py [--characters 1e12] [--flops 316e12] [--link 50e9]
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass

from gpt.config import ModelConfig

GPUS = (1, 8, 64, 512)
IN_A_NODE = 8
MODELS = {
    "10.7 M": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256},
    "85 M": {"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024},
    "1.2 B": {"n_layer": 24, "n_head": 16, "n_embd": 2048, "block_size": 2048},
    "6.5 B": {"n_layer": 32, "n_head": 32, "n_embd": 4096, "block_size": 4096},
}


@dataclass(frozen=True)
class Machine:
    """flops: that training reaches on one GPU, a second; in bytes a second: a GPU's share of the
    network between machines (link) and inside one (bridge), the encoder, a checkpoint's disk.
    """

    flops: float
    link: float
    bridge: float
    encoder: float
    disk: float


def config_of(name: str) -> ModelConfig:
    return ModelConfig(vocab_size=256, **MODELS[name])


def step_seconds(
    config: ModelConfig, machine: Machine, gpus: int, batch: float
) -> tuple[float, float, float]:
    """(computing, exchanging, bytes exchanged by a GPU) of a step of `batch` characters.

    A ring moves each GPU's gradient, float32, 2 (n − 1) / n times; the slowest wire counts.
    """
    computing = batch / gpus * config.training_flops / machine.flops
    moved = 2 * (gpus - 1) / gpus * 4 * config.parameters()
    wire = machine.bridge if gpus <= IN_A_NODE else machine.link
    return computing, moved / wire if gpus > 1 else 0.0, moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--characters", type=float, default=1e12)
    parser.add_argument("--batch", type=float, default=4 * 2**20, help="characters of a step")
    parser.add_argument("--flops", type=float, default=0.4 * 790e12)
    parser.add_argument("--link", type=float, default=50e9)
    parser.add_argument("--bridge", type=float, default=450e9)
    parser.add_argument("--encoder", type=float, default=126e6)
    parser.add_argument("--disk", type=float, default=2e9)
    options = parser.parse_args()
    machine = Machine(options.flops, options.link, options.bridge, options.encoder, options.disk)
    rows = []
    for name in MODELS:
        config = config_of(name)
        for gpus in GPUS:
            computing, exchanging, moved = step_seconds(config, machine, gpus, options.batch)
            steps = options.characters / options.batch
            seconds = steps * max(computing, exchanging)  # the exchange hides behind backward
            state = 12 * config.parameters()  # weights and AdamW's two moments
            rate = options.characters / seconds
            rows.append(
                {
                    "model": name,
                    "gpus": gpus,
                    "parameters": config.parameters(),
                    "compute_ms": round(1e3 * computing, 2),
                    "exchange_ms": round(1e3 * exchanging, 2),
                    "moved_GB": round(moved / 1e9, 3),
                    "hours": round(seconds / 3600, 3),
                    "million_characters_per_second": round(rate / 1e6, 2),
                    "windows_per_second": round(rate / config.block_size),
                    "state_GB": round(state / 1e9, 2),
                    "save_seconds": round(state / machine.disk, 1),
                    "GB_on_a_gpu": round(16 * config.parameters() / 1e9, 1),
                    "GB_on_a_gpu_sharded": round(16 * config.parameters() / gpus / 1e9, 2),
                }
            )
    print(markdown(rows))
    encoding = options.characters / machine.encoder
    print(json.dumps({"encoding_hours": round(encoding / 3600, 2), "rows": rows}))


def markdown(rows: list[dict[str, float]]) -> str:
    """The table of docs/scale.md."""
    lines = [
        "| model | GPUs | computing | exchange | one pass | characters/s | windows/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['model']} | {row['gpus']} | {row['compute_ms']:,.1f} ms "
            f"| {row['exchange_ms']:,.1f} ms | {duration(3600 * float(row['hours']))} "
            f"| {row['million_characters_per_second']:,.1f} M | {row['windows_per_second']:,.0f} |"
        )
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Two digits: "21 days", "7.8 h", "58 min"."""
    for unit, size in (("years", 365 * 86400), ("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            value = seconds / size
            return f"{value:.{max(0, 1 - math.floor(math.log10(value)))}f} {unit}"
    return f"{seconds:.0f} s"


if __name__ == "__main__":
    main()
