"""`run.eval` and `run.novelty` give what `gptx eval` and `gptx sample --novelty` show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drawn import shown
from program import Gptx

import gpt
from gpt.show.result import to_record


def record_of(found: Any) -> dict[str, Any]:
    """The evaluation of a text that has no file."""
    record = to_record(found)
    return record | {"scored": "corpus.txt"} if record["split"] is None else record


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ("", {}),
        ("--chars", {"chars": True}),
        ("--unknown skip", {"unknown": "skip"}),
    ],
)
def test_python_evaluates_as_the_command_does(
    gptx: Gptx, options: str, keywords: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    run = gpt.load("checkpoints")
    for file in ([], ["corpus.txt"]):
        told = gptx("eval", *file, *options.split())
        record = json.loads(gptx("eval", *file, *options.split(), "--json").out)
        text = Path(file[0]).read_text(encoding="utf-8") if file else None
        caplog.clear()
        found = run.eval(text, **keywords)
        origin = {name: record.pop(name) for name in ("run", "step", "checkpoint", "device")}
        assert origin == {**run.stored.origin, "device": "cpu"}
        assert record_of(found) == record
        lines = [line.replace("the text · ", "corpus.txt · ") for line in shown(found)]
        assert lines == told.out.splitlines()
        assert len(repr(found)) < 200
        assert found._repr_html_()
    warned = [line.replace("the text", "corpus.txt", 1) for line in caplog.messages]
    assert "".join(f"{line}\n" for line in warned) == told.err


def test_python_finds_the_copies_that_the_command_finds(gptx: Gptx) -> None:
    asked = ("sample", "the c", "--length", "40", "--seed", "1", "--novelty", "--json")
    record = json.loads(gptx(*asked).out)
    run = gpt.load("checkpoints")
    (found,) = run.novelty([record["text"][5:]])
    sampled = run.sample("the c", length=40, seed=1)  # whose prompt does not count
    assert run.novelty([sampled]) == [found]
    assert run.novelty([]) == []
    assert found.record == record["novelty"] | {"start": record["novelty"]["start"] - 5}
    assert gptx(*asked[:-1]).err == f"{found}\n"
