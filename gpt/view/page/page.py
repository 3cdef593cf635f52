"""Attention maps as one HTML file that needs no network: the page's source and its data.

The page's style and scripts are in assets/; document.py joins them, packing.py packs arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpt.characters import drawn_label, drawn_legend, escape
from gpt.config import DrawnStage
from gpt.heads.attention_map import AttentionMap
from gpt.heads.contributions import contributions
from gpt.heads.measures import Measure, measure_heads, name_heads
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array, softmax
from gpt.reading.score import character_surprisals
from gpt.version import __version__
from gpt.view.page.document import PageKind, template, to_json
from gpt.view.page.packing import DETAILS, Bits, fit_details, in_base64, pack, select_allowed
from gpt.view.records import measures_record, round_floats

SCHEMA = 1
PAGE = PageKind("attention", "page.js")
MOST = 8  # likeliest characters of a depth and position


@dataclass(frozen=True)
class StartHead:
    """Which head to show first. why: the reason for this head."""

    layer: int = 0
    head: int | Literal["mean"] = 0
    stage: DrawnStage = "weights"
    why: str = ""


@dataclass(frozen=True)
class Lens:
    """The logit lens (nostalgebraist 2020): ids and probabilities, (S, T, K), of the K likeliest
    next characters at each of S = n_layer + 1 depths and T positions, the likeliest first. Depth 0
    is the embedding alone, the last is the GPT's prediction.
    """

    ids: npt.NDArray[np.int64]
    probabilities: Array


@dataclass(frozen=True)
class Subject:
    """One GPT's view of a text.

    surprisals: in nats, for each of the (T − 1,) characters after the first. counts: whether the
    model counts, too, which the page does not show.
    """

    name: str
    attention: AttentionMap
    lens: Lens
    characters: str  # id -> character
    measures: Sequence[Measure]
    origin: Mapping[str, Any]  # run, step, checkpoint hash
    surprisals: Array
    counts: bool = False


def make_subject(attention: AttentionMap, measures: Sequence[Measure] | None = None) -> Subject:
    """The page's data for a map that knows its model. measures: None: measure the map's text.

    Raises ValueError for a map without its model.
    """
    model = attention.model
    if model is None:
        raise ValueError("this map was made without a model; make one with run.attn(text)")
    nats: Array = np.zeros(0)
    if len(attention.ids) > 1:
        nats = character_surprisals(model.reader, attention.ids).nats
    return Subject(
        model.title,
        attention,
        logit_lens(model.reader, attention),
        model.vocabulary.characters,
        measure_heads([(attention.ids, [layer.weights for layer in attention.layers])])
        if measures is None
        else measures,
        model.origin,
        nats,
        model.mixture is not None,
    )


def logit_lens(reader: Reader, attention: AttentionMap) -> Lens:
    """Applies unembed(norm(stream)) at every depth; the MOST likeliest characters of each."""
    start = reader.embed(attention.ids[None])[0]
    streams = np.stack([start, *(layer.resid_post for layer in attention.layers)])  # (S, T, C)
    chances = softmax(reader.logits(reader.final_norm(streams)))  # (S, T, vocab_size)
    ids = np.argsort(-chances, axis=-1, kind="stable")[..., :MOST]
    return Lens(ids, np.take_along_axis(chances, ids, axis=-1))


def build_page(
    subject: Subject, start: StartHead, limit: int = 5_000_000, measured: str = "on this text"
) -> str:
    """Makes one HTML file of at most `limit` bytes.

    Numbers are float32 if all fit, else float16. If these do not fit either, layers lose their
    DETAILS. The weights of every layer, and the details of the layer shown at the start, always
    stay, even beyond the limit. Further numbers use what is left of it, see `_further`. measured:
    the name of the measured text.
    """
    attention, title = subject.attention, escape(subject.name)
    described = _described(subject)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "title": title,
        "measured": escape(measured),
        "counts": subject.counts,
        "start": vars(start),
        **_text(attention.text),
        "legend": drawn_legend(attention.text),
        "subject": described,
    }
    page = template(PAGE)
    empty = len(page(title, to_json(document | {"bits": 16})).encode())
    bits, detailed = fit_details(attention, start.layer, limit - empty)
    described["weights"] = [
        pack(select_allowed(layer.weights, np.tri(len(attention.ids), dtype=np.bool_)), bits)
        for layer in attention.layers
    ]
    described["details"] = {
        str(n): {name: pack(getattr(layer, name), bits) for name in DETAILS}
        for n, layer in enumerate(attention.layers)
        if n in detailed
    }
    document["bits"] = bits
    room = limit - len(page(title, to_json(document)).encode())
    order = sorted(detailed, key=lambda n: n != start.layer)
    if attention.model:
        for part, name, value in _further(described, subject, order, bits):
            room -= len(to_json({name: value}))
            if room < 0:
                break
            part[name] = value
    return page(title, to_json(document))


def _further(
    described: dict[str, Any], subject: Subject, order: list[int], bits: Bits
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """What the page has for a known model if it fits, the most important first: a part of the
    document, a name in it and the value: contributions, and stages of the layers in the given
    order.
    """
    attention = subject.attention
    reader: Reader = attention.model.reader
    found = contributions(reader, attention.layers, subject.lens.ids[-1])
    described["checks"].append(round_floats(found.check.record))
    parts = [each._asdict() for each in found.parts]
    yield described, "contributions", {"parts": parts, "values": pack(found.values, 32)}
    for n in order:
        stages = more_stages(reader, attention.layers[n], n).items()
        yield described["more"], str(n), {name: pack(stage, bits) for name, stage in stages}


def more_stages(reader: Reader, stages: Stages, layer: int) -> dict[str, Array]:
    """Name -> (T, columns), further stages of a layer, the same as those of Inspect in
    assets/model/reading.js.
    """
    found = {"norm1": reader.norm(stages.resid_pre, f"blocks.{layer}.norm1")}
    if reader.config.feed_forward:
        later = reader.feed_forward(stages.resid_mid, layer)
        found |= zip(("norm2", "ffn_hidden", "ffn"), later, strict=True)
    return found | {"resid_post": stages.resid_post}


def _described(subject: Subject) -> dict[str, Any]:
    """A subject as data, without its weights and details, and without what `_further` adds."""
    attention = subject.attention
    heads, _, head_size = attention.layers[0].q.shape
    return {
        "name": escape(subject.name),
        "origin": {name: escape(str(value)) for name, value in subject.origin.items()},
        "layers": len(attention.layers),
        "heads": heads,
        "headSize": head_size,
        "attentionOnly": bool(model := attention.model) and not model.config.feed_forward,
        "checks": [round_floats(check.record) for check in attention.checks_of()],
        "measures": measures_record(subject.measures),
        "kinds": name_heads(subject.measures) if _several(subject.measures) else None,
        "surprisals": pack(subject.surprisals, 32),
        "lens": lens_record(subject.lens, subject.characters),
        "contributions": None,
        "more": {},
    }


def _text(text: str) -> dict[str, list[str]]:
    """The characters of a text, and how to show them."""
    return {"characters": [*text], "labels": [*map(drawn_label, text)]}


def _several(measures: Sequence[Measure]) -> bool:
    """Whether the measures come from several windows: a single text is too little to name a head's
    kind.
    """
    return any(each.windows > 1 and each.name != "induction_synthetic" for each in measures)


def lens_record(lens: Lens, characters: str) -> dict[str, Any]:
    """The likeliest characters at each depth and position. characters: id -> character."""
    used, places = np.unique(lens.ids, return_inverse=True)
    return {
        "most": lens.ids.shape[-1],
        **_text("".join(characters[id] for id in used)),
        "ids": in_base64(places.astype("<u4")),
        "probabilities": in_base64(lens.probabilities.astype("<f4")),
    }
