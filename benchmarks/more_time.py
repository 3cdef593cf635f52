"""Trains S steps, then S more in a new cycle of the learning rate, beside 2 S steps at once.

    python benchmarks/more_time.py TEXT FOLDER --steps 1460 --seeds 1 2 --again 1 0.5 0.25

--again: shares of the learning rate to which it rises again. Prints each run's validation losses
after S and after 2 S steps; the last line is JSON.
"""

import argparse
import itertools
import json
from pathlib import Path

import torch

import gpt
from gpt.config import schedule

SHAPE = {"n_layer": 1, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 8}


def losses(text: str, folder: Path, again: float, steps: int, **options: object) -> list[float]:
    """The losses, whole split, after S and 2 S steps; again 0: one schedule of 2 S steps."""
    name = "-".join(map(str, (Path(text).stem, again, steps, *options.values())))
    schedule.LATER_CYCLE_PEAK = again or schedule.LATER_CYCLE_PEAK
    plan = {"step_plan": f"0:{steps} {steps}+:{2 * steps}", "evaluations": 10} if again else {}
    options |= {"checkpoints": folder, "steps": 2 * steps, "eval_part": 0, **SHAPE, **plan}
    curve = gpt.train(text, run=name, progress=False, **options).curve  # type: ignore[arg-type]
    known = dict(zip(curve.steps.tolist(), curve.val.tolist(), strict=True))
    return [known[steps], known[2 * steps]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=1460)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--counting", type=int, nargs="+", default=[0, 8])
    parser.add_argument("--again", type=float, nargs="+", default=[0.5])
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    found = []
    for counting, seed, again in itertools.product(
        asked.counting, asked.seeds, (0.0, *asked.again)
    ):
        after = losses(asked.text, asked.folder, again, asked.steps, counting=counting, seed=seed)
        row = {"counting": counting, "seed": seed, "again": again, "nats": after}
        print(json.dumps(row), flush=True)
        found.append(row)
    print(json.dumps({"text": asked.text, "steps": asked.steps, "runs": found}))


if __name__ == "__main__":
    main()
