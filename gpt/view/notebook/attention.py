"""Shows an attention map in a notebook: what it has, and how to write its page."""

from __future__ import annotations

from gpt.blocks import Note
from gpt.heads.attention_map import AttentionMap
from gpt.view.html import html_card


def attention(found: AttentionMap) -> str:
    """The map's blocks."""
    return html_card([*found.blocks(), Note('.save("attention.html") writes the page.')])
