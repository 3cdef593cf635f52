"""The arithmetic of docs/scale.md: time and network for a corpus and a model on 1 … 512 GPUs.

Prints its tables from the assumptions below; options set the numbers of another machine. This
script measures nothing; docs/scale.md names the source of each assumption.

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
    """flops: operations a second that training reaches on one GPU; in bytes a second: a GPU's share
    of the network between machines (link) and inside one (bridge), the encoder, a checkpoint's
    disk.
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

    A ring moves each GPU's float32 gradient 2 (n − 1) / n times; the slowest connection sets the
    time.
    """
    computing = batch / gpus * config.training_flops / machine.flops
    moved = 2 * (gpus - 1) / gpus * 4 * config.parameters()
    wire = machine.bridge if gpus <= IN_A_NODE else machine.link
    return computing, moved / wire if gpus > 1 else 0.0, moved


#: 40 % of an H200's products in bfloat16; InfiniBand of 400 Gb/s; NVLink; the ledger; an NVMe disk.
USUAL = Machine(flops=0.4 * 790e12, link=50e9, bridge=450e9, encoder=179e6, disk=2e9)
CHARACTERS, BATCH = 1e12, 4 * 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--characters", type=float, default=CHARACTERS)
    parser.add_argument("--batch", type=float, default=BATCH, help="characters of a step")
    for name, value in vars(USUAL).items():
        parser.add_argument(f"--{name}", type=float, default=value)
    options = parser.parse_args()
    machine = Machine(**{name: getattr(options, name) for name in vars(USUAL)})
    rows = costs(machine, options.characters, options.batch)
    print(markdown(rows))
    encoding = options.characters / machine.encoder
    print(json.dumps({"encoding_hours": round(encoding / 3600, 2), "rows": rows}))


def costs(
    machine: Machine = USUAL, characters: float = CHARACTERS, batch: float = BATCH
) -> list[dict[str, float | str]]:
    """Each model on each number of GPUs: times in seconds, sizes in bytes."""
    rows: list[dict[str, float | str]] = []
    for name in MODELS:
        config = config_of(name)
        parameters = config.parameters()
        for gpus in GPUS:
            computing, exchanging, moved = step_seconds(config, machine, gpus, batch)
            step = max(computing, exchanging)  # the exchange overlaps with the backward pass
            state = 12 * parameters  # weights and AdamW's two moments
            rows.append(
                {
                    "model": name,
                    "gpus": gpus,
                    "computing": computing,
                    "exchanging": exchanging,
                    "moved": moved,
                    "one_pass": characters / batch * step,
                    "characters_per_second": batch / step,
                    "windows_per_second": batch / step / config.block_size,
                    "state": state,
                    "saving": state / machine.disk,
                    "on_a_gpu": 16 * parameters,
                    "on_a_gpu_sharded": 16 * parameters / gpus,
                }
            )
    return rows


def markdown(rows: list[dict[str, float | str]]) -> str:
    """The table of docs/scale.md."""
    lines = [
        "| model | GPUs | computing a step | exchange | one pass | characters/s | windows/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = (duration(float(row[name])) for name in ("computing", "exchanging", "one_pass"))
        rates = (number(float(row[f"{name}_per_second"])) for name in ("characters", "windows"))
        lines.append(f"| {' | '.join((str(row['model']), str(row['gpus']), *times, *rates))} |")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Two digits: "21 days", "7.8 h", "58 min", "1.7 ms"; "-" for nothing."""
    units = (("years", 365 * 86400), ("days", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for unit, size in (*units, ("ms", 1e-3)):
        if seconds >= size:
            return f"{two_digits(seconds / size)} {unit}"
    return f"{two_digits(1e3 * seconds)} ms" if seconds else "-"


def number(value: float) -> str:
    """Two digits: "2.4 billion", "36 million", "4,400"."""
    for unit, size in (("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{two_digits(value / size)} {unit}"
    return two_digits(value)


def two_digits(value: float) -> str:
    places = 1 - math.floor(math.log10(value))
    return f"{round(value, places):,.{max(0, places)}f}"


if __name__ == "__main__":
    main()
