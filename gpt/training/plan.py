"""Plans a training before its first step: what is trained, on which text, how long it takes, and
the baseline loss. For a resumed run: which options may change, and which warnings the user gets.

A plan is a manifest, either of step 0 or of a checkpoint, and everything that the card shows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import fields_of, only_fields, require
from gpt.config.presets import FITTED_PRESETS, MINUTES, override, preset
from gpt.config.train import MOST_STEPS, Changeable
from gpt.corpus.corpus import Corpus, character_counts
from gpt.counting.baseline import count_baseline
from gpt.devices import available_cpus, available_memory, check_device, core_rate, resolve_device
from gpt.storage.manifest import Baseline, Clock, Manifest, Parent
from gpt.storage.run import Checkpoint
from gpt.training import ranks
from gpt.training.fit import (
    LOW_GAIN,
    MOST_EPOCHS,
    Recipe,
    Speed,
    estimate,
    fit_evaluations,
    fit_memory,
    fit_precision,
    fit_size,
    fit_to_corpus,
    steps_in,
    training_rate,
)
from gpt.training.precision import has_fast_bfloat16
from gpt.training.step import check_memory, try_step
from gpt.version import __version__

RARE = 10  # a character that occurs less often is hardly learned
COUNTED = 16_000_000  # characters to count for the card, at most
LATER_PEAK = 0.5  # a finished run that goes on begins again at this share of `learning_rate`


@dataclass(frozen=True)
class Plan:
    """The planned training, and facts for the card. Losses in nats per character."""

    corpus: Corpus
    manifest: Manifest
    device: str
    environment: Mapping[str, str | int]  # this process's; the manifest has that of the run's start
    speed: Speed
    steps: int  # the number of steps in all; with a time budget, an estimate
    train_characters: int
    val_characters: int
    rare: str  # rare in the training split; in a very long text, rare in all of it
    only_in_val: str  # missing in the training split; empty for a very long text
    warnings: tuple[str, ...] = ()
    why: tuple[str, ...] = ()  # reasons for the chosen defaults
    longer: bool = False  # whether the time is the preset's, so that the user may want more

    @property
    def ends_by_time(self) -> bool:
        """Whether the time ends the training, and not the number of steps."""
        return self.steps < self.manifest.train.steps

    @property
    def seconds_left(self) -> float:
        """The time in seconds from the current step to the last save."""
        manifest, speed = self.manifest, self.speed
        clock = manifest.clock
        if clock is not None and self.ends_by_time:
            return max(0.0, clock.ends - manifest.elapsed)
        train, left = manifest.train, max(0, self.steps - manifest.step)
        evaluations = train.evaluations * left / self.steps
        if train.eval_interval:
            evaluations = left / train.eval_interval
        read, of = manifest.part
        seconds = left * speed.step + speed.saving
        seconds += evaluations * (speed.fitting + speed.character * read + speed.saving)
        return seconds + (speed.character * of if read < of else 0.0)

    @property
    def baseline(self) -> Baseline:
        """The loss of counting."""
        assert self.manifest.baseline is not None
        return self.manifest.baseline

    @property
    def uniform(self) -> float:
        """The loss of equal probabilities for all characters of the vocabulary."""
        return math.log(len(self.corpus.vocabulary))


@dataclass(frozen=True)
class Machine:
    """The properties of the training machine that a plan depends on.

    rate: estimated operations per second of training, of all ranks together. memory: free bytes;
    None if the system does not report it. environment: versions and hardware that a bit-exact
    repetition needs besides the options. low: whether these CPUs compute products of bfloat16 much
    faster.
    """

    device: str
    rate: float
    memory: int | None
    environment: Mapping[str, str | int]
    low: bool = False

    @classmethod
    def measured(cls, device: str) -> Machine:
        """Measures this machine, with the device that `usable_device` returns; of several ranks,
        the slowest one sets the rate. Raises ConfigError.
        """
        device = usable_device(device)
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(min(torch.get_num_threads(), available_cpus()))
        threads = torch.get_num_threads()
        rate = training_rate(device, core_rate(), threads, ranks.world_size())
        environment: dict[str, str | int] = {
            "gptx": __version__,
            "torch": str(torch.__version__),
            "threads": threads,
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "ranks": ranks.world_size(),
        }
        low = device == "cpu" and ranks.max_over_ranks(float(not has_fast_bfloat16())) == 0
        rate = 1 / ranks.max_over_ranks(1 / rate)
        return cls(device, rate, available_memory(), environment, low)

    @property
    def ranks(self) -> int:
        """The number of processes that train."""
        return int(self.environment["ranks"])


def usable_device(device: str) -> str:
    """The device, if this torch can train on it. If not, "auto" prints one line and becomes the
    CPU; any other device raises ConfigError.

    Several ranks have chosen their device before (`ranks.join`).
    """
    return check_device(device, try_step) if ranks.world_size() == 1 else resolve_device(device)


def make_plan(
    corpus: Corpus,
    asked: Mapping[str, Any],
    preset_name: str,
    machine: Machine,
    minutes: float | None = None,
    baseline: Baseline | None = None,
    parent: Parent | None = None,
) -> Plan:
    """Plans a new run: the preset's values, overridden by the given ones; `minutes` fits the run to
    a time.

    The preset default takes MINUTES unless steps are given. The presets default and best are also
    fitted to the corpus. A pure function of its arguments, so all ranks make the same plan.
    baseline: counting's loss; None: count now. parent: the model whose weights the run starts with;
    `asked` then has all options of its layout.

    Raises ConfigError, TextError, OutOfMemory.
    """
    longer = False
    if "steps" in asked:
        require(minutes is None, "minutes", "cannot be combined with `steps`")
    elif minutes is None:
        minutes = MINUTES.get(preset_name)
        longer = minutes is not None
    recipe = _recipe(corpus, asked, preset_name, machine, minutes)
    if parent:  # more decay would undo the parent's learning
        recipe = replace(recipe, fixed=recipe.fixed | {"weight_decay"})
    rate = machine.rate
    recipe = fit_precision(recipe, machine.low)
    if machine.low and recipe.train.precision == "bfloat16":
        rate *= LOW_GAIN
    recipe = fit_size(recipe, machine.device, 60 * minutes * rate if minutes else math.inf)
    recipe = fit_memory(recipe, machine.device)
    speed = estimate(recipe, rate, recipe.train_characters, machine.ranks)
    if minutes is not None:
        recipe = recipe.changed(steps=steps_in(60 * minutes, speed))
    recipe = fit_evaluations(fit_to_corpus(recipe), speed)
    steps = recipe.train.steps
    recipe = recipe.changed(warmup_steps=min(recipe.train.warmup_steps, steps // 10))
    clock = None
    if minutes is not None:
        clock = Clock(seconds=60 * minutes)
        recipe = recipe.changed(steps=recipe.most_steps or MOST_STEPS)
    manifest = Manifest(
        step=0,
        model=recipe.model,
        train=recipe.train,
        preset=preset_name,
        vocabulary=corpus.vocabulary,
        corpus=corpus.identity,
        seconds=0.0,
        running=(0.0, 0),
        environment={**machine.environment},
        clock=clock,
        val_characters=recipe.val_characters,
        baseline=baseline,
        parent=parent,
    )
    plan = _complete(corpus, manifest, machine, speed, steps)
    return replace(plan, why=recipe.why, longer=longer and plan.ends_by_time)


def _recipe(
    corpus: Corpus,
    asked: Mapping[str, Any],
    preset_name: str,
    machine: Machine,
    minutes: float | None,
) -> Recipe:
    """The preset's values, overridden by the given ones. Raises ConfigError, TextError."""
    values = override(preset(preset_name, machine.device), asked)
    if minutes is not None and "eval_interval" not in asked:
        values["eval_interval"] = 0
    train = TrainConfig(**only_fields(TrainConfig, values))
    train_ids, val_ids = corpus.split(train.val_fraction, block_size=1)
    return Recipe(
        model=ModelConfig(vocab_size=len(corpus.vocabulary), **only_fields(ModelConfig, values)),
        train=train,
        fixed=frozenset(asked),
        fitted=preset_name in FITTED_PRESETS,
        train_characters=len(train_ids),
        val_characters=len(val_ids) - 1,
        longest_context=corpus.longest_context(train.val_fraction),
    )


def resume_plan(
    checkpoint: Checkpoint,
    corpus: Corpus,
    asked: Mapping[str, Any],
    machine: Machine,
    minutes: float | None = None,
) -> Plan:
    """The plan of a resumed run. minutes: train this much longer. Raises ConfigError for an option
    that would change the steps made so far, and for more time if the run has read its text as often
    as gptx plans.
    """
    stored = checkpoint.manifest
    require(minutes is None or "steps" not in asked, "minutes", "cannot be combined with `steps`")
    known = {**vars(stored.model), **vars(stored.train)}
    for name, value in asked.items():
        require(
            name in fields_of(Changeable) or known[name] == value,
            name,
            f"this run has {known[name]}, not {value}; leave the option out, or train a new run",
        )
    train = replace(stored.train, **only_fields(Changeable, asked))
    require(train.steps >= stored.step, "steps", f"this run has already done {stored.step}")
    clock = None if "steps" in asked else stored.clock
    train_ids, val_ids = corpus.split(train.val_fraction, stored.model.block_size)
    manifest = replace(stored, train=train, val_characters=len(val_ids) - 1, clock=clock)
    speed = estimate(manifest, machine.rate, len(train_ids), machine.ranks)
    if manifest.step:
        speed = replace(speed, step=manifest.seconds / manifest.step)
    if minutes is not None:
        manifest = _prolonged(manifest, 60 * minutes, len(train_ids))
    steps = manifest.train.steps
    if manifest.clock is not None:
        left = max(0.0, manifest.clock.ends - manifest.elapsed)
        steps = min(steps, manifest.step + max(1, int(left / speed.step)))
    plan = _complete(corpus, manifest, machine, speed, steps)
    return replace(plan, warnings=_resume_warnings(stored, manifest, machine))


def _resume_warnings(stored: Manifest, now: Manifest, machine: Machine) -> tuple[str, ...]:
    """Warnings that a resumed run will not be as an unbroken one."""
    warnings = []
    if now.clock is None:  # the clock repeats nothing
        here = machine.environment
        for name, value in stored.environment.items():
            if name in here and here[name] != value:
                warnings.append(
                    f"not bit-exact: this run was trained with {name} {value}, now it is "
                    f"{here[name]}"
                )
        if now.train.micro_batch_size != stored.train.micro_batch_size:
            warnings.append("not bit-exact: another micro-batch size rounds sums differently")
    if now.clock is None and now.train.steps != stored.train.steps:
        earlier = "with the time" if stored.clock else f"at step {stored.train.steps:,}"
        warnings.append(f"the schedule now ends at step {now.train.steps:,}, not {earlier}")
    return tuple(warnings)


def _prolonged(manifest: Manifest, seconds: float, characters: int) -> Manifest:
    """The manifest with this many seconds more, but within the epochs that its preset allows on a
    text of `characters`. A finished run begins again at LATER_PEAK; another one goes on from the
    learning rate that it has. Raises ConfigError if the epochs are used up.
    """
    step, most = manifest.step, MOST_STEPS
    if manifest.preset in FITTED_PRESETS:
        most = MOST_EPOCHS * characters // manifest.step_characters
        epochs = step * manifest.step_characters / characters
        require(
            step < most,
            "minutes",
            f"the run has read its text {epochs:.0f} times; more would learn it by heart. Train "
            f"on more text, or give `steps={2 * step}`",
        )
    clock = manifest.clock
    if manifest.progress >= 1:
        clock = Clock(
            seconds=seconds, start_step=step, start_elapsed=manifest.elapsed, peak=LATER_PEAK
        )
    elif clock is not None:
        clock = replace(clock, seconds=clock.seconds + seconds)
    else:
        clock = Clock(seconds=seconds, start_elapsed=manifest.elapsed, progress=manifest.progress)
    train = replace(manifest.train, steps=most)
    return replace(manifest, train=train, clock=clock, since_best=0)


def _complete(
    corpus: Corpus, manifest: Manifest, machine: Machine, speed: Speed, steps: int
) -> Plan:
    """Makes the plan of a run from its manifest's step on. Counts the characters, and the baseline
    if the manifest has none. Raises OutOfMemory, TextError.
    """
    model, train = manifest.model, manifest.train
    if machine.device == "cpu" and machine.memory is not None:
        check_memory(model, train, machine.memory, machine.ranks)
    train_ids, val_ids = corpus.split(train.val_fraction, model.block_size)
    if len(corpus.ids) <= COUNTED:
        in_train = character_counts(train_ids, model.vocab_size)
        in_val = character_counts(val_ids, model.vocab_size)
    else:
        in_train = character_counts(corpus.ids, model.vocab_size)
        in_val = np.zeros(model.vocab_size, np.int64)
    baseline = manifest.baseline or count_baseline(train_ids, val_ids, model.vocab_size)
    decode = corpus.vocabulary.decode
    return Plan(
        corpus=corpus,
        manifest=replace(manifest, baseline=baseline),
        device=machine.device,
        environment=machine.environment,
        speed=speed,
        steps=steps,
        train_characters=len(train_ids),
        val_characters=len(val_ids),
        rare=decode(np.flatnonzero((in_train > 0) & (in_train < RARE))),
        only_in_val=decode(np.flatnonzero((in_train == 0) & (in_val > 0))),
    )
