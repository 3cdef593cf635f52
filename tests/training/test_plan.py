"""Plans: steps that fit the time, what a resumed run may change, and its corpus found again."""

from __future__ import annotations

import io
import math
import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TEXT, TINY, corpus_of
from torch.distributed import HashStore

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import fields_of, only_fields, options_of
from gpt.config.presets import preset
from gpt.config.toml import from_toml, to_toml
from gpt.config.train import MOST_STEPS, Changeable
from gpt.corpus.corpus import Corpus, encode_corpus, find_corpus, read_corpus
from gpt.corpus.sources import Source
from gpt.counting import baseline as counting
from gpt.counting.baseline import count_baseline
from gpt.errors import ConfigError, OutOfMemory, TextError
from gpt.storage.manifest import Baseline, Clock, CorpusId, Manifest
from gpt.storage.run import Checkpoint
from gpt.training import plan as module
from gpt.training import ranks
from gpt.training.fit import MOST_EPOCHS, Speed, estimate
from gpt.training.plan import Machine, make_plan, resume_plan, usable_device
from gpt.vocabulary import Vocabulary

PIPE = io.BytesIO()
CPU = Machine("cpu", 1e11, None, {"torch": "2.13.0", "threads": 2, "device": "cpu", "ranks": 1})
GPU = replace(CPU, device="cuda")
OPTIONS = {field.name for config in (ModelConfig, TrainConfig) for field in fields(config)}


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> Speed:
    """Every plan takes a hundredth of a second a step, half a second for 10,000 characters."""
    return set_speed(monkeypatch, Speed(step=0.01, character=5e-5))


def set_speed(monkeypatch: pytest.MonkeyPatch, speed: Speed) -> Speed:
    monkeypatch.setattr(module, "estimate", lambda *_: speed)
    return speed


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """TEXT, encoded."""
    return corpus_of(TEXT, tmp_path)


def test_plan_is_the_preset_with_given_options(corpus: Corpus) -> None:
    plan = make_plan(corpus, {**TINY, "dropout": 0.1, "min_lr": 5e-5}, "classic", CPU)
    model, train = plan.manifest.model, plan.manifest.train
    assert (model.n_layer, model.dropout, model.position, model.tied) == (2, 0.1, "learned", True)
    assert (train.schedule, train.batch_size, train.min_lr) == ("cosine", 12, 5e-5)
    assert (model.vocab_size, plan.manifest.step) == (len(corpus.vocabulary), 0)
    assert plan.manifest.corpus == corpus.identity
    assert plan.manifest.environment == CPU.environment


def test_a_plan_has_the_baseline_and_the_uniform_loss(corpus: Corpus, speed: Speed) -> None:
    plan = make_plan(corpus, TINY, "default", CPU)
    train_ids, val_ids = corpus.split(0.1, 16)
    assert (plan.train_characters, plan.val_characters) == (len(train_ids), len(val_ids))
    assert plan.uniform == math.log(15)
    assert plan.baseline == count_baseline(train_ids, val_ids, 15)
    assert plan.speed == speed


def test_plan_names_rare_and_validation_only_characters(tmp_path: Path) -> None:
    corpus = corpus_of("é" * 9 + "ü" * 10 + "a" * 881 + "é" * 20 + "Xa" * 30 + "Y" * 20, tmp_path)
    plan = make_plan(corpus, TINY, "default", CPU)
    assert plan.train_characters == int(0.9 * 1000)
    assert (plan.rare, plan.only_in_val) == ("é", "XY")


def test_the_card_counts_a_part_of_a_long_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of("é" * 9 + "a" * 791 + "é" * 20 + "Xa" * 80 + "Y" * 20, tmp_path)
    monkeypatch.setattr(module, "COUNTED", 50)
    for name, most in (("MOST_CHARACTERS", 700), ("MOST_VAL", 90)):
        monkeypatch.setattr(counting, name, most)
    plan = make_plan(corpus, TINY, "default", CPU)
    assert (plan.rare, plan.only_in_val) == ("", "")  # 'é' comes 29 times in the whole text
    assert (plan.baseline.counted, plan.baseline.scored) == (700, 90)


def test_a_fitted_context_is_much_shorter_than_validation_blocks(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    config = TrainConfig(split="every:4")
    corpus = encode_corpus([Source(tmp_path / "text", "text")], tmp_path / "data", None, config)
    plan = make_plan(corpus, {"split": "every:4"}, "default", CPU)
    assert plan.manifest.model.block_size == 18  # blocks have 72 characters


def test_settings_of_a_plan_repeat_it(corpus: Corpus) -> None:
    plan = make_plan(corpus, {**TINY, "learning_rate": 3e-4}, "classic", CPU)
    values = from_toml(to_toml(plan.manifest.settings()), "config.toml")
    again = make_plan(corpus, values, values.pop("preset"), CPU)
    assert again.manifest == plan.manifest


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Baseline]:
    """A text with 100,000 validation characters, and its baseline."""
    corpus = corpus_of(TEXT * 350, tmp_path_factory.mktemp("long"))
    return corpus, count_baseline(*corpus.split(0.1, 16), len(corpus.vocabulary))


@pytest.fixture
def long(counted: tuple[Corpus, Baseline], monkeypatch: pytest.MonkeyPatch) -> Corpus:
    """The text of `counted`, which plans need not count again."""
    corpus, baseline = counted
    monkeypatch.setattr(module, "count_baseline", lambda *_: baseline)
    return corpus


def test_a_time_budget_has_the_epochs_of_the_text_as_its_limit_of_steps(long: Corpus) -> None:
    plan = make_plan(long, TINY, "default", CPU, 1)
    manifest = plan.manifest
    assert manifest.clock == Clock(seconds=60)
    most = MOST_EPOCHS * plan.train_characters // manifest.step_characters
    assert (plan.steps, manifest.train.steps) == (5400, most)
    assert (plan.ends_by_time, plan.seconds_left) == (True, 60)
    assert manifest.train.warmup_steps == 20
    free = make_plan(long, {**TINY, "eval_interval": 500}, "classic", CPU, 1)
    assert (free.steps, free.manifest.train.steps) == (5400, MOST_STEPS)
    assert free.manifest.train.eval_interval == 500
    assert "steps" not in free.manifest.settings()
    assert free.manifest.settings()["minutes"] == 1


def test_evaluations_read_the_given_number_of_characters(long: Corpus) -> None:
    for given, part in (({"eval_chars": 7000}, 7000), ({"eval_chars": 0}, 0), ({}, 2400)):
        plan = make_plan(long, {**TINY, "steps": 500, **given}, "classic", CPU)
        assert plan.manifest.train.eval_chars == part


def test_default_preset_takes_two_minutes_unless_steps_are_given(
    corpus: Corpus, long: Corpus
) -> None:
    plan = make_plan(long, TINY, "default", CPU)
    assert (plan.manifest.clock, plan.longer) == (Clock(seconds=120), True)
    fifteen = make_plan(long, TINY, "default", CPU, 15)
    assert (fifteen.manifest.clock, fifteen.longer) == (Clock(seconds=900), False)
    plan = make_plan(long, {**TINY, "steps": 77}, "default", CPU)
    assert (plan.manifest.clock, plan.steps, plan.manifest.train.steps) == (None, 77, 77)
    for name in ("classic", "best"):
        assert make_plan(long, TINY, name, CPU).manifest.clock is None
    small = make_plan(corpus, TINY, "default", CPU)  # all that so short a text bears
    assert small.steps == small.manifest.train.steps
    assert (small.ends_by_time, small.longer, small.seconds_left < 60) == (False, False, True)


def test_minutes_and_steps_cannot_be_combined(corpus: Corpus) -> None:
    with pytest.raises(ConfigError, match=r"^minutes: cannot be combined with `steps`$"):
        make_plan(corpus, {**TINY, "steps": 10}, "default", CPU, 1)


@pytest.mark.parametrize("name", sorted(OPTIONS - {*fields_of(Changeable)}))
def test_resume_refuses_changed_options_that_affect_the_weights(
    corpus: Corpus, tiny: Checkpoint, name: str
) -> None:
    known = {**vars(tiny.manifest.model), **vars(tiny.manifest.train)}[name]
    same = resume_plan(tiny, corpus, {name: known}, CPU)
    assert (same.manifest.model, same.manifest.train) == (tiny.manifest.model, tiny.manifest.train)
    message = f"^{name}: this run has {re.escape(str(known))}, not other; "
    with pytest.raises(ConfigError, match=message) as caught:
        resume_plan(tiny, corpus, {name: "other"}, CPU)
    assert caught.value.exit_code == 2


def test_a_resumed_run_may_change_its_length_and_its_evaluations(
    corpus: Corpus, tiny: Checkpoint
) -> None:
    given: dict[str, Any] = {"steps": 40, "eval_interval": 5, "patience": 3}
    given |= {"keep_all": True, "micro_batch_size": 2}
    assert {*given} == {*fields_of(Changeable)}
    plan = resume_plan(tiny, corpus, given, CPU)
    assert plan.manifest.train == replace(tiny.manifest.train, **given)
    assert (plan.manifest.step, plan.manifest.best_step) == (12, tiny.manifest.best_step)
    assert plan.warnings == (
        "not bit-exact: another micro-batch size rounds sums differently",
        "the schedule now ends at step 40, not at step 12",
    )


def test_more_time_ends_at_the_epochs_that_the_corpus_allows(
    corpus: Corpus, tiny: Checkpoint
) -> None:
    """The tiny run has read a small part of its text."""
    plan = resume_plan(tiny, corpus, {}, CPU, 60)
    manifest = plan.manifest
    assert manifest.clock is not None
    characters, most = manifest.step_characters, manifest.train.steps
    assert most * characters <= MOST_EPOCHS * plan.train_characters < (most + 1) * characters
    assert plan.steps == most
    used = replace(tiny, manifest=replace(tiny.manifest, step=most, train=manifest.train))
    with pytest.raises(ConfigError, match=r"^minutes: the run has read its text 25 times; more"):
        resume_plan(used, corpus, {}, CPU, 1)
    free = replace(tiny, manifest=replace(tiny.manifest, preset="classic"))
    assert resume_plan(free, corpus, {}, CPU, 60).steps > 10 * most
    with pytest.raises(ConfigError, match=r"^minutes: cannot be combined with `steps`$"):
        resume_plan(tiny, corpus, {"steps": 99}, CPU, 1)


def test_resume_does_not_count_the_baseline_again(
    corpus: Corpus, tiny: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = count_baseline(*corpus.split(0.1, 1), 15)
    assert tiny.manifest.baseline is None
    assert resume_plan(tiny, corpus, {}, CPU).baseline == counted
    stored = Baseline((3.0, 2.5, 2.0), 9, 99)
    known = replace(tiny, manifest=replace(tiny.manifest, baseline=stored))
    monkeypatch.setattr(module, "count_baseline", lambda *_: counted)
    plan = resume_plan(known, corpus, {}, CPU)
    assert plan.baseline == stored


def test_a_resumed_run_cannot_end_before_its_current_step(corpus: Corpus, tiny: Checkpoint) -> None:
    assert resume_plan(tiny, corpus, {"steps": 12}, CPU).warnings == ()
    with pytest.raises(ConfigError, match=r"^steps: this run has already done 12$"):
        resume_plan(tiny, corpus, {"steps": 11}, CPU)


def test_another_environment_gives_a_warning_that_the_run_is_not_bit_exact(
    corpus: Corpus, tiny: Checkpoint
) -> None:
    here = CPU.environment
    before = {**here, "threads": 64, "torch": "2.0.0", "of a later version": 1}
    elsewhere = replace(tiny, manifest=replace(tiny.manifest, environment=before))
    plan = resume_plan(elsewhere, corpus, {}, CPU)
    assert set(plan.warnings) == {
        f"not bit-exact: this run was trained with threads 64, now it is {here['threads']}",
        f"not bit-exact: this run was trained with torch 2.0.0, now it is {here['torch']}",
    }
    assert (plan.environment, plan.manifest.environment) == (here, before)


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a text in it; its data folder."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(TEXT)
    return tmp_path / "data"


def begun(identity: CorpusId) -> Manifest:
    """A run on TEXT, known as `identity`."""
    characters = "".join(sorted(set(TEXT)))
    return Manifest(
        step=0,
        model=ModelConfig(vocab_size=len(characters)),
        train=TrainConfig(),
        preset="default",
        vocabulary=Vocabulary(characters),
        corpus=identity,
        seconds=0.0,
        running=(0.0, 0),
    )


def emptied(data: Path) -> None:
    """Deletes what was encoded."""
    for path in data.iterdir():
        path.unlink()


def test_a_run_uses_its_encoded_corpus_even_if_the_text_has_changed(working: Path) -> None:
    identity = read_corpus(["book.txt"], working, PIPE).identity
    assert find_corpus(begun(identity), (), working, PIPE).notes == ()
    for change in (lambda: Path("book.txt").write_text("edited"), Path("book.txt").unlink):
        change()
        found = find_corpus(begun(identity), (), working, PIPE)
        assert (found.vocabulary.decode(found.ids), found.identity) == (TEXT, identity)
        rewritten = "book.txt was written again after gptx had encoded it; if its text has changed,"
        assert [note[: len(rewritten)] for note in found.notes] == [
            rewritten for _ in range(Path("book.txt").exists())
        ]


def test_resume_does_not_wait_for_a_pipe_whose_encoding_is_gone(working: Path) -> None:
    identity = read_corpus(["-"], working, io.BytesIO(TEXT.encode())).identity
    emptied(working)
    waiting = io.BytesIO(TEXT.encode())
    with pytest.raises(TextError, match=r"^the corpus came through a pipe"):
        find_corpus(begun(identity), (), working, waiting)
    assert waiting.tell() == 0


def test_resume_encodes_a_missing_corpus_again(working: Path) -> None:
    identity = read_corpus(["book.txt"], working, PIPE).identity
    emptied(working)
    found = find_corpus(begun(identity), (), working, PIPE)
    assert (found.vocabulary.decode(found.ids), found.identity) == (TEXT, identity)
    emptied(working)
    Path("book.txt").rename("moved.txt")
    assert (
        find_corpus(begun(identity), ["moved.txt"], working, PIPE).identity.digest
        == identity.digest
    )
    emptied(working)
    with pytest.raises(TextError, match=r"^cannot read corpus 'book\.txt'"):
        find_corpus(begun(identity), (), working, PIPE)


@pytest.mark.parametrize(
    "options", [{"split": "other.txt"}, {"split": "every:3"}, {"separator": "--"}]
)
def test_resume_finds_the_same_validation_split(
    working: Path, options: dict[str, Any], tiny: Checkpoint
) -> None:
    Path("other.txt").write_text(TEXT[:500])
    config = TrainConfig(**options)
    names = ["book.txt", "book.txt", "book.txt"]
    first = read_corpus(names, working, PIPE, config=config)
    train, val = (part.tolist() for part in first.split(0.1, 4))
    assert bool(config.validation) == (first.vocabulary.decode(val) == TEXT[:500])
    run = replace(begun(first.identity), train=config, vocabulary=first.vocabulary)
    stored = replace(run, model=ModelConfig(vocab_size=len(run.vocabulary)))
    for forget in (False, True):  # from what is encoded; from the texts
        if forget:
            emptied(working)
        found = find_corpus(stored, (), working, PIPE)
        assert [part.tolist() for part in found.split(0.1, 4)] == [train, val]
        assert found.identity == first.identity


def test_an_unknown_split_is_named_in_the_error(working: Path) -> None:
    for given in ("ever:3", "other.txt"):
        with pytest.raises(
            TextError, match=rf"^`split` takes last, every:N or a file; .*'{given}'"
        ):
            read_corpus(["book.txt"], working, PIPE, config=TrainConfig(split=given))


@pytest.mark.parametrize("names", [(), ("book.txt",)])
def test_resume_refuses_a_changed_corpus(working: Path, names: tuple[str, ...]) -> None:
    identity = read_corpus(["book.txt"], working, PIPE).identity
    emptied(working)
    Path("book.txt").write_text(TEXT + "!")
    with pytest.raises(TextError, match=r"^corpus changed: book\.txt is not the text") as caught:
        find_corpus(begun(identity), names, working, PIPE)
    assert caught.value.exit_code == 3


def test_another_text_is_refused_even_if_the_runs_own_is_still_encoded(working: Path) -> None:
    identity = read_corpus(["book.txt"], working, PIPE).identity
    Path("other.txt").write_text("another " + TEXT)
    with pytest.raises(TextError, match=r"^corpus changed: other\.txt"):
        find_corpus(begun(identity), ["other.txt"], working, PIPE)


def test_run_from_a_pipe_is_resumable_while_its_encoding_exists(working: Path) -> None:
    identity = read_corpus(["-"], working, io.BytesIO(TEXT.encode())).identity
    assert not list(working.glob(".spool*"))
    found = find_corpus(begun(identity), (), working, PIPE)
    assert found.vocabulary.decode(found.ids) == TEXT
    emptied(working)
    with pytest.raises(TextError, match=r"^the corpus came through a pipe and is no longer in "):
        find_corpus(begun(identity), (), working, PIPE)
    again = find_corpus(begun(identity), ["-"], working, io.BytesIO(TEXT.encode()))
    assert again.identity == identity


def test_a_gpu_must_train_a_step_before_it_is_chosen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trained: list[str] = []
    monkeypatch.setattr("gpt.devices.cuda_devices", lambda: 1)
    monkeypatch.setattr(module, "try_step", trained.append)
    assert [usable_device(device) for device in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
    assert trained == ["cuda", "cuda"]

    def fail(device: str) -> None:
        raise RuntimeError("CUDA error: no kernel image is available\nfor this device")

    monkeypatch.setattr(module, "try_step", fail)
    assert usable_device("auto") == "cpu"
    why = "RuntimeError: CUDA error: no kernel image is available"
    assert caplog.messages == [f"note: cuda failed ({why}); the CPU computes instead"]
    with pytest.raises(ConfigError, match=r"^device: torch cannot compute on cuda \(Run.*cpu'`$"):
        usable_device("cuda")
    assert len(caplog.messages) == 1


def test_several_ranks_check_only_whether_torch_has_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trial step of every rank would use memory of the first GPU."""
    monkeypatch.setattr("gpt.devices.cuda_devices", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    module_of_torch = sys.modules["torch.distributed.rendezvous"]
    monkeypatch.setattr(module_of_torch, "rendezvous", lambda url: iter([(HashStore(), 0, 2)]))
    monkeypatch.setattr(module, "try_step", lambda device: 1 / 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert ranks.join("auto") == "cuda"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="--nproc-per-node: torch can use 0 CUDA devices"):
        ranks.join("auto")


def test_plan_options_are_the_fields_of_its_configs(corpus: Corpus) -> None:
    settings = make_plan(corpus, {**TINY, "steps": 9}, "default", CPU).manifest.settings()
    assert settings.keys() == {"preset", *options_of(ModelConfig), *options_of(TrainConfig)}
    assert only_fields(ModelConfig, settings).items() >= TINY.items()


@pytest.mark.parametrize("minutes", [None, 5])
def test_default_preset_is_fitted_to_the_corpus_with_a_note(
    corpus: Corpus, minutes: float | None
) -> None:
    plan = make_plan(corpus, {}, "default", CPU, minutes)
    model, train = plan.manifest.model, plan.manifest.train
    assert (model.n_layer, model.dropout) == (1, 0.1)
    assert train.steps * train.batch_size * model.block_size <= 25 * plan.train_characters
    assert [why.split()[0] for why in plan.why] == ["1", "no", "dropout"]
    free = make_plan(corpus, {"n_layer": 3, "dropout": 0.0}, "default", CPU, minutes)
    assert (free.manifest.model.n_layer, free.manifest.model.dropout) == (3, 0.0)
    assert free.manifest.train.batch_size == train.batch_size


def test_short_text_gets_a_shorter_context(tmp_path: Path) -> None:
    plan = make_plan(corpus_of("to be or not " * 50, tmp_path), {}, "default", CPU)
    assert plan.val_characters == 65
    assert (plan.manifest.model.n_layer, plan.manifest.model.block_size) == (1, 64)
    assert "a context of 64, as the validation text is no longer" in plan.why
    with pytest.raises(TextError, match="needs 129; use `block_size=64`"):
        make_plan(corpus_of("to be or not " * 50, tmp_path), {"block_size": 128}, "default", CPU)


@pytest.mark.parametrize("minutes", [None, 5])
@pytest.mark.parametrize("device", ["cuda", "mps"])
@pytest.mark.parametrize(("name", "dropout"), [("default", 0.2), ("best", 0.3)])
def test_the_limits_of_a_corpus_hold_on_a_gpu(
    tmp_path: Path, name: str, dropout: float, device: str, minutes: float | None
) -> None:
    """20,000 characters are not trained 4,000 epochs there."""
    corpus = corpus_of((TEXT * 8)[:20_000], tmp_path)
    plan = make_plan(corpus, {}, name, replace(CPU, device=device), minutes)
    model, train = plan.manifest.model, plan.manifest.train
    seen = train.steps * train.batch_size * model.block_size
    assert seen <= 25 * plan.train_characters == 25 * 18_000
    assert train.steps >= 250
    assert (model.n_layer, model.n_head, model.n_embd, model.block_size) == (6, 6, 384, 256)
    assert model.dropout == dropout
    assert "7 sequences per step: with 64, 25 epochs would be only 27 steps" in plan.why
    assert "no more than 25 epochs, or it would learn by heart" in plan.why


def test_short_text_on_a_gpu_gets_a_short_context_and_keeps_given_options(tmp_path: Path) -> None:
    corpus = corpus_of("to be or not " * 50, tmp_path)
    plan = make_plan(corpus, {}, "default", GPU)
    assert (plan.manifest.model.n_layer, plan.manifest.model.block_size) == (6, 64)
    assert "a context of 64, as the validation text is no longer" in plan.why
    given = {"batch_size": 9, "steps": 300, "dropout": 0.5}
    manifest = make_plan(corpus, given, "default", GPU).manifest
    assert {**vars(manifest.model), **vars(manifest.train)}.items() >= given.items()
    classic = make_plan(corpus_of(TEXT, tmp_path), {}, "classic", GPU).manifest.train
    assert (classic.steps, classic.batch_size) == (5000, 64)


def test_classic_is_not_fitted(tmp_path: Path) -> None:
    plan = make_plan(corpus_of(TEXT * 10, tmp_path), {}, "classic", CPU)
    values = {**vars(plan.manifest.model), **vars(plan.manifest.train)}
    assert values.items() >= preset("classic", "cpu").items()
    assert plan.why == ()


#: Counting it takes seconds, and it is not asked for.
COUNTED = Baseline((5.0, 4.0, 3.0, 2.0, 1.0), 9, 9)


def estimates_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed follows from the machine's rate."""
    monkeypatch.setattr(module, "estimate", estimate)


def test_a_longer_time_allows_a_larger_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = corpus_of(TEXT * 1000, tmp_path)  # 2,880,000 characters
    estimates_speed(monkeypatch)
    minutes = (0.1, 2, 10, 60, 150)
    plans = [make_plan(corpus, {}, "default", CPU, each, COUNTED).manifest for each in minutes]
    assert [plan.model.n_layer for plan in plans] == [1, 3, 4, 4, 6]
    assert [plan.model.n_embd for plan in plans] == [128, 128, 128, 192, 256]


@pytest.mark.parametrize(
    ("repeats", "layers", "width", "epochs"),
    [
        (1, 1, 128, 25),
        (25, 2, 128, 25),
        (60, 2, 128, 25),
        (150, 4, 128, 25),
        (400, 6, 192, 25),
        (5000, 6, 256, 3.8),
    ],
)
def test_the_best_preset_uses_all_epochs_that_the_corpus_allows(
    repeats: int,
    layers: int,
    width: int,
    epochs: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    estimates_speed(monkeypatch)
    plan = make_plan(corpus_of(TEXT * repeats, tmp_path), {}, "best", CPU, None, COUNTED)
    model, train = plan.manifest.model, plan.manifest.train
    assert (model.n_layer, model.n_embd) == (layers, width)
    seen = train.steps * train.batch_size * model.block_size / plan.train_characters
    assert seen == pytest.approx(epochs, rel=0.08)
    assert (train.window_order, train.weight_decay, train.average) == ("epochs", 0.5, 0.998)


def test_a_step_is_estimated_by_its_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates_speed(monkeypatch)
    plan = make_plan(corpus_of(TEXT * 1000, tmp_path), {}, "default", CPU, 2, COUNTED)
    work = plan.manifest.step_characters * plan.manifest.model.training_flops
    assert work / 1e11 < plan.speed.step < 1.8 * work / 1e11
    assert plan.steps == int(0.9 * 120 / plan.speed.step)


def test_a_machine_gives_the_same_shape_in_ten_of_ten_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates that differ by a tenth, as on a busy machine, at least by a tenth above a limit."""
    corpus = corpus_of(TEXT * 1000, tmp_path)
    estimates_speed(monkeypatch)
    shapes = set()
    for number in range(10):
        machine = replace(CPU, rate=1e11 * (1 + number / 100))
        plan = make_plan(corpus, {}, "default", machine, 2, COUNTED)
        shapes.add(plan.manifest.model.n_layer)
    assert shapes == {3}


def test_a_resumed_plan_knows_the_speed_of_the_run(corpus: Corpus, tiny: Checkpoint) -> None:
    manifest = tiny.manifest
    speed = resume_plan(tiny, corpus, {}, CPU).speed
    assert speed.step == manifest.seconds / manifest.step


def test_a_plan_does_not_count_a_baseline_that_it_is_given(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "count_baseline", lambda *_: 1 / 0)
    assert make_plan(corpus, TINY, "default", CPU, baseline=COUNTED).baseline == COUNTED


def test_a_plan_depends_on_corpus_options_and_machine_alone(corpus: Corpus) -> None:
    one, other = (make_plan(corpus, TINY, "default", CPU, 1) for _ in range(2))
    assert (one.manifest, one.speed, one.why) == (other.manifest, other.speed, other.why)
    faster = make_plan(corpus, TINY, "default", replace(CPU, rate=2e11), 1)
    assert faster.manifest == one.manifest  # the text's epochs limit both


def test_a_step_that_does_not_fit_in_memory_is_refused_before_training(corpus: Corpus) -> None:
    small = replace(CPU, memory=10**8)
    with pytest.raises(
        OutOfMemory, match=r"try `micro_batch_size=\d+`, which gives the same result"
    ):
        make_plan(corpus, {**TINY, "batch_size": 10**5}, "classic", small)


def test_a_plan_is_for_the_precision_that_the_machine_computes_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimates_speed(monkeypatch)
    corpus, low = corpus_of(TEXT * 1000, tmp_path), replace(CPU, low=True)
    plans = [make_plan(corpus, {"steps": 9}, "default", it, None, COUNTED) for it in (CPU, low)]
    assert [it.manifest.train.precision for it in plans] == ["float32", "bfloat16"]
    slow, fast = (it.speed.step for it in plans)
    assert fast < 0.8 * slow
    given = {"steps": 9, "precision": "float32"}
    assert make_plan(corpus, given, "default", low, None, COUNTED).speed.step == slow
