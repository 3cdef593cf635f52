"""Options fitted to a corpus and a time, for the presets default and best, with reasons.

The limits of a corpus (epochs, dropout, context) apply on every device. The shapes are for
CPUs; on a GPU the preset's shape stays. The numbers come from measurements (benchmarks/LOG.md).
Evaluations are fitted for every preset: they read as much of the validation split as
EVALUATIONS_SHARE of the time allows.

Pure functions of the text's length and the machine's speed; the text itself is not read here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.counting.held_out import PIECES, HeldOut
from gpt.storage.manifest import Manifest
from gpt.words import counted


def _shape(
    n_layer: int, n_head: int, n_embd: int, block_size: int, batch_size: int
) -> dict[str, Any]:
    return dict(locals())


#: Shapes for a CPU, from the least work a character to the most. A run takes a shape if it has the
#: time to train it on the first number of characters, or twice on all epochs of a smaller text (a
#: busy machine makes half of the steps), and if all epochs of its text have the second number. With
#: less time or text, the shape before it ends with a lower loss (benchmarks/LOG.md); so more time
#: does not make the loss worse. One shape also sets the dropout with which it was measured, unless
#: the user has given other layers or another width.
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
#: most; below PRESSURE none, as it raises the loss there (benchmarks/LOG.md). For presets without
#: dropout.
DROPOUT_OF_PRESSURE, DROPOUT, PRESSURE = 1 / 400, 0.1, 15.0
#: Weight decay × steps in an epoch, for the same presets: a constant, as the weights then average
#: over as many epochs in each text (Wang & Aitchison 2024); and the most decay for each epoch.
DECAY, DECAY_OF_EPOCH = 250, 0.2

EVALUATIONS_SHARE = 0.05  # most of the training's time that all evaluations take
LEAST_READ = 2_000  # characters that an evaluation reads, if the split has them
STEPS_SHARE = 0.9  # of a time budget, about; the rest is for evaluations and saves

#: What a run's time is estimated from before its first step; its own steps then correct it. The
#: share of the cores' rate that training reaches; threads that speed up steps of these sizes;
#: seconds that a layer takes in a step, however small it is; operations per second of training on
#: another device; seconds to mix one probability of counting with the GPT's; bytes per second that
#: a save hashes and writes; seconds of the sample that follows a save.
REACHED, MOST_THREADS, PER_LAYER = 0.7, 8, 2e-3
#: Operations of Muon in a step, for each of the blocks' weights and each of n_embd; and how many
#: times as fast a CPU with fast bfloat16 makes a step in it.
ORTHOGONALISING, LOW_GAIN = 25, 1.5
OTHER_FLOPS = {"cuda": 5e13, "mps": 2e12}
MIXING = 2e-7
SAVED = 10**8
SAMPLING = 0.1


@dataclass(frozen=True)
class Recipe:
    """A model's shape, how it learns, and why so, for the user; and what decides it.

    fixed: options that the user has set. fitted: whether the corpus limits the steps, and decides
    shape and dropout. train_characters: to train on. val_characters: to predict in the validation
    split. longest_context: the largest block_size that the corpus allows.
    """

    model: ModelConfig
    train: TrainConfig
    fixed: frozenset[str]
    fitted: bool
    train_characters: int
    val_characters: int
    longest_context: int
    why: tuple[str, ...] = ()

    @property
    def step_characters(self) -> int:
        """How many characters a step learns to predict."""
        return self.train.batch_size * self.model.block_size

    @property
    def most_characters(self) -> int:
        """Characters of MOST_EPOCHS epochs."""
        return MOST_EPOCHS * self.train_characters

    @property
    def most_steps(self) -> int:
        """The steps of MOST_EPOCHS epochs, at least one; 0: no limit, as nothing is fitted."""
        return max(1, self.most_characters // self.step_characters) if self.fitted else 0

    def changed(self, why: str = "", **values: Any) -> Recipe:
        """With other values, except for options that the user has given; with the reason `why`,
        unless the user has given all of them.
        """
        if values and values.keys() <= self.fixed:
            return self
        values = {name: value for name, value in values.items() if name not in self.fixed}
        return replace(
            self,
            model=replace(self.model, **only_fields(ModelConfig, values)),
            train=replace(self.train, **only_fields(TrainConfig, values)),
            why=(*self.why, why) if why else self.why,
        )


@dataclass(frozen=True)
class Speed:
    """Seconds of a step, of evaluating one character, of a save with its sample, and of fitting the
    gate of counting, which comes with each evaluation.
    """

    step: float = 0.0
    character: float = 0.0
    saving: float = 0.0
    fitting: float = 0.0


UNKNOWN = Speed()


def training_rate(device: str, core: float, threads: int, ranks: int = 1) -> float:
    """Operations per second of training, estimated. core: those of one core (devices.core_rate)."""
    one = OTHER_FLOPS.get(device, REACHED * core * min(threads, MOST_THREADS))
    return one * ranks


def estimate(run: Recipe | Manifest, rate: float, train_characters: int, ranks: int = 1) -> Speed:
    """The speed of a run that trains with `rate` operations per second."""
    model, characters = run.model, run.step_characters
    muon = ORTHOGONALISING * model.n_embd * weights(model) * (run.train.matrix_lr > 0) / ranks
    learning = characters * model.training_flops / rate + PER_LAYER * (model.n_layer + 1)
    per_step = learning + muon / rate
    forward = learning / characters / 3  # seconds for one character
    mixed = MIXING * model.vocab_size * (model.counting > 0) / ranks
    held = HeldOut.of(train_characters, model.vocab_size).length * PIECES
    return Speed(
        step=per_step,
        character=forward + mixed,
        saving=12 * model.parameters() / SAVED + SAMPLING,  # weights and two moments
        fitting=held * (forward + MIXING * model.vocab_size) * (model.counting > 0),
    )


def weights(model: ModelConfig) -> int:
    """Entries of the blocks' matrices."""
    return (12 if model.feed_forward else 4) * model.n_layer * model.n_embd**2


def fit_precision(recipe: Recipe, low: bool) -> Recipe:
    """Products in bfloat16, if the machine is a CPU on which they are fast (`low`)."""
    if not (low and recipe.fitted):
        return recipe
    return recipe.changed("products in bfloat16, fast on this CPU", precision="bfloat16")


def fit_size(recipe: Recipe, device: str, flops: float = math.inf) -> Recipe:
    """The shape and the context, or on a GPU the batch and the context, that suit the corpus."""
    if not recipe.fitted:
        return recipe
    recipe = fit_shape(recipe, flops) if device == "cpu" else recipe
    longest = recipe.longest_context
    if recipe.model.block_size > longest and "block_size" not in recipe.fixed:
        why = f"a context of {longest}, as the validation text is no longer"
        recipe = recipe.changed(why, block_size=longest)
    return recipe if device == "cpu" else fit_batch(recipe)


def fit_shape(recipe: Recipe, flops: float) -> Recipe:
    """The largest of SHAPES that the corpus and `flops` operations can train well.

    Without a limit on operations, no shape larger than the recipe's. Options that the user gave
    stay; width and number of heads, which must divide it, are chosen together or not at all.
    """
    if {"n_head", "n_embd"} & recipe.fixed:
        recipe = replace(recipe, fixed=recipe.fixed | {"n_head", "n_embd"})
    best = recipe
    text = recipe.most_characters
    for in_time, in_text, shape in SHAPES:
        larger = recipe.changed(**shape)
        if _size(larger.model) != (shape["n_layer"], shape["n_embd"]):
            larger = larger.changed(dropout=recipe.model.dropout)
        allowed = flops < math.inf or weights(larger.model) <= weights(recipe.model)
        needed = min(in_time, 2 * text) * larger.model.training_flops
        if allowed and text >= in_text and flops >= needed:
            best = larger
    if _size(best.model) == _size(recipe.model):
        return best
    size = f"{counted(best.model.n_layer, 'layer')} × {best.model.n_embd}"
    return best.changed(f"{size}, as larger models need more time or more text")


def _size(model: ModelConfig) -> tuple[int, int]:
    return model.n_layer, model.n_embd


def fit_batch(recipe: Recipe) -> Recipe:
    """Fewer sequences per step, if the batch would read a small corpus in a few steps."""
    most = max(1, int(recipe.most_characters / (LEAST_STEPS * recipe.model.block_size)))
    if "batch_size" in recipe.fixed or recipe.train.batch_size <= most:
        return recipe
    why = f"{counted(most, 'sequence')} per step: with "
    steps = max(1, int(recipe.most_characters / recipe.step_characters))
    why += f"{recipe.train.batch_size}, {MOST_EPOCHS} epochs would be only {counted(steps, 'step')}"
    return recipe.changed(why, batch_size=most)


def fit_memory(recipe: Recipe, device: str) -> Recipe:
    """On a CPU, micro-batches of at most LOGITS logits: a step's memory then does not grow with the
    number of different characters. It learns the same, as fast.
    """
    most = max(1, LOGITS // (recipe.model.block_size * recipe.model.vocab_size))
    if device != "cpu" or recipe.train.batch_size <= most:
        return recipe
    return recipe.changed(micro_batch_size=most)


def fit_to_corpus(recipe: Recipe) -> Recipe:
    """Limits the steps to MOST_EPOCHS epochs; sets dropout and weight decay by the number of epochs
    and the model's size.

    A preset with dropout (as for a GPU) keeps its share of dropped activations and its decay.
    """
    if not recipe.fitted:
        return recipe
    if recipe.train.steps > recipe.most_steps and "steps" not in recipe.fixed:
        why = f"no more than {MOST_EPOCHS} epochs, or it would learn by heart"
        recipe = recipe.changed(why, steps=recipe.most_steps)
    epochs = recipe.train.steps * recipe.step_characters / recipe.train_characters
    pressure = epochs * weights(recipe.model) / recipe.train_characters
    if pressure >= PRESSURE and recipe.model.dropout and "dropout" not in recipe.fixed:
        return recipe
    dropout = min(DROPOUT, round(DROPOUT_OF_PRESSURE * pressure, 2))
    decay = DECAY * recipe.step_characters / recipe.train_characters
    decay = round(min(decay, DECAY_OF_EPOCH * min(epochs, MOST_EPOCHS)), 2)
    decay = max(recipe.train.weight_decay, decay)
    fitted = recipe.changed(dropout=dropout * (pressure >= PRESSURE), weight_decay=decay)
    if fitted == recipe:
        return recipe
    parts = []
    if fitted.model != recipe.model:
        parts.append(f"dropout {fitted.model.dropout:g}")
    if fitted.train != recipe.train:
        parts.append(f"weight decay {fitted.train.weight_decay:g}")
    return fitted.changed(f"{' and '.join(parts)}, for {epochs:.1f} epochs")


def fit_evaluations(recipe: Recipe, speed: Speed) -> Recipe:
    """Evaluations that together take at most EVALUATIONS_SHARE of the time of all steps.

    The cost of an evaluated character, as a multiple of a trained one's, is rounded up to a power
    of two, so that slightly different speeds give the same number of characters.
    """
    train, trained = recipe.train, speed.step / recipe.step_characters
    cost = 2.0 ** math.ceil(math.log2(max(speed.character / trained, 1e-3)))
    evaluations = train.evaluations
    if train.eval_interval:
        evaluations = max(1, train.steps // train.eval_interval)
    characters = EVALUATIONS_SHARE * train.steps * recipe.step_characters / cost / evaluations
    most = max(LEAST_READ, recipe.model.block_size, int(characters))
    return recipe.changed(eval_chars=most if most < recipe.val_characters else 0)


def steps_in(seconds: float, speed: Speed) -> int:
    """About how many steps a time budget allows, at least one."""
    return max(1, int(STEPS_SHARE * seconds / speed.step))
