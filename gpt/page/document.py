"""Makes one HTML file from the page's assets, with style and scripts inside it, and a policy that
permits no others and no network address.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

ASSETS = Path(__file__).parent / "assets"


def page_html(title: str, data: Mapping[str, Any]) -> str:
    """The page with this data, which assets/model/protocol.js describes."""
    # A single pass, so that inserted text is not searched for placeholders.
    parts = {**_fixed_parts(), "title": html.escape(title), "payload": to_json(data)}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def to_json(data: Mapping[str, Any]) -> str:
    """JSON in ASCII that HTML cannot mistake for markup: without <, > and &, however deeply
    nested.
    """
    written = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def join_scripts(script: str) -> str:
    """Joins a module and all that it imports into one, without imports and the word export; so all
    share one scope. Each module follows those that it imports.
    """
    names: list[str] = []

    def add(name: str) -> None:
        for path in re.findall(r'^import [^;]*? from "([^"]*)";$', _read(name), re.M):
            imported = normpath(join(dirname(name), path))
            if imported not in names:
                add(imported)
        names.append(name)

    add(script)
    modules = "".join(map(_read, names))
    modules = re.sub(r'^import [^;]*? from "[^"]*";\n', "", modules, flags=re.M)
    return re.sub(r"^export (?=(const|function|class|async) )", "", modules, flags=re.M)


@cache
def _fixed_parts() -> dict[str, str]:
    """The policy, which permits this script and this style by their hashes, and these two."""
    style = _read("page.css")
    worker = json.dumps(join_scripts("model/worker.js")).replace("</", r"<\/")
    script = f"globalThis.WORKER = {worker};\n{join_scripts('page.js')}"
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; "
        f"style-src 'sha256-{_digest(style)}'; img-src data: blob:; worker-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"policy": policy, "style": style, "script": script}


def _read(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
