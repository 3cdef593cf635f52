"""`gptx circuits` and `run.circuit`: one table as text, data and figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from program import Gptx

import gpt
from gpt.errors import ConfigError, TextError


def test_a_circuit_is_the_same_table_everywhere(gptx: Gptx, home: Path) -> None:
    asked = ("circuits", "--of", "ov", "--layer", "1", "--head", "1", "--chars", "cat c")
    run = gpt.load("checkpoints")
    found = run.circuit("ov", 1, 1, chars="cat c")
    assert (found.text, found.values.shape) == ("cat ", (4, 4))
    whole, known = run.circuit("ov", 1, 1), run.vocabulary.encode("cat ")
    np.testing.assert_allclose(whole.values[np.ix_(known, known)], found.values, rtol=1e-9)
    record = json.loads(gptx(*asked, "--json").out)
    pairs = [(row["attended"], row["written"]) for row in record["rows"]]
    assert pairs == [(a, b) for a in "cat " for b in "cat "]
    np.testing.assert_allclose([row["value"] for row in record["rows"]], found.values.ravel())
    assert (record["of"], record["layer"], record["head"]) == ("ov", 1, 1)
    assert [check["passed"] for check in record["checks"]] == [True]
    assert gptx(*asked, "-o", "c.csv").out == ""
    with open(home / "c.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == [row["value"] for row in record["rows"]]
    drawn = gptx(*asked, "--digits", "3", "--ascii").out.splitlines()
    assert drawn[0].startswith(
        "direct path from the embedding, to the logits | layer 1 head 1 | ov"
    )
    assert drawn[2].split() == ["c", "a", "t", "\\s"]
    for line, name, values in zip(drawn[3:7], ("c", "a", "t", "\\s"), found.values, strict=True):
        assert line.split()[0] == name
        np.testing.assert_allclose([*map(float, line.split()[1:])], values, atol=6e-4)
    assert "table = what the head adds in texts ok" in " ".join(drawn)
    assert "<table" in str(found._repr_html_())


def test_top_names_the_strongest_characters_of_each(gptx: Gptx) -> None:
    found = gpt.load("checkpoints").circuit("qk", distance=2, chars="abcehmnot")
    command = "circuits --distance 2 --chars abcehmnot --view top --top 2".split()
    lines = [line for line in gptx(*command).out.splitlines() if "←" in line]
    for line, row in zip(lines, found.values, strict=True):
        first, second = (found.text[n] for n in np.argsort(-row, kind="stable")[:2])
        name, _, rest = line.partition(" ← ")
        assert name.strip("'") in found.text
        assert [each.split()[0].strip("'") for each in rest.split(" · ")] == [first, second]
    heat = gptx(*command[:-4], "--view", "heat").out
    assert "scale" in heat.splitlines()[0]


def test_the_most_frequent_characters_are_the_default(gptx: Gptx) -> None:
    excerpt = gpt.load("checkpoints").stored.excerpt
    signs = {"␠": " ", "⏎": "\n"}
    shown = [signs.get(each, each) for each in gptx("circuits").out.splitlines()[2].split()]
    assert (len(shown), shown) == (12, sorted(shown))
    least = min(map(excerpt.count, shown))
    assert all(excerpt.count(each) <= least for each in {*excerpt} - {*shown})
    file = json.loads(gptx("circuits", "--json").out)
    assert len(file["rows"]) == len({*excerpt}) ** 2


@pytest.mark.parametrize("form", ["svg", "png"])
def test_a_circuit_is_drawn_as_a_figure(gptx: Gptx, home: Path, form: str) -> None:
    pytest.importorskip("matplotlib")
    answer = gptx("circuits", "--chars", "cat", "-o", f"c.{form}")
    assert (answer.code, answer.out) == (0, "")
    data = (home / f"c.{form}").read_bytes()
    assert data.startswith({"svg": b"<?xml", "png": b"\x89PNG"}[form])


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ("--layer 7", 2, "--layer: 7 is not in 0 … 1"),
        ("--head 7", 2, "--head: 7 is not in 0 … 1"),
        ("--distance 16", 2, "--distance: 16 is not in 0 … 15"),
        ("--chars cß", 3, "--chars: 'ß' (U+00DF"),
        ("-o c.npz", 2, "--output: .npz is not one of"),
    ],
)
def test_what_there_is_not_is_refused(gptx: Gptx, options: str, code: int, problem: str) -> None:
    answer = gptx("circuits", *options.split())
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith(f"gptx: error: {problem}")
    assert answer.err.count("\n") == 1


def test_no_character_and_pairs_are_refused(gptx: Gptx) -> None:
    run = gpt.load("checkpoints")
    with pytest.raises(TextError, match="`chars`: give at least one character"):
        run.circuit(chars="")
    with pytest.raises(TextError, match="'ß'"):
        run.circuit(chars="cß")
    with pytest.raises(ConfigError, match="of: 'kq' is not one of qk, ov"):
        run.circuit("kq")  # type: ignore[arg-type]
    assert (
        gptx("circuits", "--chars", "").err == "gptx: error: --chars: give at least one character\n"
    )
