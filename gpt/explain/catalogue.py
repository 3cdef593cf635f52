"""The lessons by name. Imports neither torch nor numpy, so that listing them is fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from gpt.explain.lesson import Lesson, Material

LessonName = Literal["simple", "shiny", "trainable", "causal", "dropout", "multi-head", "mistakes"]

LESSONS: tuple[LessonName, ...] = get_args(LessonName)

ABOUT: dict[LessonName, str] = {
    "simple": "Attention without weights: scores, softmax, a mean of words.",
    "shiny": "The same by hand, for “Hello shiny sun!”, and what rounding does.",
    "trainable": "Queries, keys, values: three matrices that can learn.",
    "causal": "No word sees the future: three ways to mask, one result.",
    "dropout": "Weights that are missing at random while a model learns.",
    "multi-head": "Several heads: in a loop, at once, and in the model itself.",
    "mistakes": "Two slips in a head of attention that look right.",
}
ABOUT_SHINY_OF_ONES_OWN = "The same by hand, for your own words."
ABOUT_MINE = "The same steps in your own model: every number and its weight."

#: Tutorials' words and their embeddings, three numbers each.
JOURNEY = {
    "Your": (0.43, 0.15, 0.89),
    "journey": (0.55, 0.87, 0.66),
    "starts": (0.57, 0.85, 0.64),
    "with": (0.22, 0.58, 0.33),
    "one": (0.77, 0.25, 0.10),
    "step": (0.05, 0.80, 0.55),
}
SHINY = {"Hello": (0.34, 0.22, 0.54), "shiny": (0.53, 0.34, 0.98), "sun": (0.29, 0.54, 0.93)}
WIDTH = 3  # of random embeddings for words that have none

DRAWN = (
    "The words’ rows are random numbers, seed {seed}: they mean nothing. Use your own with "
    "--embeddings FILE."
)


def example(name: LessonName) -> dict[str, tuple[float, ...]]:
    """The tutorial's words for a lesson, each with its embedding."""
    return dict(SHINY if name == "shiny" else JOURNEY)


def material(
    name: LessonName,
    words: Sequence[str] | None = None,
    rows: Sequence[Sequence[float]] | None = None,
    seed: int | None = None,
) -> Material:
    """The lesson's input: the tutorials' words, or the given ones.

    Words without rows get random numbers from 0 to 1, equal words equal ones. Rows without words
    are called x1, x2 … Raises ConfigError as Material does.
    """
    import numpy as np

    from gpt.explain.lesson import Material

    if rows is not None:
        words = words or [f"x{place}" for place in range(1, len(rows) + 1)]
        return Material(tuple(words), np.array(rows, np.float64), seed, own=True)
    if words is None:
        told = example(name)
        return Material(tuple(told), np.array(list(told.values())), seed)
    different = dict.fromkeys(words)
    start = seed or 0
    drawn = np.random.RandomState(start % 2**32).random_sample((len(different), WIDTH))
    known = dict(zip(different, drawn.round(2), strict=True))
    embeddings = np.array([known[word] for word in words]).reshape(len(words), WIDTH)
    return Material(tuple(words), embeddings, seed, own=True, drawn=start)


def lesson(name: LessonName, played_with: Material | None = None) -> Lesson:
    """A lesson with all its numbers. Imports torch."""
    from gpt.explain.lesson import Lesson
    from gpt.explain.tutorials import (
        causal,
        dropout,
        mistakes,
        multi_head,
        shiny,
        simple,
        trainable,
    )

    tellers = {
        "simple": simple.steps,
        "shiny": shiny.steps,
        "trainable": trainable.steps,
        "causal": causal.steps,
        "dropout": dropout.steps,
        "multi-head": multi_head.steps,
        "mistakes": mistakes.steps,
    }
    played_with = played_with or material(name)
    about, note = ABOUT[name], ""
    if name == "shiny" and played_with.own:
        about = ABOUT_SHINY_OF_ONES_OWN
    if played_with.drawn is not None and name != "mistakes":  # which has rows of its own
        note = DRAWN.format(seed=played_with.drawn)
    return Lesson(name, about, tuple(tellers[name](played_with)), note)
