"""The texts of a run: what it was trained on, step by step, and what a question without a text is
about, in Python as on the command line.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, corpus_of, manifest_of
from program import Gptx

import gpt
from gpt.errors import ConfigError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.storage.runs import new_run
from gpt.training.events import Stepped
from gpt.training.trainer import Job, Trainer
from gpt.vocabulary import Ids

NOTE = 'no text given; from the validation split: "'


def read_in_training(trainer: Trainer) -> list[Ids]:
    """The ids that the model gets in each step of a training, its micro-batches in order."""
    steps, parts = list[Ids](), list[Ids]()

    def record(module: Any, given: Any) -> None:
        if module.training:
            (ids,) = given
            parts.append(ids.numpy().copy())

    trainer.model.register_forward_pre_hook(record)
    for event in trainer.events():
        if isinstance(event, Stepped):
            steps.append(np.concatenate(parts))
            parts.clear()
    return steps


@pytest.mark.parametrize("order", ["random", "epochs"])
def test_a_batch_is_what_the_training_read_in_its_step(tmp_path: Path, order: str) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    made = {"window_order": order, "micro_batch_size": 3, "steps": 5, "seed": 9}
    trainer = Trainer(new_run(tmp_path, "a", "a"), Job(corpus, manifest_of(corpus, made)))
    steps = read_in_training(trainer)
    run = gpt.load(tmp_path / "a", step="last")
    assert len(steps) == 5
    for number, given in enumerate(steps, start=1):
        ids = run.batch(number, data=tmp_path / "data")
        assert (ids.shape, ids.dtype) == ((4, 17), np.int64)
        np.testing.assert_array_equal(ids[:, :-1], given)
        text = run.text(data=tmp_path / "data")
        assert all(run.vocabulary.decode(row) in text for row in ids)
    assert run.text(data=tmp_path / "data") + run.text("val", data=tmp_path / "data") == TEXT
    assert run.heads(run.text("val", data=tmp_path / "data")).windows > 1


def test_a_text_or_batch_that_is_not_there_is_one_clear_line(tiny: Any, tmp_path: Path) -> None:
    run, alone = gpt.load(tiny.path), TrainedGPT(tiny.model())
    for ask in (alone.text, lambda: alone.batch(1)):
        with pytest.raises(TextError, match="a model file without its run, so its corpus is unkn"):
            ask()
    with pytest.raises(TextError):
        run.text(data=tmp_path / "nothing")
    with pytest.raises(ConfigError, match=r"split.*'test' is not train or val"):
        run.text("test")  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="step 0 is not in 1"):
        run.batch(0, data=tiny.path.parents[2] / "data")


def test_without_a_text_python_and_the_command_line_agree(
    gptx: Gptx, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = gpt.load(home / "checkpoints")
    text = run.example()

    def told(answer: Any) -> str:
        assert answer.code == 0, answer.err
        assert answer.err == f'no TEXT given; from the validation split: "{text}"\n'
        assert caplog.messages == [f'{NOTE}{text}"']
        caplog.clear()
        return str(answer.out)

    seen = run.attn()
    assert gptx("attn", "-o", "seen.npz").code == 0
    with np.load("seen.npz") as stored:
        for name in ("ids", "weights", "resid_mid"):
            np.testing.assert_array_equal(seen.to_numpy()[name], stored[name])
    found = json.loads(told(gptx("attn", "--head", "all", "--json")))
    np.testing.assert_allclose(found["values"][0], seen["weights", 0, 0], rtol=1e-6)
    expected = run.next(temperature=0.5)
    rows = json.loads(told(gptx("next", "--json", "--temperature", "0.5")))["rows"]
    np.testing.assert_allclose([row["expected"] for row in rows], np.sort(expected.expected)[::-1])
    acts = run.activations()
    np.testing.assert_array_equal(acts["weights"][0], seen["weights"])
    np.testing.assert_array_equal(run.logits(), acts["logits"])
    assert {*caplog.messages} == {f'{NOTE}{text}"'}
    caplog.clear()
    assert gptx("heads", "-o", "heads.csv").err == ""
    heads = run.heads()
    with open("heads.csv", encoding="utf-8") as file:
        table = [row for row in csv.reader(file) if not row[0].startswith("#")]
    sink = table[0].index("sink")
    found = {(int(row[0]), int(row[1])): float(row[sink]) for row in table[1:]}
    (values,) = [each.values for each in heads.measures if each.name == "sink"]
    for place, value in found.items():
        assert value == pytest.approx(values[place], rel=1e-6)
    assert caplog.messages == []


def test_heads_log_which_text_they_measure_if_the_run_has_none(
    tiny: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert "first" in TrainedGPT(tiny.model()).heads(windows=1).text
    assert "stored in the model file" in caplog.text
