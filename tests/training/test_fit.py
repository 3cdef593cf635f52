"""What suits a corpus and a time: larger shapes for more work, more dropout for more epochs."""

from __future__ import annotations

from typing import Any

import pytest

from gpt.config import ModelConfig, TrainConfig, only_fields, preset
from gpt.training.fit import MOST_EPOCHS, SHAPES, Recipe, fit_to_corpus, fit_to_time

LONG = 10**6


def recipe_of(**values: Any) -> Recipe:
    chosen = {**preset("default", "cpu"), **values}
    return Recipe(
        ModelConfig(vocab_size=65, **only_fields(ModelConfig, chosen)),
        TrainConfig(**only_fields(TrainConfig, chosen)),
    )


def shape_of(recipe: Recipe) -> dict[str, Any]:
    values = {**vars(recipe.model), **vars(recipe.train)}
    return {name: values[name] for name in SHAPES[0]}


def test_more_work_teaches_a_larger_shape() -> None:
    chosen = [shape_of(fit_to_time(recipe_of(), (), 1.5**n, LONG)) for n in range(50, 100)]
    numbers = [SHAPES.index(shape) for shape in chosen]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (0, len(SHAPES) - 1)
    assert len(set(numbers)) == len(SHAPES)


def test_a_short_validation_split_allows_no_long_context() -> None:
    for longest in (64, 100, 128, 200):
        model = fit_to_time(recipe_of(), (), 1e18, longest).model
        assert model.block_size == max(
            s["block_size"] for s in SHAPES if s["block_size"] <= longest
        )


def test_what_is_given_stays() -> None:
    for given in ({"n_embd": 64}, {"n_head": 8}, {"block_size": 16}):
        assert fit_to_time(recipe_of(**given), given, 1e18, LONG) == recipe_of(**given)
    given = {"batch_size": 3, "dropout": 0.05, "steps": 10**6}
    recipe = fit_to_corpus(fit_to_time(recipe_of(**given), given, 1e18, LONG), given, 1000)
    values = {**vars(recipe.model), **vars(recipe.train)}
    assert {name: values[name] for name in given} == given
    assert recipe.model.n_layer == SHAPES[-1]["n_layer"]


def test_a_small_corpus_is_not_learnt_by_heart() -> None:
    recipe = recipe_of()
    steps = recipe.train.steps
    seen = steps * recipe.step_characters
    assert fit_to_corpus(recipe, (), seen * 10) == recipe
    dropouts = []
    for characters in (seen, seen // 5, seen // 15, seen // 100, 70):
        fitted = fit_to_corpus(recipe, (), characters)
        epochs = fitted.train.steps * fitted.step_characters / characters
        assert epochs <= MOST_EPOCHS or fitted.train.steps == 1
        assert bool(fitted.why) == (fitted != recipe)
        dropouts.append(fitted.model.dropout)
    assert dropouts == sorted(dropouts)
    assert dropouts[0] < dropouts[-1] < 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_a_model(shape: dict[str, Any]) -> None:
    model = recipe_of(**shape).model
    assert model.training_flops == pytest.approx(6 * model.parameters(), rel=0.5) or model.ngram > 1
