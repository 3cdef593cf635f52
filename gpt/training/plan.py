"""Plans a training before its first step: what is trained, on which text, how long it takes, and
the baseline loss. For a resumed run: which options may change, and which warnings the user gets.

The presets default and best are fitted to the corpus and the time. The limits of a corpus (epochs,
dropout, context) apply on every device; the shapes are for CPUs. Evaluations are fitted for every
preset. The numbers come from measurements (benchmarks/LOG.md).
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
from gpt.config.train import FITTED_PRESETS, MINUTES, MOST_STEPS, ChangeableOptions, preset_values
from gpt.corpus.corpus import Corpus
from gpt.counting.baseline import PIECES, HeldOut, count_baseline
from gpt.devices import available_cpus, available_memory, check_device, resolve_device
from gpt.storage.manifest import Baseline, Clock, Manifest, Parent
from gpt.storage.run import Checkpoint
from gpt.training import ranks
from gpt.training.progress import UNKNOWN, Speed
from gpt.training.step import check_memory

RATED = 500  # products that are timed
LATER_PEAK = 0.5  # a finished run that goes on begins again at this share of `learning_rate`


def _shape(
    n_layer: int, n_head: int, n_embd: int, block_size: int, batch_size: int
) -> dict[str, Any]:
    return dict(locals())


#: Shapes for a CPU, from the least work a character to the most. A run takes a shape if it has the
#: time to train it on the first number of characters, or twice on all epochs of a smaller text (a
#: busy machine makes half of the steps), and if all epochs of its text have the second number. With
#: less time or text, the shape before it ends with a lower loss; so more time does not make the
#: loss worse. One shape also sets the dropout with which it was measured, unless the user has given
#: other layers or another width.
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
LEAST_STEPS = 250  # in MOST_EPOCHS on a GPU; a CPU makes more on 20,000 characters
#: Most logits that a CPU computes at once in a step, unless one sequence has more: 8 MB, and as
#: much for their probabilities and for their gradient.
LOGITS = 2**21

#: Dropout for each unit of the tendency to memorise (epochs × matrix entries / characters), and the
#: most; below PRESSURE none, as it raises the loss there. For presets without dropout.
DROPOUT_OF_PRESSURE, DROPOUT, PRESSURE = 1 / 400, 0.1, 15.0
#: Weight decay × steps in an epoch, for the same presets: a constant, as the weights then average
#: over as many epochs in each text (Wang & Aitchison 2024); and the most decay for each epoch.
DECAY, DECAY_OF_EPOCH = 250, 0.2

EVALUATIONS_SHARE = 0.05  # most of the training's time that all evaluations take
LEAST_READ = 2_000  # characters that an evaluation reads, if the split has them
STEPS_SHARE = 0.9  # of a time budget, about; the rest is for evaluations and saves

#: What a run's time is estimated from; its own steps then correct it. The share of the cores' rate
#: that training reaches; threads that speed up steps of these sizes; seconds that a layer takes in
#: a step, however small it is.
REACHED, MOST_THREADS, PER_LAYER = 0.7, 8, 2e-3
OTHER_FLOPS = {"cuda": 5e13, "mps": 2e12}  # operations per second of training on other devices
#: Operations of Muon in a step, for each of the blocks' weights and each of n_embd; how many times
#: as fast a CPU with fast bfloat16 makes a step in it; seconds to mix one probability of counting
#: with the GPT's; bytes per second that a save hashes and writes.
ORTHOGONALISING, LOW_GAIN, MIXING, SAVED = 25, 1.5, 2e-7, 10**8


def _core_rate() -> float:
    """Operations per second of one core, in small float32 matrix products. The fastest one counts,
    so other work on the machine changes the rate by a few per cent only.
    """
    a, b = np.random.default_rng(1).random((2, 64, 64), np.float32)
    product = np.empty_like(a)
    times = timeit.repeat(lambda: np.matmul(a, b, out=product), number=1, repeat=RATED)
    return 2 * 64**3 / min(times)


def try_device(device: str) -> None:
    """Computes on a device. Raises whatever torch raises."""
    torch.ones(1, device=device).add(1).item()


@dataclass(frozen=True)
class Machine:
    """What a plan depends on. rate: estimated operations per second of training, of all ranks
    together. memory: free bytes; None if the system does not report it. environment: versions and
    hardware that a bit-exact repetition needs besides the options. low: whether these CPUs compute
    products of bfloat16 much faster.
    """

    device: str
    rate: float
    memory: int | None
    environment: Mapping[str, str | int]
    low: bool = False

    @classmethod
    def measured(cls, device: str) -> Machine:
        """Measures this machine; of several ranks, the slowest one sets the rate. A device must
        compute; several ranks have chosen it before (`ranks.join`). Raises ConfigError.
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
        has_low = bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())
        low = device == "cpu" and ranks.reduce(float(not has_low), "MAX") == 0
        rate = 1 / ranks.reduce(1 / (rate * size), "MAX")
        return cls(device, rate, available_memory(), environment, low)

    @property
    def ranks(self) -> int:
        """The number of processes that train."""
        return int(self.environment["ranks"])


@dataclass(frozen=True)
class Plan:
    """The planned training. manifest: of the run's start, or of the step to resume. fixed: options
    that the user has set. steps: in all; with a time budget, an estimate. longer: whether the time
    is the preset's, so that the user may want more.
    """

    corpus: Corpus
    manifest: Manifest
    machine: Machine
    train_characters: int
    fixed: frozenset[str] = frozenset()
    speed: Speed = UNKNOWN
    steps: int = 0
    warnings: tuple[str, ...] = ()
    longer: bool = False

    def changed(self, **values: Any) -> Plan:
        """With other values, except for options that the user has set."""
        values = {name: value for name, value in values.items() if name not in self.fixed}
        manifest = self.manifest
        model = replace(manifest.model, **only_fields(ModelConfig, values))
        train = replace(manifest.train, **only_fields(TrainConfig, values))
        return replace(self, manifest=replace(manifest, model=model, train=train))

    @property
    def is_fitted(self) -> bool:
        """Whether the corpus limits the steps, and decides shape and dropout."""
        return self.manifest.preset in FITTED_PRESETS

    @property
    def most_steps(self) -> int:
        """The most steps, at least one: those of MOST_EPOCHS epochs, if the preset is fitted."""
        epochs = MOST_EPOCHS * self.train_characters // self.manifest.step_characters
        return max(1, epochs) if self.is_fitted else MOST_STEPS

    @property
    def ends_by_time(self) -> bool:
        """Whether the time ends the training, and not the number of steps."""
        return self.steps < self.manifest.train.steps

    @property
    def seconds_left(self) -> float:
        """The time in seconds from the current step to the last save, about; evaluations and saves
        take what STEPS_SHARE leaves.
        """
        manifest, clock = self.manifest, self.manifest.clock
        if clock is not None and self.ends_by_time:
            return max(0.0, clock.ends - manifest.elapsed)
        return max(0, self.steps - manifest.step) * self.speed.step / STEPS_SHARE

    @property
    def baseline(self) -> Baseline:
        """The loss of counting."""
        assert self.manifest.baseline is not None
        return self.manifest.baseline

    @property
    def uniform(self) -> float:
        """The loss of equal probabilities for all characters of the vocabulary."""
        return math.log(len(self.corpus.vocabulary))


def make_plan(
    corpus: Corpus,
    asked: Mapping[str, Any],
    preset_name: str,
    machine: Machine,
    minutes: float | None = None,
    *,
    baseline: Baseline | None = None,
    parent: Parent | None = None,
) -> Plan:
    """Plans a new run: the preset's values, overridden by those asked for. `minutes` fits it to a
    time. A pure function of its arguments, so all ranks make the same plan.

    baseline: counting's loss; None: count now. parent: the model whose weights the run starts with;
    `asked` then has all options of its layout. Raises ConfigError, TextError, OutOfMemory.
    """
    longer = False
    if "steps" in asked:
        require(minutes is None, "minutes", "cannot be combined with `steps`")
    elif minutes is None:
        minutes = MINUTES.get(preset_name)
        longer = minutes is not None
    values = preset_values(preset_name, machine.device, asked)
    if minutes is not None and "eval_interval" not in asked:
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
    fixed = frozenset(asked) | ({"weight_decay"} if parent else set())
    plan = Plan(corpus, manifest, machine, len(train_ids), fixed)
    plan = fit(plan, None if minutes is None else 60 * minutes)
    plan = plan.changed(warmup_steps=min(plan.manifest.train.warmup_steps, plan.steps // 10))
    if minutes is not None:
        plan = plan.changed(steps=plan.most_steps)
        timed = replace(plan.manifest, clock=Clock(seconds=60 * minutes))
        plan = replace(plan, manifest=timed, longer=longer and plan.steps < timed.train.steps)
    return _complete(plan)


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
            name in fields_of(ChangeableOptions) or known[name] == value,
            name,
            f"this run has {known[name]}, not {value}; leave the option out, or train a new run",
        )
    train = replace(stored.train, **only_fields(ChangeableOptions, asked))
    require(train.steps >= stored.step, "steps", f"this run has already done {stored.step}")
    clock = None if "steps" in asked else stored.clock
    train_ids, val_ids = corpus.split(train.val_fraction, stored.model.block_size)
    manifest = replace(stored, train=train, val_characters=len(val_ids) - 1, clock=clock)
    plan = Plan(corpus, manifest, machine, len(train_ids))
    speed = estimate(plan, machine.rate)
    if manifest.step:
        speed = replace(speed, step=manifest.seconds / manifest.step)
    if minutes is not None:
        manifest = _prolonged(plan, 60 * minutes)
    steps = manifest.train.steps
    if manifest.clock is not None:
        left = max(0.0, manifest.clock.ends - manifest.elapsed)
        steps = min(steps, manifest.step + max(1, int(left / speed.step)))
    warnings: tuple[str, ...] = ()
    if manifest.clock is None:  # the clock repeats nothing
        warnings = tuple(
            f"not bit-exact: this run was trained with {name} {value}, now it is {now}"
            for name, value in stored.environment.items()
            if (now := machine.environment.get(name, value)) != value
        )
    return _complete(replace(plan, manifest=manifest, speed=speed, steps=steps, warnings=warnings))


def _prolonged(plan: Plan, seconds: float) -> Manifest:
    """The manifest with this many seconds more, but within the epochs that its preset allows on its
    text. A finished run begins again at LATER_PEAK; another one goes on from the learning rate that
    it has. Raises ConfigError if the epochs are used up.
    """
    manifest, most = plan.manifest, plan.most_steps
    step, clock = manifest.step, manifest.clock
    epochs = step * manifest.step_characters / plan.train_characters
    require(
        step < most,
        "minutes",
        f"the run has read its text {epochs:.0f} times; more would learn it by heart. Train "
        f"on more text, or give `steps={2 * step}`",
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


def _complete(plan: Plan) -> Plan:
    """The plan with its baseline, which is counted if the manifest has none. Raises OutOfMemory,
    TextError.
    """
    manifest, machine = plan.manifest, plan.machine
    model, train = manifest.model, manifest.train
    if machine.device == "cpu" and machine.memory is not None:
        check_memory(model, train, machine.memory, machine.ranks)
    train_ids, val_ids = plan.corpus.split(train.val_fraction, model.block_size)
    baseline = manifest.baseline or count_baseline(train_ids, val_ids, model.vocab_size)
    return replace(plan, manifest=replace(manifest, baseline=baseline))


def fit(plan: Plan, seconds: float | None = None) -> Plan:
    """A new run's plan, fitted to its text, the machine and the seconds given; with its speed."""
    machine, rate = plan.machine, plan.machine.rate
    if machine.low and plan.is_fitted:
        plan = plan.changed(precision="bfloat16")
    if machine.low and plan.manifest.train.precision == "bfloat16":
        rate *= LOW_GAIN
    if plan.is_fitted:
        plan = fit_size(plan, math.inf if seconds is None else seconds * rate)
    if machine.device == "cpu":  # a step's memory then does not grow with the vocabulary
        model = plan.manifest.model
        most = max(1, LOGITS // (model.block_size * model.vocab_size))
        if plan.manifest.train.batch_size > most:
            plan = plan.changed(micro_batch_size=most)
    speed = estimate(plan, rate)
    if seconds is not None:
        plan = plan.changed(steps=max(1, int(STEPS_SHARE * seconds / speed.step)))
    if plan.is_fitted:
        plan = fit_epochs(plan)
    plan = replace(plan, speed=speed, steps=plan.manifest.train.steps)
    return fit_evaluations(plan)


def fit_size(plan: Plan, flops: float = math.inf) -> Plan:
    """The shape or, on a GPU, the batch that suits the corpus, and a context that it allows.

    On a CPU, the largest of SHAPES that the corpus and `flops` operations can train well; without a
    limit on operations, none larger than the preset's. Options that the user has set stay; width
    and number of heads, which must divide it, are chosen together or not at all.
    """
    model, train = plan.manifest.model, plan.manifest.train
    text = MOST_EPOCHS * plan.train_characters
    longest = plan.corpus.longest_context(train.val_fraction)
    if plan.machine.device != "cpu":
        plan = plan.changed(block_size=min(model.block_size, longest))
        most = max(1, int(text / (LEAST_STEPS * plan.manifest.model.block_size)))
        return plan.changed(batch_size=min(train.batch_size, most))
    if {"n_head", "n_embd"} & plan.fixed:
        plan = replace(plan, fixed=plan.fixed | {"n_head", "n_embd"})
    best = plan
    for in_time, in_text, shape in SHAPES:
        larger = plan.changed(**shape)
        own = larger.manifest.model
        if (own.n_layer, own.n_embd) != (shape["n_layer"], shape["n_embd"]):
            larger = larger.changed(dropout=model.dropout)
        allowed = flops < math.inf or weights(own) <= weights(model)
        needed = min(in_time, 2 * text) * own.training_flops
        if allowed and text >= in_text and flops >= needed:
            best = larger
    return best.changed(block_size=min(best.manifest.model.block_size, longest))


def fit_epochs(plan: Plan) -> Plan:
    """Limits the steps to MOST_EPOCHS epochs; sets dropout and weight decay by the number of epochs
    and the model's size. A preset with dropout (as for a GPU) keeps its share of dropped
    activations and its decay.
    """
    plan = plan.changed(steps=min(plan.manifest.train.steps, plan.most_steps))
    model, train, characters = plan.manifest.model, plan.manifest.train, plan.train_characters
    epochs = train.steps * plan.manifest.step_characters / characters
    pressure = epochs * weights(model) / characters
    if pressure >= PRESSURE and model.dropout and "dropout" not in plan.fixed:
        return plan
    dropout = 0.0
    if pressure >= PRESSURE:
        dropout = min(DROPOUT, round(DROPOUT_OF_PRESSURE * pressure, 2))
    decay = DECAY * plan.manifest.step_characters / characters
    decay = round(min(decay, DECAY_OF_EPOCH * min(epochs, MOST_EPOCHS)), 2)
    return plan.changed(dropout=dropout, weight_decay=max(train.weight_decay, decay))


def fit_evaluations(plan: Plan) -> Plan:
    """Evaluations that together take at most EVALUATIONS_SHARE of the time of all steps.

    The cost of an evaluated character, as a multiple of a trained one's, is rounded up to a power
    of two, so that slightly different speeds give the same number of characters.
    """
    train, in_step = plan.manifest.train, plan.manifest.step_characters
    trained = plan.speed.step / in_step
    cost = 2.0 ** math.ceil(math.log2(max(plan.speed.character / trained, 1e-3)))
    evaluations = train.evaluations
    if train.eval_interval:
        evaluations = max(1, train.steps // train.eval_interval)
    characters = EVALUATIONS_SHARE * train.steps * in_step / cost / evaluations
    most = max(LEAST_READ, plan.manifest.model.block_size, int(characters))
    return plan.changed(eval_chars=most if most < plan.manifest.val_characters else 0)


def estimate(plan: Plan, rate: float) -> Speed:
    """The speed of a run that trains with `rate` operations per second."""
    manifest, count = plan.manifest, plan.machine.ranks
    model, characters = manifest.model, manifest.step_characters
    muon = 0.0
    if manifest.train.matrix_lr > 0:
        muon = ORTHOGONALISING * model.n_embd * weights(model) / count
    learning = characters * model.training_flops / rate + PER_LAYER * (model.n_layer + 1)
    forward, mixed, held = learning / characters / 3, 0.0, 0  # seconds for a character
    if model.counting > 0:
        mixed = MIXING * model.vocab_size
        held = HeldOut.of(plan.train_characters, model.vocab_size).length * PIECES
    return Speed(
        step=learning + muon / rate,
        character=forward + mixed / count,
        saving=12 * model.parameters() / SAVED,  # weights and two moments
        fitting=held * (forward + mixed),
    )


def weights(model: ModelConfig) -> int:
    """Entries of the blocks' matrices."""
    return (12 if model.feed_forward else 4) * model.n_layer * model.n_embd**2
