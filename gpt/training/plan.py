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
from gpt.config.fields import fields_of, only_fields, options_of, require
from gpt.config.presets import FITTED_PRESETS, MINUTES, override, preset
from gpt.config.schedule import Budget, replan_steps
from gpt.config.train import Changeable
from gpt.corpus.corpus import Corpus, character_counts
from gpt.counting.baseline import count_baseline
from gpt.devices import available_cpus, available_memory, check_device, core_rate, resolve_device
from gpt.errors import ConfigError
from gpt.storage.manifest import Baseline, Manifest, Parent
from gpt.storage.run import Checkpoint
from gpt.training import ranks
from gpt.training.fit import (
    LOW_GAIN,
    MOST_EPOCHS,
    Recipe,
    Speed,
    costs,
    estimate,
    fit_evaluations,
    fit_memory,
    fit_precision,
    fit_size,
    fit_time,
    fit_to_corpus,
    last_seconds,
    training_rate,
)
from gpt.training.precision import has_fast_bfloat16
from gpt.training.step import check_memory, try_step
from gpt.version import __version__

RARE = 10  # a character that occurs less often is hardly learned
COUNTED = 16_000_000  # characters to count for the card, at most


@dataclass(frozen=True)
class Plan:
    """The planned training, and facts for the card. Losses in nats per character."""

    corpus: Corpus
    manifest: Manifest
    device: str
    environment: Mapping[str, str | int]  # this process's; the manifest has that of the run's start
    speed: Speed
    baseline: Baseline
    train_characters: int
    val_characters: int
    rare: str  # rare in the training split; in a very long text, rare in all of it
    only_in_val: str  # missing in the training split; empty for a very long text
    warnings: tuple[str, ...] = ()
    why: tuple[str, ...] = ()  # reasons for the chosen defaults
    longer: str = ""  # how to train longer, if the user gave no time
    peak: float = 0.0  # operations per second of all cores; 0: unknown

    @property
    def costs(self) -> Budget:
        """Estimated times of the run."""
        budget = self.manifest.budget
        return costs(self.manifest, self.speed, budget.seconds if budget else 0.0)

    @property
    def step_characters(self) -> int:
        """The number of characters that a step learns to predict."""
        return self.manifest.step_characters

    @property
    def has_time_budget(self) -> bool:
        """Whether the number of steps adapts to a time budget (not if the corpus limits it)."""
        manifest, budget = self.manifest, self.manifest.budget
        ends = manifest.train.steps
        return budget is not None and ends not in (manifest.step, budget.most_steps)

    @property
    def seconds_left(self) -> float:
        """The time in seconds from the current step to the last save, without `last_seconds`."""
        manifest, budget = self.manifest, self.manifest.budget
        if budget is not None and self.has_time_budget:
            return max(0.0, budget.ends - manifest.elapsed)
        return self.costs.remaining(manifest.train, manifest.step) + self.costs.saving

    @property
    def last_seconds(self) -> float:
        """Seconds of the last evaluation, if it is not part of the time budget; else 0."""
        return 0.0 if self.costs.last else last_seconds(self.manifest, self.speed)

    @property
    def is_baseline_complete(self) -> bool:
        """Whether the baseline counts all training text and scores all validation text."""
        all_of_it = (self.train_characters, self.val_characters - 1)  # one is context
        return (self.baseline.counted, self.baseline.scored) == all_of_it

    @property
    def uniform(self) -> float:
        """The loss of equal probabilities for all characters of the vocabulary."""
        return math.log(len(self.corpus.vocabulary))

    def settings(self) -> dict[str, Any]:
        """Every option that someone needs to repeat this run."""
        values = {**vars(self.manifest.model), **vars(self.manifest.train)}
        options = [*options_of(ModelConfig), *options_of(TrainConfig)]
        return {"preset": self.manifest.preset, **{name: values[name] for name in options}}


@dataclass(frozen=True)
class Machine:
    """The properties of the training machine that a plan depends on.

    rate: estimated operations per second of training, of all ranks together. memory: free bytes;
    None if the system does not report it. environment: versions and hardware that a bit-exact
    repetition needs besides the options. peak: operations per second of float32 products if CPUs
    train; else 0. low: whether these CPUs compute products of bfloat16 much faster.
    """

    device: str
    rate: float
    memory: int | None
    environment: Mapping[str, str | int]
    peak: float = 0.0
    low: bool = False

    @classmethod
    def measured(cls, device: str) -> Machine:
        """Measures this machine, with the device that `usable_device` returns; of several ranks,
        the slowest one sets the rate. Raises ConfigError.
        """
        device = usable_device(device)
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(min(torch.get_num_threads(), available_cpus()))
        core, threads = core_rate(), torch.get_num_threads()
        rate = training_rate(device, core, threads, ranks.world_size())
        environment: dict[str, str | int] = {
            "gptx": __version__,
            "torch": str(torch.__version__),
            "threads": threads,
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "ranks": ranks.world_size(),
        }
        low = device == "cpu" and ranks.max_over_ranks(float(not has_fast_bfloat16())) == 0
        peak = core * threads * ranks.world_size() if device == "cpu" else 0.0
        return cls(
            device, 1 / ranks.max_over_ranks(1 / rate), available_memory(), environment, peak, low
        )

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
    given: Mapping[str, Any],
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
    `given` then has all options of its layout.

    Raises ConfigError, TextError, OutOfMemory.
    """
    fixed = {"steps", "step_plan"} & given.keys()
    if minutes is not None and fixed:
        raise ConfigError("minutes", "cannot be combined with `steps`")
    longer = ""
    if minutes is None and not fixed:
        minutes, longer = MINUTES.get(preset_name), "; to train longer: --minutes 15"
    device, rate = machine.device, machine.rate
    values = override(preset(preset_name, device), given)
    if minutes is not None and "eval_interval" not in given:
        values["eval_interval"] = 0
    train = TrainConfig(**only_fields(TrainConfig, values))
    train_ids, val_ids = corpus.split(train.val_fraction, block_size=1)
    kept = {"weight_decay"} if parent else set()  # more would undo the parent's learning
    recipe = Recipe(
        model=ModelConfig(vocab_size=len(corpus.vocabulary), **only_fields(ModelConfig, values)),
        train=train,
        given=frozenset(given) | kept,
        fitted=preset_name in FITTED_PRESETS,
        train_characters=len(train_ids),
        val_characters=len(val_ids) - 1,
        longest_context=corpus.longest_context(train.val_fraction),
    )
    recipe = fit_precision(recipe, machine.low)
    if machine.low and recipe.train.precision == "bfloat16":
        rate *= LOW_GAIN
    recipe = fit_size(recipe, device, 60 * minutes * rate if minutes else math.inf)
    recipe = fit_memory(recipe, device)
    speed = estimate(recipe, rate, recipe.train_characters, machine.ranks)
    if minutes is not None:
        recipe = fit_time(recipe, speed, 60 * minutes)
    recipe, budget = fit_evaluations(fit_to_corpus(recipe), speed), None
    if minutes is not None:
        budget = costs(recipe, speed, 60 * minutes, recipe.most_steps)
    recipe = recipe.changed(warmup_steps=min(train.warmup_steps, recipe.train.steps // 10))
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
        budget=budget,
        val_characters=recipe.val_characters,
        baseline=baseline,
        parent=parent,
    )
    plan = complete_plan(corpus, manifest, machine, speed)
    return replace(plan, why=recipe.why, longer=longer if plan.has_time_budget else "")


def resume_plan(
    checkpoint: Checkpoint,
    corpus: Corpus,
    given: Mapping[str, Any],
    machine: Machine,
    minutes: float | None = None,
) -> Plan:
    """The plan of a resumed run. minutes: train this much longer, in a new cycle of the learning
    rate that starts after the last step. Raises ConfigError for an option that would change the
    steps made so far, and for more time if the run has read its text as often as gptx plans.
    """
    stored = checkpoint.manifest
    if minutes is not None and "steps" in given:
        raise ConfigError("minutes", "cannot be combined with `steps`")
    known = {**vars(stored.model), **vars(stored.train)}
    for name, value in given.items():
        if name not in fields_of(Changeable) and known[name] != value:
            raise ConfigError(
                name,
                f"this run has {known[name]}, not {value}; leave the option out, or train a new "
                "run",
            )
    changed = only_fields(Changeable, given)
    if changed.get("steps", stored.train.steps) != stored.train.steps:
        changed["step_plan"] = ""  # an ordinary schedule with this many steps
    train = replace(stored.train, **changed)
    if train.steps < stored.step:
        raise ConfigError("steps", f"this run has already done {stored.step}")
    here = machine.environment
    warnings = [
        f"not bit-exact: this run was trained with {name} {value}, now it is {here[name]}"
        for name, value in stored.environment.items()
        if name in here and here[name] != value
    ]
    if train.micro_batch_size != stored.train.micro_batch_size:
        warnings.append("not bit-exact: another micro-batch size rounds sums differently")
    if train.steps != stored.train.steps:
        warnings.append(
            f"the schedule now ends at step {train.steps:,}, not {stored.train.steps:,}"
        )
    train_ids, val_ids = corpus.split(train.val_fraction, stored.model.block_size)
    budget = stored.budget if train.steps == stored.train.steps else None
    manifest = replace(stored, train=train, val_characters=len(val_ids) - 1, budget=budget)
    speed = estimate(manifest, machine.rate, len(train_ids), machine.ranks)
    if manifest.step:
        speed = replace(speed, seconds_per_step=manifest.seconds / manifest.step)
    if minutes is not None:
        manifest = _prolonged(manifest, speed, 60 * minutes, len(train_ids))
    plan = complete_plan(corpus, manifest, machine, speed)
    return replace(plan, warnings=tuple(warnings))


def _prolonged(manifest: Manifest, speed: Speed, seconds: float, characters: int) -> Manifest:
    """The manifest with this many seconds more, but within the epochs that its preset allows on a
    text of `characters`. Raises ConfigError if they are used up.
    """
    step, most = manifest.step, 0
    if manifest.preset in FITTED_PRESETS:
        most = MOST_EPOCHS * characters // manifest.step_characters
        epochs = step * manifest.step_characters / characters
        require(
            step < most,
            "minutes",
            f"the run has read its text {epochs:.0f} times; more would learn it by heart. Train "
            f"on more text, or give `steps={2 * step}`",
        )
    budget = replace(costs(manifest, speed, seconds, most), since=manifest.elapsed)
    if manifest.budget:
        known = {name: getattr(manifest.budget, name) for name in ("evaluating", "saving")}
        budget = replace(budget, **known)
    steps = step + max(1, round(seconds / speed.seconds_per_step))
    steps = min(steps, most) if most else steps
    train = replan_steps(manifest.train, step, steps, manifest.train.evaluations, cycle=True)
    train = budget.replan(train, step, manifest.elapsed)
    return replace(manifest, train=train, budget=budget, since_best=0)


def complete_plan(corpus: Corpus, manifest: Manifest, machine: Machine, speed: Speed) -> Plan:
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
        peak=machine.peak,
        speed=speed,
        baseline=baseline,
        train_characters=len(train_ids),
        val_characters=len(val_ids),
        rare=decode(np.flatnonzero((in_train > 0) & (in_train < RARE))),
        only_in_val=decode(np.flatnonzero((in_train == 0) & (in_val > 0))),
    )
