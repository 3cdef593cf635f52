"""Shows results in a notebook: as HTML, as a pandas.DataFrame, and as files.

`gpt` imports this module when a result is shown or saved, not when a model is opened.
"""

from __future__ import annotations

from typing import Any

from gpt.blocks import Note, Records, Title
from gpt.characters import cut
from gpt.config import DrawnStage
from gpt.heads.attention_map import AnyHead, AnyLayer, AttentionMap
from gpt.view.exports import table_of
from gpt.view.html import LIMIT, html_card
from gpt.view.notebook import attention
from gpt.view.notebook.saving import save as save
from gpt.view.notebook.saving import save_live as save_live
from gpt.view.notebook.saving import selected
from gpt.view.records import to_frame


def html_of(shown: object) -> str | None:
    """An object as HTML of at most LIMIT bytes; None if the object has no blocks."""
    if isinstance(shown, AttentionMap):
        return attention.attention(shown)
    if not hasattr(shown, "blocks"):
        return None
    html = html_card(shown.blocks())
    if len(html.encode()) <= LIMIT:
        return html
    return html_card([Title(cut(repr(shown), 200)), Note("This result is too large to show.")])


def to_pandas(found: Any) -> Any:
    """A result as a pandas.DataFrame. Raises ImportError if pandas is not installed."""
    return to_frame(found.records())


def attention_to_pandas(
    found: AttentionMap, layer: AnyLayer, head: AnyHead, stage: DrawnStage
) -> Any:
    """See AttentionMap.to_pandas."""
    names, rows = table_of(selected(found, layer, head, stage))
    columns = map(list, zip(*rows, strict=True))
    return to_frame(Records(dict(zip(names, columns, strict=True))))
