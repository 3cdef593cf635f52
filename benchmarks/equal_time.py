"""The default recipe and `--preset classic` for equally many minutes, on several corpora.

Both run at the same time, as a user runs them, each with its share of the cores, so other work on
the machine slows both. Loss of the final weights over the whole validation split, compared with the
lowest loss of counting n-grams. The last line is JSON.

    python benchmarks/equal_time.py CORPUS … [--minutes 0.5 1 3 15] [--seeds 1]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measure import train

from gpt.counting.baseline import count_baseline
from gpt.vocabulary import Vocabulary

PRESETS = ("default", "classic")


def best_count(corpus: Path) -> float:
    """The lowest loss of counted n-grams, in nats per character."""
    text = corpus.read_bytes().decode()
    vocabulary = Vocabulary("".join(sorted(set(text))))
    ids = vocabulary.encode(text)
    boundary = int(0.9 * len(ids))
    return count_baseline(ids[:boundary], ids[boundary:], len(vocabulary)).nats


def side_by_side(corpus: Path, minutes: float, seed: int) -> dict[str, dict[str, float]]:
    """The results of `train` for each preset."""
    threads = max(1, (os.cpu_count() or 2) // len(PRESETS))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        runs = {}
        for name in PRESETS:
            arguments = f"--preset {name} --minutes {minutes}"
            where = f"{folder}/{name}"
            runs[name] = pool.submit(train, str(corpus), arguments, seed, where, threads)
        return {name: run.result() for name, run in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--minutes", type=float, nargs="+", default=[0.5, 1, 3, 15])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    rows = []
    for corpus in options.corpora:
        counted = best_count(corpus)
        print(f"{corpus.name}: counting reaches {counted:.4f}", flush=True)
        for minutes in options.minutes:
            done: dict[str, list[dict[str, float]]] = {name: [] for name in PRESETS}
            for seed in options.seeds:
                for name, run in side_by_side(corpus.resolve(), minutes, seed).items():
                    done[name].append(run)
            row: dict[str, object] = {"corpus": corpus.name, "minutes": minutes, "counted": counted}
            for name in PRESETS:
                each = done[name]
                row[name] = [run["loss"] for run in each]
                row[f"{name} training"] = [run["training"] for run in each]
                loss = statistics.mean(run["loss"] for run in each)
                seconds = statistics.mean(run["training"] for run in each)
                print(f"  {minutes:5g} min {name:8} {loss:.4f} ({seconds:.0f} s)", flush=True)
            rows.append(row)
    print(json.dumps({"benchmark": "equal_time", "seeds": options.seeds, "rows": rows}))


if __name__ == "__main__":
    main()
