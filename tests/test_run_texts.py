"""The texts of a run: what it was trained on, step by step, and what a question without a text is
about, in Python as on the command line.
"""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT, corpus_of, manifest_of
from encoded import encoded_file
from program import Gptx

import gpt
from gpt.errors import ConfigError, TextError
from gpt.interface.trained import TrainedGPT
from gpt.storage.runs import new_run
from gpt.training.events import Stepped
from gpt.training.trainer import Trainer

NOTE = 'no text given; from the validation split: "'


def read_in_training(trainer: Trainer) -> list[dict[str, Any]]:
    """What the model gets in each step of a training, its micro-batches in order."""
    steps: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []

    def record(module: Any, _: Any, given: dict[str, Any]) -> None:
        if module.training:
            parts.append({name: each.numpy().copy() for name, each in given.items()})

    trainer.model.register_forward_pre_hook(record, with_kwargs=True)
    for event in trainer.events():
        if isinstance(event, Stepped):
            steps.append({n: np.concatenate([part[n] for part in parts]) for n in parts[0]})
            parts.clear()
    return steps


@pytest.mark.parametrize("order", ["random", "epochs"])
def test_a_batch_is_what_the_training_read_in_its_step(tmp_path: Path, order: str) -> None:
    corpus = corpus_of(TEXT, tmp_path)
    made = {"window_order": order, "micro_batch_size": 3, "steps": 5, "seed": 9}
    trainer = Trainer(new_run(tmp_path, "a", "a"), corpus, manifest_of(corpus, made), "cpu")
    steps = read_in_training(trainer)
    run = gpt.load(tmp_path / "a", step="last")
    assert len(steps) == 5
    for number, given in enumerate(steps, start=1):
        ids = run.batch(number, data=tmp_path / "data")
        assert isinstance(ids, np.ndarray)
        assert (ids.shape, ids.dtype) == ((4, 17), np.int64)
        np.testing.assert_array_equal(ids[:, :-1], given["ids"])
        text = run.text(data=tmp_path / "data")
        assert all(run.vocabulary.decode(row) in text for row in ids)
    assert run.text(data=tmp_path / "data") + run.text("val", data=tmp_path / "data") == TEXT
    assert run.heads(run.text("val", data=tmp_path / "data")).windows > 1


def test_a_batch_of_pairs_has_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "".join(f"{n * n}\t{n}\n" for n in range(40))
    kept: list[Trainer] = []
    init = Trainer.__init__

    def remember(self: Trainer, *given: Any, **more: Any) -> None:
        init(self, *given, **more)
        kept.append(self)

    monkeypatch.setattr(Trainer, "__init__", remember)
    shape = {"encoder_layers": 1, "n_layer": 1, "n_head": 1, "n_embd": 8, "batch_size": 6}
    events = gpt.train_events(text=text, steps=3, **shape)
    given: list[dict[str, Any]] = []

    def record(module: Any, _: Any, found: dict[str, Any]) -> None:
        if module.training:
            given.append(found)

    for _ in events:
        if kept and not kept[0].model._forward_pre_hooks:
            kept[0].model.register_forward_pre_hook(record, with_kwargs=True)
    run = gpt.load("checkpoints", step="last")
    assert len(given) == 3
    for step, found in enumerate(given, start=1):
        batch = run.batch(step)
        assert not isinstance(batch, np.ndarray)
        for name, mine in (("ids", batch.inputs), ("source", batch.source), ("seen", batch.seen)):
            assert torch.equal(torch.from_numpy(mine), found[name])
    lines = run.text().splitlines() + run.text("val").splitlines()
    assert sorted(lines) == sorted(text.splitlines())


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
    lens = run.lens(seen)
    found = json.loads(told(gptx("attn", "--view", "lens", "--json")))
    assert found["lens"][0]["probability"] == pytest.approx(lens.probabilities[0, 0, 0])
    np.testing.assert_array_equal(run.lens().ids, lens.ids)
    caplog.clear()
    expected = run.next(temperature=0.5)
    rows = json.loads(told(gptx("next", "--json", "--temperature", "0.5")))["rows"]
    np.testing.assert_allclose([row["expected"] for row in rows], np.sort(expected.expected)[::-1])
    for one, two in zip(run.measures(), run.measures(seen), strict=True):
        np.testing.assert_array_equal(one.values, two.values)
    acts = run.activations()
    np.testing.assert_array_equal(acts["weights"][0], seen["weights"])
    np.testing.assert_array_equal(run.logits(), acts["logits"])
    (batch,) = run.activation_batches()
    np.testing.assert_array_equal(batch["q"], acts["q"])
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


def test_a_model_with_an_encoder_shows_its_first_pair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    run = gpt.load(encoded_file(tmp_path / "pairs.safetensors"))
    pair = run.example()
    source, target = pair.split("\t")
    seen = run.attn()
    assert (seen.columns, seen.text) == (source, f"\t{target}")
    np.testing.assert_array_equal(run.next().expected, run.next(pair).expected)
    assert caplog.messages == [f'{NOTE}{pair}"'] * 2
