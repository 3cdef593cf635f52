"""`gptx import` makes a run that every command opens, and changes nothing when it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from foreign import write_nanogpt
from program import Gptx


@pytest.fixture
def foreign(home: Path) -> Path:
    """The checkpoints folder of these tests; nano/out/ckpt.pt has the characters of corpus.txt."""
    if not (home / "nano").exists():
        characters = sorted(set((home / "corpus.txt").read_text()))
        write_nanogpt(home / "nano", characters)
    return home / "foreign"


def test_every_command_opens_an_imported_model(gptx: Gptx, home: Path, foreign: Path) -> None:
    where = ["--checkpoints", str(foreign)]
    answer = gptx("import", "nano/out/ckpt.pt", *where)
    assert (answer.code, answer.out) == (0, "")
    assert "nanoGPT, ckpt.pt: iteration 300" in answer.err
    assert "letters-1" in answer.err
    assert "gptx sample --checkpoints" in answer.err
    sampled = gptx("sample", "--length", "20", "--prompt", "the", *where)
    assert sampled.out.startswith("the")
    text = "the cat sat"
    for command in (
        ["attn", text],
        ["attn"],
        ["next", text],
        ["heads"],
        ["eval", "held-out.txt"],
        ["live", text, "-o", "imported.html"],
        ["runs"],
        ["runs", "letters-1"],
        ["runs", "--json"],
    ):
        found = gptx(*command, *where)
        assert found.code == 0, (command, found.err)
    assert "characters that the model has written" in gptx("attn", *where).err
    assert "measuring on 1,000 characters that the model has written" in gptx("heads", *where).err
    story = gptx("runs", "letters-1", *where).out
    assert "from   nanoGPT, ckpt.pt: iteration 300" in story
    assert "learning_rate" not in story
    assert gptx("eval", *where).err.endswith(
        "letters-1 was imported without its text (gptx import … --corpus FILE); or give a text\n"
    )
    resumed = gptx("train", "--resume", *where)
    assert (resumed.code, resumed.out) == (2, "")
    assert "--resume: this run was imported without the state of its optimizer" in resumed.err


def test_imported_model_with_its_text_is_evaluated_on_nanogpts_split(
    gptx: Gptx, home: Path, foreign: Path
) -> None:
    where = ["--checkpoints", str(foreign)]
    answer = gptx(
        "import", "nano/out/ckpt.pt", "--corpus", "corpus.txt", "--run", "own", "--json", *where
    )
    text = (home / "corpus.txt").read_text()
    validation = text[int(0.9 * len(text)) :]
    record = json.loads(answer.out)
    assert record["run"] == "own"
    assert record["corpus"] == ["corpus.txt"]
    assert record["val_characters"] == len(validation) - 1
    (home / "validation.txt").write_text(validation)
    split = json.loads(gptx("eval", "--run", "own", "--json", *where).out)
    file = json.loads(gptx("eval", "validation.txt", "--run", "own", "--json", *where).out)
    assert split["nats"] == file["nats"]
    assert split["counting"] is None  # an imported run has no baseline
    assert "corpus.txt: " in gptx("runs", "own", *where).out
    assert gptx("sample", "--novelty", "--length", "9", "--run", "own", *where).code == 0
