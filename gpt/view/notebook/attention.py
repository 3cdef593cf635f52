"""An attention map as the interactive page of `gptx attn -o page.html`, inside a frame.

The frame's document is the page, compressed; it needs no network and cannot reach the notebook.
A page that would be too large shows the first characters of the text: no position depends on later
characters, so their numbers are those of the whole text.
"""

from __future__ import annotations

import base64
import gzip

from gpt.characters import cut
from gpt.heads.attention_map import AttentionMap
from gpt.heads.kinds import opening
from gpt.view.notebook.card import LIMIT, card, note, style, table
from gpt.view.page.page import build_page, subject_of
from gpt.words import layers_and_heads

MARGIN = 4_000  # bytes of LIMIT for what surrounds the page
SAVED = 60_000  # bytes that compression saves in the page's style and scripts, at least
ROUNDS = 12  # attempts to find a text that fits

# Unpacks the page and writes it in place of itself.
_LOADER = (
    '<!doctype html><meta charset="utf-8"><script type="module">'
    'const packed = Uint8Array.from(atob("{}"), (c) => c.charCodeAt(0));'
    'const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));'
    "const page = await new Response(stream).text();"
    "document.open(); document.write(page); document.close();"
    "</script>"
)
_SANDBOX = "allow-scripts allow-downloads"


def attention(found: AttentionMap) -> str:
    """The page, as large as fits; for a map without its model a table of its arrays."""
    text, failed = found.text, [check.name for check in found.checks if not check.passed]
    alarm = f"FAILED checks, do not trust these numbers: {', '.join(failed)}" if failed else ""
    heads = len(found.layers[0].q)
    facts = f"{len(text)} characters · {layers_and_heads(len(found.layers), heads)}"
    if found.model is None:
        why = note("This map was made without a model; run.attn(text) shows its page.")
        return card("Attention", facts, _stages(found), why, alarm=alarm)
    facts += f" · {found.model.stored.title}"
    page, count = _page(found, LIMIT - MARGIN - len(style().encode()))
    if page is None:
        why = note('The page is too large for a notebook: .page("attention.html") writes it.')
        return card("Attention", facts, _stages(found), why, alarm=alarm)
    shown = ""
    if count < len(text):
        shown = note(
            f"The page shows the first {count} of {len(text)} characters, so that it fits in a "
            'notebook; .page("attention.html") writes all.'
        )
    frame = f'<iframe sandbox="{_SANDBOX}" title="attention" srcdoc=\'{page}\'></iframe>'
    title = found.title.capitalize() or "Attention"
    of = f"“{cut(text, 60)}”" + (f" to “{cut(found.columns, 60)}”" * (found.kind == "cross"))
    return card(f"{title} of {of}", facts, frame, shown, alarm=alarm)


def _page(found: AttentionMap, room: int) -> tuple[str | None, int]:
    """The frame's document in at most `room` bytes, and the number of characters that it shows;
    None if the first character alone takes more.
    """
    count = len(found.text)
    for _ in range(ROUNDS):
        subject = subject_of(found.first(count) if count < len(found.text) else found)
        page = build_page([subject], opening(subject.measures), subject.name, room + SAVED)
        packed = base64.b64encode(gzip.compress(page.encode(), mtime=0)).decode()
        size = len(packed) + len(_LOADER)
        if size <= room:
            return _LOADER.format(packed), count
        if count == 1 or found.kind == "encoder":  # whose rows depend on the whole text
            break
        # Most of a page grows with the square of its text, or less.
        count = max(1, min(count - 1, int(count * 0.97 * (room / size) ** 0.5)))
    return None, 0


def _stages(found: AttentionMap) -> str:
    arrays = found.to_numpy().items()
    return table(
        ["stage", "shape"], [[name, " × ".join(map(str, each.shape))] for name, each in arrays]
    )
