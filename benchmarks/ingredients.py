"""Measures what ingredients of the default bring, on several corpora, with equally many minutes.

The variants train one after another, as a user runs them. Losses are nats per character on the
whole validation split, with the final weights: of the GPT and counting together, of the GPT alone,
and of counting alone. Counting is Kneser–Ney with the order that is best on this split. If `pyppmd`
is installed, the script also measures PPMd of order 6: it reads the training text, and then 4,000
characters of the validation split, each time starting from the training text. The last line is
JSON.

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
PIECE = 4_000  # characters of the validation split that PPMd reads after the training text
ORDER, MEMORY = 6, 2**28  # PPMd's order, and its memory in bytes


def ppmd(text: str) -> float | None:
    """Returns PPMd's nats per character of the validation split, or None without pyppmd."""
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
