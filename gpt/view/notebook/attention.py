"""Shows an attention map in a notebook: the page of `gptx attn -o page.html` inside a frame.

The frame's document is the page, compressed; it needs no network and cannot access the notebook. A
page that would be too large shows only the first characters of the text: no position depends on
later characters, so the numbers are the same as for the whole text.
"""

from __future__ import annotations

import base64
import gzip

from gpt.blocks import Checks, Note
from gpt.heads.attention_map import AttentionMap
from gpt.heads.measures import choose_head
from gpt.view.html import LIMIT, html_card, style
from gpt.view.page.page import build_page, make_subject

MARGIN = 4_000  # bytes of LIMIT for the markup around the page
SAVED = 60_000  # bytes that compression saves in the page's style and scripts, at least
ROUNDS = 12  # attempts to find a text that fits
HIGHEST = 4_000  # pixels of a frame; a page that is higher scrolls

# Unpacks the page and replaces itself by it.
_LOADER = (
    '<!doctype html><meta charset="utf-8"><script type="module">'
    'const packed = Uint8Array.from(atob("{}"), (c) => c.charCodeAt(0));'
    'const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));'
    "const page = await new Response(stream).text();"
    "document.open(); document.write(page); document.close();"
    "</script>"
)
_SANDBOX = "allow-scripts allow-downloads"
#: Makes each frame as high as its page says. One listener serves all frames, also those of later
#: cells. In a notebook that runs no scripts, card.css sets the height, and the frame scrolls.
FITTING = (
    "<script>window.gptxFits ||= addEventListener('message', ({source, data}) => {"
    "for (const frame of document.querySelectorAll('.gptx iframe'))"
    " if (frame.contentWindow === source && data?.gptxHeight > 0)"
    f" frame.style.height = Math.min(data.gptxHeight, {HIGHEST}) + 'px';"
    "}) ?? true;</script>"
)


def attention(found: AttentionMap) -> str:
    """The page, with as much text as fits; if nothing fits, the map's blocks."""
    if found.model is None:
        why = "This map was made without a model; run.attn(text) shows its page."
        return html_card([*found.blocks(), Note(why)])
    page, count = _page(found, LIMIT - MARGIN - len(style().encode()))
    if page is None:
        why = 'The page is too large for a notebook: .save("attention.html") writes it.'
        return html_card([*found.blocks(), Note(why)])
    title, *_ = found.blocks()
    checks = found.checks_of()
    blocks = [title, *[Checks(checks)] * (not all(each.passed for each in checks))]
    if count < len(found.text):
        some = f"The page shows the first {count} of {len(found.text)} characters"
        blocks.append(Note(f'{some}; .save("attention.html") writes all.'))
    frame = f'<iframe sandbox="{_SANDBOX}" title="attention" srcdoc=\'{page}\'></iframe>'
    return html_card(blocks, FITTING + frame)


def _page(found: AttentionMap, room: int) -> tuple[str | None, int]:
    """The frame's document in at most `room` bytes, and the number of characters that it shows;
    None if the first character alone needs more.
    """
    count = len(found.text)
    for _ in range(ROUNDS):
        subject = make_subject(found.first(count) if count < len(found.text) else found)
        page = build_page(subject, choose_head(subject.measures), room + SAVED)
        packed = base64.b64encode(gzip.compress(page.encode(), mtime=0)).decode()
        size = len(packed) + len(_LOADER)
        if size <= room:
            return _LOADER.format(packed), count
        if count == 1:
            break
        # The size of most of a page grows with the square of the text's length, or less.
        count = max(1, min(count - 1, int(count * 0.97 * (room / size) ** 0.5)))
    return None, 0
