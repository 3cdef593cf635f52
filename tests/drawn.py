"""Results as lines of a terminal, and attention maps to draw."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from rich.cells import cell_len

from gpt.config import ModelConfig
from gpt.heads.attention_map import AttentionMap, compute_attention_map
from gpt.reading.gpt import Reader
from gpt.show.result import Result
from gpt.show.terminal import Screen, draw
from gpt.vocabulary import Vocabulary
from gpt.words import escape


@cache
def random_map(text: str) -> AttentionMap:
    """Two layers of strong random heads for any text."""
    vocabulary = Vocabulary.from_text(text)
    shape: dict[str, Any] = {"block_size": 64, "n_layer": 2, "n_head": 2, "n_embd": 8}
    config = ModelConfig(vocab_size=len(vocabulary), **shape)
    random = np.random.default_rng(1)
    tensors = {
        name: (2 * random.normal(size=shape)).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    return compute_attention_map(Reader(config, tensors), text, vocabulary.encode(text))


def shown(
    result: Result, width: int | None = None, ascii_only: bool = False, all: bool = False
) -> list[str]:
    """What a terminal shows of a result: lines that fit it and are safe on it."""
    lines = draw(result, Screen(width, ascii_only, all=all)).splitlines()
    for line in lines:
        assert width is None or cell_len(line) <= width, line
        assert escape(line) == line
        assert line.isascii() or not ascii_only
    return lines
