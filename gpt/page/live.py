"""The page that contains the model itself: what it shows, beside what it computes with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.characters import escape
from gpt.corpus.repeats import TIMES
from gpt.errors import ConfigError
from gpt.heads.measures import RULE, Measure
from gpt.page.document import page_html
from gpt.page.shipping import Bits, model_record, smallest_bits
from gpt.version import __version__

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

SCHEMA = 1
EXACT = 8_000_000  # bytes of a file with float32 weights
LIMIT = 24_000_000  # bytes of the weights of any model, before they become text
EXAMPLE = 24  # characters of a text that nobody gave
LENGTH = 8  # of a word of `repeats` that is easy to read
STORED = {
    32: "The weights in this file are float32, as trained.",
    16: "The weights in this file are rounded to float16, so its numbers differ slightly from "
    "those of the trained model.",
}


def live_page(
    model: TrainedGPT, text: str | None = None, layer: int | None = None, head: int | None = None
) -> str:
    """The page of a model, as HTML; its weights are float32 if it then has at most EXACT bytes,
    else float16.

    text: what it opens with; None: a line of the validation split. layer, head: the head that it
    opens with; None: the one that adds most to the logit of the likeliest next character. Raises
    TextError for a text with unknown characters, ConfigError for a model that is too large.
    """
    stored, vocabulary = model.stored, model.vocabulary
    bits, parameters = smallest_bits(stored), model.config.parameters()
    if bits // 8 * parameters > LIMIT:
        raise ConfigError(
            f"the model is too large for a page: {parameters:,} parameters need more than "
            f"{LIMIT / 1e6:.0f} MB; write SVG, PNG or NPZ, such as: gptx attn -o heads.svg"
        )
    text = _example(model) if text is None else model.known_text(text)
    ids = vocabulary.encode(stored.excerpt)
    survey = model.heads(ids, name=model.excerpt_name, ablate=None)
    data = {
        "schema": SCHEMA,
        "version": __version__,
        "title": escape(stored.title),
        "origin": {name: escape(str(value)) for name, value in stored.origin.items()},
        "about": escape(_about(model)),
        "counts": model.config.counting > 0,
        "text": text,
        "start": None if layer is None or head is None else {"layer": layer, "head": head},
        "vocabulary": [*vocabulary.characters],
        "folds": vocabulary.folds,
        "measured": escape(f"{survey.measured} · {RULE}"),
        "measures": [_measure(measure) for measure in survey.measures],
        "kinds": survey.names,
    }

    def page(of_number: Bits) -> str:
        record = model_record(stored, ids, of_number)
        return page_html(stored.title, data | {"stored": STORED[of_number], "model": record})

    exact = page(32) if 4 * parameters <= EXACT else ""
    return exact if 0 < len(exact) <= EXACT else page(bits)


def _measure(measure: Measure) -> dict[str, Any]:
    """A measure of all heads; null where there is no number."""
    record = {name: getattr(measure, name) for name in ("name", "title", "explained")}
    nothing = np.array(None)
    for name in ("values", "errors", "uniform"):
        numbers = np.asarray(getattr(measure, name))
        record[name] = np.where(np.isnan(numbers), nothing, numbers.round(4)).tolist()
    if measure.offsets is not None:
        record["offsets"] = measure.offsets.tolist()
    return record


def _sources(model: TrainedGPT) -> tuple[str, ...]:
    """The sources of the model's corpus; none for a model file without its run."""
    return tuple(model.recorded.corpus.sources) if model.recorded else ()


def _about(model: TrainedGPT) -> str:
    """Where the model comes from, for someone who was sent the file: no folders."""
    names = ", ".join(Path(source).name for source in _sources(model)[:2])
    return f"The model {model.stored.name}" + (f" was trained on {names}." if names else ".")


def _example(model: TrainedGPT) -> str:
    """A line of the validation split; of the corpus `repeats`, a word and its repetition without
    the end, so that a head that copies has something to do.
    """
    if _sources(model) != ("repeats",):
        return model.example(EXAMPLE)

    def unfit(word: str) -> tuple[bool, bool, int]:
        """A letter that stands in the word twice has two letters after it."""
        return word.count(word[-3]) > 1, " " not in word, abs(len(word) - LENGTH)

    lines = model.stored.excerpt.split("\n")[1:-1]  # the first and last lines may be incomplete
    words = [line[: -(-len(line) // TIMES)] for line in lines]  # with the space after it, if any
    word = min(words, key=unfit)
    return word + word[:-2]
