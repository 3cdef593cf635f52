"""Hook of mkdocs.yml, which adds documents from outside docs/ to the site and corrects links.

The site has these documents in a folder "project". A link to a file that is not on the site, such
as source code, becomes plain text.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/LOG.md",
    "tests/README.md",
)
LINK = re.compile(r"\[([^\[\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> None:
    for path in DOCUMENTS:
        files.append(File.generated(config, f"project/{path}", abs_src_path=str(ROOT / path)))


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    address = page.file.src_uri
    outside = address.startswith("project/")
    path = address.removeprefix("project/") if outside else f"docs/{address}"

    def corrected(link: re.Match[str]) -> str:
        target = normpath(join(dirname(path), link[2]))
        if not (ROOT / target).exists():
            return link[0]  # MkDocs reports it
        if target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif target in DOCUMENTS:
            target = f"project/{target}"
        else:
            return link[1]
        return f"[{link[1]}]({relpath(target, dirname(address) or '.')}{link[3] or ''})"

    if outside:
        page.meta["search"] = {"boost": 1e-4}  # the search shows these documents last
        markdown = markdown.replace('="docs/', '="../')  # the README's picture
    # For a | in the code of a table, code hosts need \|, but Python's Markdown needs |.
    return LINK.sub(corrected, markdown).replace("\\|", "|")
