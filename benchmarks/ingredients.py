"""What each ingredient of the default brings, on several corpora, for equally many minutes.

Each variant trains alone, one after another, as a user runs it. Losses are nats per character over
the whole validation split, final weights: both together, the GPT alone (which trains as it does
without counting), and counting alone (the best order of Kneser–Ney; the order is chosen on the
split that it is scored on). If `pyppmd` is installed, also PPMd of order 6, which reads the
training text, and starts again from there for every 4,000 characters. The last line is JSON.

    python benchmarks/ingredients.py CORPUS … [--minutes 2] [--seeds 1 2 3]
        [--variant "GPT alone: --counting 0" …] [--characters 20000]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import tempfile
from pathlib import Path

from measure import split_ids, train

from gpt.counting.baseline import count_baseline

VARIANTS = {
    "default": "",
    "no heads on the last characters": "--previous-heads 0",
    "classic": "--preset classic",
}
PIECE = 4_000  # characters after which PPMd starts again
ORDER, MEMORY = 6, 2**28  # of PPMd; the memory in bytes


def ppmd(text: str) -> float | None:
    """Nats per character of the validation split; None without pyppmd."""
    if importlib.util.find_spec("pyppmd") is None:
        return None
    import pyppmd

    def size(data: str) -> int:
        encoder = pyppmd.Ppmd7Encoder(ORDER, MEMORY)
        return len(encoder.encode(data.encode()) + encoder.flush())

    boundary = int(0.9 * len(text))
    known, rest = text[:boundary], text[boundary:]
    alone = size(known)
    pieces = [rest[first : first + PIECE] for first in range(0, len(rest), PIECE)]
    extra = sum(size(known + piece) - alone for piece in pieces)
    return 8 * math.log(2) * extra / len(rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--variant", action="append", help='"name: options"; repeatable')
    parser.add_argument("--characters", type=int, help="take only the start of each text")
    options = parser.parse_args()
    variants = VARIANTS
    if options.variant:
        variants = dict(line.split(":", 1) for line in options.variant)
    rows = []
    for corpus in options.corpora:
        text = corpus.read_bytes().decode()[: options.characters]
        others = {"counting": count_baseline(*split_ids(text)).nats, "PPMd": ppmd(text)}
        rows.append({"corpus": corpus.name, "characters": len(text), **others})
        print(rows[-1], flush=True)
        for name, arguments in variants.items():
            with tempfile.TemporaryDirectory() as folder:
                part = Path(folder, corpus.name)
                part.write_bytes(text.encode())
                given = f"{arguments} --minutes {options.minutes}"
                runs = [train(str(part), given, seed, f"{folder}/{seed}") for seed in options.seeds]
            rows.append({"variant": name, "runs": runs})
            loss = statistics.mean(run["loss"] for run in runs)
            alone = statistics.mean(run["GPT"] for run in runs)
            print(f"  {name:32} {loss:.4f}   the GPT alone {alone:.4f}   {runs}", flush=True)
    print(json.dumps({"benchmark": "ingredients", "minutes": options.minutes, "rows": rows}))


if __name__ == "__main__":
    main()
