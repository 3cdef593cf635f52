"""A run with counting: what is held out, what is stored, and that all its losses agree."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT, corpus_of, manifest_of

import gpt
from gpt.config import ModelConfig, TrainConfig
from gpt.counting import tables
from gpt.counting.held_out import HeldOut
from gpt.counting.mixture import Array, Expert
from gpt.counting.tables import count
from gpt.errors import NumericsError
from gpt.model import GPT, initialise
from gpt.reading.score import character_surprisals
from gpt.storage.run import Run
from gpt.storage.runs import new_run
from gpt.training.counting import Counting
from gpt.training.evaluation import Span, predict_span
from gpt.training.events import Evaluated, Saved
from gpt.training.optim import Optimizer
from gpt.training.step import IGNORED, _mean_loss, batch_rows, train_step
from gpt.training.trainer import Job, Trainer
from gpt.vocabulary import Ids

LONG = TEXT + "a rat on a mat, a cat on a hat.\nthe hat sat.\n" * 60


def trained(folder: Path, **options: Any) -> tuple[Run, Trainer, list[Evaluated]]:
    corpus = corpus_of(LONG, folder)
    run = new_run(folder / "checkpoints", "counting")
    manifest = manifest_of(corpus, options.pop("train", None), counting=5, **options)
    trainer = Trainer(run, Job(corpus, manifest))
    events = [event for event in trainer.events() if isinstance(event, Evaluated)]
    return run, trainer, events


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Trainer, list[Evaluated]]:
    return trained(tmp_path_factory.mktemp("counting"))


def test_the_loss_of_both_is_below_that_of_the_gpt(
    made: tuple[Run, Trainer, list[Evaluated]],
) -> None:
    _, trainer, events = made
    for event in events:
        assert event.gpt_loss is not None
        assert event.val_loss < event.gpt_loss - 0.1
    assert trainer.manifest.gpt_loss == events[-1].gpt_loss


def test_a_file_scores_as_training_did(made: tuple[Run, Trainer, list[Evaluated]]) -> None:
    run, trainer, events = made
    found = gpt.load(run.path).eval(np.asarray(trainer.val)).score
    assert found.nats == pytest.approx(events[-1].val_loss, abs=1e-5)
    assert found.gpt == pytest.approx(events[-1].gpt_loss, abs=1e-5)
    assert found.counting is not None
    assert found.nats < found.counting + 0.02


def test_surprisals_predictions_and_scores_agree(
    made: tuple[Run, Trainer, list[Evaluated]],
) -> None:
    model = gpt.load(made[0].path)
    text = LONG[-200:]
    score = model.eval(text).score
    ids = model.vocabulary.encode(text)
    surprisals = character_surprisals(model.reader, ids, model.mixture)
    assert surprisals.score.nats == pytest.approx(score.nats, abs=1e-6)
    overlapping = model.eval(text, chars=True).surprisals
    for place in (30, 100, 198):
        found = model.next(text[: place + 1], temperature=1.0)
        came = model.vocabulary.encode(text[place + 1])[0]
        if (place + 1) % 8 == 0:  # the sampler's window is the same there
            assert -np.log(found.expected[came]) == pytest.approx(overlapping.nats[place], abs=1e-5)
        experts = found.experts
        assert experts is not None
        product = experts.gpt ** experts.weights[0] * experts.counting ** experts.weights[1]
        assert found.expected == pytest.approx(product / product.sum(), abs=1e-9)


def test_the_stored_tables_count_the_whole_split(
    made: tuple[Run, Trainer, list[Evaluated]],
) -> None:
    run, trainer, _ = made
    model = gpt.load(run.path)
    train_ids, _ = trainer.corpus.split(0.1, 16)
    held = HeldOut.of(len(train_ids), len(model.vocabulary))
    assert held.length > 0
    expected = count(train_ids, len(model.vocabulary), 5).packed()
    assert model.stored.counting is not None
    for name, array in expected.items():
        assert np.array_equal(model.stored.counting[name], array)


def test_the_gate_is_fitted_with_counts_of_text_apart_from_the_held_out_pieces(
    made: tuple[Run, Trainer, list[Evaluated]],
) -> None:
    run, trainer, _ = made
    counting, size = trainer.counting, trainer.counting.config.vocab_size
    held, stored = counting.held, gpt.load(run.path).stored.counting
    assert held is not None
    assert stored is not None

    def fitted(text: Ids) -> Array:
        expert = Expert(count(text, size, 5), size)
        histories = expert.trie.histories_at(counting.ids, held.starts, held.length)
        logs = np.log(expert.predict(histories))
        return counting._fitted(trainer.kept, "cpu", held, logs)

    assert stored["gate"] == pytest.approx(fitted(held.apart(counting.ids)), rel=1e-5)
    assert stored["gate"] != pytest.approx(fitted(counting.ids), rel=1e-3)


def test_the_gpt_predicts_the_held_out_text_and_no_other(
    made: tuple[Run, Trainer, list[Evaluated]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, trainer, _ = made
    counting, held = trainer.counting, trainer.counting.held
    assert held is not None
    places = []

    def predict(model: GPT, ids: Ids, span: Span, device: str) -> Any:
        places.append((span[0][:, None] + 1 + np.arange(span[1])).ravel())
        return predict_span(model, ids, span, device)

    monkeypatch.setattr("gpt.training.counting.predict_span", predict)
    assert counting.experts is not None
    counting._fitted(trainer.kept, "cpu", held, counting.experts.held)
    predicted = np.concatenate(places)
    assert held.contains(predicted).all()
    assert {*held.starts.tolist()} <= {*predicted.tolist()}


def test_greedy_sampling_takes_the_likeliest_of_both_past_the_context(
    made: tuple[Run, Trainer, list[Evaluated]],
) -> None:
    model = gpt.load(made[0].path)
    text = model.sample("the cat", length=40, temperature=0)
    for place in range(7, 47):
        found = model.next(text[:place])
        assert found.expected.argmax() == model.vocabulary.encode(text[place])[0]


def test_metrics_record_the_loss_of_the_gpt_alone(
    made: tuple[Run, Trainer, list[Evaluated]],
) -> None:
    run, _, events = made
    text = (run.path / "metrics.jsonl").read_text()
    lines = [line for line in text.splitlines() if "val_loss" in line]
    assert [json.loads(line)["gpt_loss"] for line in lines] == [event.gpt_loss for event in events]


def test_the_last_evaluation_of_all_measures_both(tmp_path: Path) -> None:
    run, trainer, _ = trained(tmp_path, train={"eval_chars": 64})
    manifest = trainer.manifest
    assert manifest.final_loss is not None
    model = gpt.load(run.path)
    found = model.eval(np.asarray(trainer.val)).score
    assert manifest.final_loss == pytest.approx(found.nats, abs=1e-5)
    assert manifest.gpt_loss == pytest.approx(found.gpt, abs=1e-5)


def test_held_out_targets_are_ignored_and_no_others() -> None:
    config = TrainConfig(batch_size=4, steps=1)
    ids = np.arange(4000, dtype=np.uint16) % 7
    held = HeldOut.of(len(ids), 7)
    seen = 0
    for step in range(40):
        order = (ids.astype("u1"), config, step, 16, slice(0, 4))
        inputs, plain = batch_rows(*order)
        same, targets = batch_rows(*order, held)
        assert np.array_equal(inputs, same)
        ignored = targets == IGNORED
        assert np.array_equal(targets[~ignored], plain[~ignored])
        seen += int(ignored.sum())
    assert 0.02 < seen / (40 * 4 * 16) < 0.1


def test_the_loss_of_a_step_is_the_sum_over_the_expected_number_of_targets() -> None:
    logits = torch.randn(2, 16, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(32).reshape(2, 16) % 7
    targets[0, :8] = IGNORED
    held = HeldOut(start=0, period=100, length=5, end=800)  # a twentieth
    chosen = logits.log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    expected = -float(chosen[targets != IGNORED].sum()) / (32 * 0.95)
    assert float(_mean_loss(logits, targets, held)) == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_a_step_does_not_depend_on_micro_batches() -> None:
    losses = []
    ids = np.random.default_rng(0).integers(0, 7, 4000).astype(np.uint8)
    for size in (0, 1, 3):
        model = GPT(ModelConfig(vocab_size=7, block_size=16, n_layer=1, n_head=1, n_embd=8))
        config = TrainConfig(batch_size=8, steps=1, micro_batch_size=size)
        initialise(model, 1)
        held = HeldOut.of(len(ids), 7)
        found = [
            train_step(model, Optimizer(model, config), ids, config, step, held=held)[0]
            for step in range(4)
        ]
        losses.append(found)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_a_step_whose_targets_are_all_held_out_has_no_loss_and_no_gradient() -> None:
    model = GPT(ModelConfig(vocab_size=7, block_size=16, n_layer=1, n_head=1, n_embd=8))
    config = TrainConfig(batch_size=4, steps=1)
    initialise(model, 1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    everything = HeldOut(start=0, period=500, length=499, end=4000)  # all but eight characters
    ids = np.arange(4000, dtype=np.uint8) % 7
    loss, norm = train_step(
        model, Optimizer(model, replace(config, weight_decay=0.0)), ids, config, 0, held=everything
    )
    assert (loss, norm) == (0.0, 0.0)
    for one, other in zip(before, model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_text_with_too_many_n_grams_is_counted_with_fewer_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_GRAMS", 150)
    run, trainer, events = trained(tmp_path)
    model = gpt.load(run.path)
    assert model.mixture is not None
    trie = model.mixture.expert.trie
    assert (trainer.manifest.model.counting, trie.orders) == (5, 3)
    found = model.eval(np.asarray(trainer.val)).score
    assert found.nats == pytest.approx(events[-1].val_loss, abs=1e-5)
    assert model.sample("the ", length=40, n=2, seed=1)[0] == model.sample(
        "the ", length=40, seed=1
    )
    greedy = model.sample("the cat", length=1, temperature=0)[-1]
    likeliest = model.next("the cat").expected.argmax()
    assert greedy == model.vocabulary.characters[likeliest]


def test_a_text_shorter_than_its_n_grams_has_not_too_many() -> None:
    shape = {"vocab_size": 7, "block_size": 4, "n_layer": 1, "n_head": 1, "n_embd": 8}
    ids = np.arange(5, dtype=np.uint8)
    assert Counting(ids, ModelConfig(**shape, counting=9)).note == ""
    assert Counting(ids, ModelConfig(**shape, counting=0)).note == ""


def test_a_text_too_short_to_hold_anything_out_still_trains(tmp_path: Path) -> None:
    corpus = corpus_of("the cat sat on the mat. " * 5, tmp_path)
    run = new_run(tmp_path / "checkpoints", "short")
    options = manifest_of(corpus, counting=8, block_size=8)
    trainer = Trainer(run, Job(corpus, options))
    list(trainer.events())
    assert trainer.counting.note == ""
    found = gpt.load(run.path).eval("the mat sat on the cat. ").score
    assert found.gpt is not None
    assert found.nats < found.gpt


def test_weights_that_are_not_finite_end_with_an_error_of_numbers(tmp_path: Path) -> None:
    corpus = corpus_of(LONG, tmp_path)
    run = new_run(tmp_path / "checkpoints", "broken")
    trainer = Trainer(run, Job(corpus, manifest_of(corpus, counting=5)))

    def breaking() -> None:
        for event in trainer.events():
            if isinstance(event, Saved):
                with torch.no_grad():
                    trainer.model.lm_head.weight[0, 0] = math.nan

    with pytest.raises(NumericsError, match="not a finite number"):
        breaking()
