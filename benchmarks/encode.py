"""Speed and memory of encoding a text to ids, compared with nanoGPT's plain loop.

The script generates a random text of each kind. Each round encodes it twice, in separate processes.
"gptx" goes from the file to the ids on the disk, with hash, checks and counts. "loop" is the loop
of nanoGPT's `prepare.py`: the whole text as one string, `sorted(set(data))`, `[stoi[c] for c in
data]`, an array, a file. "SHA-256" only computes this hash in one thread, which shows how fast the
machine is at the moment. Memory is the peak above that of a process that has only imported the same
modules. It does not include pages of files, which the system can free at any time; helper processes
count in full. Numbers are medians of the rounds; the last line is JSON.

    python benchmarks/encode.py [--megabytes 256] [--rounds 3] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LETTERS = {
    "ASCII": "etaoinshrdlcumwfgypbvkjxqz",
    "Hungarian": "eatlsnkizrogámybdvhjőöúüéípucfű",
    "Cyrillic": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё",
    "Japanese": "".join(map(chr, range(0x3042, 0x3093)))
    + "".join(map(chr, range(0x4E00, 0x4E00 + 2000))),
    "emoji": "".join(map(chr, range(0x1F600, 0x1F64F))),
}
ENCODE = """
from gpt.corpus.corpus import encode_corpus
from gpt.corpus.sources import JoinedText, Source
corpus = encode_corpus(JoinedText([Source(Path(text), "text")]), Path(folder))
characters = len(corpus.ids)
"""
LOOP = """
with open(text, encoding="utf-8", newline="") as file:
    data = file.read()
chars = sorted(set(data))
stoi = {c: i for i, c in enumerate(chars)}
ids = np.array([stoi[c] for c in data], dtype=np.uint16)
ids.tofile(Path(folder) / "train.bin")
characters = len(ids)
"""
HASH = """
digest, characters = hashlib.sha256(), 0
with open(text, "rb", buffering=0) as file:
    while part := file.read(2**20):
        digest.update(part)
"""
SIDES = {"gptx": ENCODE, "loop": LOOP, "SHA-256": HASH}
BEFORE = """
import contextlib, hashlib, json, os, sys, threading, time
from pathlib import Path
import numpy as np
import gpt.corpus.corpus
text, folder = sys.argv[1:]
peak, done = 0, threading.Event()
def own():
    "Returns the bytes of memory of this process and its children, without pages of files."
    total, me = 0, f"/proc/self/task/{os.getpid()}/children"
    for process in ["self", *open(me).read().split()]:
        with contextlib.suppress(OSError):
            for line in open(f"/proc/{process}/status"):
                if line.startswith("RssAnon"):
                    total += int(line.split()[1]) * 1024
    return total
def watch():
    global peak
    while not done.wait(0.02):
        peak = max(peak, own())
before, thread = own(), threading.Thread(target=watch)
thread.start()
begun, spent = time.perf_counter(), sum(os.times()[:4])
"""
AFTER = """
seconds, cpu = time.perf_counter() - begun, sum(os.times()[:4]) - spent
done.set()
thread.join()
memory = max(peak, own()) - before
print(json.dumps({"seconds": seconds, "cpu": cpu, "memory": memory, "characters": characters}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=list(LETTERS), choices=list(LETTERS))
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=list(SIDES))
    parser.add_argument("--folder", help="where to write the texts; they are deleted")
    options = parser.parse_args()
    rows = []
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            text = Path(folder) / "text.txt"
            write(text, LETTERS[kind], options.megabytes * 2**20)
            row = compared(text, options.rounds, options.sides)
        rows.append({"kind": kind, **row})
        told = (
            f"{side} {found['rate'] / 1e6:,.0f} MB/s, {found['memory'] / 2**20:,.0f} MB"
            for side, found in row.items()
        )
        print(f"{kind:10}", " · ".join(told), flush=True)
    print(json.dumps({"benchmark": "encode", "megabytes": options.megabytes, "rows": rows}))


def write(path: Path, letters: str, size: int) -> None:
    """Writes lines of words of these letters, in an order that does not repeat within a cache."""
    draw = random.Random(1)
    words = ["".join(draw.choices(letters, k=draw.randint(1, 10))) for _ in range(20_000)]
    lines = [
        " ".join(draw.choices(words, k=draw.randint(3, 20))) + draw.choice(".?!,:;") + "\n"
        for _ in range(50_000)
    ]
    with open(path, "wb") as file:
        written = 0
        while written < size:
            draw.shuffle(lines)
            written += file.write("".join(lines).encode())


def compared(text: Path, rounds: int, sides: list[str]) -> dict[str, dict[str, float]]:
    """Returns each side's medians: bytes a second, CPU seconds a gigabyte, peak memory in bytes."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    size = os.path.getsize(text)
    for _ in range(rounds):
        for side in sides:
            with tempfile.TemporaryDirectory(dir=text.parent) as folder:
                script = BEFORE + SIDES[side] + AFTER
                command = [sys.executable, "-c", script, str(text), folder]
                done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
            found[side].append(json.loads(done.stdout))
            time.sleep(0.5)  # time for the written bytes to reach the disk
    return {
        side: {
            "rate": round(statistics.median(size / one["seconds"] for one in each)),
            "cpu": round(statistics.median(one["cpu"] for one in each) / size * 1e9, 2),
            "memory": round(statistics.median(one["memory"] for one in each)),
        }
        for side, each in found.items()
    }


if __name__ == "__main__":
    main()
