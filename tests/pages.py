"""Reads a page's tags and data."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

#: Characters that HTML, JSON or JavaScript could interpret, and characters that are hard to draw.
HOSTILE = (
    "</script><script>window.hacked=1</script><!--<img src=x onerror=hacked=1>"
    "\u2028\u2029\"'\\`${hacked=1}&lt;{{payload}}\n\t\0é日😀\u0301\u202e"
)


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
