"""Lines of the terminal as texts, and attention maps to draw."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from rich.text import Text

from gpt.blocks import Block
from gpt.characters import escape
from gpt.config import ModelConfig
from gpt.heads.attention_map import AttentionMap, inspect
from gpt.reading.gpt import Reader
from gpt.view.terminal.blocks import lines_of
from gpt.view.terminal.lines import Page
from gpt.vocabulary import Vocabulary


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
    return inspect(Reader(config, tensors), text, vocabulary.encode(text))


def shown(blocks: Iterable[Block], page: Page) -> list[str]:
    """What a terminal shows of the blocks of a result."""
    return drawn(lines_of(blocks, page), page)


def drawn(lines: Iterable[Text], page: Page) -> list[str]:
    """The texts of `lines`, each of which fits `page` and is safe on a terminal."""
    texts = []
    for line in lines:
        assert page.width is None or line.cell_len <= page.width, line.plain
        assert escape(line.plain) == line.plain
        assert line.plain.isascii() or not page.ascii_only
        texts.append(line.plain)
    return texts
