"""`gptx attn`: views, files, refused options."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from program import Gptx


def test_attn_without_arguments_shows_a_checked_matrix(gptx: Gptx, home: Path) -> None:
    answer = gptx("attn")
    assert answer.code == 0
    assert re.match(r"“.*” · layer \d head \d: looks .* · adds most to '.' \(\+", answer.out)
    assert "float64 ±" in answer.out
    assert answer.out.splitlines()[-1].startswith("others: --view heads · --layer")
    assert len(answer.out.splitlines()) <= 22
    assert "validation split" in answer.err
    for colour, coloured in (("never", False), ("always", True)):
        shown = gptx("attn", "the cat", "--view", "heat", "--color", colour).out
        assert ("\x1b[" in shown) == coloured


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--stage proj --head 1", "--stage proj: combines all heads"),
        ("--head rollout", "--head: 'rollout' is not all, mean or a number"),
        ("--view lens", "'lens' is not one of"),
        ("--step 4:8", "--step: '4:8' is neither best, last nor a step's number"),
        ("--step 4 -o x.html --open --format csv", "--open: opens the HTML page, not csv"),
        ("--query 3:1", "--query: '3:1' selects nothing"),
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


def test_the_name_of_the_output_selects_its_format(gptx: Gptx, home: Path) -> None:
    beginnings = {
        "page.html": b"<!doctype html>",
        "figure.svg": b"<?xml",
        "figure.png": b"\x89PNG",
        "figure.pdf": b"%PDF",
        "values.json": b"{",
        "values.csv": b'"layer"',
        "values.npz": b"PK",
        "values.txt": "“".encode(),
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


@pytest.mark.parametrize("options", [{}, {"layer": 0}, {"head": 1}])
def test_the_head_that_adds_most_to_the_likeliest_character_is_shown(
    gptx: Gptx, home: Path, options: dict[str, int]
) -> None:
    line = ["attn", "the cat sat on", "--run", "corpus-1"]
    line += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    rows = json.loads(gptx("why", "the cat sat on", "--run", "corpus-1", "--json").out)["rows"]
    adds = Counter[tuple[int, int]]()
    for row in rows:
        if row["kind"] == "head" and all(row[name] == value for name, value in options.items()):
            adds[row["layer"], row["head"]] += row["adds"]
    layer, head = max(adds, key=lambda place: adds[place])
    shown = {"layer": layer, "head": head}
    assert json.loads(gptx(*line, "--json").out)["panels"] == [shown]
    assert f"· layer {layer} head {head}: looks " in gptx(*line).out
    table = csv.DictReader(io.StringIO(gptx(*line, "--format", "csv").out))
    assert {(row["layer"], row["head"]) for row in table} == {(str(layer), str(head))}


def test_open_option_opens_the_page_and_replaces_no_file_of_the_user(
    gptx: Gptx, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = home / "attention.html"
    answer = gptx("attn", "the cat", "--open")
    assert (answer.code, opened) == (0, [page.as_uri()])
    assert answer.err == "page: attention.html (no browser found to open it)\n"
    page.write_text("mine")
    answer = gptx("attn", "the cat", "--open")
    assert (answer.code, page.read_text()) == (2, "mine")
    assert "attention.html is not a page of gptx" in answer.err
