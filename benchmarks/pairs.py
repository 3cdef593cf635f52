"""Models of pairs: how many targets are right, beside a decoder-only GPT on the same lines.

    python benchmarks/pairs.py dates [--seeds 1 2 3] [--arguments "--minutes 2"]
    python benchmarks/pairs.py FOLDER [--seeds 1 2 3] [--arguments "--minutes 45"]

FOLDER has train.tsv and dev.tsv. For each seed: `gptx train`, then `gptx eval` of the lines that
validate: exact match (any listed target counts), character error rate, nats per target character.
Of dates also, for each digit of the year, the share of dates in which the strongest
cross-attention of one head lies in the source's year. --arguments "--encoder-layers 0 …" trains a
decoder-only GPT. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measure import GPTX, timed, train

import gpt
from gpt.corpus.dates import dates
from gpt.reading.pairs import encode_sources

YEARS = re.compile(r"\d{4}"), re.compile(r"\d\d(?=\.?$)")  # four digits, else the last two
AT_ONCE = 500


def split_dates(folder: Path) -> None:
    """Writes train.tsv and dev.tsv: all lines of a date are in one of them, and both are in random
    order of dates.
    """
    lines = dates().decode().splitlines(keepends=True)
    border = int(0.93 * len(lines))
    while lines[border].split("\t")[1] == lines[border - 1].split("\t")[1]:
        border += 1
    (folder / "train.tsv").write_text("".join(lines[:border]), encoding="utf-8")
    (folder / "dev.tsv").write_text("".join(lines[border:]), encoding="utf-8")


def in_the_year(run: gpt.TrainedGPT, lines: list[str]) -> list[float]:
    """For each digit of the year: the share of lines in which the strongest cross-attention of the
    row that predicts it lies in the source's year, of the head with the largest share.
    """
    found = []
    for first in range(0, len(lines), AT_ONCE):
        pairs = [line.split("\t") for line in lines[first : first + AT_ONCE]]
        encode = run.vocabulary.encode
        memory = encode_sources(run.reader, [encode(source) for source, _ in pairs])
        ids = np.stack([encode("\t" + target[:3]) for _, target in pairs])
        spans = [
            next(filter(None, (it.search(source) for it in YEARS))).span() for source, _ in pairs
        ]
        starts, ends = np.array(spans).T[:, :, None, None]  # (B, 1, 1) each
        strongest: list[Any] = []

        def keep(name: str, layer: int, stage: Any, strongest: list[Any] = strongest) -> Any:
            if name == "cross_weights":
                strongest.append(stage.argmax(axis=-1))  # (B, H, T)
            return stage

        reader = run.reader
        reader.blocks(reader.embed(ids), range(run.config.n_layer), keep, memory=memory)
        places = np.stack(strongest, axis=1).reshape(len(pairs), -1, 4)  # (B, L·H, digits)
        found.append((places >= starts) & (places < ends))
    shares = np.concatenate(found).mean(axis=0)  # (L·H, digits)
    return [round(float(share), 4) for share in shares.max(axis=0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arguments", default="--minutes 2")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(options.corpus)
        if options.corpus == "dates":
            texts = Path(folder)
            split_dates(texts)
        dev = texts / "dev.tsv"
        for seed in options.seeds:
            arguments = f"--split {dev} {options.arguments}"
            trained = train(str(texts / "train.tsv"), arguments, seed, folder, options.threads)
            (run,) = Path(folder, "checkpoints").glob(f"*-{1 + len(results)}")
            model = gpt.load(run)
            pairs = [] if model.has_encoder else ["--pairs"]
            command = [GPTX, "eval", str(dev), "--run", str(run), "--json", *pairs]
            scored = json.loads(timed(command).output)
            measured = {name: scored[name] for name in ("exact", "error_rate", "nats")}
            result: dict[str, Any] = {"seed": seed, **trained, **measured}
            if options.corpus == "dates" and model.has_encoder:
                lines = dev.read_text(encoding="utf-8").splitlines()
                result["in_the_year"] = in_the_year(model, lines)
            print(result, flush=True)
            results.append(result)
    wrong = [1 - result["exact"] for result in results]
    print(
        json.dumps(
            {
                "corpus": os.path.basename(options.corpus),
                "arguments": options.arguments,
                "wrong": statistics.mean(wrong),
                "wrong_of_seeds": wrong,
                "results": results,
            }
        )
    )


if __name__ == "__main__":
    main()
