"""Attention maps as one HTML file that needs no network: the page's source, and its data beside it.

What the page looks like and does is in assets/. Here the numbers are packed so that the file stays
small and says how exact it is. Knows no checkpoint, no command and no browser.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpt.config.show import Stage
from gpt.heads.attention_map import AttentionMap
from gpt.heads.logit_lens import Lens
from gpt.heads.measures import STRONG, Measure, kinds, strengths
from gpt.reading.gpt import Array, Stages
from gpt.version import __version__
from gpt.view.characters import escape, label, legend
from gpt.view.records import check_record, rounded

SCHEMA = 1
ASSETS = Path(__file__).parent / "assets"
#: In the order of their imports: the page has them one after the other, as one module.
SCRIPTS = (
    "numbers.js",
    "data.js",
    "derive.js",
    "colours.js",
    "state.js",
    "parts.js",
    "drawing.js",
    "matrix.js",
    "heads.js",
    "text.js",
    "cell.js",
    "next.js",
    "measures.js",
    "save.js",
    "about.js",
    "page.js",
)
#: What a layer has beyond its weights. All other stages follow from these: scores from q and k,
#: context and concat from weights and v, residual = stream + proj, to the last bit; masked scores
#: from the bias of positions, too, which all layers share.
DETAILS = ("q", "k", "v", "stream", "proj")

Bits = Literal[16, 32]
_KEYS = 64  # characters that an array takes in JSON besides its numbers, generously


@dataclass(frozen=True)
class Subject:
    """One checkpoint's view of the text."""

    name: str
    attention: AttentionMap
    lens: Lens
    characters: str  # id -> character
    measures: Sequence[Measure]
    origin: Mapping[str, Any]  # run, step, checkpoint hash


@dataclass(frozen=True)
class Start:
    """What the page shows first, unless its address says otherwise. why: reason for the head."""

    layer: int = 0
    head: int | Literal["mean", "rollout"] = 0
    stage: Stage = "weights"
    why: str = ""


def opening(
    measures: Sequence[Measure],
    layer: int | None = None,
    head: int | None = None,
    stage: Stage = "weights",
) -> Start:
    """The head to show first, of those in the given layer or with the given number.

    The head nearest to a kind (measures.KINDS), if it is near enough to have its name; else the
    head with the lowest entropy. Heads that mostly look at the first character ("sink") come last.
    """
    by_name = {measure.name: measure for measure in measures}
    if (layer is not None and head is not None) or "entropy" not in by_name:
        return Start(layer or 0, head or 0, stage)
    entropy = by_name["entropy"].values  # (L, H)
    kind = strengths([measure for measure in measures if measure.name != "sink"])
    rank = np.where(kind >= STRONG, 1 + kind, 1 - np.nan_to_num(entropy, nan=1.0))
    rank[np.array(kinds(measures)) == "sink"] -= 3
    for axis, chosen in enumerate((layer, head)):
        others = np.arange(rank.shape[axis]) != chosen
        if chosen is not None:
            rank[(slice(None),) * axis + (others,)] = -np.inf
    place = divmod(int(rank.argmax()), rank.shape[1])
    name = kinds(measures)[place[0]][place[1]]
    if name:
        found, why = by_name[name], f"the head nearest to a named kind, {by_name[name].title}"
    else:
        found, why = (
            by_name["entropy"],
            "no kind of head stands out; this one has the lowest entropy",
        )
    value, even = float(found.values[place]), found.uniform
    return Start(place[0], place[1], stage, f"{why}: {value:.2f}, uniform {even:.2f}")


def build_page(
    subjects: Sequence[Subject],
    start: Start,
    title: str,
    limit: int = 5_000_000,
    measured: str = "on this text",
) -> str:
    """One subject, or two of the same text to compare: one HTML file, at most `limit` bytes.

    Numbers are float32 if all fit, else float16. If these do not fit, only as many layers keep
    their DETAILS as do, the start's first. The weights of every layer and the details of the
    start's always stay, whatever the limit. `measured` says what the measures are of. Raises
    ValueError for other subjects.
    """
    if not 1 <= len(subjects) <= 2:
        raise ValueError(f"{len(subjects)} subjects: a page compares one or two")
    if len({subject.attention.text for subject in subjects}) != 1:
        raise ValueError("the subjects attend to different texts")
    text = subjects[0].attention.text
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "title": escape(title),
        "measured": escape(measured),
        "start": {
            "layer": start.layer,
            "head": start.head,
            "stage": start.stage,
            "why": start.why,
        },
        "codes": [ord(character) for character in text],
        "labels": [label(character) for character in text],
        "legend": legend(text),
        "subjects": [_described(subject) for subject in subjects],
    }
    page = _template()
    empty = len(page(escape(title), _json(document | {"bits": 16})).encode())
    bits, detailed = _plan([subject.attention for subject in subjects], start, limit - empty)
    for described, subject in zip(document["subjects"], subjects, strict=True):
        layers = subject.attention.layers
        described["weights"] = [_pack(_lower(layer.weights), bits) for layer in layers]
        described["details"] = {
            str(n): {name: _pack(getattr(layer, name), bits) for name in DETAILS}
            for n, layer in enumerate(layers)
            if n in detailed
        }
    return page(escape(title), _json(document | {"bits": bits}))


def _described(subject: Subject) -> dict[str, Any]:
    """Everything of a subject but its weights and details."""
    attention, lens = subject.attention, subject.lens
    heads, _, head_size = attention.layers[0].q.shape
    used, ids = np.unique(lens.ids, return_inverse=True)
    depths, _, most = lens.ids.shape
    return {
        "name": escape(subject.name),
        "origin": {name: escape(str(value)) for name, value in subject.origin.items()},
        "layers": len(attention.layers),
        "heads": heads,
        "headSize": head_size,
        "bias": None if attention.bias is None else _pack(_lower(attention.bias), 32),
        "checks": [check_record(check) for check in attention.checks],
        "measures": [
            {
                "name": measure.name,
                "title": measure.title,
                "explained": measure.explained,
                "values": rounded(measure.values.tolist()),
                "errors": rounded(measure.errors.tolist()),
                "uniform": rounded(measure.uniform),
                "windows": measure.windows,
            }
            for measure in subject.measures
        ],
        # What a single text shows is no kind of head yet.
        "kinds": kinds(subject.measures) if _several(subject.measures) else None,
        "lens": {
            "depths": depths,
            "most": most,
            "codes": [ord(subject.characters[id]) for id in used],
            "labels": [label(subject.characters[id]) for id in used],
            "ids": _base64(ids.astype("<u4")),
            "probabilities": _base64(lens.probabilities.astype("<f4")),
        },
    }


def _several(measures: Sequence[Measure]) -> bool:
    return any(
        measure.windows > 1 and measure.name != "induction_synthetic" for measure in measures
    )


def _plan(maps: Sequence[AttentionMap], start: Start, room: int) -> tuple[Bits, set[int]]:
    """How exact, and which layers have details, to fit into `room` bytes."""
    deepest = max(len(attention.layers) for attention in maps)

    def weights(bits: Bits) -> int:
        return sum(
            _size(math.prod(layer.q.shape[:2]) * (layer.q.shape[1] + 1) // 2, bits)
            for attention in maps
            for layer in attention.layers
        )

    def details(n: int, bits: Bits) -> int:
        layers: list[Stages] = [a.layers[n] for a in maps if n < len(a.layers)]
        return sum(_size(getattr(layer, name).size, bits) for layer in layers for name in DETAILS)

    everything = set(range(deepest))
    if weights(32) + sum(details(n, 32) for n in everything) <= room:
        return 32, everything
    detailed, room = {start.layer}, room - weights(16) - details(start.layer, 16)
    for n in sorted(everything - detailed):
        room -= details(n, 16)
        if room < 0:
            break
        detailed.add(n)
    return 16, detailed


def _size(count: int, bits: Bits) -> int:
    """Characters that `count` numbers take in the document."""
    return 4 * math.ceil(count * bits / 24) + _KEYS


def _lower(weights: Array) -> Array:
    """(H, T, T) -> (H, T(T+1)/2): the rows up to their diagonals, one after the other."""
    T = weights.shape[-1]
    lower: Array = weights.reshape(len(weights), T * T).take(_triangle(T), axis=1)
    return lower


@cache
def _triangle(T: int) -> npt.NDArray[np.intp]:
    """Where the lower triangle lies in a flattened (T, T)."""
    return np.flatnonzero(np.tri(T, dtype=bool))


def _pack(values: Array, bits: Bits) -> dict[str, Any]:
    """Little-endian; float32 after all where float16 has no number so large."""
    if bits == 16 and np.abs(values).max() > np.finfo(np.float16).max:
        bits = 32
    return {"bits": bits, "base64": _base64(values.astype(f"<f{bits // 8}"))}


def _base64(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).data).decode()


def _json(document: Mapping[str, Any]) -> str:
    """JSON in ASCII that HTML cannot mistake for markup: no <, > or & however it is nested."""
    written = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _template() -> Callable[[str, str], str]:
    """(title, payload) -> document. Only this script and this style may ever run: the policy has
    their hashes, and allows no address at all."""
    style = (ASSETS / "page.css").read_text("utf-8")
    script = "".join(_inlined((ASSETS / name).read_text("utf-8")) for name in SCRIPTS)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src 'sha256-{_digest(script)}'",
            f"style-src 'sha256-{_digest(style)}'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    source = (ASSETS / "page.html").read_text("utf-8")
    fixed = {"policy": policy, "style": style, "script": script}

    def page(title: str, payload: str) -> str:
        # One pass: what is put in is never searched for places again.
        parts = {**fixed, "title": html.escape(title), "payload": payload}
        return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], source)

    return page


def _inlined(module: str) -> str:
    """A module's text for one scope with all others: without its imports and the word export."""
    module = re.sub(r'^import [^;]*? from "[^"]*";\n', "", module, flags=re.M)
    return re.sub(r"^export (?=(const|function|class|async) )", "", module, flags=re.M)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
