"""Pages for tests: subjects with random weights, and reading a page's data."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from typing import Any

import numpy as np

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.heads.attention_map import inspect
from gpt.heads.measures import Measure
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.score import character_surprisals
from gpt.view.page.page import Subject, logit_lens

#: Characters that HTML, JSON or JavaScript could interpret, and characters that are hard to draw.
HOSTILE = (
    "</script><script>window.hacked=1</script><!--<img src=x onerror=hacked=1>"
    "\u2028\u2029\"'\\`${hacked=1}&lt;{{payload}}\n\t\0é日😀\u0301\u202e"
)


def random_subject(
    text: str,
    n_layer: int = 2,
    n_head: int = 2,
    n_embd: int = 16,
    seed: int = 0,
) -> Subject:
    """A model of random weights, sharp enough that its heads differ, and its view of the text."""
    characters = "".join(sorted(set(text) | set("abc ")))
    config = ModelConfig(
        vocab_size=len(characters),
        block_size=max(16, len(text)),
        n_layer=n_layer,
        n_head=n_head,
        n_embd=n_embd,
        position="rotary",
    )
    random = np.random.default_rng(seed)
    tensors = {
        name: random.standard_normal(shape).astype(np.float32) * np.float32(3 / shape[-1] ** 0.5)
        for name, shape in config.shapes().items()
    }
    reader = Reader(config, tensors)
    ids = np.array([characters.index(character) for character in text])
    attention = inspect(reader, text, ids, (Check("logits = torch's at saving", 0.0, 1e-4),))
    values = np.stack([layer.weights[:, :, 0].mean(axis=-1) for layer in attention.layers])
    measures = [
        Measure("sink", "sink", "Weight on the first.", values, values / 50, 0.4, 32),
        Measure("away", "away", "Weight elsewhere.", 1 - values, values * np.nan, np.nan, 1),
    ]
    origin = {"run": "tiny-1", "step": 12, "checkpoint": "ab" * 32}
    name = f"step {12 + seed}"
    lens = logit_lens(reader, attention)
    nats = character_surprisals(reader, ids).nats if len(ids) > 1 else np.zeros(0)
    return Subject(name, attention, lens, characters, measures, origin, nats)


class Document(HTMLParser):
    """A page's tags, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._inside = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        kind = dict(attributes).get("type") or ""
        self._inside = {"application/json": "payload", "module": "script"}.get(kind, tag)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        self.texts[self._inside] = self.texts.get(self._inside, "") + data


def payload_of(page: str) -> dict[str, Any]:
    """The data in the page."""
    document: dict[str, Any] = json.loads(Document(page).texts["payload"])
    return document


def unpack(packed: dict[str, Any]) -> Array:
    """An array of the payload, in one dimension."""
    data = base64.b64decode(packed["base64"], validate=True)
    return np.frombuffer(data, f"<f{packed['bits'] // 8}")
