"""The page of a model: one HTML file that contains the model itself, with style and scripts, and a
policy that permits no others and no network address.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt import __version__
from gpt.corpus.sources import TIMES
from gpt.errors import ConfigError
from gpt.heads.measures import RULE, Measure
from gpt.page.shipping import Bits, model_record, smallest_bits
from gpt.words import escape

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

ASSETS = Path(__file__).parent / "assets"
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
        return model.stored.example(EXAMPLE)

    def unfit(word: str) -> tuple[bool, bool, int]:
        """A letter that stands in the word twice has two letters after it."""
        return word.count(word[-3]) > 1, " " not in word, abs(len(word) - LENGTH)

    lines = model.stored.excerpt.split("\n")[1:-1]  # the first and last lines may be incomplete
    words = [line[: -(-len(line) // TIMES)] for line in lines]  # with the space after it, if any
    word = min(words, key=unfit)
    return word + word[:-2]


def page_html(title: str, data: Mapping[str, Any]) -> str:
    """The page with this data, which assets/model/protocol.js describes."""
    # A single pass, so that inserted text is not searched for placeholders.
    parts = {**_fixed_parts(), "title": html.escape(title), "payload": to_json(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def to_json(data: Mapping[str, Any]) -> str:
    """JSON in ASCII that HTML cannot mistake for markup: without <, > and &, however deeply
    nested.
    """
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def join_scripts(script: str) -> str:
    """Joins a module and all that it imports into one, without imports and the word export; so all
    share one scope. Each module follows those that it imports.
    """
    names: list[str] = []

    def add(name: str) -> None:
        for path in re.findall(r'^import [^;]*? from "([^"]*)";$', _read(name), re.M):
            imported = normpath(join(dirname(name), path))
            if imported not in names:
                add(imported)
        names.append(name)

    add(script)
    modules = "".join(map(_read, names))
    modules = re.sub(r'^import [^;]*? from "[^"]*";\n', "", modules, flags=re.M)
    return re.sub(r"^export (?=(const|function|class|async) )", "", modules, flags=re.M)


@cache
def _fixed_parts() -> dict[str, str]:
    """The policy, which permits this script and this style by their hashes, and these two."""
    style = _read("page.css")
    worker = json.dumps(join_scripts("model/worker.js")).replace("</", r"<\/")
    script = f"globalThis.WORKER = {worker};\n{join_scripts('page.js')}"
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; "
        f"style-src 'sha256-{_digest(style)}'; img-src data: blob:; worker-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"policy": policy, "style": style, "script": script}


def _read(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
