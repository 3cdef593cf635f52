"""The page of a lesson in a browser: steps by keys, guesses, changed numbers, narrow windows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browsing import address, wait_until
from ruled import evaluate, ruled

from gpt.lessons.catalogue import make_lesson
from gpt.lessons.lesson import Lesson, digits_of
from gpt.view.page.lesson import lesson_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenFile = Any  # see browsing.OpenFile
NAMES = ("simple", "trainable", "causal", "learning")


@cache
def played(name: str) -> Lesson:
    return make_lesson(name)


@pytest.fixture
def pages(tmp_path: Path) -> dict[str, Path]:
    """A page of each lesson, and one of all of them."""
    paths = {name: tmp_path / f"{name}.html" for name in (*NAMES, "all")}
    for name, path in paths.items():
        told = [played(each) for each in (NAMES if name == "all" else [name])]
        path.write_text(lesson_page(told), encoding="utf-8")
    return paths


def title(page: Page) -> str:
    """The title of the only step that is shown."""
    (found,) = page.locator("h2:visible").all_inner_texts()
    return str(found)


def numbers(page: Page, name: str) -> list[str]:
    """The texts of the cells of a table in the step that is shown."""
    cells = page.locator(f'section:visible figure[aria-label="{name}"] td')
    return [str(text) for text in cells.all_inner_texts()]


def test_keys_go_through_the_steps_and_the_address_remembers_one(
    open_file: OpenFile, pages: dict[str, Path]
) -> None:
    page, titles = open_file(pages["all"]), [step.title for step in played("simple").steps]
    assert title(page) == titles[0]
    place = 0
    for key, by in (
        *(("ArrowRight", 1), ("PageDown", 1), ("Space", 1), ("PageUp", -1), ("ArrowLeft", -1)),
        *(("Shift+Space", -1), ("ArrowLeft", 0), ("ArrowRight", 1)),
    ):
        page.keyboard.press(key)
        place += by
        assert title(page) == titles[place]
        assert page.evaluate("document.activeElement.textContent") == titles[place] or not by
    assert address(page) == "simple/2"
    page.go_back()
    wait_until(page, "() => location.hash === '#simple/1'")
    assert title(page) == titles[0]
    assert title(open_file(pages["all"], hash="causal/4")) == played("causal").steps[3].title
    assert title(open_file(pages["all"], hash="causal/99")) == titles[0]
    page.bring_to_front()
    page.locator("summary").click()
    page.get_by_role("button", name="8. All context vectors").click()
    assert title(page) == titles[7]
    page.locator("#next").click()
    assert address(page) == "trainable/1"
    page.get_by_label("lesson").select_option("learning")
    assert title(page) == played("learning").steps[0].title
    page.locator("#all").click()
    assert page.locator("h2:visible").count() == len(played("learning").steps)


def test_results_are_hidden_until_they_are_guessed_or_shown(
    open_file: OpenFile, pages: dict[str, Path]
) -> None:
    page, name = open_file(pages["simple"], hash="simple/2"), "scores of “journey”"
    scores = played("simple").steps[1].tables[0]
    expected = [digits_of(each, 4) for each in scores.values]
    assert numbers(page, name) == ["?"] * 6
    tree = page.locator(f'section:visible figure[aria-label="{name}"]').aria_snapshot()
    assert 'button "scores of “journey”, Your: hidden, guess it"' in tree
    assert not any(text in tree for text in expected)
    page.get_by_role("button", name=f"{name}, Your").click()
    page.keyboard.type("0.95441")
    page.keyboard.press("ArrowLeft")  # moves in the field, not to another step
    assert title(page) == played("simple").steps[1].title
    page.keyboard.press("Enter")
    assert page.locator("#said").inner_text() == "✓ Right: 0.9544"
    assert numbers(page, name) == [expected[0], *["?"] * 5]
    page.keyboard.press("Enter")  # the next one has the focus
    page.keyboard.type("1,51")
    page.keyboard.press("Enter")
    assert page.locator("#said").inner_text() == "✗ 1,51 is too large. Try again, or show it."
    assert page.locator("td input.guess").get_attribute("aria-invalid") == "true"
    page.keyboard.press("Escape")
    assert numbers(page, name) == [expected[0], *["?"] * 5]
    page.get_by_role("button", name=f"{name}, step").focus()
    page.keyboard.press("ArrowRight")  # from a hidden number to the next step
    assert title(page) == played("simple").steps[2].title
    page.keyboard.press("ArrowLeft")
    page.locator("#show").click()
    assert numbers(page, name) == expected
    page.locator("#show").click()
    assert numbers(page, name) == ["?"] * 6
    page.keyboard.press("s")
    assert numbers(page, name) == expected


@pytest.mark.parametrize(("name", "changed"), [("simple", "inputs"), ("trainable", "W_key")])
def test_a_changed_number_changes_all_that_follows_from_it(
    open_file: OpenFile, pages: dict[str, Path], name: str, changed: str
) -> None:
    page, told = open_file(pages[name]), played(name)
    assert "rules, which give Python’s numbers" in page.locator("#proof").inner_text()
    before = {table.key: table.values.copy() for step in told.steps for table in step.tables}
    field = page.get_by_label(f"{changed}, ").first
    field.fill("nonsense")
    field.press("Enter")
    assert "is not a number" in page.locator("#said").inner_text()
    field.fill("-0,75")
    field.press("Enter")
    page.locator("#all").click()
    page.locator("#show").click()
    new = {changed: before[changed]}
    new[changed].flat[0] = -0.75
    moved = 0
    for table, earlier in ruled(told):
        tables = {**earlier, **{key: new[key] for key in earlier if key in new}}
        values = np.ravel(evaluate(table.rule, tables)).astype(float)
        new[table.key] = values.reshape(table.values.shape)
        figures = page.locator(f'figure.result[aria-label="{table.name}"]')
        found = figures.locator("td").all_inner_texts()
        assert found == [digits_of(each, 4) for each in values], table.name
        differs = not np.allclose(values, table.values.ravel(), rtol=0, atol=1e-9)
        assert figures.get_by_text("recomputed").count() >= differs
        moved += differs
    assert moved > 5
    assert page.get_by_text("changed by you").count() > 0
    page.locator("#back").click()
    assert page.get_by_text("recomputed", exact=True).count() == 0
    assert field.input_value() == digits_of(float(told.steps[0].tables[0].values.flat[0]), 4) or (
        changed == "W_key"
    )
    for table, _ in ruled(told):
        found = page.locator(f'figure.result[aria-label="{table.name}"] td').all_inner_texts()
        assert found == [digits_of(each, 4) for each in table.values.ravel()]


def test_a_rule_with_other_numbers_is_named_and_nothing_can_be_changed(
    open_file: OpenFile, tmp_path: Path
) -> None:
    page = lesson_page([played("simple")])
    path = tmp_path / "wrong.html"
    product = '["MatMult","weights","inputs"]'
    path.write_text(page.replace(f'"rule":{product}', f'"rule":["Mult",1.001,{product}]'))
    opened = open_file(path)
    assert "do not trust" in opened.get_by_role("alert").inner_text()
    assert opened.locator("td input").count() == 0
    assert opened.locator("#proof").inner_text() == ""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_step_is_wider_than_a_telephone_and_all_are_printed(
    open_file: OpenFile, pages: dict[str, Path], scheme: str
) -> None:
    page = open_file(pages["all"], width=360, scheme=scheme)
    dark = page.evaluate("getComputedStyle(document.body).color") == "rgb(233, 233, 228)"
    assert dark == (scheme == "dark")
    for _ in range(sum(len(played(name).steps) for name in NAMES)):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), title(page)
        page.keyboard.press("PageDown")
    unnamed = """() => [...document.querySelectorAll("button, input, select, summary")].filter(
        (each) => !each.ariaLabel && !each.textContent.trim() && !each.closest("label")).length"""
    assert page.evaluate(unnamed) == 0
    page.emulate_media(media="print")
    assert page.locator("h2:visible").count() == len(played("learning").steps)
    assert page.locator("#bar:visible, .earlier:visible").count() == 0
