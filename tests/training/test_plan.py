"""Plans: steps that fit the time, and what a resumed run may change."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import pytest
from conftest import TEXT, TINY, corpus_of

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import fields_of
from gpt.config.train import MOST_STEPS, ResumeOptions
from gpt.corpus.corpus import Corpus
from gpt.errors import ConfigError, OutOfMemory, TextError
from gpt.storage.checkpoint_files import Baseline, Clock
from gpt.storage.run import Checkpoint
from gpt.training import plan as module
from gpt.training.plan import (
    MOST_EPOCHS,
    Machine,
    Speed,
    estimate_speed,
    resume_plan,
)

make_plan = partial(module.make_plan, baseline=Baseline((5.0, 4.0, 3.0, 2.0, 1.0), 9, 9))
CPU = Machine("cpu", 1e11, None, {"torch": "2.13.0", "threads": 2, "device": "cpu", "ranks": 1})
OPTIONS = {field.name for config in (ModelConfig, TrainConfig) for field in fields(config)}


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> Speed:
    """Every plan takes a hundredth of a second a step, half a second for 10,000 characters."""
    return set_speed(monkeypatch, Speed(step=0.01, character=5e-5))


def set_speed(monkeypatch: pytest.MonkeyPatch, speed: Speed) -> Speed:
    monkeypatch.setattr(module, "estimate_speed", lambda *_: speed)
    return speed


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """TEXT, encoded."""
    return corpus_of(TEXT, tmp_path)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A text with 100,000 validation characters, encoded."""
    return corpus_of(TEXT * 350, tmp_path_factory.mktemp("long"))


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


def test_default_preset_takes_two_minutes_unless_steps_are_given(
    corpus: Corpus, long: Corpus
) -> None:
    plan = make_plan(long, TINY, "default", CPU)
    assert (plan.manifest.clock, plan.suggests_longer) == (Clock(seconds=120), True)
    fifteen = make_plan(long, TINY, "default", CPU, 15)
    assert (fifteen.manifest.clock, fifteen.suggests_longer) == (Clock(seconds=900), False)
    plan = make_plan(long, {**TINY, "steps": 77}, "default", CPU)
    assert (plan.manifest.clock, plan.steps, plan.manifest.train.steps) == (None, 77, 77)
    for name in ("classic", "best"):
        assert make_plan(long, TINY, name, CPU).manifest.clock is None
    small = make_plan(corpus, TINY, "default", CPU)  # all that so short a text bears
    assert small.steps == small.manifest.train.steps
    assert not small.ends_by_time
    assert not small.suggests_longer
    assert small.seconds_left < 60


@pytest.mark.parametrize("name", sorted(OPTIONS - {*fields_of(ResumeOptions)}))
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
    with pytest.raises(ConfigError, match=r"^minutes: the run has read its text 25 times; with"):
        resume_plan(used, corpus, {}, CPU, 1)
    free = replace(tiny, manifest=replace(tiny.manifest, preset="classic"))
    assert resume_plan(free, corpus, {}, CPU, 60).steps > 10 * most
    with pytest.raises(ConfigError, match=r"^minutes: cannot be combined with `steps`$"):
        resume_plan(tiny, corpus, {"steps": 99}, CPU, 1)


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
    assert (plan.machine.environment, plan.manifest.environment) == (here, before)


def test_a_gpu_must_compute_before_it_is_chosen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gpt.devices.cuda_device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "H200")
    tried: list[str] = []
    monkeypatch.setattr(module, "try_device", tried.append)
    devices = [Machine.measured(device).device for device in ("auto", "cuda", "cpu")]
    assert (devices, tried) == (["cuda", "cuda", "cpu"], ["cuda", "cuda"])

    def fail(device: str) -> None:
        raise RuntimeError("CUDA error: no kernel image is available\nfor this device")

    monkeypatch.setattr(module, "try_device", fail)
    assert Machine.measured("auto").device == "cpu"
    why = "RuntimeError: CUDA error: no kernel image is available"
    assert caplog.messages == [f"note: cuda failed ({why}); the CPU computes instead"]
    with pytest.raises(ConfigError, match=r"^device: torch cannot compute on cuda \(Run.*cpu'`$"):
        Machine.measured("cuda")
    assert len(caplog.messages) == 1


def test_short_text_gets_a_shorter_context(tmp_path: Path) -> None:
    plan = make_plan(corpus_of("to be or not " * 50, tmp_path), {}, "default", CPU)
    assert plan.manifest.val_characters == 64
    assert (plan.manifest.model.n_layer, plan.manifest.model.block_size) == (1, 64)
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
    assert train.batch_size == 7


def estimates_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed follows from the machine's rate."""
    monkeypatch.setattr(module, "estimate_speed", estimate_speed)


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
    corpus, low = corpus_of(TEXT * 1000, tmp_path), replace(CPU, has_fast_bfloat16=True)
    plans = [make_plan(corpus, {"steps": 9}, "default", machine) for machine in (CPU, low)]
    assert [it.manifest.train.precision for it in plans] == ["float32", "bfloat16"]
    slow, fast = (it.speed.step for it in plans)
    assert fast < 0.8 * slow
    given = {"steps": 9, "precision": "float32"}
    assert make_plan(corpus, given, "default", low).speed.step == slow
