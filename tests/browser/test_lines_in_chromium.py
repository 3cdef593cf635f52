"""The lines beside the matrix in a browser: they are the weights of the map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browsing import address
from pages import random_subject

from gpt.reading.layers import Array
from gpt.view.page.page import StartHead, Subject

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Any  # see browsing.Open
TEXT = "the cat"
T = len(TEXT)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return random_subject(TEXT)


def drawn(page: Page) -> Array:
    """(H, T, T) weights of the drawn lines, 0 where there is none."""
    found = np.zeros((2, T, T))
    for line in page.evaluate("document.getElementById('lines').lines"):
        assert found[line["head"], line["row"], line["column"]] == 0
        found[line["head"], line["row"], line["column"]] = line["value"]
    return found


def only(weights: Array, *places: Any) -> Array:
    """The weights at these places, 0 elsewhere."""
    found = np.zeros_like(weights)
    for place in places:
        found[place] = weights[place]
    return found


def test_lines_are_the_weights_of_the_head_above_the_stated_size(
    open_page: Open, subject: Subject
) -> None:
    page = open_page(subject, StartHead(layer=1, head=1))
    weights = subject.attention.layers[1].weights
    expected = only(weights, 1)
    assert page.locator("#lines-title").inner_text() == "weights of head 1 ≥ .01"
    np.testing.assert_array_equal(drawn(page), np.where(expected < 0.01, 0, expected))
    page.keyboard.press("1")  # the matrix shows scores, the lines still weights
    np.testing.assert_array_equal(drawn(page), np.where(expected < 0.01, 0, expected))
    opacities = page.evaluate(
        "document.getElementById('lines').lines.map(l => [l.opacity, l.value])"
    )
    assert all(abs(opacity - value) <= 0.5 / 255 for opacity, value in opacities)
    assert opacities == sorted(opacities, key=lambda each: each[0])


def test_a_character_pointed_at_has_its_lines_only_and_one_that_is_kept_stands_out(
    open_page: Open, subject: Subject
) -> None:
    page = open_page(subject, StartHead(layer=1, head=1))
    weights = subject.attention.layers[1].weights
    queries, keys = page.locator("#lines-from .character"), page.locator("#lines-to .character")
    assert queries.all_inner_texts() == keys.all_inner_texts() == [*"the␣cat"]
    queries.nth(4).hover()
    np.testing.assert_array_equal(drawn(page), only(weights, (1, 4)))
    most = int(weights[1, 4].argmax())
    said = page.locator("#readout").inner_text()
    assert said.startswith(f"4 'c' → {most} '{keys.nth(most).inner_text()}' · weight ")
    keys.nth(2).hover()
    np.testing.assert_array_equal(drawn(page), only(weights, (1, slice(None), 2)))
    assert "→ 2 'e'" in page.locator("#readout").inner_text()
    queries.nth(5).click()
    assert "pins=5" in address(page)
    page.mouse.move(0, 0)
    strong = page.evaluate("document.getElementById('lines').lines.filter(l => l.opacity > 0.1)")
    assert {line["row"] for line in strong} == {5}
    queries.nth(5).focus()
    page.keyboard.press("ArrowUp")
    np.testing.assert_array_equal(drawn(page), only(weights, (1, 4)))


def test_all_heads_have_lines_and_a_button_leaves_one(open_page: Open, subject: Subject) -> None:
    page = open_page(subject, StartHead(layer=0, head=0), hash="view=mean")
    weights = subject.attention.layers[0].weights
    np.testing.assert_array_equal(drawn(page), np.where(weights < 0.01, 0, weights))
    page.locator("#lines-heads button", has_text="H1").click()
    expected = only(weights, 1)
    np.testing.assert_array_equal(drawn(page), np.where(expected < 0.01, 0, expected))
    assert page.locator("#lines-heads [aria-pressed=true]").inner_text() == "H1"
    page.locator("#view button", has_text="head").first.click()
    assert page.locator("#lines-heads").is_hidden()


def test_a_long_text_has_at_most_500_lines_and_a_narrow_page_no_scroll(open_page: Open) -> None:
    long = random_subject("the cat sat on the mat. " * 8, n_head=4, n_embd=32)
    page = open_page(long, StartHead(layer=1, head=0), hash="view=mean", width=360)
    weights = long.attention.layers[1].weights
    page.locator("#lines").scroll_into_view_if_needed()
    values = page.evaluate("document.getElementById('lines').lines.map(l => l.value)")
    least = float(page.locator("#lines-title").inner_text().split("≥ ")[1])
    assert least > 0.01
    assert len(values) == (weights >= least).sum() <= 500 < (weights >= least / 2).sum()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
