"""Options fitted to a corpus and a time, for the presets default and best, with reasons.

The limits of a corpus (epochs, n-grams, dropout, context) apply on every device. The shapes are for
CPUs; on a GPU the preset's shape stays. The numbers come from measurements (benchmarks/LOG.md).
Knows the length of the text and the speed of the machine, not the text itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields

#: Shapes for a CPU, from the least work a character to the most, each with the characters to train
#: on from which it does better than the one before it in the same time.
SHAPES: tuple[tuple[int, dict[str, Any]], ...] = (
    (0, {"n_layer": 1, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 8}),
    (1_000_000, {"n_layer": 1, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 16}),
    (2_200_000, {"n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 16}),
    (3_000_000, {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 16}),
    (10_000_000, {"n_layer": 4, "n_head": 6, "n_embd": 192, "block_size": 128, "batch_size": 16}),
    (28_000_000, {"n_layer": 6, "n_head": 8, "n_embd": 256, "block_size": 256, "batch_size": 16}),
)
MOST_EPOCHS = 15  # of a corpus; with more, the model memorises it
LEAST_STEPS = 250  # in MOST_EPOCHS on a GPU; a CPU makes as many on 20,000 characters

#: Dropout by the tendency to memorise (epochs × matrix entries / characters), for presets without
#: dropout.
DROPOUT, PRESSURE = 0.1, 4.0
MOST_NGRAM_DROPOUT = 0.7
LEAST_GAIN = 0.05  # one more character in an n-gram must lower the loss of counting by this share


@dataclass(frozen=True)
class Recipe:
    """A model's shape, how it learns, and why so, for the user."""

    model: ModelConfig
    train: TrainConfig
    why: tuple[str, ...] = ()

    @property
    def step_characters(self) -> int:
        return self.train.batch_size * self.model.block_size

    def changed(self, values: dict[str, Any], given: Collection[str], why: str = "") -> Recipe:
        """With other values, except for options that the user has given."""
        values = {name: value for name, value in values.items() if name not in given}
        return Recipe(
            replace(self.model, **only_fields(ModelConfig, values)),
            replace(self.train, **only_fields(TrainConfig, values)),
            (*self.why, why) if why else self.why,
        )


def weights(model: ModelConfig) -> int:
    """Entries of the blocks' matrices."""
    return 12 * model.n_layer * model.n_embd**2


def fit_shape(
    recipe: Recipe,
    given: Collection[str],
    train_characters: int,
    longest_context: int,
    flops: float = math.inf,
    shapes: Sequence[tuple[int, dict[str, Any]]] = SHAPES,
) -> Recipe:
    """The largest of `shapes` that the corpus and `flops` operations can train well.

    Without a limit on operations, no shape larger than the recipe's; without shapes, only the
    context is fitted. Options that the user gave stay; width and number of heads, which must divide
    it, are chosen together or not at all.
    """
    if {"n_head", "n_embd"} & set(given):
        given = {*given, "n_head", "n_embd"}
    best, room = recipe, MOST_EPOCHS * train_characters
    for worth_from, shape in shapes:
        larger = recipe.changed(shape, given)
        characters = min(flops / larger.model.training_flops, room)
        allowed = flops < math.inf or weights(larger.model) <= weights(recipe.model)
        if allowed and characters >= worth_from:
            best = larger
    size = f"{best.model.n_layer} layer{'s' * (best.model.n_layer > 1)} × {best.model.n_embd}"
    why = f"{size}, as larger models need more time or more text" if best != recipe else ""
    best = best.changed({}, given, why)
    if best.model.block_size > longest_context and "block_size" not in given:
        why = f"a context of {longest_context}, as the validation text is no longer"
        best = best.changed({"block_size": longest_context}, given, why)
    return best


def fit_batch(recipe: Recipe, given: Collection[str], train_characters: int) -> Recipe:
    """Fewer sequences per step, if a GPU's batch would read a small corpus in a few steps."""
    room = MOST_EPOCHS * train_characters
    most = max(1, room // (LEAST_STEPS * recipe.model.block_size))
    if "batch_size" in given or recipe.train.batch_size <= most:
        return recipe
    steps = max(1, room // recipe.step_characters)
    why = f"{most} sequence{'s' * (most > 1)} per step: with "
    why += f"{recipe.train.batch_size}, {MOST_EPOCHS} epochs would be only {steps} "
    why += f"step{'s' * (steps > 1)}"
    return recipe.changed({"batch_size": most}, given, why)


def fit_ngrams(recipe: Recipe, given: Collection[str], counted: Sequence[float]) -> Recipe:
    """The longest n-grams that help on this text, by the losses of counting for the orders 1, 2, …

    On a short text, or with a large alphabet, longer ones occur too seldom. As Kneser–Ney hardly
    gets worse with the order, the criterion is how much the next order lowers the loss.
    """
    order = 1
    while order < len(counted) and counted[order] < (1 - LEAST_GAIN) * counted[order - 1]:
        order += 1
    if "ngram" in given or order >= recipe.model.ngram:
        return recipe
    what = f"n-grams up to {order}" if order > 1 else "no n-grams"
    why = f"{what}: longer ones lower the loss of counting by less than {LEAST_GAIN:.0%}"
    return recipe.changed({"ngram": order}, given, why)


def fit_to_corpus(recipe: Recipe, given: Collection[str], train_characters: int) -> Recipe:
    """Limits the steps to MOST_EPOCHS; sets dropout by the number of epochs and the model's size.

    The corpus decides whether activations are dropped, and the share of dropped n-grams. The share
    of dropped activations is the preset's, if it has one (as for a GPU), else DROPOUT.
    """
    most = most_steps(recipe, train_characters)
    if recipe.train.steps > most and "steps" not in given:
        why = f"no more than {MOST_EPOCHS} epochs, or it would learn by heart"
        recipe = recipe.changed({"steps": most}, given, why)
    epochs = recipe.train.steps * recipe.step_characters / train_characters
    pressure = epochs * weights(recipe.model) / train_characters
    values = {"dropout": (recipe.model.dropout or DROPOUT) if pressure > PRESSURE else 0.0}
    if recipe.model.ngram > 1:
        values["ngram_dropout"] = ngram_dropout(epochs)
    fitted = recipe.changed(values, given)
    if fitted == recipe:
        return recipe
    what = f"dropout {fitted.model.dropout:g}"
    if fitted.model.ngram > 1:
        what += f", of n-grams {fitted.model.ngram_dropout:g}"
    return fitted.changed({}, given, f"{what}, for {epochs:.1f} epochs")


def most_steps(recipe: Recipe, train_characters: int) -> int:
    """The steps of MOST_EPOCHS epochs, at least one."""
    return max(1, MOST_EPOCHS * train_characters // recipe.step_characters)


def ngram_dropout(epochs: float) -> float:
    """None up to two fifths of an epoch, then the more the oftener an n-gram is seen again."""
    doublings = math.log2(max(epochs, 0.4) / 0.4)
    return round(min(MOST_NGRAM_DROPOUT, 0.14 * doublings), 2)
