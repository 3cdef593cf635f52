"""The site: which files of the repository are its pages, and in what order (`make site`).

mkdocs.yml names this file. A page is where its file is in the repository, so that links hold. All
Markdown of docs/ is on the site, the lessons with the outputs of `make lessons`, and every file
that a page links to: source code becomes a page, a folder a page that lists its files; images and
the like are copied. The index, docs/README.md, is the home: its headings are the sections of the
navigation, its links their pages. A page of docs/ that it does not lead to is an error.
"""

from __future__ import annotations

import ast
import html
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

import griffe
import jupytext
import nbformat
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

import gpt
from gpt.config.fields import options_of
from gpt.interface import trained

ROOT = Path(__file__).parents[1]
HOME, FRONT, API, PLAY = "docs/README.md", "README.md", "docs/api.md", "docs/play.md"
#: Pages that are only on the site, each after the page that introduces it.
AFTER = {"docs/python.md": API, "docs/live.md": PLAY}
RECORDS = ("CHANGELOG.md", "benchmarks/LOG.md")
COPIED = (".html", ".png", ".svg", ".webp")
ASSETS = ("docs/iframe-worker.js", "docs/website.css")
#: Of the theme: maps of its code, the search of other languages.
UNUSED = re.compile(r"\.map$|/lunr/")
LINK = re.compile(r"""(?:\]\(|src(?:set)?=")([^)"#:\s]+)(?=[)"#])""")
LESSON = re.compile(r"docs/lessons/(\w+)\.py")
PAGE = re.compile(r"\]\(([^)#:\s]+\.(?:md|py))\)")
FORMULA = re.compile(r'(?<=class="arithmatex">)\\([(\[])(.*?)\\[)\]]', re.DOTALL)
DEMO = """---
hide: [toc]
---

# Live demo

A model of the Python language reference, in the page that [`gptx live`](live.md) writes: type,
switch heads off, let it write. [The page alone](demo.html) has more room.

<iframe class="demo" src="demo.html" title="The page of a model"></iframe>
"""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Replaces the files that MkDocs found in docs/, and makes the navigation."""
    for file in list(files):
        if file.src_dir == config.docs_dir or UNUSED.search(file.src_uri):
            files.remove(file)
    written = (*ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/lessons/*.py"))
    pages = [FRONT, *(path.relative_to(ROOT).as_posix() for path in written)]
    for path in [*reached(pages), *ASSETS]:
        files.append(Source(path, config, in_navigation=path in pages))
    for path, text in ((API, api()), (PLAY, DEMO)):
        files.append(File.generated(config, path, content=text))
    config.nav = navigation()
    config.theme.static_templates.clear()  # 404.html, sitemap.xml: they need a server's address


def on_page_markdown(markdown: str, page: Page, **_: Any) -> None:
    """The search shows records of the past last; words in a title count a thousand times."""
    if page.file.src_uri in RECORDS:
        page.meta["search"] = {"boost": 1e-4}


def on_page_content(content: str, **_: Any) -> str:
    """In tables, a code host shows `\\|` in code as |, Python's Markdown with the backslash.

    Formulas become MathML, which browsers show without a script.
    """
    content = re.sub(
        r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), content, flags=re.DOTALL
    )
    return FORMULA.sub(formula, content)


def formula(found: re.Match[str]) -> str:
    """MathML of a formula that the extension arithmatex has marked."""
    display = "inline" if found[1] == "(" else "block"
    return convert(html.unescape(found[2]).strip(), display=display)  # type: ignore[no-any-return]


class Source(File):
    """A file or folder of the repository."""

    def __init__(self, path: str, config: MkDocsConfig, in_navigation: bool) -> None:
        inclusion = InclusionLevel.INCLUDED if in_navigation else InclusionLevel.NOT_IN_NAV
        super().__init__(path, str(ROOT), config.site_dir, False, inclusion=inclusion)
        self.place = ROOT / path
        self.is_lesson = LESSON.fullmatch(path) is not None
        self.is_code = not self.is_lesson and not path.endswith((".md", *COPIED, *ASSETS))
        if path == HOME:
            self.dest_uri = "index.html"
        elif path == FRONT:
            self.dest_uri = "README.html"
        elif self.is_lesson:
            self.dest_uri = path.replace(".py", ".html")
        elif self.is_code:
            self.dest_uri = f"{path}/index.html" if self.place.is_dir() else f"{path}.html"

    def is_documentation_page(self) -> bool:
        return self.is_code or self.is_lesson or self.src_uri.endswith(".md")

    @property
    def content_string(self) -> str:
        """The Markdown of a page."""
        if self.is_lesson:
            return lesson(self.place)
        if self.place.is_dir():
            name = self.place.name
            text = "\n".join(f"- [`{each}`]({name}/{each})" for each in inside(self.place))
        else:
            text = self.place.read_text(encoding="utf-8")
        if not self.is_code:
            return text
        if self.place.is_file():
            text = f"~~~~~~~~ {self.place.suffix[1:]}\n{text}\n~~~~~~~~"
        header = "---\nhide: [toc]\nsearch: {exclude: true}\n---"
        return f"{header}\n\n# {self.src_uri}\n\n{text}\n"


def lesson(path: Path) -> str:
    """The Markdown of a lesson, with the outputs of `make lessons` if these are of this text."""
    notebook = jupytext.read(path)
    executed = ROOT / "build" / "lessons" / f"{path.stem}.ipynb"
    if executed.exists():
        stored = nbformat.read(executed, as_version=4)
        if [cell.source for cell in stored.cells] == [cell.source for cell in notebook.cells]:
            notebook = stored
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace("<details>", '<details markdown="1">'))
        else:
            parts.append(f"~~~~~~~~ python\n{cell.source}\n~~~~~~~~")
            parts += map(shown_output, cell.get("outputs", []))
    return "\n\n".join(parts)


def shown_output(output: Any) -> str:
    """The Markdown of what a cell prints. What goes to stderr is left out."""
    text = output.text if output.get("name") == "stdout" else ""
    return f"~~~~~~~~ text\n{text.rstrip()}\n~~~~~~~~" if text else ""


def inside(folder: Path) -> list[str]:
    """The names in a folder."""
    return sorted(each.name for each in folder.iterdir() if each.name != "__pycache__")


def links(path: str, text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """The files of the repository that the text of a page links to, by their paths."""
    for link in pattern.findall(text):
        target = normpath(join(dirname(path), link))
        if not target.startswith("..") and (ROOT / target).exists():
            yield target


def reached(pages: Iterable[str]) -> list[str]:
    """These pages, and the files that they lead to."""
    found: list[str] = []
    waiting = [*pages]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.append(path)
            if (ROOT / path).is_dir():
                waiting += (join(path, name) for name in inside(ROOT / path))
            elif path.endswith(".md"):
                waiting += links(path, (ROOT / path).read_text(encoding="utf-8"), LINK)
    return found


def navigation() -> list[Any]:
    """MkDocs' nav: the home, and under each of its headings the pages that it links to, each once.
    The README of another folder brings the pages of that folder. A link to a part of a page does
    not count.
    """
    named = {HOME, FRONT}

    def entries(path: str, text: str, folder: str = "") -> Iterator[Any]:
        for page in links(path, text, PAGE):
            if page in named or not page.startswith(folder):
                continue
            if page.endswith(".py") and not LESSON.fullmatch(page):
                continue
            named.add(page)
            if page.endswith("/README.md"):
                whole = (ROOT / page).read_text(encoding="utf-8")
                pages = [page, *entries(page, whole, page.removesuffix("README.md"))]
                yield {whole.splitlines()[0].removeprefix("# "): pages} if pages[1:] else page
            else:
                yield page
            if page in AFTER:
                yield AFTER[page]

    begin, *parts = re.split(r"^##+ (.+)$", (ROOT / HOME).read_text("utf-8"), flags=re.MULTILINE)
    nav: list[Any] = [HOME, FRONT, *entries(HOME, begin)]
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        if pages := [*entries(HOME, text)]:
            nav.append({heading: pages})
    return nav


def api() -> str:
    """The page of the public names. mkdocstrings replaces each line that begins with ":::"."""
    parts = ["# API reference", "", *shown("gpt", [], show_root_heading=False)]
    for name in gpt.__all__:
        members = trained.PUBLIC if name == "TrainedGPT" else ()
        parts += shown(f"gpt.{name}", members)
    parts += ["## What the methods return", ""]
    for path in results():
        parts += shown(path, None, heading_level=3)
    return "\n".join(parts)


def shown(path: str, members: Iterable[str] | None, **options: Any) -> list[str]:
    """The lines that ask mkdocstrings for a name. members: None for all that are public."""
    if members is not None:
        options["members"] = [*members]
    return [f"::: {path}", "    options:", *(f"      {k}: {v}" for k, v in options.items()), ""]


def results() -> list[str]:
    """The classes that the public methods of TrainedGPT return, in their order."""
    module = ast.parse(inspect.getsource(trained))
    imported = {
        each.name: f"{line.module}.{each.name}"
        for line in ast.walk(module)
        if isinstance(line, ast.ImportFrom)
        for each in line.names
    }
    found = dict.fromkeys(
        imported[name.id]
        for method in ast.walk(module)
        if isinstance(method, ast.FunctionDef) and method.name in trained.PUBLIC and method.returns
        for name in ast.walk(method.returns)
        if isinstance(name, ast.Name) and name.id in imported
    )
    return [path for path in found if is_class(path)]


def is_class(path: str) -> bool:
    """Whether a name is a class of gpt that is not among the public names."""
    module, _, name = path.rpartition(".")
    file = ROOT / f"{module.replace('.', '/')}.py"
    return (
        name not in gpt.__all__ and file.exists() and f"\nclass {name}" in file.read_text("utf-8")
    )


class Options(griffe.Extension):
    """Adds to docstrings what the code computes when it runs: the keywords of a function that takes
    the fields of a class, and the fields of a configuration.
    """

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if any(str(each.value).startswith("takes") for each in func.decorators):
            function = griffe.dynamic_import(func.path)
            keywords = inspect.signature(function).parameters
            helps = re.findall(r"^    (\w+): (.*)$", function.__doc__, re.MULTILINE)
            own = [each for name, each in keywords.items() if name not in dict(helps)]
            func.overloads = None
            func.parameters = griffe.Parameters(*map(documented, own))
            func.parameters.add(griffe.Parameter("options", kind=griffe.ParameterKind.var_keyword))
            rows = ((name, keywords[name].default, text) for name, text in helps)
            add_table(func, "keyword", rows)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.path.startswith("gpt.config.") and cls.name in gpt.__all__:
            config = griffe.dynamic_import(cls.path)
            options = options_of(config).values()
            add_table(cls, "field", ((each.name, each.default, each.help) for each in options))


def documented(parameter: inspect.Parameter) -> griffe.Parameter:
    """A parameter of a function, as its documentation shows it."""
    has_default = parameter.default is not inspect.Parameter.empty
    return griffe.Parameter(
        parameter.name,
        annotation=str(parameter.annotation),
        kind=griffe.ParameterKind[parameter.kind.name.lower()],
        default=repr(parameter.default) if has_default else None,
    )


def add_table(of: griffe.Object, kind: str, rows: Iterable[tuple[str, Any, str]]) -> None:
    """Adds a table of options to a docstring."""
    lines = [f"| {kind} | default | |", "|---|---|---|"]
    for name, default, text in rows:
        value = repr(str(default) if isinstance(default, Path) else default).replace("`", "")
        cell = text.replace("|", "\\|")
        lines.append(f"| `{name}` | `{value}` | {cell} |")
    own = of.docstring.value if of.docstring else ""
    of.docstring = griffe.Docstring("\n".join([own, "", *lines]), parent=of)
