"""The site that `make site` builds: its pages, links, reference, and that it needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import jupytext
import nbformat
import pytest

import gpt
from gpt.interface.trained import PUBLIC

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

ROOT = Path(__file__).parents[1]
#: Elements that load what they name; a link that a reader clicks loads nothing.
LOADING = {"audio", "embed", "iframe", "img", "link", "object", "script", "source", "video"}


class Parsed(HTMLParser):
    """A page's ids, its links and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name in ("href", "src", "data"):
                (self.loaded if tag in LOADING else self.links).append(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built; a warning is an error (not with --quiet: MkDocs then counts none)."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Parsed]:
    """Every page, but the demo, which gptx has written."""
    found = {path: Parsed(path) for path in site.rglob("*.html") if path.name != "demo.html"}
    assert len(found) > 50
    return found


def test_every_page_of_docs_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    linked = {*re.findall(r'<a href="([^"#]+)" class="md-nav__link', home)}
    written = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/lessons/*.py")]
    assert len(written) > 15
    pages = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in written}
    own = {page.replace("/README.", "/index.") for page in pages}
    more = {"index.html", "README.html", "docs/api.html", "docs/play.html"}
    assert (own - {"docs/index.html"}) | more <= linked


def test_every_link_leads_to_a_file_and_a_place_in_it(
    site: Path, pages: dict[Path, Parsed]
) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path.parent / unquote(parts.path) if parts.path else path
            target, place = Path(os.path.normpath(target)), unquote(parts.fragment)
            exists = place in pages[target].ids if place and target in pages else target.is_file()
            if not exists:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_a_network(site: Path, pages: dict[Path, Parsed]) -> None:
    loaded = [link for page in pages.values() for link in page.loaded]
    assert "demo.html" in loaded
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    loaded += re.findall(r"""(?:url\(|@import)\s*["']?([^"')]+)""", styles)
    assert {urlsplit(link).scheme for link in loaded} <= {"", "data"}
    assert [link for link in loaded if link.startswith("//")] == []


def test_reference_has_every_public_name_and_its_options(
    site: Path, pages: dict[Path, Parsed]
) -> None:
    path = site / "docs/api.html"
    names = {f"gpt.{name}" for name in gpt.__all__}
    names |= {f"gpt.TrainedGPT.{name}" for name in PUBLIC if hasattr(gpt.TrainedGPT, name)}
    assert names - pages[path].ids == set()
    text = path.read_text(encoding="utf-8")
    for keyword in ("learning_rate", "top_p", "ablate", "n_layer"):
        assert f"<td><code>{keyword}</code></td>" in text


def test_tables_show_bars_as_on_a_code_host(site: Path) -> None:
    text = (site / "docs/cli.html").read_text(encoding="utf-8")
    assert "default|best|classic" in text.replace("&lt;", "")
    assert r"\|" not in text


def test_lessons_have_formulas_and_answers(site: Path) -> None:
    for path in ROOT.glob("docs/lessons/*.py"):
        text = (site / f"docs/lessons/{path.stem}.html").read_text(encoding="utf-8")
        assert "<math" in text
        assert text.count("<details>") == path.read_text(encoding="utf-8").count("<details>") == 3


def test_a_lesson_shows_its_stored_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import docs.website as website

    monkeypatch.setattr(website, "ROOT", tmp_path)
    path, stored = tmp_path / "one.py", tmp_path / "build" / "lessons" / "one.ipynb"
    path.write_text("# %% [markdown]\n# # One\n\n# %%\nprint(1 + 1)\n")
    assert website.lesson(path) == "# One\n\n~~~~~~~~ python\nprint(1 + 1)\n~~~~~~~~"
    notebook = jupytext.read(path)
    printed = nbformat.v4.new_output("stream", name="stdout", text="2\n")
    warned = nbformat.v4.new_output("stream", name="stderr", text="a warning\n")
    notebook.cells[1].outputs = [printed, warned]
    stored.parent.mkdir(parents=True)
    nbformat.write(notebook, stored)
    _, shown = website.lesson(path).split("print(1 + 1)\n~~~~~~~~\n\n")
    assert shown.strip() == "~~~~~~~~ text\n2\n~~~~~~~~"
    path.write_text(path.read_text().replace("1 + 1", "1 + 2"))
    assert "2\n" not in website.lesson(path)  # outputs of another text


def test_search_and_demo_work_from_a_folder(site: Path, chromium: BrowserContext) -> None:
    asked, complaints = [], []
    page = chromium.new_page()
    page.set_viewport_size({"width": 360, "height": 740})
    page.on("request", lambda request: asked.append(urlsplit(request.url).scheme))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for name in ("index.html", "docs/cli.html", "docs/api.html", "gpt/reading/gpt.py.html"):
        page.goto((site / name).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    page.locator("label[for=__search]:visible").first.click()
    page.locator("input.md-search__input").press_sequentially("induction")
    page.locator(".md-search-result__item a").first.click()
    page.wait_for_url("**/docs/*.html?h=*")  # not the ledger, which has the word more often
    page.goto((site / "docs/play.html").as_uri())
    frame = page.frame_locator("iframe.demo")
    frame.locator('main:not([aria-busy="true"]) textarea').first.wait_for()
    page.close()
    assert {*asked} <= {"file", "blob", "data"}
    assert complaints == []
