"""Outputs of a notebook in a browser: several in one document, in light and dark colours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gpt
from gpt.storage.run import Checkpoint

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(21, 24, 30)"


def test_outputs_work_side_by_side_in_the_colours_of_the_notebook(
    chromium: Browser, tiny: Checkpoint, tmp_path: Path
) -> None:
    run = gpt.load(tiny.path)
    maps = [run.attn("the cat"), replace(run.attn("no rat"), text="</if'\"")]
    shown = [
        *maps,
        run.heads("the cat sat on the mat" * 3),
        run.eval("the cat sat", chars=True).surprisals,
    ]
    path = tmp_path / "notebook.html"
    body = "".join(each._repr_html_() for each in shown)
    path.write_text(f'<!doctype html><meta charset="utf-8"><body>{body}', "utf-8")
    complaints: list[str] = []
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(path.as_uri())
    for number, text in enumerate(["thecat", "</if'\""]):
        frame = page.frame_locator("iframe").nth(number)
        frame.locator("#view button", has_text="mean of heads").click()
        assert frame.locator("#readout").is_visible()
        assert not frame.locator("h1").is_visible()
        labels = frame.locator("#text").inner_text()
        assert all(character in labels for character in text)
    for paper in (DARK, LIGHT):  # the system's, then the notebook's
        colours = page.locator(".gptx").evaluate_all(
            "cards => cards.map((card) => getComputedStyle(card).backgroundColor)"
        )
        assert colours == [paper] * len(shown)
        page.locator("body").evaluate("body => body.dataset.jpThemeLight = 'true'")
    context.close()
    inside = ("data:", "blob:", "about:")
    assert [each for each in complaints if not each.startswith((path.as_uri(), *inside))] == []
