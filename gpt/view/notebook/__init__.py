"""Results in a notebook: as HTML, as a pandas.DataFrame, and as files.

`html_of` and `to_pandas` choose by type, `save` by the file's ending. `gpt`
imports this module when a result is shown or saved; not at opening a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt.characters import cut
from gpt.heads.attention_map import AttentionMap
from gpt.storage.comparison import Comparison, Curve, RunTable, TrainingCurve
from gpt.trained import TrainedGPT
from gpt.view.html import card_of
from gpt.view.notebook import attention, runs
from gpt.view.notebook.card import LIMIT, card, note
from gpt.view.notebook.saving import save as save
from gpt.view.notebook.saving import save_development as save_development
from gpt.view.notebook.saving import save_figure as save_figure
from gpt.view.notebook.saving import save_live as save_live
from gpt.view.notebook.saving import save_page as save_page
from gpt.view.notebook.tables import attention_to_pandas as attention_to_pandas
from gpt.view.notebook.tables import to_pandas as to_pandas

#: Type -> the function that shows it as HTML.
HTML: dict[type, Callable[[Any], str]] = {
    TrainedGPT: runs.trained,
    RunTable: runs.run_table,
    Curve: runs.curve,
    TrainingCurve: runs.training_curve,
    Comparison: runs.comparison,
}


def html_of(shown: object) -> str | None:
    """An object as HTML of at most LIMIT bytes; None if its type has no HTML."""
    if isinstance(shown, AttentionMap):
        return attention.attention(shown)
    if hasattr(shown, "blocks"):
        html = card_of(shown.blocks())
        if len(html.encode()) <= LIMIT:
            return html
        return card(cut(repr(shown), 200), "", note("This result is too large to show."))
    for kind in type(shown).__mro__:
        if kind in HTML:
            html = HTML[kind](shown)
            if len(html.encode()) <= LIMIT:
                return html
            return card(cut(repr(shown), 200), "", note("This result is too large to show."))
    return None
