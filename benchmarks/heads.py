"""What n-gram embeddings leave for the heads: where each head looks, in several trained runs.

For every head, the mean weight on the previous character, the one before it, the first of the
window and the character itself, over windows of the validation split's start that a model file
carries, rows from the fourth on. The last line is JSON.

    python benchmarks/heads.py RUN_FOLDER [RUN_FOLDER …]
"""

from __future__ import annotations

import argparse
import json

import numpy as np

import gpt

PLACES = ("previous", "second", "first", "itself")


def looks(run: gpt.TrainedGPT) -> np.ndarray:
    """(layers, heads, 4) mean weights on PLACES."""
    text, block = run.stored.excerpt, min(64, run.config.block_size)
    sums, windows = 0.0, [text[n : n + block] for n in range(0, len(text) - block + 1, block)]
    for window in windows:
        weights = np.stack([layer.weights for layer in run.attention(window).layers])
        rows = np.arange(3, block)
        columns = (rows - 1, rows - 2, np.zeros_like(rows), rows)
        sums += np.stack([weights[:, :, rows, each].mean(-1) for each in columns], -1)
    return np.asarray(sums / len(windows), dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    result: dict[str, object] = {"benchmark": "heads", "places": PLACES}
    for folder in parser.parse_args().runs:
        found = looks(gpt.load(folder))
        print(folder)
        for layer, heads in enumerate(found):
            for head, values in enumerate(heads):
                named = "  ".join(f"{p} {v:.2f}" for p, v in zip(PLACES, values, strict=True))
                print(f"  layer {layer} head {head}  {named}")
        result[folder] = found.round(3).tolist()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
