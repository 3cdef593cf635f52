"""`gptx runs`: the table, the details of one run, --verify."""

from __future__ import annotations

import json
from pathlib import Path

from program import TINY, Gptx


def test_runs_lists_runs_and_shows_one(gptx: Gptx) -> None:
    table = gptx("runs").out
    assert table.splitlines()[0].split()[:2] == ["run", "step"]
    assert "corpus-1" in table
    story = gptx("runs", "corpus-1").out
    for word in ("n_layer", "loss", "step 4", "step 8", "Transformer blocks."):
        assert word in story


def test_runs_verify_detects_a_changed_byte(gptx: Gptx, home: Path) -> None:
    where = ("--checkpoints", "verified")
    assert gptx("train", "corpus.txt", *TINY, *where).code == 0
    whole = gptx("runs", "--verify", *where)
    assert (whole.code, whole.out.splitlines()[-1]) == (0, "corpus-1  step 8  whole")
    state = next((home / "verified").glob("*/step-00000008/state.safetensors"))
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    damaged = gptx("runs", "corpus-1", "--verify", "--json", *where)
    assert damaged.code == 4
    assert "1 of 2 checkpoints damaged; gptx train --resume" in damaged.err
    records = [json.loads(line) for line in damaged.out.splitlines()]
    assert [(record["step"], record["whole"]) for record in records] == [(4, True), (8, False)]
    assert str(state.name) in records[1]["problem"]


def test_runs_shows_the_whole_lines_of_a_damaged_log(gptx: Gptx, home: Path) -> None:
    logs = [home / "checkpoints/corpus-1" / name for name in ("metrics.jsonl", "samples.jsonl")]
    whole = [path.read_bytes() for path in logs]
    try:
        for path, data in zip(logs, whole, strict=True):
            path.write_bytes(b"[" * 100_000 + b"\nnull\n" + data)
        answer = gptx("runs", "corpus-1")
        assert answer.code == 0
        assert answer.err.count("2 damaged lines left out") == 2
        assert "●" in answer.out
    finally:
        for path, data in zip(logs, whole, strict=True):
            path.write_bytes(data)
