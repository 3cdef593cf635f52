"""The page that contains the model itself: what it needs to compute, and what it shows besides.

The page proves each model when it opens it (assets/model/models.js). weights, proof and counting
have modules of their own: shipping.py, proof.py, counted.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpt.config import SampleConfig
from gpt.config.fields import field_help
from gpt.config.sample import SHAPING
from gpt.errors import ConfigError
from gpt.heads.kinds import RULE, kinds
from gpt.heads.survey import Survey
from gpt.trained import TrainedGPT
from gpt.version import __version__
from gpt.view.characters import escape, label, legend
from gpt.view.page.counted import counting_record
from gpt.view.page.document import Kind, template, to_json
from gpt.view.page.packing import Bits
from gpt.view.page.page import SCHEMA, SHARED, opening
from gpt.view.page.proof import proof_record
from gpt.view.page.shipping import means_record, model_record
from gpt.view.records import measure_record
from gpt.vocabulary import Ids

Precision = Literal["auto", "float32", "float16"]
LIMIT = 8_000_000  # bytes of a file, if the user names no other number
BITS: tuple[Bits, ...] = (32, 16)
BITS_OF: dict[Precision, Bits] = {"float32": 32, "float16": 16}
NOTES = 1_000  # bytes that the sentences on the file itself may take

#: What both the page and its worker use.
BOTH = ("numbers.js", "model/gate.js", "model/random.js", "model/sampler.js")
MODEL = (
    "model/linear.js",
    "model/layers.js",
    "model/positions.js",
    "model/attention.js",
    "model/gpt.js",
    "model/reading.js",
    "model/counting.js",
    "model/tables.js",
    "model/weights.js",
    "model/proof.js",
    "model/models.js",
    "model/computation.js",
)
OWN = (
    *BOTH,
    *(name for name in SHARED if name not in BOTH),
    "live/client.js",
    "live/changes.js",
    "live/write.js",
    "live/session.js",
    "live/ask.js",
    "live/start.js",
)
FRAGMENTS = (("notice", "live/notice.html"), ("cards", "live/ask.html"))
LIVE = Kind(
    "live",
    (*OWN, "live/editor.js", "live/live.js"),
    ("page.css", "live/live.css"),
    (("editor", "live/editor.html"), ("cards", "live/write.html"), *FRAGMENTS),
    (*BOTH, *MODEL, "model/analysis.js", "model/worker.js"),
    hidden=True,
)
#: Options of `gptx sample` that the page has.
OPTIONS = ("length", *SHAPING, "seed")


@dataclass(frozen=True)
class LivePage:
    """html: the file. bits: of the weights in it. steps: of the models in it. left_out: what did
    not fit, a sentence each.
    """

    html: str
    bits: Bits
    steps: tuple[int, ...]
    left_out: tuple[str, ...]


def build_live(
    models: Sequence[TrainedGPT],
    survey: Survey,
    text: str | None = None,
    ids: Ids | None = None,
    precision: Precision = "auto",
    limit: int = LIMIT,
) -> LivePage:
    """The page of a run's models, oldest first; it opens with the last one.

    survey: the measures of its heads. text: to begin with; None: the first line of the validation
    split. ids: the text that gives the mean outputs of heads; None: what the model file contains of
    the validation split. limit: bytes. float32 weights are written if all fits, else float16; if
    that does not fit either, only some models, evenly spread, and always the last; if one with
    counting does not fit, counting is left out. precision: writes only these weights. Raises
    ConfigError if one model does not fit, and for a model that a page cannot compute.
    """
    last = models[-1]
    counting = counting_record(last.stored)
    page = template(LIVE)
    title = escape(last.stored.title if len(models) == 1 else last.stored.name)
    common = _common(last, survey, last.example() if text is None else text) | {"title": title}
    room = limit - len(page(title, to_json(common))) - NOTES
    sizes: dict[Bits, int] = {
        bits: len(to_json(_record(last, bits, ids)))
        for bits in (BITS if precision == "auto" else (BITS_OF[precision],))
    }
    found = _fitting(sizes, len(models), 0 if counting is None else len(to_json(counting)), room)
    if found is None:
        smallest = min(sizes.values()) - room + limit
        raise ConfigError(
            "limit", f"the model alone needs {megabytes(smallest)} MB; allow this or more"
        )
    bits, counts, number = found
    kept = [models[n] for n in evenly(len(models), number)]
    left_out = []
    if counting is not None and not counts:
        left_out.append(
            f"Counting does not fit into {megabytes(limit)} MB: the GPT predicts alone."
        )
    if number < len(models):
        left_out.append(
            f"{len(models) - number} of {len(models)} steps do not fit into {megabytes(limit)} MB."
        )
    records = [_record(model, bits, ids) for model in kept]
    stored = max((each["proof"]["rounding"] or 0.0) for each in records)
    payload = common | {
        "bits": 32,  # of what the page computes
        "stored": _precision(bits, stored),
        "left_out": left_out,
        "counts": counting is not None and counts,
        "models": [_shown(model, record) for model, record in zip(kept, records, strict=True)],
        "model": {"models": records, "counting": counting if counts else None},
    }
    steps = tuple(model.stored.step for model in kept)
    return LivePage(page(title, to_json(payload)), bits, steps, tuple(left_out))


def _common(model: TrainedGPT, survey: Survey, text: str) -> dict[str, Any]:
    """What the page shows of all models."""
    config, characters = model.config, model.vocabulary.characters
    defaults, help = SampleConfig(), field_help(SampleConfig, flags=False)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "measured": escape(f"{survey.measured} · {RULE}"),
        "start": vars(opening(survey.measures)),
        "text": text,
        "vocabulary": [ord(each) for each in characters],
        "vocabulary_labels": [label(each) for each in characters],
        "vocabulary_legend": [" · ".join(legend([each])) for each in characters],
        "layers": config.n_layer,
        "heads": config.n_head,
        "head_size": config.head_size,
        "block_size": config.block_size,
        "measures": [measure_record(each) | {"title": each.title} for each in survey.measures],
        "kinds": kinds(survey.measures) if survey.windows > 1 else None,
        "options": [
            {"name": name, "help": help[name], "default": getattr(defaults, name)}
            for name in OPTIONS
        ],
    }


def _record(model: TrainedGPT, bits: Bits, ids: Ids | None) -> dict[str, Any]:
    """A model for the worker; means: for the page."""
    gate = None if model.mixture is None else model.mixture.gate.weights.tolist()
    return {
        **model_record(model.stored, bits),
        "gate": gate,
        "proof": proof_record(model.stored, bits),
        "means": means_record(model, ids),
    }


def _shown(model: TrainedGPT, record: dict[str, Any]) -> dict[str, Any]:
    """A model for the page, which takes its means from the record."""
    origin = {name: escape(str(value)) for name, value in model.stored.origin.items()}
    manifest = getattr(model, "manifest", None)  # a model file may have no run
    return {
        "step": model.stored.step,
        "loss": manifest and manifest.val_loss,
        "origin": origin,
        "means": record.pop("means"),
    }


def _fitting(
    sizes: Mapping[Bits, int], models: int, counting: int, room: int
) -> tuple[Bits, bool, int] | None:
    """Bits of the weights, whether counting fits, and how many models; None if none does.

    sizes: of one model, by its bits, the most first. counting: its size, 0 without it.
    """
    for bits, size in sizes.items():
        if models * size + counting <= room:
            return bits, True, models
    for counts in (True, False):
        number = (room - counts * counting) // size
        if number >= 1:
            return bits, counts, min(models, number)
    return None


def evenly(count: int, number: int) -> list[int]:
    """`number` of the indices 0 … count − 1, evenly spread, with the last one."""
    if number == 1:
        return [count - 1]
    return sorted({round(n * (count - 1) / (number - 1)) for n in range(number)})


def _precision(bits: Bits, rounding: float) -> str:
    """What the weights in the file are, for its reader."""
    if bits == 32:
        return "the weights in this file are float32, as trained"
    return (
        "the weights in this file are rounded to float16: logits are within "
        f"{rounding:.1g} of those of the trained model"
    )


def megabytes(size: int) -> str:
    """A size in bytes as megabytes, with one decimal, rounded up."""
    return f"{math.ceil(size / 1e5) / 10:.1f}"
