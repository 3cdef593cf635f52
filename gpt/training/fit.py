"""What suits a corpus and a time: the default preset's decisions, each with its reason.

The numbers come from tables (benchmarks/LOG.md). Knows how long a text is and how fast the machine,
not what the text says.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from gpt.config import ModelConfig, TrainConfig, only_fields

#: Shapes for a CPU, from the least work a character to the most.
SHAPES: tuple[dict[str, Any], ...] = (
    {"n_layer": 1, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 16},
    {"n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 32},
    {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 128, "batch_size": 16},
    {"n_layer": 4, "n_head": 6, "n_embd": 192, "block_size": 128, "batch_size": 16},
    {"n_layer": 6, "n_head": 8, "n_embd": 256, "block_size": 256, "batch_size": 16},
)
CHARACTERS_PER_WEIGHT = 6.0  # a larger shape pays once it sees so many for each matrix entry
MOST_EPOCHS = 15  # of a corpus; more would be learning by heart

#: Up to so many epochs, the longest n-grams that are not yet learnt by heart.
NGRAM = ((1.2, 4), (4.0, 3), (math.inf, 2))
#: Dropout up to so much pressure to learn by heart: epochs × matrix entries / characters.
DROPOUT = ((4.0, 0.0), (15.0, 0.1), (60.0, 0.2), (math.inf, 0.3))


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
        """With other values, but those that the user has given."""
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
    recipe: Recipe, given: Collection[str], train_characters: int, flops: float = math.inf
) -> Recipe:
    """The largest shape that can be taught well, by the corpus and by `flops` operations.

    Without a limit of work, none larger than it is. A shape of which the user has given any part is
    left alone.
    """
    if {"n_layer", "n_head", "n_embd", "block_size"} & set(given):
        return recipe
    best, room = recipe.changed(SHAPES[0], given), MOST_EPOCHS * train_characters
    for shape in SHAPES:
        larger = recipe.changed(shape, given)
        characters = min(flops / larger.model.training_flops, room)
        allowed = flops < math.inf or weights(larger.model) <= weights(recipe.model)
        if allowed and characters >= CHARACTERS_PER_WEIGHT * weights(larger.model):
            best = larger
    if best == recipe:
        return recipe
    size = f"{best.model.n_layer} × {best.model.n_embd}"
    return best.changed({}, given, f"{size}, as larger models need more time or more text")


def fit_to_corpus(recipe: Recipe, given: Collection[str], train_characters: int) -> Recipe:
    """No more steps than the corpus bears; n-grams by its epochs, dropout by those and the size."""
    most = max(1, MOST_EPOCHS * train_characters // recipe.step_characters)
    if recipe.train.steps > most and "steps" not in given:
        why = f"no more than {MOST_EPOCHS} epochs, or it would learn by heart"
        recipe = recipe.changed({"steps": most}, given, why)
    epochs = recipe.train.steps * recipe.step_characters / train_characters
    pressure = epochs * weights(recipe.model) / train_characters
    dropout = next(dropout for most_pressure, dropout in DROPOUT if pressure <= most_pressure)
    ngram = next(ngram for most_epochs, ngram in NGRAM if epochs <= most_epochs)
    fitted = recipe.changed({"dropout": dropout, "ngram": ngram}, given)
    if fitted == recipe:
        return recipe
    what = f"dropout {fitted.model.dropout:g} and n-grams up to {fitted.model.ngram}"
    return fitted.changed({}, given, f"{what} for {epochs:.1f} epochs")
