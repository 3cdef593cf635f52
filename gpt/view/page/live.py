"""The page that contains the model itself: the data that it computes with, and what else it
shows.

When a page opens a model, it proves it (assets/model/worker.js). shipping.py makes the data of a
model, counted.py those of counting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gpt.characters import drawn_label, drawn_legend, escape
from gpt.config import LiveConfig, SampleConfig
from gpt.config.fields import field_help, field_ranges, field_types
from gpt.config.questions import WeightPrecision
from gpt.errors import ConfigError
from gpt.heads.measures import choose_head, name_heads
from gpt.heads.survey import Survey, evenly_spaced
from gpt.interface.trained import TrainedGPT
from gpt.storage.runs import Steps, run_of, step_numbers
from gpt.version import __version__
from gpt.view.page.counted import counting_record
from gpt.view.page.document import STYLES, PageKind, template, to_json
from gpt.view.page.packing import Bits
from gpt.view.page.page import SCHEMA
from gpt.view.page.shipping import means_record, model_record, proof_record
from gpt.view.page.tour import OPTIONS, tour_of
from gpt.view.records import measures_record
from gpt.vocabulary import Ids

LIMIT = 8_000_000  # bytes in a file, if the user gives no other limit
BITS_OF: dict[WeightPrecision, Bits] = {"float32": 32, "float16": 16}
DATA = Path("data")  # the usual folder of the corpora
NOTES = 1_000  # bytes for the sentences about the file itself

FRAGMENTS = ("notice", "editor", "changes", "drawing", "tour")
LIVE = PageKind(
    "live",
    "live/live.js",
    (*STYLES, "live/live.css"),
    tuple((name, f"live/{name}.html") for name in FRAGMENTS),
    "model/worker.js",
)


@dataclass(frozen=True)
class LivePage:
    """html: the file. bits: bits of each weight in it. steps: the steps of the models in it.
    left_out: what did not fit, a sentence each.
    """

    html: str
    bits: Bits
    steps: tuple[int, ...]
    left_out: tuple[str, ...]


def live_page(
    model: TrainedGPT,
    text: str | None,
    steps: Steps | None,
    options: LiveConfig,
    data: Path = DATA,
    done: Callable[[float], object] = lambda share: None,
    note: Callable[[str], object] = lambda line: None,
) -> LivePage:
    """The page of a model, or of several steps of its run; see TrainedGPT.live.

    data: the folder of the corpora, on whose validation split the heads are measured. done:
    receives the share of the work that is done; note: receives notes on texts.
    """
    text = None if text is None else model.known_text(text)
    if text == "":
        note("note: the text is empty; the page shows what follows a line break")
    tour = tour_of(model, options.tour)
    models = [model]
    if steps is not None:
        numbers = step_numbers(run_of(model.stored), steps)
        models = [model.at(number) for number in numbers]
    ids, name = models[-1].default_text(data, note)
    survey = models[-1].heads(ids, name=name, done=done)
    return build_live(
        models,
        survey,
        text,
        ids,
        precision=options.precision,
        limit=int(options.limit * 1e6),
        tour=tour,
    )


def build_live(
    models: Sequence[TrainedGPT],
    survey: Survey,
    text: str | None = None,
    ids: Ids | None = None,
    precision: WeightPrecision = "auto",
    limit: int = LIMIT,
    tour: str = "",
) -> LivePage:
    """The page of a run's models, oldest first; it opens with the newest.

    survey: the measures of the newest model's heads. text: the text to begin with; None: the first
    line of the validation split. ids: the text that gives the mean outputs of heads; None: the part
    of the validation split in the model file. limit: bytes. Weights are written as float32 if all
    fits, else as float16; if that does not fit either, only some models are written, evenly spread
    and always with the newest; if one model with counting does not fit, counting is left out.
    precision: write the weights only so. tour: its text, from `tour_of`. Raises ConfigError if not
    even one model fits, and for a model that a page cannot compute.
    """
    last = models[-1]
    counting = counting_record(last.stored)
    page = template(LIVE)
    title = escape(last.stored.title if len(models) == 1 else last.stored.name)
    text = last.example() if text is None else text
    common = _common(last, survey, text) | {"title": title, "tour": tour}
    room = limit - len(page(title, to_json(common))) - NOTES
    sizes: dict[Bits, int] = {
        bits: len(to_json(_record(last, bits, ids)))
        for bits in (BITS_OF.values() if precision == "auto" else (BITS_OF[precision],))
    }
    found = _fitting(sizes, len(models), 0 if counting is None else len(to_json(counting)), room)
    if found is None:
        smallest = min(sizes.values()) - room + limit
        raise ConfigError(
            "limit", f"the model alone needs {megabytes(smallest)} MB; allow this or more"
        )
    bits, counts, number = found
    kept = [models[n] for n in evenly_spaced(len(models), number)]
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
        "bits": 32,  # the page computes in float32
        "stored": _precision(bits, stored),
        "left_out": left_out,
        "counts": counting is not None and counts,
        "models": [_shown(model, record) for model, record in zip(kept, records, strict=True)],
        "model": {"models": records, "counting": counting if counts else None},
    }
    steps = tuple(model.stored.step for model in kept)
    return LivePage(page(title, to_json(payload)), bits, steps, tuple(left_out))


def _common(model: TrainedGPT, survey: Survey, text: str) -> dict[str, Any]:
    """What the page shows for all models together."""
    config, characters = model.config, model.vocabulary.characters
    defaults = SampleConfig()
    help, ranges = field_help(SampleConfig, flags=False), field_ranges(SampleConfig)
    kinds_of = field_types(SampleConfig)
    return {
        "layers": config.n_layer,
        "measured": escape(f"{survey.measured} · {survey.rule}"),
        "measures": measures_record(survey.measures),
        "kinds": name_heads(survey.measures) if survey.windows > 1 else None,
        "schema": SCHEMA,
        "version": __version__,
        "about": escape(_about(model)),
        "start": vars(choose_head(survey.measures)),
        "text": text,
        "vocabulary": [*characters],
        "folds": model.vocabulary.folds,
        "vocabulary_labels": [drawn_label(each) for each in characters],
        "vocabulary_legend": [" · ".join(drawn_legend([each])) for each in characters],
        "heads": config.n_head,
        "head_size": config.head_size,
        "attention_only": not config.feed_forward,
        "units": config.ffn_hidden,
        "block_size": config.block_size,
        "options": [
            {
                "name": name,
                "help": help[name],
                "default": getattr(defaults, name),
                "whole": int in (kinds_of[name], *get_args(kinds_of[name])),
                **vars(ranges[name]),
            }
            for name in OPTIONS
        ],
    }


def _about(model: TrainedGPT) -> str:
    """Where the page's model comes from, for someone who was sent the file: no folders."""
    manifest = getattr(model, "manifest", None)  # a model file may have no run
    named = () if manifest is None else manifest.corpus.sources[:2]
    sources = ", ".join(Path(each).name for each in named)
    return f"The model {model.stored.name}" + (f" was trained on {sources}." if sources else ".")


def _record(model: TrainedGPT, bits: Bits, ids: Ids | None) -> dict[str, Any]:
    """A model as data for the worker; with the means, which the page takes out."""
    gate = None if model.mixture is None else model.mixture.gate.weights.tolist()
    return {
        **model_record(model.stored, bits),
        "gate": gate,
        "proof": proof_record(model.stored, bits),
        "means": means_record(model, ids),
    }


def _shown(model: TrainedGPT, record: dict[str, Any]) -> dict[str, Any]:
    """A model as data for the page, which takes its means from the record."""
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
    """Bits of a weight, whether counting fits, and how many models fit; None if none does.

    sizes: bits -> size of one model, the most bits first. counting: its size, 0 without it.
    """
    for bits, size in sizes.items():
        if models * size + counting <= room:
            return bits, True, models
    for counts in (True, False):
        number = (room - counts * counting) // size
        if number >= 1:
            return bits, counts, min(models, number)
    return None


def _precision(bits: Bits, rounding: float) -> str:
    """The precision of the weights in the file, for its reader."""
    if bits == 32:
        return "the weights in this file are float32, as trained"
    return (
        "the weights in this file are rounded to float16: logits are within "
        f"{rounding:.1g} of those of the trained model"
    )


def megabytes(size: int) -> str:
    """A size in bytes as megabytes, with one decimal, rounded up."""
    return f"{math.ceil(size / 1e5) / 10:.1f}"
