"""The page of a model: one HTML file that contains the model itself, with style and scripts, and a
policy that permits no others and no network address. assets/model/protocol.js describes its data.

The page computes the logits of a probe, and shows no numbers if it gets others. These logits belong
to the weights as the file stores them, float32 or float16.
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
from gpt.reading.probe import allowed_in_float32
from gpt.storage.model_file import StoredModel, Tensors, pick_probe_logits
from gpt.vocabulary import Ids
from gpt.words import escape

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

ASSETS = Path(__file__).parent / "assets"
Bits = Literal[16, 32]
LOGITS = 8  # logits stored for each position
LONGEST = 32  # characters of a random text that the page checks
FEWEST, MOST = 2, 8  # number of these texts; more than FEWEST if the model's probe lacks characters
WINDOWS = 32  # of a text, whose mean outputs replace those of heads
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
    names = model.manifest_or_none.corpus.names if model.manifest_or_none else []
    about = f"The model {stored.name}"
    if names:
        about += f" was trained on {', '.join(names[:2])}"
    if text is not None:
        text = model.known_text(text)
    elif names == ["repeats"]:
        text = _repeated_word(stored.excerpt)
    else:
        text = stored.example(EXAMPLE)
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
    """A measure of all heads; null where there is no number."""
    record = {name: getattr(measure, name) for name in ("name", "title", "explained")}
    nothing = np.array(None)
    for name in ("values", "errors", "uniform"):
        numbers = np.asarray(getattr(measure, name))
        record[name] = np.where(np.isnan(numbers), nothing, numbers.round(4)).tolist()
    if measure.offsets is not None:
        record["offsets"] = measure.offsets.tolist()
    return record


def _repeated_word(excerpt: str) -> str:
    """A word of the corpus `repeats` and its repetition without the end, so that a head that copies
    has something to do. excerpt: of the validation split.
    """

    def unfit(word: str) -> tuple[bool, bool, int]:
        """A letter that stands in the word twice has two letters after it."""
        return word.count(word[-3]) > 1, " " not in word, abs(len(word) - LENGTH)

    lines = excerpt.split("\n")[1:-1]  # the first and last lines may be incomplete
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


def config_record(config: ModelConfig) -> dict[str, Any]:
    """The model's options, and the sizes that follow from them."""
    derived = {name: getattr(config, name) for name in ("head_size", "ffn_hidden")}
    return asdict(config) | derived


def model_record(stored: StoredModel, ids: Ids, bits: Bits) -> dict[str, Any]:
    """A model as the page reads it. ids: the text that gives the mean outputs of heads."""
    tensors = rounded(stored.tensors, bits)
    reader = Reader(
        stored.config, {name: array.astype(np.float32) for name, array in tensors.items()}
    )
    windows = spread_windows(ids, stored.config.block_size, WINDOWS)
    means = mean_contexts(reader, windows)
    return {
        "config": config_record(stored.config),
        "manifest": [{"name": name, "shape": tensor.shape} for name, tensor in tensors.items()],
        "bits": bits,
        "tensors": gzip_text(tensors),
        "means": in_base64(means.astype("<f4")),
        "probe": probe_record(stored, reader),
    }


def smallest_bits(stored: StoredModel) -> Bits:
    """Bits of a number in the file: 16, unless one is too large for float16."""
    largest = max(float(np.abs(array).max()) for array in stored.tensors.values())
    return 16 if largest <= np.finfo(np.float16).max else 32


def rounded(tensors: Mapping[str, Array], bits: Bits) -> Tensors:
    return {name: array.astype(f"<f{bits // 8}") for name, array in tensors.items()}


def gzip_text(tensors: Tensors) -> str:
    """All numbers, one tensor after the other, as a gzip stream, whose checksum reveals
    damage.

    All lowest bytes come first, then all second bytes, and so on. The highest bytes hold signs and
    exponents, which are similar; so the stream is 7 to 8 % smaller (benchmarks/LOG.md).
    """
    numbers = np.concatenate([array.ravel() for array in tensors.values()])
    planes = numbers.view(np.uint8).reshape(-1, numbers.itemsize).T
    return base64.b64encode(gzip.compress(planes.tobytes(), 6, mtime=0)).decode()


def probe_record(stored: StoredModel, reader: Reader) -> dict[str, Any]:
    """Texts as ids, with K logits for each position. tolerance: by how much the page's logits may
    differ from these. reader: of the weights in the file.

    Position p has the logits of K characters, those with the ids p·K, p·K + 1, … modulo vocab_size.
    The texts are the model's probe and random ones; together they have every character, unless the
    vocabulary is very large.
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
            texts.append({"ids": row.tolist(), "logits": in_base64(numbers)})
    return {"texts": texts, "kept": kept, "tolerance": allowed_in_float32(error, largest)}


def _random_texts(stored: StoredModel) -> npt.NDArray[np.int64]:
    """(R, T) ids: the characters that the probe lacks, in a random order, then random ones."""
    random, size = np.random.default_rng(6), stored.config.vocab_size
    length = min(stored.config.block_size, LONGEST)
    missing = random.permutation(np.setdiff1d(np.arange(size), stored.probe.ids))
    rows = min(max(-(-len(missing) // length), FEWEST), MOST)
    ids = np.concatenate((missing, random.integers(size, size=rows * length)))
    return ids[: rows * length].reshape(rows, length)


def in_base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).data).decode()
