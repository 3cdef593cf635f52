"""The page that contains the model itself: the data that it computes with, and what else it
shows.

A model with an encoder has another kind of page, with a source and a target. When a page opens a
model, it proves it (assets/model/computation.js). shipping.py makes the data of a model, counted.py
those of counting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gpt.characters import drawn_label, drawn_legend, escape
from gpt.config import AttentionKind, LiveConfig, SampleConfig
from gpt.config.fields import field_help, field_ranges, field_types
from gpt.config.questions import WeightPrecision
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.errors import ConfigError
from gpt.heads.measures import choose_head, name_heads
from gpt.heads.survey import Survey, evenly_spaced
from gpt.interface.trained import TrainedGPT
from gpt.reading.targets import split_pair
from gpt.storage.runs import Steps, run_of, step_numbers
from gpt.version import __version__
from gpt.view.page.counted import counting_record
from gpt.view.page.document import STYLES, PageKind, template, to_json
from gpt.view.page.packing import Bits
from gpt.view.page.page import SCHEMA
from gpt.view.page.shipping import means_record, model_record, proof_record
from gpt.view.page.tour import tour_of
from gpt.view.records import measures_record
from gpt.vocabulary import FIRST, Ids

LIMIT = 8_000_000  # bytes in a file, if the user gives no other limit
BITS_OF: dict[WeightPrecision, Bits] = {"float32": 32, "float16": 16}
DATA = Path("data")  # the usual folder of the corpora
NOTES = 1_000  # bytes for the sentences about the file itself

FRAGMENTS = tuple((name, f"live/{name}.html") for name in ("notice", "changes", "drawing", "tour"))
LIVE = PageKind(
    "live",
    "live/live.js",
    (*STYLES, "live/live.css"),
    (("editor", "live/editor.html"), *FRAGMENTS),
    "model/worker.js",
)
#: The page of a model with an encoder.
LIVE_PAIRS = PageKind(
    "live",
    "live/pairs.js",
    (*STYLES, "live/live.css", "live/pairs.css"),
    (("cards", "live/pairs.html"), *FRAGMENTS),
    "model/pair_worker.js",
)
#: Options of `gptx sample` that the pages have as well.
OPTIONS = ("length", *DISTRIBUTION_OPTIONS, "seed")
PAIR_OPTIONS = (*DISTRIBUTION_OPTIONS, "seed")
KINDS: tuple[AttentionKind, ...] = ("cross", "encoder", "decoder")


@dataclass(frozen=True)
class LivePage:
    """html: the file. bits: bits of each weight in it. steps: the steps of the models in it.
    left_out: what did not fit, a sentence each.
    """

    html: str
    bits: Bits
    steps: tuple[int, ...]
    left_out: tuple[str, ...]


def start_text(model: TrainedGPT, text: str) -> str:
    """The text in the form with which a page of the model can begin; with an encoder, a source or
    "source TAB target". Raises TextError.
    """
    text = model.known_text(text)
    if not model.has_encoder:
        return text
    source, read = split_pair(model.reader, model.vocabulary, text)
    return model.vocabulary.decode([*source, *read] if FIRST in text else source)


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

    text: one whose characters the model knows, or None. data: the folder of the corpora, on whose
    validation split the heads are measured. done: receives the share of the work that is done;
    note: receives notes on texts.
    """
    text = None if text is None else start_text(model, text)
    if text == "":
        note("note: the text is empty; the page shows what follows a line break")
    tour = tour_of(model, options.tour, PAIR_OPTIONS if model.has_encoder else OPTIONS)
    models = [model]
    if steps is not None:
        numbers = step_numbers(run_of(model.stored), steps)
        models = [model.at(number) for number in numbers]
    ids, name = (None, "") if model.has_encoder else models[-1].default_text(data, note)
    surveys = surveys_of(models[-1], ids, name, done)
    how = options.precision, int(options.limit * 1e6), tour
    return build_live(models, surveys, text, ids, *how)


def surveys_of(
    model: TrainedGPT,
    ids: Ids | None = None,
    name: str = "",
    done: Callable[[float], object] = lambda share: None,
) -> list[Survey]:
    """The measures of a model's heads; for a model with an encoder, those of each kind of
    attention.

    ids: the ids of the text named `name`; None: `TrainedGPT.default_text`, which is always used
    with an encoder.
    """
    if not model.has_encoder:
        return [model.heads(ids, name=name, done=done)]
    return [
        model.heads(attention=kind, done=lambda share, n=n: done((n + share) / 3))
        for n, kind in enumerate(KINDS)
    ]


def build_live(
    models: Sequence[TrainedGPT],
    surveys: Sequence[Survey],
    text: str | None = None,
    ids: Ids | None = None,
    precision: WeightPrecision = "auto",
    limit: int = LIMIT,
    tour: str = "",
) -> LivePage:
    """The page of a run's models, oldest first; it opens with the newest.

    surveys: from `surveys_of`. text: the text to begin with; None: the first line of the validation
    split, or with an encoder its first source. ids: the text that gives the mean outputs of heads;
    None: the part of the validation split in the model file. limit: bytes. Weights are written as
    float32 if all fits, else as float16; if that does not fit either, only some models are written,
    evenly spread and always with the newest; if one model with counting does not fit, counting is
    left out. precision: write the weights only so. tour: its text, from `tour_of`. Raises
    ConfigError if not even one model fits, and for a model that a page cannot compute.
    """
    last = models[-1]
    counting = counting_record(last.stored)
    page = template(LIVE_PAIRS if last.has_encoder else LIVE)
    title = escape(last.stored.title if len(models) == 1 else last.stored.name)
    if text is None:
        text = last.example().split(FIRST)[0] if last.has_encoder else last.example()
    common = _common(last, surveys, text) | {"title": title, "tour": tour}
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


def _common(model: TrainedGPT, surveys: Sequence[Survey], text: str) -> dict[str, Any]:
    """What the page shows for all models together."""
    config, characters = model.config, model.vocabulary.characters
    defaults, names = SampleConfig(), OPTIONS
    of_kinds: dict[str, Any] = {}
    if model.has_encoder:
        defaults, names = SampleConfig(temperature=0), PAIR_OPTIONS
        of_kinds["attentions"] = {each.kind: _measured(each) for each in surveys}
        letters = model.vocabulary.letters.items()
        of_kinds["units"] = 0
        of_kinds["folds_of"] = {side: each.folds for side, each in letters}
    help, ranges = field_help(SampleConfig, flags=False), field_ranges(SampleConfig)
    kinds_of = field_types(SampleConfig)
    return {
        **_measured(surveys[0]),
        **of_kinds,
        "schema": SCHEMA,
        "version": __version__,
        "about": escape(_about(model)),
        "start": vars(choose_head(surveys[0].measures)),
        "text": text,
        "vocabulary": [*characters],
        "spaced": model.vocabulary.spaced,
        "unread": model.vocabulary.unread,
        "unwritten": model.vocabulary.unwritten,
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
            for name in names
        ],
    }


def _about(model: TrainedGPT) -> str:
    """Where the page's model comes from, for someone who was sent the file: no folders."""
    manifest = getattr(model, "manifest", None)  # a model file may have no run
    named = () if manifest is None else manifest.corpus.sources[:2]
    sources = ", ".join(Path(each).name for each in named)
    return f"The model {model.stored.name}" + (f" was trained on {sources}." if sources else ".")


def _measured(survey: Survey) -> dict[str, Any]:
    """What the page shows about the heads of one kind of attention."""
    return {
        "layers": len(survey.measures[0].values),
        "measured": escape(f"{survey.measured} · {survey.rule}"),
        "measures": measures_record(survey.measures),
        "kinds": name_heads(survey.measures) if survey.windows > 1 else None,
    }


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
