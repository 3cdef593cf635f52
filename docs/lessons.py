"""Writes docs/attention/: a page for each lesson of `gptx explain`, and their list.

    python docs/lessons.py      (make lessons)

A test compares the pages with what this script would write.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from gpt.lessons.catalogue import ABOUT, LESSONS, make_lesson, make_material
from gpt.view.markdown import markdown_of

FOLDER = Path(__file__).with_name("attention")
LIST = """# Attention, one idea at a time

*For everyone who wants to know how attention works; you need to know what a matrix product is.*

Each lesson goes from words to numbers in small steps, and shows every number. `gptx explain
simple` shows the same in the terminal, one step at a time; `gptx explain simple --open` writes a
page on which you guess results and change numbers; `gptx explain mine` goes through the same
steps in a model that you have trained. `gptx exercise attention` writes a file with gaps to fill
in, and `--check FILE` names the slip in each. The lessons build on each other in this order:

"""
END = """
`make lessons` writes these pages from `gpt/lessons/tutorials/`: change the lessons, not the pages.
"""


def pages() -> dict[str, str]:
    """Markdown of each page by the name of its file."""
    items = (f"1. [{name}]({name}.md): {about}\n" for name, about in ABOUT.items())
    found = {"README.md": "".join([LIST, *items, END])}
    after = dict(pairwise(LESSONS))
    for name in LESSONS:
        body = markdown_of(make_lesson(name, make_material(name)).blocks())
        body = re.sub(r"^#(#+ )", r"\1", body, flags=re.MULTILINE)  # the lesson is the page
        ways = ["[all lessons](README.md)"]
        if name in after:
            ways.append(f"next: [{after[name]}]({after[name]}.md)")
        found[f"{name}.md"] = f"{body.rstrip()}\n\n---\n\n{' · '.join(ways)}\n"
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"wrote {FOLDER}")
