"""Writes docs/demo.html, the page of a model.

With --train, as in `make page`, this script first trains a model of two layers for 2,000 steps on
the Python language reference. The model does not count, so the file contains no n-grams of the
text. Without --train, the script renews the page's program and keeps the model in the file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import gpt
from gpt.page.live import page_html

PAGE = Path(__file__).with_suffix(".html")
BEGIN, END = '<script type="application/json" id="data">', "</script>"
OPTIONS = {"counting": 0, "n_layer": 2, "n_head": 4, "n_embd": 96, "steps": 2000}


def renewed(html: str) -> str:
    """Returns the page with the data of `html` and the current program."""
    begin = html.index(BEGIN) + len(BEGIN)
    data = json.loads(html[begin : html.index(END, begin)])
    return page_html(data["title"], data)


def main() -> None:
    if "--train" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            run = gpt.train(checkpoints=folder, **OPTIONS)
            run.live(PAGE, text="def function(")
    else:
        PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
