"""`gptx runs`: the table, the details of one run, the pinned one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from program import TINY, Gptx

import gpt


def test_runs_lists_runs_and_shows_one(gptx: Gptx) -> None:
    title, _, header, row, *_ = gptx("runs").out.splitlines()
    assert title == "1 run"
    assert header.split() == ["run", "saved", "trained", "loss", "counting", "text"]
    assert row.startswith("corpus-1 ")
    story = gptx("runs", "corpus-1").out
    assert len(story.splitlines()) <= 24
    assert story.startswith("corpus-1 · step 8 of 8 · ")
    assert "n_layer" not in story
    every = gptx("runs", "corpus-1", "--options").out
    assert every.splitlines()[0] == story.splitlines()[0]
    assert "n_layer" in every


def test_json_of_runs_has_options_evaluations_and_logs(gptx: Gptx, home: Path) -> None:
    (home / "日本語.txt").write_bytes((home / "corpus.txt").read_bytes())
    here = ("--checkpoints", "several")
    for name, corpus in (("one", "corpus.txt"), ("other", "日本語.txt")):
        assert gptx("train", corpus, *TINY, "--run", name, *here).code == 0
    for line in gptx("runs", "--json", *here).out.splitlines():
        record = json.loads(line)
        assert record["options"]["steps"] == 8
        assert [row["step"] for row in record["rows"]] == [4, 8]
        assert min(row["val"] for row in record["rows"]) == pytest.approx(record["val_nats"])
    other = json.loads(gptx("runs", "other", "--json", *here).out)
    assert other["corpus"]["sources"] == ["日本語.txt"]
    assert [line["step"] for line in other["metrics"]] == [4, 8]
    assert {"step", "text"} <= other["samples"][0].keys()
    (home / "several/one/step-00000008/manifest.json").write_text("{")
    damaged = gptx("runs", *here)
    assert damaged.err.startswith("warning: damaged, or not a gptx checkpoint: several/one/")
    assert (damaged.code, damaged.out.splitlines()[0]) == (0, "1 run")


def test_a_pinned_run_comes_before_the_newest(gptx: Gptx, home: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(home / "checkpoints/corpus-1", home / "pinned" / name)
    here = ("--checkpoints", "pinned")
    newest = "a" if gptx("next", "the", *here).err.startswith("run: a,") else "b"
    other = "ab".replace(newest, "")
    assert f"commands now open {other};" in gptx("runs", "--use", other, *here).err
    assert gptx("next", "the", *here).err.startswith(f"run: {other}, pinned")
    assert gpt.load("pinned").name == other
    assert f"{other} (pinned)" in gptx("runs", *here).out
    assert gptx("runs", "--use", "nobody", *here).code == 4
    answer = gptx("runs", "--use", "newest", *here)
    assert f"commands now open the newest run again, which is {newest};" in answer.err
    assert gpt.load("pinned").name == newest
    gptx("runs", "--use", other, *here)
    shutil.rmtree(home / "pinned" / other)
    assert gpt.load("pinned").name == newest
