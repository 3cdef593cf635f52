"""The lessons by name. Imports neither torch nor numpy, so that listing them is fast."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpt.config.fields import require
from gpt.errors import ConfigError

if TYPE_CHECKING:
    from gpt.lessons.lesson import Lesson, Material

ABOUT = {
    "simple": "Attention without weights: scores, softmax, a mean of words.",
    "shiny": "The same by hand, “Hello shiny sun!”, and what rounding does.",
    "trainable": "Queries, keys, values: three matrices that can learn.",
    "causal": "No word sees the future: three ways to mask, one result.",
    "dropout": "Attention weights that are dropped at random in training.",
    "multi-head": "Several heads: in a loop, in one product, in the model itself.",
    "mistakes": "Two mistakes in a head of attention that are easy to overlook.",
    "positions": "Without positions, order has no effect; three ways to add them.",
    "learning": "The loss of one word, its gradient by hand, and steps of learning.",
    "induction": "Two heads in two layers find a word again and copy the one after it.",
    "depth": "What each layer adds to the stream, and what one layer cannot do.",
    "cross": "Attention to another text, a mask for padding, and two slips.",
    "encoder-decoder": "The model of two texts, its numbers, and what five slips break.",
    "sampling": "From probabilities to a character: temperature, filters, one draw.",
}
LESSONS = tuple(ABOUT)
#: Lessons that use the given words, but make their own rows of numbers.
OWN_ROWS = ("mistakes", "positions", "induction", "depth", "encoder-decoder")
#: Lessons that can continue in a user's model; lessons that show one of its layers and heads.
IN_OWN_MODEL = ("positions", "learning", "induction", "depth", "sampling")
WITH_HEAD = ("positions", "induction")
IN_YOURS = "in your own model: gptx explain {name} --run NAME"
ABOUT_OWN_SHINY = "Scores, softmax and a mean for your own words, by hand."
ABOUT_MINE = "The same steps in your own model, with all numbers and weights."

#: The tutorials' words and their embeddings, three numbers each.
JOURNEY = {
    "Your": (0.43, 0.15, 0.89),
    "journey": (0.55, 0.87, 0.66),
    "starts": (0.57, 0.85, 0.64),
    "with": (0.22, 0.58, 0.33),
    "one": (0.77, 0.25, 0.10),
    "step": (0.05, 0.80, 0.55),
}
#: JOURNEY's words in Hungarian: the second text of lessons about two texts.
TRANSLATED = ("Utad", "egy", "lépéssel", "kezdődik")
SHINY = {"Hello": (0.34, 0.22, 0.54), "shiny": (0.53, 0.34, 0.98), "sun": (0.29, 0.54, 0.93)}
WIDTH = 3  # columns of random embeddings, for words without rows

DRAWN = (
    "The words’ rows are random numbers, seed {seed}, and have no meaning. Use your own with "
    "--embeddings FILE."
)


def make_material(
    name: str,
    words: Sequence[str] | None = None,
    rows: Sequence[Sequence[float]] | None = None,
    seed: int | None = None,
) -> Material:
    """The lesson's input: the tutorials' words, or the given ones.

    Words without rows of numbers get random numbers from 0 to 1; equal words get equal rows. Rows
    without words are called x1, x2 … Raises ConfigError like Material.
    """
    import numpy as np

    from gpt.lessons.lesson import Material

    if rows is not None:
        words = words or [f"x{place}" for place in range(1, len(rows) + 1)]
        return Material(tuple(words), np.array(rows, np.float64), seed, own=True)
    if words is None:
        example = SHINY if name == "shiny" else JOURNEY
        return Material(tuple(example), np.array(list(example.values())), seed)
    start = seed or 0
    different = list(dict.fromkeys(words))
    drawn = np.random.RandomState(start % 2**32).random_sample((len(different), WIDTH)).round(2)
    embeddings = drawn[[different.index(word) for word in words]]
    return Material(tuple(words), embeddings, seed, own=True, drawn=start)


def explain(
    name: str,
    text: str | None = None,
    *,
    embeddings: Sequence[Sequence[float]] | None = None,
    seed: int | None = None,
    run: Any = None,
    layer: int | None = None,
    head: int | None = None,
) -> Lesson:
    """Returns a lesson, which a notebook shows as a card, like `gptx explain NAME`. Imports
    torch.

    text: your own words; a single word is split into characters. embeddings: a row of numbers for
    each word; None: random numbers if there is a text. seed: the seed of random numbers. run: a
    TrainedGPT, in which the lessons IN_OWN_MODEL continue with the text, or with an example; layer,
    head: the ones that lessons WITH_HEAD show. Raises ConfigError for an unknown lesson (it names
    the nearest one), for arguments that do not change the lesson, and like Material; with a run,
    also the errors of `add_own_steps`.
    """
    from gpt.lessons.embeddings import words_of

    known = chosen_lesson(name, LESSONS)
    if embeddings is not None and known in OWN_ROWS:
        raise ConfigError("embeddings", f"the lesson {known} generates its own; leave it out")
    for option, value in (("layer", layer), ("head", head), ("run", run)):
        shows = run is not None and known in (IN_OWN_MODEL if option == "run" else WITH_HEAD)
        require(
            value is None or shows, option, f"does not change the lesson {known} here; leave it out"
        )
    words = None if text is None else words_of(text)
    tutorial = make_lesson(known, make_material(known, words, embeddings, seed))
    if run is None:
        return tutorial
    own: Lesson = import_module("gpt.lessons.in_own_model").add_own_steps(
        tutorial, run, text, layer, head, seed
    )
    return own


def chosen_lesson(name: str, choices: Sequence[str]) -> str:
    """A lesson by its name. Raises ConfigError, with the nearest name if there is one."""
    if name in choices:
        return name
    nearest = get_close_matches(name.casefold(), choices, 1)
    advice = f"did you mean {nearest[0]}?" if nearest else "gptx explain lists them"
    raise ConfigError(f"{name!r} is not one of the lessons; {advice}")


def make_lesson(name: str, given: Material | None = None) -> Lesson:
    """A lesson with all its numbers. Imports torch."""
    from gpt.lessons.lesson import Lesson

    tutorial = import_module(f"gpt.lessons.tutorials.{name.replace('-', '_')}")
    given = given or make_material(name)
    about = ABOUT_OWN_SHINY if name == "shiny" and given.own else ABOUT[name]
    note = "" if given.drawn is None or name in OWN_ROWS else DRAWN.format(seed=given.drawn)
    end = IN_YOURS.format(name=name) if name in IN_OWN_MODEL else ""
    return Lesson(name, about, tuple(tutorial.steps(given)), note, end)
