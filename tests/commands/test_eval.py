"""`gptx eval`: training's number again, every character, two models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from program import Gptx


def test_eval_repeats_the_validation_loss_of_training(gptx: Gptx) -> None:
    evaluated = json.loads(gptx("eval", "--json").out)
    trained = json.loads(gptx("runs", "--json").out.splitlines()[-1])
    assert evaluated["nats"] == pytest.approx(trained["val_nats"], abs=1e-6)
    assert evaluated["bits"] == pytest.approx(evaluated["nats"] / np.log(2))


def test_eval_colours_every_character_and_lists_the_worst(gptx: Gptx) -> None:
    text = Path("corpus.txt").read_text(encoding="utf-8")
    answer = gptx("eval", "corpus.txt", "--chars", "--worst", "3")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert answer.out.split("\n")[0].startswith(text.split("\n")[0])
    assert answer.out.count(" bits · ") == 3
    assert "\x1b[" in gptx("eval", "corpus.txt", "--chars", "--color", "always").out
    record = json.loads(gptx("eval", "corpus.txt", "--chars", "--json").out)
    bits = [each["bits"] for each in record["per_character"]]
    assert len(bits) == len(text) - 1
    assert np.mean(bits) == pytest.approx(record["bits"], rel=1e-6)
    assert json.loads(gptx("eval", "--chars", "--json").out)["text"] == "validation split"


def test_eval_compares_two_models_on_the_same_text(gptx: Gptx) -> None:
    answer = gptx("eval", "corpus.txt", "--against", "corpus-1:4", "--run", "corpus-1")
    assert answer.code == 0
    assert re.search(r"corpus.txt: step 8 \d.*, step 4 \d.* nats a character · diff", answer.out)
    both = json.loads(gptx("eval", "--against", "corpus-1", "--run", "corpus-1", "--json").out)
    assert (both["difference"], both["error"], both["size"]) == (0, 0, 16)
    assert both["first"] == pytest.approx(json.loads(gptx("eval", "--json").out)["nats"], abs=1e-6)
    assert gptx("eval", "--against", "none").code == 4
    assert gptx("eval", "--against", "corpus-1", "--chars").code == 2


def test_eval_reads_files_and_pipes(gptx: Gptx) -> None:
    by_file = gptx("eval", "corpus.txt").out.split(": ")[1]
    by_pipe = gptx("eval", "-", stdin=Path("corpus.txt").read_bytes()).out.split(": ")[1]
    assert by_file == by_pipe
