"""Plans a training before its first step: the model, the text, the time, and the loss to reach. The
plan of a resumed run refuses options that must not change, and has warnings for the user.

gptx fits the presets default and best to the corpus and the time. The limits that a corpus sets
(epochs, dropout, context) apply on every device, the shapes only on CPUs. Evaluations are fitted in
every preset. All numbers here come from measurements (benchmarks/LOG.md).
"""

from __future__ import annotations

import math
import os
import timeit
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from gpt import __version__
from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import fields_of, only_fields, require
from gpt.config.train import FITTED_PRESETS, MINUTES, MOST_STEPS, ResumeOptions, preset_values
from gpt.corpus.corpus import Corpus
from gpt.counting.baseline import PIECES, HeldOutPieces
from gpt.devices import available_cpus, available_memory, check_device, resolve_device
from gpt.storage.checkpoint_files import Baseline, Clock, Manifest, Parent
from gpt.storage.run import Checkpoint
from gpt.training import ranks
from gpt.training.progress import UNKNOWN, Speed
from gpt.training.step import check_memory

RATED = 500  # matrix products that are timed
LATER_PEAK = 0.5  # share of `learning_rate` with which a finished run goes on, if it is prolonged


def _shape(
    n_layer: int, n_head: int, n_embd: int, block_size: int, batch_size: int
) -> dict[str, Any]:
    return dict(locals())


#: Shapes for a CPU, from the least work per character to the most. A shape needs enough time to
#: train on the first number of characters. For a small text, the time for 2 * MOST_EPOCHS epochs is
#: enough (twice, as a busy machine makes half of the steps). A shape also needs a text that has the
#: second number of characters in MOST_EPOCHS epochs. With less time or text, the shape before it
#: reaches a lower loss, so more time does not make the loss worse. One shape sets the dropout with
#: which it was measured, unless the user has set another number of layers or another width.
SHAPES = (
    (0, 0, _shape(1, 4, 128, 128, 8)),
    (900_000, 380_000, _shape(2, 4, 128, 128, 8)),
    (2_400_000, 2_500_000, _shape(2, 4, 128, 128, 16)),
    (2_600_000, 6_000_000, _shape(3, 4, 128, 128, 16)),
    (8_000_000, 8_000_000, _shape(4, 4, 128, 128, 16)),
    (12_000_000, 12_000_000, _shape(4, 6, 192, 256, 8)),
    (40_000_000, 24_000_000, {**_shape(6, 6, 192, 256, 8), "dropout": 0.2}),
    (28_000_000, 28_000_000, _shape(6, 8, 256, 256, 16)),
)
MOST_EPOCHS = 25  # with more epochs, the model memorises the text
LEAST_STEPS = 250  # on a GPU, the batch size leaves at least so many steps in MOST_EPOCHS epochs
#: Most logits that a CPU computes at once in a step, unless one sequence has more. They take 8 MB;
#: their probabilities and their gradient take as much each.
LOGITS = 2**21

#: For presets without dropout: the dropout per unit of pressure to memorise (epochs × matrix
#: entries / characters), and the most dropout. Below PRESSURE, dropout is 0, as it would raise the
#: loss.
DROPOUT_OF_PRESSURE, DROPOUT, PRESSURE = 1 / 400, 0.1, 15.0
#: For the same presets: weight decay × steps in an epoch, and the largest weight decay divided by
#: the training's number of epochs (at most MOST_EPOCHS). The first is constant, so the weights
#: average over the same number of epochs for every text (Wang & Aitchison 2024).
DECAY, DECAY_OF_EPOCH = 250, 0.2

EVALUATIONS_SHARE = 0.05  # evaluations together take at most this share of the steps' time
LEAST_READ = 2_000  # fewest characters that an evaluation reads, if the split has them
STEPS_SHARE = 0.9  # steps take about this share of a time budget, evaluations and saves the rest

#: For the first estimate of a run's time, which the run's own steps correct: the share of the
#: cores' rate that training reaches; most threads that make steps faster; seconds that even the
#: smallest layer takes in a step.
REACHED, MOST_THREADS, PER_LAYER = 0.7, 8, 2e-3
OTHER_FLOPS = {"cuda": 5e13, "mps": 2e12}  # operations per second of training on other devices
#: For the same estimate: Muon's operations in a step, per weight of the blocks and unit of n_embd;
#: how much faster steps in bfloat16 are on CPUs that have fast bfloat16; seconds to mix a
#: probability of counting with one of the GPT; bytes that a save hashes and writes in a second.
ORTHOGONALISING, BFLOAT16_GAIN, MIXING, SAVED = 25, 1.5, 2e-7, 10**8


def _core_rate() -> float:
    """Measures the operations per second of one core in small float32 matrix products. Only the
    fastest product counts, so other work on the machine changes the rate little.
    """
    a, b = np.random.default_rng(1).random((2, 64, 64), np.float32)
    product = np.empty_like(a)
    times = timeit.repeat(lambda: np.matmul(a, b, out=product), number=1, repeat=RATED)
    return 2 * 64**3 / min(times)


def try_device(device: str) -> None:
    """Computes a sum on a device. Raises what torch raises if that fails."""
    torch.ones(1, device=device).add(1).item()


@dataclass(frozen=True)
class Machine:
    """The machine on which a plan depends.

    rate: estimated operations per second of a training on all ranks together. memory: free bytes;
    None if the system does not report them. environment: versions and hardware, which must be the
    same to repeat a run bit for bit. has_fast_bfloat16: whether the CPUs compute products faster in
    bfloat16.
    """

    device: str
    rate: float
    memory: int | None
    environment: Mapping[str, str | int]
    has_fast_bfloat16: bool = False

    @classmethod
    def measured(cls, device: str) -> Machine:
        """Measures this machine. The slowest rank sets the rate of all. Raises ConfigError if this
        process cannot compute on the device; with several ranks, `ranks.join` has checked this.
        """
        size = ranks.world_size()
        device = resolve_device(device) if size > 1 else check_device(device, try_device)
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(min(torch.get_num_threads(), available_cpus()))
        threads = torch.get_num_threads()
        rate = OTHER_FLOPS.get(device, REACHED * _core_rate() * min(threads, MOST_THREADS))
        environment: dict[str, str | int] = {
            "gptx": __version__,
            "torch": str(torch.__version__),
            "threads": threads,
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "ranks": size,
        }
        # AMX (Intel, since 2023): fast matrix products in bfloat16
        has_amx = bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())
        is_fast = device == "cpu" and ranks.reduce(float(not has_amx), "MAX") == 0
        rate = 1 / ranks.reduce(1 / (rate * size), "MAX")
        return cls(device, rate, available_memory(), environment, is_fast)

    @property
    def ranks(self) -> int:
        """The number of processes that train."""
        return int(self.environment["ranks"])


@dataclass(frozen=True)
class Plan:
    """A planned training. manifest: that of the run's start, or of the step to resume. fixed: names
    of the options that the user has set. steps: the number of all steps; with a time budget, an
    estimate. suggests_longer: whether the preset has set the time, and the text allows more steps.
    """

    corpus: Corpus
    manifest: Manifest
    machine: Machine
    train_characters: int
    fixed: frozenset[str] = frozenset()
    speed: Speed = UNKNOWN
    steps: int = 0
    warnings: tuple[str, ...] = ()
    suggests_longer: bool = False

    def with_options(self, **values: Any) -> Plan:
        """Returns the plan with other values of options, except for those that the user has set."""
        values = {name: value for name, value in values.items() if name not in self.fixed}
        manifest = self.manifest
        model = replace(manifest.model, **only_fields(ModelConfig, values))
        train = replace(manifest.train, **only_fields(TrainConfig, values))
        return replace(self, manifest=replace(manifest, model=model, train=train))

    @property
    def is_fitted(self) -> bool:
        """Whether the corpus and the time decide the steps, the shape and the dropout."""
        return self.manifest.preset in FITTED_PRESETS

    @property
    def most_steps(self) -> int:
        """The most steps: in a fitted preset, those of MOST_EPOCHS epochs; otherwise MOST_STEPS."""
        epochs = MOST_EPOCHS * self.train_characters // self.manifest.step_characters
        return max(1, epochs) if self.is_fitted else MOST_STEPS

    @property
    def ends_by_time(self) -> bool:
        """Whether the time budget, and not the number of steps, ends the training."""
        return self.steps < self.manifest.train.steps

    @property
    def seconds_left(self) -> float:
        """The estimated seconds from the current step to the last save."""
        manifest, clock = self.manifest, self.manifest.clock
        if clock is not None and self.ends_by_time:
            return max(0.0, clock.end_elapsed - manifest.elapsed)
        return max(0, self.steps - manifest.step) * self.speed.step / STEPS_SHARE

    @property
    def baseline(self) -> Baseline:
        """The losses of counting."""
        assert self.manifest.baseline is not None
        return self.manifest.baseline

    @property
    def uniform_loss(self) -> float:
        """The loss if all characters of the vocabulary are equally likely."""
        return math.log(len(self.corpus.vocabulary))


def make_plan(
    corpus: Corpus,
    options: Mapping[str, Any],
    preset_name: str,
    machine: Machine,
    minutes: float | None = None,
    *,
    baseline: Baseline,
    parent: Parent | None = None,
) -> Plan:
    """Plans a new run with the values of a preset, except for the options that the user has set.
    This is a pure function, so all ranks make the same plan.

    minutes: a time budget. baseline: the losses of counting. parent: the model whose weights the
    run starts with; the options then include its layout. Raises ConfigError, TextError,
    OutOfMemory.
    """
    is_default_time = minutes is None
    if "steps" in options:
        require(minutes is None, "minutes", "cannot be combined with `steps`")
    elif minutes is None:
        minutes = MINUTES.get(preset_name)
    values = preset_values(preset_name, machine.device, options)
    if minutes is not None and "eval_interval" not in options:
        values["eval_interval"] = 0
    train = TrainConfig(**only_fields(TrainConfig, values))
    train_ids, val_ids = corpus.split(train.val_fraction, block_size=1)
    manifest = Manifest(
        step=0,
        model=ModelConfig(vocab_size=len(corpus.vocabulary), **only_fields(ModelConfig, values)),
        train=train,
        preset=preset_name,
        vocabulary=corpus.vocabulary,
        corpus=corpus.identity,
        seconds=0.0,
        running=(0.0, 0),
        environment={**machine.environment},
        val_characters=len(val_ids) - 1,
        baseline=baseline,
        parent=parent,
    )
    # more decay would undo the parent's learning
    fixed = frozenset(options) | ({"weight_decay"} if parent else set())
    plan = Plan(corpus, manifest, machine, len(train_ids), fixed)
    plan = fit(plan, None if minutes is None else 60 * minutes)
    plan = plan.with_options(warmup_steps=min(plan.manifest.train.warmup_steps, plan.steps // 10))
    if minutes is not None:
        plan = plan.with_options(steps=plan.most_steps)
        manifest = replace(plan.manifest, clock=Clock(seconds=60 * minutes))
        longer = is_default_time and plan.steps < manifest.train.steps
        plan = replace(plan, manifest=manifest, suggests_longer=longer)
    _check_resources(plan)
    return plan


def resume_plan(
    checkpoint: Checkpoint,
    corpus: Corpus,
    options: Mapping[str, Any],
    machine: Machine,
    minutes: float | None = None,
) -> Plan:
    """Plans the rest of a resumed run. minutes: a budget for the rest. Raises ConfigError for an
    option that would change earlier steps, and for minutes if the run has made MOST_EPOCHS epochs.
    """
    stored = checkpoint.manifest
    require(minutes is None or "steps" not in options, "minutes", "cannot be combined with `steps`")
    of_run = {**vars(stored.model), **vars(stored.train)}
    for name, value in options.items():
        require(
            name in fields_of(ResumeOptions) or of_run[name] == value,
            name,
            f"this run has {of_run[name]}, not {value}; leave the option out, or train a new run",
        )
    train = replace(stored.train, **only_fields(ResumeOptions, options))
    require(train.steps >= stored.step, "steps", f"this run has already done {stored.step}")
    clock = None if "steps" in options else stored.clock
    train_ids, val_ids = corpus.split(train.val_fraction, stored.model.block_size)
    manifest = replace(stored, train=train, val_characters=len(val_ids) - 1, clock=clock)
    plan = Plan(corpus, manifest, machine, len(train_ids))
    speed = estimate_speed(plan, machine.rate)
    if manifest.step:
        speed = replace(speed, step=manifest.seconds / manifest.step)
    if minutes is not None:
        manifest = _prolonged(plan, 60 * minutes)
    steps = manifest.train.steps
    if manifest.clock is not None:
        left = max(0.0, manifest.clock.end_elapsed - manifest.elapsed)
        steps = min(steps, manifest.step + max(1, int(left / speed.step)))
    # a timed run cannot be repeated bit for bit
    warnings = tuple(
        f"not bit-exact: this run was trained with {name} {value}, now it is {now}"
        for name, value in stored.environment.items()
        if manifest.clock is None and (now := machine.environment.get(name, value)) != value
    )
    plan = replace(plan, manifest=manifest, speed=speed, steps=steps, warnings=warnings)
    _check_resources(plan)
    return plan


def _prolonged(plan: Plan, seconds: float) -> Manifest:
    """Returns the manifest with this many seconds more, within the epochs that its preset allows. A
    finished run goes on with learning rates up to LATER_PEAK · learning_rate; an unfinished run
    keeps its present learning rate. Raises ConfigError if no epochs are left.
    """
    manifest, most = plan.manifest, plan.most_steps
    step, clock = manifest.step, manifest.clock
    epochs = step * manifest.step_characters / plan.train_characters
    require(
        step < most,
        "minutes",
        f"the run has read its text {epochs:.0f} times; with more, the model would learn it "
        f"by heart. Train on more text, or give `steps={2 * step}`",
    )
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


def _check_resources(plan: Plan) -> None:
    """Raises OutOfMemory if a step needs too much memory, TextError if the corpus is too short."""
    model, train, machine = plan.manifest.model, plan.manifest.train, plan.machine
    if machine.device == "cpu" and machine.memory is not None:
        check_memory(model, train, machine.memory, machine.ranks)
    plan.corpus.split(train.val_fraction, model.block_size)


def fit(plan: Plan, seconds: float | None = None) -> Plan:
    """Fits the plan of a new run to its text, the machine and a time budget."""
    machine, rate = plan.machine, plan.machine.rate
    if machine.has_fast_bfloat16 and plan.is_fitted:
        plan = plan.with_options(precision="bfloat16")
    if machine.has_fast_bfloat16 and plan.manifest.train.precision == "bfloat16":
        rate *= BFLOAT16_GAIN
    if plan.is_fitted:
        plan = fit_size(plan, math.inf if seconds is None else seconds * rate)
    if machine.device == "cpu":  # so that a step's memory does not grow with the vocabulary
        model = plan.manifest.model
        most = max(1, LOGITS // (model.block_size * model.vocab_size))
        if plan.manifest.train.batch_size > most:
            plan = plan.with_options(micro_batch_size=most)
    speed = estimate_speed(plan, rate)
    if seconds is not None:
        plan = plan.with_options(steps=max(1, int(STEPS_SHARE * seconds / speed.step)))
    if plan.is_fitted:
        plan = fit_epochs_and_regularisation(plan)
    plan = replace(plan, speed=speed, steps=plan.manifest.train.steps)
    return fit_evaluations(plan)


def fit_size(plan: Plan, flops: float = math.inf) -> Plan:
    """Fits the context to the corpus, and on a CPU the shape, on a GPU the batch size.

    On a CPU, this takes the largest of SHAPES for which the text and `flops` operations suffice.
    Without a limit of operations, it takes no shape that is larger than the preset's. Options that
    the user has set stay. If the user has set one of n_head and n_embd, both stay, as n_head must
    divide n_embd.
    """
    model, train = plan.manifest.model, plan.manifest.train
    text = MOST_EPOCHS * plan.train_characters
    longest = plan.corpus.longest_context(train.val_fraction)
    if plan.machine.device != "cpu":
        plan = plan.with_options(block_size=min(model.block_size, longest))
        most = max(1, int(text / (LEAST_STEPS * plan.manifest.model.block_size)))
        return plan.with_options(batch_size=min(train.batch_size, most))
    if {"n_head", "n_embd"} & plan.fixed:
        plan = replace(plan, fixed=plan.fixed | {"n_head", "n_embd"})
    best = plan
    for in_time, in_text, shape in SHAPES:
        larger = plan.with_options(**shape)
        fitted = larger.manifest.model
        if (fitted.n_layer, fitted.n_embd) != (shape["n_layer"], shape["n_embd"]):
            larger = larger.with_options(dropout=model.dropout)
        allowed = flops < math.inf or block_weights(fitted) <= block_weights(model)
        needed = min(in_time, 2 * text) * fitted.training_flops
        if allowed and text >= in_text and flops >= needed:
            best = larger
    return best.with_options(block_size=min(best.manifest.model.block_size, longest))


def fit_epochs_and_regularisation(plan: Plan) -> Plan:
    """Limits the steps to MOST_EPOCHS epochs, and sets dropout and weight decay by the number of
    epochs and the size of the model. If the pressure to memorise is high, a preset with dropout
    keeps its dropout and its decay.
    """
    plan = plan.with_options(steps=min(plan.manifest.train.steps, plan.most_steps))
    model, train, characters = plan.manifest.model, plan.manifest.train, plan.train_characters
    epochs = train.steps * plan.manifest.step_characters / characters
    pressure = epochs * block_weights(model) / characters
    if pressure >= PRESSURE and model.dropout and "dropout" not in plan.fixed:
        return plan
    dropout = 0.0
    if pressure >= PRESSURE:
        dropout = min(DROPOUT, round(DROPOUT_OF_PRESSURE * pressure, 2))
    decay = DECAY * plan.manifest.step_characters / characters
    decay = round(min(decay, DECAY_OF_EPOCH * min(epochs, MOST_EPOCHS)), 2)
    return plan.with_options(dropout=dropout, weight_decay=max(train.weight_decay, decay))


def fit_evaluations(plan: Plan) -> Plan:
    """Limits the characters that an evaluation reads, so that all evaluations take at most
    EVALUATIONS_SHARE of the steps' time.

    The quotient of the times for an evaluated and a trained character is rounded up to a power of
    two, so that slightly different speeds give the same number of characters.
    """
    train, in_step = plan.manifest.train, plan.manifest.step_characters
    trained = plan.speed.step / in_step
    cost = 2.0 ** math.ceil(math.log2(max(plan.speed.character / trained, 1e-3)))
    evaluations = train.evaluations
    if train.eval_interval:
        evaluations = max(1, train.steps // train.eval_interval)
    characters = EVALUATIONS_SHARE * train.steps * in_step / cost / evaluations
    most = max(LEAST_READ, plan.manifest.model.block_size, int(characters))
    return plan.with_options(eval_chars=most if most < plan.manifest.val_characters else 0)


def estimate_speed(plan: Plan, rate: float) -> Speed:
    """Estimates the speed of a run that trains with `rate` operations per second."""
    manifest, count = plan.manifest, plan.machine.ranks
    model, characters = manifest.model, manifest.step_characters
    muon = 0.0
    if manifest.train.matrix_lr > 0:
        muon = ORTHOGONALISING * model.n_embd * block_weights(model) / count
    learning = characters * model.training_flops / rate + PER_LAYER * (model.n_layer + 1)
    forward, mixed, held = learning / characters / 3, 0.0, 0  # seconds for a character
    if model.counting > 0:
        mixed = MIXING * model.vocab_size
        held = HeldOutPieces.of_split(plan.train_characters, model.vocab_size).length * PIECES
    return Speed(
        step=learning + muon / rate,
        character=forward + mixed / count,
        saving=12 * model.parameters() / SAVED,  # weights and two moments
        fitting=held * (forward + mixed),
    )


def block_weights(model: ModelConfig) -> int:
    """Counts the entries of all matrices of the blocks."""
    return (12 if model.feed_forward else 4) * model.n_layer * model.n_embd**2
