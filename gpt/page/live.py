"""Makes the page of `gptx live`: one HTML file with the model, the style and the scripts. Its
content policy permits no other script or style, and no network access. assets/model/protocol.js
describes its data.

The file has texts with their logits, and the page computes these logits again. If the two differ,
the page shows no numbers. The logits are those of the file's weights, in float32 or float16.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from gpt import __version__
from gpt.config import ModelConfig
from gpt.corpus.sources import TIMES
from gpt.errors import ConfigError
from gpt.heads.measures import RULE, Measure
from gpt.heads.survey import mean_contexts, spread_windows
from gpt.reading.gpt import Array, Reader
from gpt.reading.probe import float32_tolerance
from gpt.storage.checkpoint_files import StoredModel, Tensors, pick_probe_logits
from gpt.vocabulary import Ids
from gpt.words import escape

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

ASSETS = Path(__file__).parent / "assets"
Bits = Literal[16, 32]
LOGITS = 8  # logits that the page stores for every position of a probe's text
LONGEST = 32  # the most characters of a random text of the probe
FEWEST, MOST = 2, 8  # random texts; more than FEWEST if the model's own probe lacks characters
WINDOWS = 32  # windows over which a head's mean output is measured
SCHEMA = 1
EXACT = 8_000_000  # the most bytes of a page with float32 weights
LIMIT = 24_000_000  # the most bytes of the weights, before base64
EXAMPLE = 24  # characters of the text on the page if the user gives none
LENGTH = 8  # characters of the word that the page of a `repeats` model prefers
STORED = {
    32: "The weights in this file are float32, as trained.",
    16: "The weights in this file are rounded to float16, so its numbers differ slightly from "
    "those of the trained model.",
}


def live_page(
    model: TrainedGPT, text: str | None = None, layer: int | None = None, head: int | None = None
) -> str:
    """The HTML page of a model. Its weights are float32 in a page of at most EXACT bytes, otherwise
    float16.

    text: the text that the page opens with; None: a line of the validation split. layer, head: the
    head that it opens with; None: the head that adds most to the logit of the likeliest character.
    Raises TextError for a text with unknown characters, ConfigError for a too large model.
    """
    stored, vocabulary = model.stored, model.vocabulary
    bits, parameters = bits_of_weights(stored), model.config.parameters()
    if bits // 8 * parameters > LIMIT:
        raise ConfigError(
            f"the model is too large for a page: {parameters:,} parameters need more than "
            f"{LIMIT / 1e6:.0f} MB; write an SVG, PNG or NPZ file, as in: gptx attn -o heads.svg"
        )
    names = model.manifest_or_none.corpus.names if model.manifest_or_none else []
    about = f"The model {stored.name}"
    if names:
        about += f" was trained on {', '.join(names[:2])}"
    if text is not None:
        text = model.known_text(text)
    elif names == ["repeats"]:
        text = _repeated_word(stored.excerpt)
    else:
        text = stored.example_text(EXAMPLE)
    ids = vocabulary.encode(stored.excerpt)
    survey = model.heads(ids, name=model.excerpt_name, ablate=None)
    data = {
        "schema": SCHEMA,
        "version": __version__,
        "title": escape(stored.title),
        "origin": {name: escape(str(value)) for name, value in stored.origin.items()},
        "about": escape(f"{about}."),
        "counts": model.config.counting > 0,
        "text": text,
        "start": None if layer is None or head is None else {"layer": layer, "head": head},
        "vocabulary": [*vocabulary.characters],
        "folds": vocabulary.folds,
        "measured": escape(f"{survey.measured_text} · {RULE}"),
        "measures": [_measure(measure) for measure in survey.measures],
        "kinds": survey.names,
    }

    def page(of_number: Bits) -> str:
        record = model_record(stored, ids, of_number)
        return page_html(stored.title, data | {"stored": STORED[of_number], "model": record})

    exact = page(32) if 4 * parameters <= EXACT else ""
    return exact if 0 < len(exact) <= EXACT else page(bits)


def _measure(measure: Measure) -> dict[str, Any]:
    """A measure of all heads for the page's JSON; NaN becomes null."""
    record = {name: getattr(measure, name) for name in ("name", "title", "explained")}
    for name in ("values", "errors", "uniform"):
        numbers = np.asarray(getattr(measure, name))
        record[name] = np.where(np.isnan(numbers), np.array(None), numbers.round(4)).tolist()
    if measure.offsets is not None:
        record["offsets"] = measure.offsets.tolist()
    return record


def _repeated_word(excerpt: str) -> str:
    """A word of the corpus `repeats`, followed by the same word without its last two characters, so
    that the page shows a head that copies. excerpt: the start of the validation split.
    """

    def unfitness(word: str) -> tuple[bool, bool, int]:
        """Returns a key; the smallest is best. The third letter from the end should stand in the
        word only once. Otherwise a head cannot know which letter follows it.
        """
        return word.count(word[-3]) > 1, " " not in word, abs(len(word) - LENGTH)

    lines = excerpt.split("\n")[1:-1]  # the first and last lines may be incomplete
    words = [line[: -(-len(line) // TIMES)] for line in lines]  # a space may follow the word
    word = min(words, key=unfitness)
    return word + word[:-2]


def page_html(title: str, data: Mapping[str, Any]) -> str:
    """The page's HTML. data: a PageData of assets/model/protocol.js."""
    # One call replaces all placeholders, so that none in inserted text is replaced.
    parts = {**_fixed_parts(), "title": html.escape(title), "payload": to_json(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def to_json(data: Mapping[str, Any]) -> str:
    """JSON in ASCII without the characters <, > and &, which a browser could read as markup."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def join_scripts(script: str) -> str:
    """Joins a JavaScript module and all modules that it imports into one script with one scope.

    The script has no imports and exports. A module stands after those that it imports.
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
    """The style, the script, and the content policy, which permits only these two by hash."""
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


def config_record(config: ModelConfig) -> dict[str, Any]:
    """The model's options, and two sizes that follow from them."""
    derived = {name: getattr(config, name) for name in ("head_size", "ffn_hidden")}
    return asdict(config) | derived


def model_record(stored: StoredModel, ids: Ids, bits: Bits) -> dict[str, Any]:
    """A model for the page's JSON. ids: the text on which the heads' mean outputs are measured."""
    tensors = round_tensors(stored.tensors, bits)
    reader = Reader(
        stored.config, {name: array.astype(np.float32) for name, array in tensors.items()}
    )
    windows = spread_windows(ids, stored.config.block_size, WINDOWS)
    means = mean_contexts(reader, windows)
    return {
        "config": config_record(stored.config),
        "manifest": [{"name": name, "shape": tensor.shape} for name, tensor in tensors.items()],
        "bits": bits,
        "tensors": compress_tensors(tensors),
        "means": encode_base64(means.astype("<f4")),
        "probe": probe_record(stored, reader),
    }


def bits_of_weights(stored: StoredModel) -> Bits:
    """The bits of a stored weight: 16, unless a weight is too large for float16; then 32."""
    largest = max(float(np.abs(array).max()) for array in stored.tensors.values())
    return 16 if largest <= np.finfo(np.float16).max else 32


def round_tensors(tensors: Mapping[str, Array], bits: Bits) -> Tensors:
    """Rounds tensors to float16 or float32."""
    return {name: array.astype(f"<f{bits // 8}") for name, array in tensors.items()}


def compress_tensors(tensors: Tensors) -> str:
    """The tensors, one after the other, as a gzip stream in base64. Its checksum reveals damage.

    The lowest bytes of all numbers come first, then all second bytes, and so on. The stream is then
    7 to 8 % smaller, because the highest bytes (sign and exponent) are similar (benchmarks/LOG.md).
    """
    numbers = np.concatenate([array.ravel() for array in tensors.values()])
    planes = numbers.view(np.uint8).reshape(-1, numbers.itemsize).T
    return base64.b64encode(gzip.compress(planes.tobytes(), 6, mtime=0)).decode()


def probe_record(stored: StoredModel, reader: Reader) -> dict[str, Any]:
    """Texts with logits, which the page computes again. reader: computes with the file's weights.

    The texts are those of the model's probe and random texts. Together they have every character,
    unless the vocabulary is very large. Position p has the logits of K characters, whose ids are
    p·K, p·K + 1, … modulo vocab_size. "tolerance" is the largest difference that the page allows.
    """
    exact = reader.in_float64()
    kept = min(LOGITS, stored.config.vocab_size)
    texts, error, largest = list[dict[str, Any]](), 0.0, 0.0
    for ids in (stored.probe.ids, _random_texts(stored)):
        logits = exact.logits(exact.forward(ids))
        error = max(error, float(np.abs(reader.logits(reader.forward(ids)) - logits).max()))
        largest = max(largest, float(np.abs(logits).max()))
        for row, expected in zip(ids, logits, strict=True):
            numbers = pick_probe_logits(expected[None], kept).astype("<f4")
            texts.append({"ids": row.tolist(), "logits": encode_base64(numbers)})
    return {"texts": texts, "kept": kept, "tolerance": float32_tolerance(error, largest)}


def _random_texts(stored: StoredModel) -> npt.NDArray[np.int64]:
    """(R, T) ids: the characters that the model's probe lacks, shuffled; then random characters."""
    random, size = np.random.default_rng(6), stored.config.vocab_size
    length = min(stored.config.block_size, LONGEST)
    missing = random.permutation(np.setdiff1d(np.arange(size), stored.probe.ids))
    rows = min(max(-(-len(missing) // length), FEWEST), MOST)
    ids = np.concatenate((missing, random.integers(size, size=rows * length)))
    return ids[: rows * length].reshape(rows, length)


def encode_base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).data).decode()
