"""Training on pairs: the loss, several parts and ranks, stopping and resuming, options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import manifest_of
from paired import read, sides
from ranked import on_ranks

import gpt
from gpt.config import ModelConfig
from gpt.config.fields import only_fields
from gpt.config.train import TrainConfig
from gpt.corpus.halves import predicted_characters, split_corpus
from gpt.corpus.pair_batches import PairLines
from gpt.errors import ConfigError, TextError
from gpt.model import GPT, initialise
from gpt.storage.manifest import Manifest
from gpt.storage.run import MODEL, STATE, Run
from gpt.storage.runs import new_run
from gpt.training import ranks
from gpt.training.evaluation import evaluate
from gpt.training.events import Evaluated, Event, Stepped, Stopped
from gpt.training.fit import Recipe, most_epochs
from gpt.training.plan import Machine, make_plan
from gpt.training.trainer import Trainer

#: Numbers of one to three digits and their words; lines of different lengths.
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LINES = [(str(n * 7), " ".join(DIGITS[int(each)] for each in str(n * 7))) for n in range(60)]
TEXT = "".join(f"{source}\t{target}\n" for source, target in LINES)
SHAPE: dict[str, Any] = {"encoder_layers": 1, "block_size": 20, "position": "sinusoidal"}
OPTIONS: dict[str, Any] = {"steps": 12, "batch_size": 7, "split": "every:6"}


def trainer_of(
    folder: Path, checkpoint: Any = None, name: str = "pairs", **options: Any
) -> Trainer:
    """A trainer of 12 steps on TEXT, evaluated at steps 6 and 12."""
    given = {**OPTIONS, **only_fields(TrainConfig, options)}
    corpus = read(folder / f"corpus-{ranks.rank()}", TEXT, split=given["split"])
    shape = {**SHAPE, **{name: it for name, it in options.items() if name not in given}}
    manifest = manifest_of(corpus, given, **shape)
    if checkpoint is not None:
        manifest = checkpoint.manifest
    val = split_corpus(corpus, manifest.train, pairs=True)[1]
    manifest = replace(manifest, val_characters=predicted_characters(val), mean_length=9.0)
    run = Run(folder / "checkpoints" / name)
    if checkpoint is None and ranks.is_first():
        run = new_run(folder / "checkpoints", name, name)
    return Trainer(run, corpus, manifest, "cpu", None, checkpoint)


def finish(trainer: Trainer, stop_after: int | None = None) -> list[Event]:
    events: list[Event] = []
    for event in trainer.events():
        events.append(event)
        if isinstance(event, Stepped) and event.step == stop_after:
            trainer.stop("SIGTERM")
    return events


def saved(run: Run) -> tuple[bytes, bytes]:
    last = run.last()
    return (last.path / MODEL).read_bytes(), (last.path / STATE).read_bytes()


def test_the_loss_is_the_mean_over_the_target_characters_of_all_lines(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    assert isinstance(trainer.val, PairLines)
    pairs, total, count = trainer.val.pairs, 0.0, 0
    for line in trainer.val.lines.tolist():
        source, target = sides(pairs, line)
        tab = pairs.ids[pairs.tabs[line]]
        given = np.append(tab, target), source, np.append(target, pairs.last)
        ids, read, expected = (torch.from_numpy(each.astype(np.int64)) for each in given)
        with torch.no_grad():
            logits = trainer.model(ids[None], source=read[None])[0]
        total += float(F.cross_entropy(logits, expected, reduction="sum"))
        count += len(expected)
    assert (
        count
        == predicted_characters(trainer.val)
        == sum(len(LINES[n][1]) + 1 for n in range(5, 60, 6))
    )
    found = evaluate(trainer.model, trainer.val, "cpu")
    assert found.nats == pytest.approx(total / count, rel=1e-5)


def test_training_learns_from_the_source(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, steps=60, learning_rate=1e-2)
    losses = [event.val_loss for event in finish(trainer) if isinstance(event, Evaluated)]
    assert losses[-1] < 0.75 * losses[0]
    changed = trainer.model.encoder.blocks[0].attention.qkv.weight.detach()
    start = GPT(trainer.manifest.model)
    initialise(start, trainer.config.seed)
    assert not torch.equal(changed, start.encoder.blocks[0].attention.qkv.weight)


def test_stopping_and_resuming_changes_no_bit(tmp_path: Path) -> None:
    options = {"dropout": 0.2, "average": 0.9}
    straight = trainer_of(tmp_path / "straight", **options)
    finish(straight)
    trainer = trainer_of(tmp_path / "parts", **options)
    for stop in (3, 8):
        assert finish(trainer, stop)[-1] == Stopped(stop, "SIGTERM")
        trainer = trainer_of(tmp_path / "parts", checkpoint=trainer.run.last(), **options)
    assert finish(trainer)[-1] == Stopped(12, "finished")
    assert saved(trainer.run) == saved(straight.run)


def weights(trainer: Trainer) -> dict[str, Any]:
    return {name: it.numpy() for name, it in trainer.model.stored_parameters().items()}


def test_parts_of_a_batch_learn_the_same_as_the_whole(tmp_path: Path) -> None:
    whole, parts = trainer_of(tmp_path / "a"), trainer_of(tmp_path / "b", micro_batch_size=2)
    for trainer in (whole, parts):
        finish(trainer)
    for name, expected in weights(whole).items():
        np.testing.assert_allclose(weights(parts)[name], expected, rtol=0, atol=2e-4)


def learn(folder: Path) -> Any:
    trainer = trainer_of(folder, name=str(ranks.world_size()))
    events = finish(trainer)
    return weights(trainer), [it.val_loss for it in events if isinstance(it, Evaluated)]


def test_two_ranks_learn_the_same_as_one_process(tmp_path: Path) -> None:
    ((alone, losses),) = on_ranks(1, learn, tmp_path)
    for found, others in on_ranks(2, learn, tmp_path):
        np.testing.assert_allclose(others, losses, rtol=1e-4)
        for name, expected in alone.items():
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=2e-4)


def train(folder: Path, text: str = TEXT, name: str = "pairs.tsv", **options: Any) -> Any:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode())
    given = {"steps": 4, "n_embd": 16, "n_head": 2, "n_layer": 1, "progress": False}
    folders = {"checkpoints": folder / "checkpoints", "data": folder / "data"}
    return gpt.train(str(folder / name), **{**given, **folders, **options})


def test_a_file_of_pairs_trains_an_encoder_and_a_decoder(tmp_path: Path) -> None:
    run = train(tmp_path, encoder_layers=1)
    assert run.has_encoder
    assert run.config.block_size == max(len(target) + 1 for _, target in LINES)
    assert run.config.counting == 0
    assert len(run.answers(["7", "413"])) == 2
    assert run.stored.excerpt.count("\t") == run.stored.excerpt.count("\n") > 0
    stored = Run(run.path).last().manifest
    assert isinstance(stored, Manifest)
    again = gpt.resume(run.path, steps=6, data=tmp_path / "data", progress=False)
    assert Run(again.path).last().manifest.step == 6


def test_any_text_is_pairs_with_an_encoder_and_none_without(tmp_path: Path) -> None:
    assert train(tmp_path / "a", name="pairs.txt", encoder_layers=1).has_encoder
    assert not train(tmp_path / "b", encoder_layers=0, block_size=8).has_encoder
    assert train(tmp_path / "c").config.encoder_layers == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"eval_chars": 10}, "eval_chars"),
        ({"counting": 3}, "counting"),
        ({"preset": "classic", "encoder_layers": -1}, "encoder_layers"),
    ],
)
def test_options_that_pairs_do_not_take_are_refused(
    tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        train(tmp_path, **options)
    assert raised.value.field == named


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a\tb\nc d\n", {}, ("line 2", "no TAB")),
        (TEXT, {"block_size": 12}, ("line 16 ", "its target", "`block_size=18`")),
        ("a\tb\n", {}, ("split",)),
    ],
)
def test_a_line_that_is_no_pair_is_named_and_leaves_no_run(
    tmp_path: Path, text: str, options: dict[str, Any], words: Sequence[str]
) -> None:
    with pytest.raises(TextError) as raised:
        train(tmp_path, text, **options)
    assert all(word in str(raised.value) for word in words), raised.value
    assert not (tmp_path / "checkpoints" / "pairs-1").exists()


def test_the_classic_preset_trains_the_papers_model_of_pairs(tmp_path: Path) -> None:
    config = train(tmp_path, preset="classic", steps=2).config
    assert (config.post_norm, config.scaled_embedding) == (True, True)


@pytest.mark.parametrize("preset", ["default", "best"])
def test_few_pairs_are_read_in_small_batches_and_at_most_150_epochs(
    tmp_path: Path, preset: str
) -> None:
    corpus, machine = read(tmp_path, TEXT, split="every:6"), Machine.measured("cpu")
    for given in ({"split": "every:6"}, {"split": "every:6", "batch_size": 7}):
        plan = make_plan(corpus, given, preset, machine, 9.0, pairs=True)
        train = plan.manifest.train
        assert plan.pairs == (50, 10)
        assert train.batch_size == given.get("batch_size", 5)
        epochs = train.steps * plan.step_characters / plan.train_characters
        assert 148 < epochs <= 150
        assert plan.manifest.model.dropout == 0.3
        assert plan.manifest.budget is not None
        assert plan.manifest.budget.most_steps == train.steps
    plan = make_plan(corpus, {"split": "every:6", "steps": 99}, preset, machine, pairs=True)
    assert (plan.manifest.train.steps, plan.manifest.train.batch_size) == (99, 64)
    for steps, dropout in ((15, 0.0), (50, 0.2), (500, 0.3)):  # of 1.28 epochs each
        given = {"split": "every:6", "steps": steps, "dropout": 0.15}
        kept = make_plan(corpus, given, preset, machine, pairs=True).manifest.model.dropout
        assert kept == 0.15
        del given["dropout"]
        fitted = make_plan(corpus, given, preset, machine, pairs=True).manifest.model.dropout
        assert fitted == max(dropout, 0.1 if preset == "best" else 0.0)


@pytest.mark.parametrize(("lines", "most"), [(50, 150), (8_000, 128), (40_000, 25), (10**6, 25)])
def test_few_pairs_are_read_more_often_than_many(lines: int, most: int) -> None:
    model, train = ModelConfig(vocab_size=9), TrainConfig(batch_size=64)
    pairs = Recipe(model, train, frozenset(), True, 8 * lines, 8, 0, mean_length=8.0)
    assert most_epochs(pairs, pairs.train_characters) == most
    assert most_epochs(replace(pairs, mean_length=0.0), 8 * lines) == 25


def test_dates_keep_their_split_with_any_preset(tmp_path: Path) -> None:
    place = {"data": tmp_path / "data", "checkpoints": tmp_path, "progress": False}
    run = gpt.train("dates", preset="best", steps=1, n_embd=8, n_head=2, **place)
    assert run.training.split == "last"
    assert run.config.n_layer == 3  # of the preset, not of the corpus
    assert run.config.dropout > 0


@pytest.mark.parametrize(("dropout", "most"), [(0.0, 25), (0.1, 32), (0.2, 64), (0.3, 128)])
def test_a_run_gets_no_more_epochs_than_its_dropout_allows(
    tmp_path: Path, dropout: float, most: int
) -> None:
    start = manifest_of(read(tmp_path, TEXT), {"batch_size": 64}, dropout=dropout)
    assert most_epochs(replace(start, mean_length=8.0), 64_000) == most
