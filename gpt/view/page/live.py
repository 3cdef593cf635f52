"""The page that contains the model itself: the data that it computes with, and what else it
shows.

When a page opens a model, it proves it (assets/model/worker.js). shipping.py makes the data of a
model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt.characters import drawn_label, drawn_legend, escape
from gpt.config import SampleConfig
from gpt.config.fields import UNLIMITED, Field, fields_of
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.heads.measures import RULE, choose_head, name_heads
from gpt.heads.survey import Survey
from gpt.version import __version__
from gpt.view.page.document import STYLES, PageKind, template, to_json
from gpt.view.page.packing import Bits
from gpt.view.page.page import SCHEMA
from gpt.view.page.shipping import means_record, model_record, proof_record
from gpt.view.records import measures_record
from gpt.vocabulary import Ids

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

LIMIT = 8_000_000  # bytes of a file with float32 weights
DATA = Path("data")  # the usual folder of the corpora
TOURS = Path(__file__).parent / "tours"
BUILT_IN = {"repeats": "repeats.md"}  # corpus -> a file in TOURS
#: Options of `gptx sample` that the page has as well.
OPTIONS = ("length", *DISTRIBUTION_OPTIONS, "seed")

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
    """html: the file. bits: bits of each weight in it."""

    html: str
    bits: Bits


def live_page(
    model: TrainedGPT,
    text: str | None,
    data: Path = DATA,
    done: Callable[[float], object] = lambda share: None,
    note: Callable[[str], object] = lambda line: None,
) -> LivePage:
    """The page of a model; see TrainedGPT.live.

    data: the folder of the corpora, on whose validation split the heads are measured. done:
    receives the share of the work that is done; note: receives notes on texts.
    """
    text = None if text is None else model.known_text(text)
    if text == "":
        note("note: the text is empty; the page shows what follows a line break")
    ids, name = model.default_text(data, note)
    return build_live(model, model.heads(ids, name=name, done=done, ablate=None), text, ids)


def build_live(
    model: TrainedGPT, survey: Survey, text: str | None = None, ids: Ids | None = None
) -> LivePage:
    """The page of a model; its weights are float32 if the file then has at most LIMIT bytes, else
    float16.

    survey: the measures of its heads. text: the text to begin with; None: the first line of the
    validation split. ids: the text that gives the mean outputs of heads; None: the part of the
    validation split in the model file.
    """
    page, title = template(LIVE), escape(model.stored.title)
    common = _common(model, survey, text) | {"means": means_record(model, ids)}

    def written(bits: Bits) -> LivePage:
        record = model_record(model.stored, bits) | {"proof": proof_record(model.stored, bits)}
        stored = _precision(record["proof"]["rounding"])
        payload = common | {"title": title, "stored": stored, "model": record}
        return LivePage(page(title, to_json(payload)), record["bits"])

    exact = written(32)
    return exact if len(exact.html.encode()) <= LIMIT else written(16)


def _common(model: TrainedGPT, survey: Survey, text: str | None) -> dict[str, Any]:
    """What the page shows, besides the model's weights."""
    config, characters = model.config, model.vocabulary.characters
    return {
        "bits": 32,  # the page computes in float32
        "layers": config.n_layer,
        "measured": escape(f"{survey.measured} · {RULE}"),
        "measures": measures_record(survey.measures),
        "kinds": name_heads(survey.measures) if survey.windows > 1 else None,
        "schema": SCHEMA,
        "version": __version__,
        "about": escape(_about(model)),
        "origin": {name: escape(str(value)) for name, value in model.stored.origin.items()},
        "counts": model.mixture is not None,
        "start": vars(choose_head(survey.measures)),
        "text": model.example() if text is None else text,
        "tour": _tour(model),
        "vocabulary": [*characters],
        "folds": model.vocabulary.folds,
        "vocabulary_labels": [drawn_label(each) for each in characters],
        "vocabulary_legend": [" · ".join(drawn_legend([each])) for each in characters],
        "heads": config.n_head,
        "head_size": config.head_size,
        "attention_only": not config.feed_forward,
        "block_size": config.block_size,
        "options": [_option(fields_of(SampleConfig)[name]) for name in OPTIONS],
    }


def _option(option: Field) -> dict[str, Any]:
    limits = option.limits
    return {
        "name": option.name,
        "help": option.help,
        "default": 1 if option.name == "seed" else option.default,
        "whole": option.type is int,
        "least": limits.ge,
        "most": None if limits.le in UNLIMITED else limits.le,
        "above": limits.gt,
    }


def _sources(model: TrainedGPT) -> tuple[str, ...]:
    """The sources of the model's corpus, if they are known."""
    manifest = getattr(model, "manifest", None)  # a model file may have no run
    return tuple(manifest.corpus.sources) if manifest else ()


def _about(model: TrainedGPT) -> str:
    """Where the page's model comes from, for someone who was sent the file: no folders."""
    sources = ", ".join(Path(each).name for each in _sources(model)[:2])
    return f"The model {model.stored.name}" + (f" was trained on {sources}." if sources else ".")


def _tour(model: TrainedGPT) -> str:
    """The text of the tour for the model's corpus, or "" if it has none. A stop begins with `##`;
    assets/live/tour.js reads it.
    """
    name = BUILT_IN.get(",".join(_sources(model)))
    return (TOURS / name).read_text("utf-8") if name else ""


def _precision(rounding: float | None) -> str:
    """The precision of the weights in the file, for its reader."""
    if rounding is None:
        return "the weights in this file are float32, as trained"
    return (
        "the weights in this file are rounded to float16: logits are within "
        f"{rounding:.1g} of those of the trained model"
    )
