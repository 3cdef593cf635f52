"""What suits a corpus and a time: the default preset's decisions, each with its reason.

The numbers come from tables (benchmarks/LOG.md). Knows how long a text is and how fast the machine,
not what the text says.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from gpt.config import ModelConfig, TrainConfig, only_fields

#: Shapes for a CPU, from the least work a character to the most.
SHAPES: tuple[dict[str, Any], ...] = (
    {"n_layer": 1, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 16},
    {"n_layer": 2, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 16},
    {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "batch_size": 32},
    {"n_layer": 4, "n_head": 6, "n_embd": 192, "block_size": 128, "batch_size": 16},
    {"n_layer": 6, "n_head": 8, "n_embd": 256, "block_size": 256, "batch_size": 16},
)
CHARACTERS_PER_WEIGHT = 2.0  # a larger shape pays once it sees so many for each matrix entry
MOST_EPOCHS = 40  # of a corpus; more would be learning by heart
DROPOUT = ((2.0, 0.0), (6.0, 0.1), (20.0, 0.2), (float("inf"), 0.3))  # up to so many epochs


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


def fit_to_time(recipe: Recipe, given: Collection[str], flops: float, longest: int) -> Recipe:
    """The largest shape that so many floating-point operations still teach well.

    A shape of which the user has given any part is left alone. longest: the context that the
    validation split has room for, in characters.
    """
    if {"n_layer", "n_head", "n_embd", "block_size"} & set(given):
        return recipe
    best = recipe.changed(SHAPES[0], given)
    for shape in SHAPES:
        larger = recipe.changed(shape, given)
        weights = 12 * larger.model.n_layer * larger.model.n_embd**2
        characters = flops / larger.model.training_flops
        if characters >= CHARACTERS_PER_WEIGHT * weights and larger.model.block_size <= longest:
            best = larger
    return best


def fit_to_corpus(recipe: Recipe, given: Collection[str], train_characters: int) -> Recipe:
    """Fewer steps where the corpus is small, and dropout by the number of epochs."""
    most = max(1, MOST_EPOCHS * train_characters // recipe.step_characters)
    if recipe.train.steps > most and "steps" not in given:
        why = f"{MOST_EPOCHS} epochs, as more would be learning by heart"
        recipe = recipe.changed({"steps": most}, given, why)
    epochs = recipe.train.steps * recipe.step_characters / train_characters
    dropout = next(dropout for most_epochs, dropout in DROPOUT if epochs <= most_epochs)
    if dropout and "dropout" not in given:
        why = f"dropout {dropout:g}, as each character is seen {epochs:.0f} times"
        recipe = recipe.changed({"dropout": dropout}, given, why)
    return recipe
