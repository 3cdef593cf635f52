"""Makes one HTML file from the page's assets, with style and scripts inside it, and a policy that
permits no others.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

ASSETS = Path(__file__).parent / "assets"
STYLES = ("tokens.css", "page.css")


def to_json(document: Mapping[str, Any]) -> str:
    """JSON in ASCII that HTML cannot mistake for markup: without <, > and &, however deeply
    nested.
    """
    written = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def scripts_of(script: str) -> list[str]:
    """A module of ASSETS and all that it imports, each after its own imports."""
    found: list[str] = []

    def add(name: str) -> None:
        for path in re.findall(r'^import [^;]*? from "([^"]*)";$', _read(name), re.M):
            imported = normpath(join(dirname(name), path))
            if imported not in found:
                add(imported)
        found.append(name)

    add(script)
    return found


def join_scripts(script: str) -> str:
    """Joins a module and all that it imports into one, without imports and the word export; so all
    share one scope.
    """
    return "".join(_inlined(_read(name)) for name in scripts_of(script))


@dataclass(frozen=True)
class PageKind:
    """What a kind of page consists of, as names of files in ASSETS.

    name: the name of the kind, for the title. script: the module that starts the page. fragments:
    placeholders of page.html and their files. worker: the module that runs in a thread of its own,
    if there is one; main and footer are then hidden until a script shows them.
    """

    name: str
    script: str
    styles: tuple[str, ...] = STYLES
    fragments: tuple[tuple[str, str], ...] = ()
    worker: str = ""


@cache
def template(kind: PageKind) -> Callable[..., str]:
    """Returns a function (title, payload) -> document. The document's policy permits this script
    and this style, by their hashes, and no network address.
    """
    style = "".join(map(_read, kind.styles))
    script = join_scripts(kind.script)
    if kind.worker:
        worker = json.dumps(join_scripts(kind.worker)).replace("</", r"<\/")
        script = f"globalThis.WORKER = {worker};\n{script}"
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src 'sha256-{_digest(script)}'",
            f"style-src 'sha256-{_digest(style)}'",
            "img-src data: blob:",
            *(["worker-src blob:"] if kind.worker else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    fragments = dict.fromkeys(("notice", "editor", "changes", "drawing", "tour"), "")
    fragments |= {name: _read(file).strip() for name, file in kind.fragments}
    fixed = {
        **fragments,
        "name": kind.name,
        "hidden": " hidden" * bool(kind.worker),
        "quiet": ' aria-live="off"' * bool(kind.worker),  # the text changes with every key
        "policy": policy,
        "style": style,
        "script": script,
    }
    source = _read("page.html")

    def page(title: str, payload: str) -> str:
        # A single pass, so that inserted text is not searched for placeholders.
        parts = {**fixed, "title": html.escape(title), "payload": payload}
        return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], source)

    return page


def _read(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _inlined(module: str) -> str:
    module = re.sub(r'^import [^;]*? from "[^"]*";\n', "", module, flags=re.M)
    return re.sub(r"^export (?=(const|function|class|async) )", "", module, flags=re.M)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
