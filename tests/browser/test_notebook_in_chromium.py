"""Outputs of a notebook in a browser: several in one document, in light and dark colours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from browsing import OpenFile, wait_until

import gpt
from gpt.storage.run import Checkpoint
from gpt.view.notebook.attention import HIGHEST

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

LIGHT, DARK = "rgb(255, 255, 255)", "rgb(21, 24, 30)"


def test_outputs_work_side_by_side_in_the_colours_of_the_notebook(
    chromium: BrowserContext, tiny: Checkpoint, tmp_path: Path
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
    page = chromium.new_page()
    page.emulate_media(color_scheme="dark")
    page.set_default_timeout(30_000)
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(path.as_uri())
    for number, text in enumerate(["thecat", "</if'\""]):
        frame = page.frame_locator("iframe").nth(number)
        frame.locator("#view button", has_text="all heads").click()
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
    page.close()
    inside = ("data:", "blob:", "about:")
    assert [each for each in complaints if not each.startswith((path.as_uri(), *inside))] == []


def test_a_frame_is_as_high_as_its_page(
    open_file: OpenFile, tiny: Checkpoint, tmp_path: Path
) -> None:
    path, shown = tmp_path / "notebook.html", gpt.load(tiny.path).attn("the cat")._repr_html_()
    path.write_text(f'<!doctype html><meta charset="utf-8"><body>{shown}{shown}', "utf-8")
    page = open_file(path)
    fits = "() => innerHeight === document.documentElement.offsetHeight"
    frames = page.frames[1:]
    for frame in frames:
        frame.locator("#text").wait_for()
        frame.frame_element().scroll_into_view_if_needed()  # Chromium does not lay out one unseen
        wait_until(frame, fits)
    frames[0].frame_element().scroll_into_view_if_needed()
    frame = frames[0]
    summary = frame.locator("details summary").first
    summary.scroll_into_view_if_needed()  # a card that was not drawn has no height of its own
    wait_until(frame, fits)
    before = frame.evaluate("innerHeight")
    assert before > 720  # the height without scripts
    summary.click()
    page.evaluate("scrollTo(0, 0)")  # so that the frame stays in sight when it gets lower
    wait_until(frame, f"() => innerHeight > {before}")
    wait_until(frame, fits)
    frame.evaluate("document.body.style.height = '9999px'")
    wait_until(frame, f"() => innerHeight === {HIGHEST}")
    page.evaluate(  # a message that is not of a frame
        """() => new Promise((done) => {
            addEventListener("message", done, { once: true });
            postMessage({ gptxHeight: 77 }, "*");
        })"""
    )
    assert frame.evaluate("innerHeight") == HIGHEST
    frame.evaluate("document.body.style.height = '500px'")
    wait_until(frame, fits)
    assert frame.evaluate("innerHeight") < 720
