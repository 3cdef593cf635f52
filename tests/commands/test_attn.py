"""`gptx attn`: views, files, refused options."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pages import payload_of
from program import Gptx


def test_output_to_a_device_writes_to_it(gptx: Gptx, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        assert gptx("attn", "the", "-o", str(pipe), "--format", "csv").code == 0
        assert read.result(timeout=60).startswith(b'"layer","head"')
    assert pipe.is_fifo()


def test_attn_without_arguments_shows_a_checked_matrix(gptx: Gptx, home: Path) -> None:
    answer = gptx("attn")
    assert answer.code == 0
    assert re.match(r"layer \d head \d · weights", answer.out)
    assert "✓" in answer.out.splitlines()[-1]
    assert "validation split" in answer.err
    for colour, coloured in (("never", False), ("always", True)):
        shown = gptx("attn", "the cat", "--view", "heat", "--color", colour).out
        assert ("\x1b[" in shown) == coloured


def test_attn_json_csv_and_npz_agree(gptx: Gptx, home: Path) -> None:
    text, head = "the cat", ("--layer", "1", "--head", "1")
    document = json.loads(gptx("attn", text, *head, "--format", "json").out)
    assert json.loads(gptx("attn", text, *head, "--json").out) == document
    rows = list(csv.DictReader(io.StringIO(gptx("attn", text, *head, "--format", "csv").out)))
    assert gptx("attn", text, "-o", "map.npz").code == 0
    with np.load(home / "map.npz", allow_pickle=False) as arrays:
        weights = arrays["weights"][1, 1]
    assert np.array_equal(np.float32(document["values"][0]), weights)
    for row in rows:
        assert np.float32(row["weight"]) == weights[int(row["q_pos"]), int(row["k_pos"])]
    assert len(rows) == len(text) * (len(text) + 1) // 2


@pytest.mark.parametrize(
    ("stage", "view"),
    [
        *(("scores", "heads"), ("scaled", "top"), ("masked", "numbers"), ("masked", "heat")),
        *(("weights", "heads"), ("weights", "top"), ("context", "heat"), ("concat", "numbers")),
    ],
)
def test_views_of_stages_fit_the_terminal(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, stage: str, view: str
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    answer = gptx("attn", "the cat", "--stage", stage, "--view", view)
    assert answer.code == 0, answer.err
    assert max(map(len, answer.out.splitlines())) <= 40


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--stage proj --head 1", "--stage proj: combines all heads"),
        ("--head rollout", "--head: 'rollout' is not all, mean or a number"),
        ("--view lens", "'lens' is not one of"),
        ("--step 4:8", "--step: '4:8' is neither best, last nor a step's number"),
        ("--step 4 -o x.html --open --format csv", "--open: opens the HTML page, not csv"),
        ("--query 3:1", "--query: '3:1' is empty"),
        ("--top x", "(see gptx attn --help)"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    gptx: Gptx, home: Path, arguments: str, problem: str
) -> None:
    answer = gptx("attn", "the cat", *arguments.split())
    assert (answer.code, answer.out) == (2, "")
    assert problem in answer.err
    assert not (home / "x.html").exists()


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (
            "--layer 1 -o whole.npz",
            "npz ignores --layer: it has all rows, columns and heads",
        ),
        (
            "--key 1 --query 2 -o whole.html",
            "html ignores --query, --key: it has all rows",
        ),
        ("--view heat -o whole.json", "--view heat only affects text output, not json"),
    ],
)
def test_an_option_without_effect_on_the_format_is_noted(
    gptx: Gptx, home: Path, arguments: str, note: str
) -> None:
    answer = gptx("attn", "the cat", *arguments.split())
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith(f"note: {note}")
    assert list(home.glob("whole.*"))


def test_the_name_of_the_output_selects_its_format(gptx: Gptx, home: Path) -> None:
    beginnings = {
        "page.html": b"<!doctype html>",
        "figure.svg": b"<?xml",
        "figure.png": b"\x89PNG",
        "figure.pdf": b"%PDF",
        "values.json": b"{",
        "values.csv": b'"layer"',
        "values.npz": b"PK",
        "values.txt": b"layer ",
    }
    for name, beginning in beginnings.items():
        answer = gptx("attn", "the cat", "-o", name)
        assert (answer.code, answer.out, answer.err) == (0, "", ""), name
        assert (home / name).read_bytes().lower().startswith(beginning.lower()), name
    assert gptx("attn", "the cat", "-o", "-").out == gptx("attn", "the cat").out
    assert not (home / "-").exists()
    (home / "link.json").symlink_to(home / "real.json")
    assert gptx("attn", "the cat", "-o", "link.json").code == 0
    assert (home / "link.json").is_symlink()
    assert json.loads((home / "real.json").read_text(encoding="utf-8"))["text"] == "the cat"


@pytest.mark.parametrize("options", [[], ["--layer", "0"], ["--head", "1"], ["--step", "4"]])
def test_every_form_shows_the_same_head(gptx: Gptx, home: Path, options: list[str]) -> None:
    line = ["attn", "the cat sat on", "--run", "corpus-1", *options]
    (shown,) = json.loads(gptx(*line, "--json").out)["panels"]
    rows = csv.DictReader(io.StringIO(gptx(*line, "--format", "csv").out))
    assert {(row["layer"], row["head"]) for row in rows} == {tuple(map(str, shown.values()))}
    title, why, *_ = gptx(*line).out.splitlines()
    assert title.startswith(f"layer {shown['layer']} head {shown['head']} · weights")
    assert why.endswith("; --layer and --head choose another")
    assert "choose another" not in gptx(*line, "--layer", "0", "--head", "0").out


def test_the_page_opens_at_the_text_and_the_head(gptx: Gptx, home: Path) -> None:
    for options, start in (
        (["--layer", "1", "--head", "0"], {"layer": 1, "head": 0}),
        ([], None),
        (["--head", "mean"], None),
    ):
        assert gptx("attn", "the cat", *options, "-o", "start.html").code == 0
        data = payload_of((home / "start.html").read_text("utf-8"))
        assert (data["text"], data["start"]) == ("the cat", start)


def test_all_of_heads_or_of_layers_is_every_head_of_every_layer(gptx: Gptx, home: Path) -> None:
    every = [{"layer": layer, "head": head} for layer in (0, 1) for head in (0, 1)]
    for option in ("--head", "--layer"):
        assert json.loads(gptx("attn", "cat", option, "all", "--json").out)["panels"] == every
    assert gptx("attn", "cat", "--head", "all", "-o", "heads.svg").code == 0
    assert "layers 0–1 · heads 0–1" in (home / "heads.svg").read_text(encoding="utf-8")
    one = json.loads(gptx("attn", "cat", "--head", "all", "--layer", "1", "--json").out)
    assert one["panels"] == every[2:]


def test_open_option_opens_the_page_in_a_browser(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = home / "attention.html"
    page.unlink(missing_ok=True)
    answer = gptx("attn", "the cat", "--open")
    assert (answer.code, opened) == (0, [page.as_uri()])
    assert answer.err == "page: attention.html (no browser found to open it)\n"
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    assert gptx("attn", "the cat", "--open").err == "page: attention.html\n"
    page.write_text("mine")
    answer = gptx("attn", "the cat", "--open")
    assert (answer.code, page.read_text()) == (2, "mine")
    assert "attention.html is not a page of gptx" in answer.err
    page.unlink()
    monkeypatch.setattr("webbrowser.open", opened.append)
    answer = gptx("attn", "the cat", "--open", "-o", "figure.svg")
    assert (answer.code, len(opened)) == (2, 1)
    assert "--open: opens the HTML page, not svg" in answer.err
