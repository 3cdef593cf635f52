"""Attention maps as one HTML file that needs no network: the page's source and its data.

The page's style and scripts are in assets/; document.py joins them, packing.py packs arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.characters import drawn_label, drawn_legend, escape
from gpt.heads.attention_map import AttentionMap
from gpt.heads.contributions import contributions
from gpt.heads.measures import Measure, StartHead, name_heads
from gpt.heads.next_character import Experts, Lens
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.reading.score import character_surprisals
from gpt.version import __version__
from gpt.view.page.document import PageKind, template, to_json
from gpt.view.page.packing import DETAILS, Bits, fit_details, in_base64, pack, select_allowed
from gpt.view.records import measures_record, round_floats
from gpt.vocabulary import Ids

SCHEMA = 1
PAGE = PageKind("attention", "page.js")
MOST = 8  # characters to show at a position: likeliest ones of three experts, and the next one


@dataclass(frozen=True)
class Subject:
    """One checkpoint's view of the text.

    surprisals: in nats, for each of the (T − 1,) characters after the first.
    """

    name: str
    attention: AttentionMap
    lens: Lens
    characters: str  # id -> character
    measures: Sequence[Measure]
    origin: Mapping[str, Any]  # run, step, checkpoint hash
    surprisals: Array
    experts: Experts | None = None  # for a model with counting


def make_subject(
    attention: AttentionMap,
    name: str = "",
    measures: Sequence[Measure] | None = None,
    origin: Mapping[str, Any] | None = None,
) -> Subject:
    """The page's data for a map that knows its model. measures: None: measure the map's text.

    name, origin: describe the checkpoint, if its file does not. Raises ValueError for a map without
    its model.
    """
    model = attention.model
    if model is None:
        raise ValueError("this map was made without a model; make one with run.attn(text)")
    nats: Array = np.zeros(0)
    if len(attention.ids) > 1:
        nats = character_surprisals(model.reader, attention.ids, model.mixture).nats
    return Subject(
        name or model.stored.title,
        attention,
        model.lens(attention),
        attention.characters,
        model.measures(attention) if measures is None else measures,
        model.stored.origin if origin is None else origin,
        nats,
        model.experts(attention),
    )


def build_page(
    subjects: Sequence[Subject],
    start: StartHead,
    title: str,
    limit: int = 5_000_000,
    measured: str = "on this text",
) -> str:
    """Makes one HTML file of at most `limit` bytes from one subject, or from two of the same text
    to compare.

    Numbers are float32 if all fit, else float16. If these do not fit either, layers lose their
    DETAILS. The weights of every layer, and the details of the layer shown at the start, always
    stay, even beyond the limit. Further numbers use what is left of it, see `_further`. measured:
    the name of the measured text. Raises ValueError for more than two subjects, none, or different
    texts.
    """
    if not 1 <= len(subjects) <= 2:
        raise ValueError(f"{len(subjects)} subjects: a page compares one or two")
    text = subjects[0].attention.text
    if any(each.attention.text != text for each in subjects):
        raise ValueError("the subjects attend to different texts")
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "title": escape(title),
        "measured": escape(measured),
        "start": vars(start),
        **_text(text),
        "legend": drawn_legend(text),
        "subjects": [_described(subject) for subject in subjects],
    }
    page = template(PAGE)
    empty = len(page(escape(title), to_json(document | {"bits": 16})).encode())
    bits, detailed = fit_details(
        [subject.attention for subject in subjects], start.layer, limit - empty
    )
    for described, subject in zip(document["subjects"], subjects, strict=True):
        layers = subject.attention.layers
        described["weights"] = [
            pack(select_allowed(layer.weights, subject.attention.allowed), bits) for layer in layers
        ]
        described["details"] = {
            str(n): {name: pack(getattr(layer, name), bits) for name in DETAILS}
            for n, layer in enumerate(layers)
            if n in detailed
        }
    room = limit - len(page(escape(title), to_json(document | {"bits": bits})).encode())
    order = sorted(detailed, key=lambda n: n != start.layer)
    for part, name, value in _further(document["subjects"], subjects, order, bits):
        room -= len(to_json({name: value}))
        if room < 0:
            break
        part[name] = value
    return page(escape(title), to_json(document | {"bits": bits}))


def _further(
    described: Sequence[dict[str, Any]], subjects: Sequence[Subject], order: list[int], bits: Bits
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """What the page has for known models if it fits, the most important first: a part of the
    document, a name in it and the value: contributions, and stages of the layers in the given
    order.
    """
    pairs = [*zip(described, subjects, strict=True)]
    known = [(part, each.attention, each) for part, each in pairs if each.attention.model]
    for part, attention, subject in known:
        ids = subject.lens.ids[-1]
        if subject.experts is not None:
            ids = likeliest(_chances(subject.experts), attention.ids[1:])
        found = contributions(attention.model.reader, attention.layers, ids)
        part["checks"].append(round_floats(found.check.record))
        parts = [each._asdict() for each in found.parts]
        yield part, "contributions", {"parts": parts, "values": pack(found.values, 32)}
    for n, (part, attention, _) in product(order, known):
        if n < len(attention.layers):
            stages = more_stages(attention.model.reader, attention.layers[n], n).items()
            yield part["more"], str(n), {name: pack(stage, bits) for name, stage in stages}


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
        "checks": [round_floats(check.record) for check in attention.checks],
        "measures": measures_record(subject.measures),
        "kinds": name_heads(subject.measures) if _several(subject.measures) else None,
        "surprisals": pack(subject.surprisals, 32),
        "lens": lens_record(subject.lens, subject.characters),
        "experts": None
        if subject.experts is None
        else experts_record(subject.experts, attention.ids, subject.characters),
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
    return {
        "most": lens.ids.shape[-1],
        **_characters(lens.ids, characters),
        "probabilities": in_base64(lens.probabilities.astype("<f4")),
    }


def experts_record(experts: Experts, text: Ids, characters: str) -> dict[str, Any]:
    """For each position of the (T,) text: the characters that one of the three expects most, and
    the one that comes next, with three probabilities each; the gate's weights; counting's history.
    """
    chances = _chances(experts)
    ids = likeliest(chances, text[1:])
    # (T, K, 3): of the GPT, of counting, of both
    shown = np.take_along_axis(chances, ids[None], axis=2).transpose(1, 2, 0)
    history = np.stack([experts.lengths, experts.totals, experts.kinds, experts.pairs], axis=1)
    return {
        "most": ids.shape[1],
        **_characters(ids, characters),
        "probabilities": in_base64(shown.astype("<f4")),
        "weights": in_base64(experts.weights.astype("<f4")),
        "history": in_base64(history.astype("<u4")),
    }


def _chances(experts: Experts) -> npt.NDArray[np.float64]:
    return np.stack([experts.gpt, experts.counting, experts.both])  # (3, T, V)


def likeliest(chances: npt.NDArray[np.float64], following: Ids) -> npt.NDArray[np.int64]:
    """(3, T, V) probabilities, and the (T − 1,) ids that follow all positions but the last -> (T,
    K) ids, in the order of the third probabilities: those with the best rank in any of the three,
    and the next character of the text.
    """
    order = np.argsort(-chances, axis=-1, kind="stable")
    ranks = np.argsort(order, axis=-1).min(axis=0)  # (T, V)
    ranks[np.arange(len(following)), following] = -1
    both = chances[2]
    found = np.lexsort((-both, ranks), axis=-1)[:, :MOST]
    by_both = np.argsort(-np.take_along_axis(both, found, axis=1), axis=1, kind="stable")
    return np.take_along_axis(found, by_both, axis=1)


def _characters(ids: npt.NDArray[np.int64], characters: str) -> dict[str, Sequence[Any] | str]:
    """Ids, as indices into a list of the characters that occur."""
    used, places = np.unique(ids, return_inverse=True)
    return {
        **_text("".join(characters[id] for id in used)),
        "ids": in_base64(places.astype("<u4")),
    }
