"""The page in a browser: hovering, clicking and saving show the numbers of the map."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from xml.etree import ElementTree

import numpy as np
import pytest
from browsing import address, lines_of, saved, wait_until
from conftest import train_tiny
from pages import HOSTILE, random_subject

from gpt import load
from gpt.characters import drawn_label
from gpt.checks import Check
from gpt.config import DrawnStage
from gpt.config.model import HEAD_STAGES
from gpt.heads.attention_map import select
from gpt.heads.contributions import contributions
from gpt.reading.layers import Array
from gpt.view.page.page import StartHead, Subject, build_page, make_subject, more_stages

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

Open = Any  # see browsing.Open
TEXT = "the cat"
T = len(TEXT)
CELL = 46  # CSS pixels of a cell, for a short text on a wide screen


@pytest.fixture(scope="module")
def subject() -> Subject:
    return random_subject(TEXT)


def number(text: str) -> float:
    """A number as the page writes it."""
    return float(text.replace("−", "-").replace("∞", "inf").replace("–", "nan"))


def near(text: str, value: float) -> bool:
    """Whether a text is the value, rounded to about four digits."""
    return math.isclose(number(text), value, rel_tol=6e-4, abs_tol=6e-5) or (
        abs(value) < 1e-3 and math.isclose(number(text), value, rel_tol=6e-2)
    )


def hover(page: Page, row: int, column: int) -> None:
    """Moves the mouse to a cell. Its place is counted from the lower right corner of the matrix."""
    frame = page.locator(".matrix-space").first.bounding_box()
    assert frame
    x = frame["x"] + frame["width"] - 1 - (T - column - 0.5) * CELL
    page.mouse.move(x, frame["y"] + frame["height"] - 1 - (T - row - 0.5) * CELL)


def click(page: Page, row: int, column: int) -> None:
    hover(page, row, column)
    page.mouse.down()
    page.mouse.up()


def said(page: Page) -> str:
    return page.locator("#readout").inner_text()


def parts(readout: str) -> dict[str, str]:
    """ "query … · weight .5 · score 2" -> {"weight": ".5", "score": "2"}."""
    return dict(part.rsplit(" ", 1) for part in readout.split(" · ")[1:])  # type: ignore[misc]


def chosen(page: Page, group: str) -> str:
    """The title of the pressed button of a group."""
    return page.locator(f'#{group} [aria-pressed="true"]').inner_text().split("\n")[0]


def here(page: Page) -> str:
    """The heads that are marked as shown."""
    return ", ".join(page.locator('#heads [aria-pressed="true"] .name').all_inner_texts())


def matrix_of(page: Page) -> Array:
    """The saved CSV's weights as a matrix, NaN where it has none."""
    values = np.full((T, T), np.nan)
    for line in lines_of(saved(page))[1:]:
        values[int(line[2]), int(line[4])] = float(line[-1])
    return values


def values_of(found: Locator, name: str = "value") -> list[float]:
    """The numbers behind the shown elements."""
    return [float(each) for each in found.evaluate_all(f"all => all.map(e => e.dataset.{name})")]


def labels_of(found: Locator) -> list[str]:
    """The shown characters, also of a card so far from the window that it is not drawn."""
    return found.all_text_contents()


def test_hovering_and_the_saved_csv_have_the_numbers_of_the_map(
    open_page: Open, subject: Subject
) -> None:
    page = open_page(subject, StartHead(layer=1, head=1))
    stages = subject.attention.layers[1]
    for row, column in ((0, 0), (2, 1), (5, 5), (6, 0), (6, 4)):
        hover(page, row, column)
        readout = said(page)
        query, key = TEXT[row], TEXT[column]
        assert readout.startswith(f"{row} '{query}' → {column} '{key}' · ")
        shown = parts(readout)
        assert near(shown["weight"], stages.weights[1, row, column])
        assert near(shown["score"], stages.scores[1, row, column])
        assert near(shown["scaled"], stages.scaled[1, row, column])
    hover(page, 2, 5)
    assert said(page).startswith("Point at a cell")  # masked: there is no number
    expect_every_csv(page, subject, exact=("weights", "proj", "resid_mid"), tolerance=2e-6)


def expect_every_csv(
    page: Page, subject: Subject, exact: tuple[str, ...], tolerance: float
) -> None:
    """The CSV of each stage of layer 1 head 1 is the command's, `exact` ones to the bit."""
    for number_, stage in enumerate(get_args(DrawnStage), start=1):
        page.keyboard.press(str(number_))
        lines = lines_of(saved(page))
        expected = lines_of(select(subject.attention, "1", "1", stage).to_csv())
        assert [line[:-1] for line in lines] == [line[:-1] for line in expected]
        ours = np.array([float(line[-1]) for line in lines[1:]])
        theirs = np.array([float(line[-1]) for line in expected[1:]])
        if stage in exact:
            assert np.array_equal(ours.astype(np.float32), theirs.astype(np.float32))
        else:
            largest = max(1.0, np.abs(theirs[np.isfinite(theirs)]).max())
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * largest)


#: The names of tabs that differ from those of their stages.
TABS = {"context": "context", "concat": "concat", "resid_mid": "stream", "masked": "mask"}


def test_terms_of_a_clicked_cell_sum_to_its_number(open_page: Open, subject: Subject) -> None:
    page = open_page(subject)
    stages = subject.attention.layers[0]
    click(page, 5, 3)
    page.mouse.move(0, 0)
    terms = page.locator("#cell .terms li")
    products = values_of(terms)
    np.testing.assert_allclose(
        products, stages.q[0, 5].astype(float) * stages.k[0, 3].astype(float), rtol=1e-12
    )
    assert math.isclose(sum(products), stages.scores[0, 5, 3], rel_tol=1e-5, abs_tol=1e-6)
    steps = {name: page.locator(f'[data-step="{name}"]').inner_text() for name in ("sum", "scaled")}
    assert near(steps["sum"], stages.scores[0, 5, 3])
    assert near(steps["scaled"], stages.scaled[0, 5, 3])
    assert near(page.locator('[data-step="weight"]').inner_text(), stages.weights[0, 5, 3])
    page.locator("#terms-order").select_option("size")
    sizes = [abs(value) for value in values_of(terms)]
    assert sizes == sorted(map(abs, products), reverse=True)

    for stage, column in {"context": 3, "concat": 11, "resid_mid": 9, "masked": 2}.items():
        page.evaluate(f"location.hash = 'stage={stage}&cell=4,{column}'")
        page.locator("#stages [aria-pressed=true]", has_text=TABS[stage]).wait_for()
        name = "scores" if stage == "masked" else stage
        key: Any = (name, 0, 0 if name in HEAD_STAGES else None, 4)
        expected = subject.attention[key][column]
        assert math.isclose(sum(values_of(terms)), expected, rel_tol=1e-5, abs_tol=1e-5)


def test_keyboard_reaches_every_control(open_page: Open, subject: Subject) -> None:
    page = open_page(subject)
    weights = subject.attention.layers[0].weights[0]
    page.locator(".matrix-box").focus()
    page.keyboard.press("Home")
    for key in ("ArrowUp", "ArrowUp", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert said(page).startswith(f"{T - 3} ")
    assert near(parts(said(page))["weight"], weights[T - 3, 2])
    page.keyboard.press("End")  # the last key that the mask allows
    assert f"→ {T - 3} " in said(page)
    page.keyboard.press("Enter")
    assert f"cell={T - 3},{T - 3}" in address(page)
    page.keyboard.press("]")
    assert here(page) == "L0 H1"
    page.keyboard.press("}")
    assert here(page) == "L1 H1"
    page.keyboard.press("PageUp")
    assert here(page) == "L0 H1"
    page.keyboard.press("[")
    assert here(page) == "L0 H0"
    for number_, name in enumerate(get_args(DrawnStage), start=1):
        page.keyboard.press(str(number_))
        assert f"stage={name}" in address(page)
    page.keyboard.press("4")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert f"cell={T - 3},{T - 4}" in address(page)
    page.keyboard.press("Escape")
    assert "cell=" not in address(page)
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#help").is_hidden()
    page.locator("#text .character").nth(T - 1).focus()
    page.locator('#text [tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert "pins=1" in address(page)
    page.locator('#heads [tabindex="0"]').focus()
    page.keyboard.press("ArrowDown")
    assert here(page) == "L1 H0"


def test_url_and_back_button_restore_a_view(open_page: Open, subject: Subject) -> None:
    start = StartHead(layer=1, head=1, why="lowest entropy")
    page = open_page(subject, start, hash="%%%&=&layer")  # nothing that the page knows
    assert here(page) == "L1 H1"
    assert page.locator("#heads-why").inner_text() == "Opened on L1 H1: lowest entropy."
    for hash, head in {
        "layer=99&head=99": "L1 H1",
        "stage=evil&view=__proto__&of=b&scale=": "L1 H1",
        "layer=1&head=0&cell=9,9&pins=99,-1,x": "L1 H0",
        "layer=0&head=1&cell=2,5": "L0 H1",
    }.items():
        page.evaluate("hash => location.hash = hash", hash)
        page.locator('#heads [aria-pressed="true"] .name', has_text=head).wait_for()
        assert chosen(page, "stages") == "softmax"
        assert page.locator('#text [aria-selected="true"]').count() == 0
        assert "Click a cell" in page.locator("#cell").inner_text()
    view = "layer=1&head=1&stage=scaled&scale=row&pins=2,4&cell=3,6"
    page = open_page(subject, StartHead(layer=0, head=1, why="lowest entropy"), hash=view)
    assert page.locator("#heads-why").inner_text() == ""
    assert (here(page), chosen(page, "stages"), chosen(page, "scale")) == (
        "L1 H1",
        "/√d",
        "by row",
    )
    assert page.locator('#text [aria-selected="true"]').count() == 2
    assert near(parts(said(page))["scaled"], subject.attention.layers[1].scaled[1, 3, 6])
    page.locator("#stages [data-stage=context]").click()
    assert (chosen(page, "stages"), "cell=" in address(page)) == ("context", True)
    page.locator("#heads button").first.click()
    assert here(page) == "L0 H0"
    page.go_back()
    wait_until(page, "() => location.hash.includes('layer=1')")
    assert (here(page), chosen(page, "stages")) == ("L1 H1", "context")
    page.go_back()
    assert chosen(page, "stages") == "/√d"
    page.go_forward()
    assert chosen(page, "stages") == "context"


def test_page_shows_any_text_without_interpreting_it(open_page: Open) -> None:
    hostile = random_subject(HOSTILE)
    page = open_page(replace(hostile, name=HOSTILE))
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert labels_of(page.locator("#text .character")) == [drawn_label(each) for each in HOSTILE]
    assert page.locator("img, script:not([type])").count() == 0
    first = [line for line in lines_of(saved(page))[1:] if line[4] == "0"]
    assert "".join(line[3] for line in first) == HOSTILE
    ElementTree.fromstring(saved(page, "svg"))


def test_heads_sort_by_a_measure_and_have_a_mean(open_page: Open, subject: Subject) -> None:
    page = open_page(subject, StartHead(layer=1, head="mean"))
    means = [layer.weights.mean(axis=0) for layer in subject.attention.layers]
    below = np.tri(T, dtype=bool)
    np.testing.assert_allclose(matrix_of(page)[below], means[1][below], rtol=0, atol=1e-6)
    sink = subject.measures[0].values
    order = [f"L{i} H{j}" for i, j in sorted(np.ndindex(2, 2), key=lambda place: -sink[place])]
    page.locator("#order").select_option(label="sink")
    assert page.locator("#heads .name").all_inner_texts() == order
    shown = page.locator("#heads .value").all_inner_texts()
    assert [number(text) for text in shown] == pytest.approx(sorted(sink.ravel())[::-1], abs=6e-4)
    assert set(page.locator("#heads .even").all_inner_texts()) == {"/ .40"}
    page.locator("#measures thead button", has_text="sink").click()
    assert page.locator("#measures tbody button").all_inner_texts() == order
    page.locator("#measures tbody button").first.click()
    assert here(page) == order[0]
    page.locator("#order").select_option(label="layer and head")
    assert page.locator("#heads .name").all_inner_texts()[0] == "L0 H0"


def test_the_text_shows_attention_from_and_to_characters_and_their_surprisal(
    open_page: Open, subject: Subject
) -> None:
    page = open_page(subject)
    weights = subject.attention.layers[0].weights[0]
    characters, text = page.locator("#text .character"), page.locator("#text-said")
    characters.nth(4).hover()
    best = int(weights[4].argmax())
    start, top = text.inner_text().split(" → ")
    assert start == f"4 '{TEXT[4]}'"
    assert top.startswith(f"{best} ")
    assert near(top.split(" · ")[0].split(" ")[-1], weights[4, best])
    page.locator("#direction button").nth(1).click()
    characters.nth(1).hover()
    best = int(weights[:, 1].argmax())
    assert text.inner_text().split(" ← ")[1].startswith(f"{best} ")
    page.locator("#direction button", has_text="surprisal").click()
    characters.nth(3).hover()
    said_first, mean = text.inner_text().split(" · ")
    place, _, nats, unit = said_first.rsplit(maxsplit=3)
    assert (place, unit) == ("3", "nats")
    assert near(nats, subject.surprisals[2])
    assert near(mean.split()[1], subject.surprisals.mean())
    assert near(mean.split()[4], subject.surprisals.mean() / math.log(2))
    shades = characters.evaluate_all("all => all.map(e => e.style.background)")
    assert shades[0] == ""
    lightness = [sum(map(int, re.findall(r"\d+", shade))) for shade in shades[1:]]
    assert np.argmin(lightness) == subject.surprisals.argmax()
    page.locator("#direction button").nth(0).click()
    characters.nth(2).click()
    characters.nth(6).click()
    page.mouse.move(0, 0)
    mean_row = (weights[2] + weights[6]) / 2
    best = int(mean_row.argmax())
    start, top = text.inner_text().split(" → ")
    assert start == f"mean of 2 '{TEXT[2]}', 6 '{TEXT[6]}'"
    assert top.startswith(f"{best} ")
    assert near(top.split(" · ")[0].split(" ")[-1], mean_row[best])


def test_page_shows_predictions_and_the_logit_lens(open_page: Open, subject: Subject) -> None:
    page = open_page(subject)
    lens = subject.lens
    guesses = page.locator("#next li:not([hidden])")
    for position in (T - 1, 2):
        if position != T - 1:
            page.locator("#lens td").nth(position).click()
        values = values_of(guesses)
        expected = lens.probabilities[-1, position]
        assert values == [float(value) for value in expected]
        assert math.isclose(sum(values), 1, abs_tol=1e-5)
        for n in range(len(values)):
            # not inner_text, which is empty while the browser does not draw the card
            assert near(guesses.nth(n).locator(".number").text_content() or "", expected[n])
    depths = page.locator("#lens tbody tr")
    depths.nth(1).locator("td").nth(3).hover()
    title = depths.nth(1).locator("td").nth(3).get_attribute("title")
    assert near(title.split(" · ")[0].rsplit(" ", 1)[1], lens.probabilities[1, 3, 0])
    assert depths.locator("th").all_inner_texts() == ["layer 1", "layer 0", "embedding"]
    for line, depth in enumerate((2, 1, 0)):
        likeliest = [drawn_label(subject.characters[id]) for id in lens.ids[depth, :, 0]]
        assert labels_of(depths.nth(line).locator("td")) == likeliest


def test_the_page_of_a_model_that_counts_says_that_it_shows_the_gpt_alone(
    open_page: Open, subject: Subject
) -> None:
    for counts in (True, False):
        page = open_page(replace(subject, counts=counts))
        assert page.locator("#gpt-alone").is_visible() == counts


def test_figure_is_saved_as_svg_and_png(open_page: Open, subject: Subject) -> None:
    page = open_page(subject, hash="scale=root")
    svg = saved(page, "svg")
    root = ElementTree.fromstring(svg)
    cells, scale = (svg_colours(root, name) for name in ("cells", "scale"))
    assert len(cells) == T * (T + 1) // 2
    texts = [element.text for element in root.findall(f"{SVG}text")]
    for text in ("layer 0 · head 0 · weights", "step 12", "rows = query, columns = key"):
        assert text in texts
    assert "6 t" in texts
    strip = root.findall(f"{SVG}g[@id='scale']/{SVG}rect")[-1].attrib
    bottom = float(strip["y"]) + float(strip["height"])
    below = [e.text for e in root.findall(f"{SVG}text") if float(e.attrib["y"]) > bottom]
    assert below[:3] == ["0", ".25", "1"], "the scale's numbers"
    assert "weights · colours by the square root" in texts
    assert (scale[0], scale[-1]) == ((240, 243, 236), (18, 42, 98))
    assert "text: the␣cat" in texts
    assert not re.search(r"href|script|url\(", svg)
    with page.expect_download() as waiting:
        page.locator("#save-png").click()
    assert waiting.value.suggested_filename == "layer0-head0-weights.png"
    png = Path(waiting.value.path()).read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    size = [int.from_bytes(png[place : place + 4]) for place in (16, 20)]
    assert size == [2 * float(root.attrib[side]) for side in ("width", "height")]
    assert page.evaluate(DARKEST, base64.b64encode(png).decode()) < 200, "it is not empty"


SVG = "{http://www.w3.org/2000/svg}"
#: The darkest mean of the three colours of a pixel of a PNG.
DARKEST = """async (png) => {
    const image = Object.assign(new Image(), { src: "data:image/png;base64," + png });
    await image.decode();
    const pen = document.createElement("canvas").getContext("2d");
    pen.drawImage(image, 0, 0);
    const { data } = pen.getImageData(0, 0, 300, 150);
    return data.reduce((least, _, n) =>
        n % 4 ? least : Math.min(least, (data[n] + data[n + 1] + data[n + 2]) / 3), 255);
}"""


def rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return red, green, blue


def svg_colours(root: ElementTree.Element, group: str) -> list[tuple[int, int, int]]:
    """The colours of the rectangles of a group, in their order."""
    found = root.find(f"{SVG}g[@id='{group}']")
    assert found is not None
    return [rgb(rect.attrib["fill"]) for rect in found]


def test_each_colour_means_the_same_sign_everywhere_on_the_page(
    open_page: Open, subject: Subject
) -> None:
    page = open_page(subject, hash="stage=scores&cell=5,3", scheme="dark")

    def background(selector: str) -> str:
        element = page.locator(selector).first
        style = element.evaluate(
            "e => { const s = getComputedStyle(e); return [s.backgroundImage, "
            "s.backgroundColor].find(b => /rgb/.test(b)) }"
        )
        return str(style)

    def colours(selector: str) -> list[tuple[int, int, int]]:
        return [rgb(each) for each in re.findall(r"rgb\([^)]*\)", background(selector))]

    pictures = []
    for paper in ("dark", "light", "dark"):
        if pictures:  # the first one is the system's
            page.locator("#theme").click()
        lightness = sum(colours("body")[0]) / 765
        assert (lightness > 0.9) if paper == "light" else (lightness < 0.1)
        pictures.append(page.locator(".matrix-box canvas").evaluate("each => each.toDataURL()"))
        strip, heads = colours("#legend .strip"), colours("#heads-legend .strip")
        positive = [strip[-1], strip[-2], heads[-1], heads[-2]]
        positive += [rgb(background(each)) for each in (".fill:not(.negative)", ".swatch")]
        negative = [strip[0], strip[1]]
        negative += [rgb(background(each)) for each in (".fill.negative", ".swatch.negative")]
        assert all(blue > red for red, _, blue in positive), "blue-green"
        assert all(red > blue for red, _, blue in negative), "orange"
    assert pictures[0] == pictures[2] != pictures[1]
    terms = page.locator(".terms li").evaluate_all(
        "all => all.map(e => [e.dataset.value, e.querySelector('.fill').className])"
    )
    for value, name in terms:
        assert (float(value) < 0) == ("negative" in name)
    scores = subject.attention.layers[0].scores[0]
    cells = svg_colours(ElementTree.fromstring(saved(page, "svg")), "cells")
    for (red, _, blue), score in zip(cells, scores.ravel(), strict=True):
        if abs(score) > np.abs(scores).max() / 8:
            assert (blue > red) == (score > 0)


def test_weights_are_shaded_from_0_to_1_in_text_matrix_and_heads(
    open_page: Open,
) -> None:
    even = random_subject("the cat sat on the mat, and again the rat sat on the flat mat", seed=2)
    page = open_page(even)
    assert chosen(page, "scale") == "even"
    for legend in ("text-legend", "heads-legend", "legend"):
        assert page.locator(f"#{legend} span").all_inner_texts() == ["", "0", ".50", "1"]
    assert page.locator("#heads-scale").inner_text() == "weights"
    length = len(even.attention.text)
    cells = svg_colours(ElementTree.fromstring(saved(page, "svg")), "cells")
    shown = page.locator("#text .character").evaluate_all("all => all.map(e => e.style.background)")
    assert [rgb(each) for each in shown] == cells[-length:], "the last row, in the same colours"
    page.locator("#scale button").nth(2).click()
    largest = even.attention.layers[0].weights[0, -1].max()
    full = page.locator("#text-legend span").last.inner_text()
    assert near(full, largest)
    assert page.locator("#legend span").last.inner_text() == "row's largest"


def test_fit_shows_the_whole_matrix(open_page: Open) -> None:
    page = open_page(random_subject(("the cat sat on " * 4)[:50]))
    for width, height in ((1280, 720), (360, 740)):
        page.set_viewport_size({"width": width, "height": height})
        for stage in ("weights", "context"):
            page.evaluate(f"location.hash = 'stage={stage}'")
            page.locator("#zoom-in").click()
            page.evaluate("scrollTo(0, 0)")
            page.locator("#zoom-fit").click()
            inside = page.locator(".matrix-box").evaluate(
                "e => [e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight]"
            )
            assert inside == [0, 0], "nothing of it is left to scroll to"
            space = page.locator(".matrix-space").bounding_box()
            assert space
            assert space["x"] >= 0
            assert space["y"] >= 0
            assert space["x"] + space["width"] <= width
            assert space["y"] + space["height"] <= height
            if stage == "weights":
                assert space["width"] > 0.4 * min(width, height), "and it is not tiny"
            buttons = page.locator("#zoom-fit").bounding_box()
            assert buttons
            assert buttons["y"] + buttons["height"] <= height, "the button does not run away"


def test_checks_show_errors_once_and_failed_checks_show_the_bound(
    open_page: Open, subject: Subject
) -> None:
    checks = (
        Check("above the diagonal exactly 0", 0.0, 0.0),
        Check("sums", 2e-7, 1e-6),
        Check("exactly 1", 0.5, 0.0),
        Check("odd", float("nan"), 1e-6),
    )
    attention = replace(subject.attention, checks=checks, rounding={"weights": 3e-7})
    page = open_page(replace(subject, attention=attention))
    assert page.locator("#checks li").all_inner_texts() == [
        "✓ above the diagonal exactly 0",
        "✓ the same in float64 ±3.0e−7",
        "✓ sums 2.0e−7 ≤ 1.0e−6",
        "✗ failed: exactly 1 error 5.0e−1, allowed 0",
        "✗ failed: odd error not finite, allowed 1.0e−6",
    ]
    assert page.locator("#alarm").is_visible()


def test_page_with_a_small_limit_is_less_exact_and_names_the_option_for_omitted_data(
    open_page: Open, subject: Subject
) -> None:
    page = open_page(subject, StartHead(layer=1, head=1), limit=0)
    expect_every_csv(page, subject, exact=(), tolerance=2e-3)
    page.keyboard.press("4")
    assert "float16" in page.locator("#precision").inner_text()
    assert "--layer 0" in page.locator("#left-out").inner_text()
    assert page.locator(".matrix-box").is_visible()
    page.locator("#heads button").first.click()
    hover(page, 4, 1)
    weight = subject.attention.layers[0].weights[0, 4, 1]
    assert list(parts(said(page))) == ["weight"]
    assert math.isclose(number(parts(said(page))["weight"]), weight, rel_tol=5e-3, abs_tol=6e-4)
    page.keyboard.press("1")
    assert "--layer 0" in page.locator(".refusal").inner_text()
    assert page.locator("#save-csv").is_disabled()


def test_page_fits_the_width_of_a_phone(open_page: Open) -> None:
    for text in (("the cat sat on " * 6)[:90], "t"):
        page = open_page(replace(random_subject(text), name="x" * 200), width=360)
        for stage in ("weights", "concat"):
            page.evaluate(f"location.hash = 'stage={stage}&cell=0,0'")
            wait_until(page, "() => document.querySelector('#cell').textContent.includes('Σ')")
            assert page.evaluate("document.documentElement.scrollWidth") == 360
        box = page.locator(".matrix-box").first.bounding_box()
        assert box
        assert box["x"] + box["width"] <= 360


def test_security_policy_blocks_requests_and_foreign_scripts(
    chromium: BrowserContext, subject: Subject, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(build_page(subject, StartHead()), encoding="utf-8")
    page = chromium.new_page()
    answered, blocked = [], []
    page.on("requestfinished", lambda request: answered.append(request.url))
    page.on("requestfailed", lambda request: blocked.append((request.url, request.failure)))
    page.goto(path.as_uri())
    assert page.evaluate("fetch('https://example.org').then(() => 'out', () => 'blocked')") == (
        "blocked"
    )
    page.evaluate(
        """() => {
            const add = (tag, attributes) =>
                document.body.append(Object.assign(document.createElement(tag), attributes));
            add("script", { textContent: "window.ran = 1" });
            add("img", { src: "https://example.org/a.png" });
            document.body.setAttribute("onclick", "window.ran = 1");
            document.body.click();
        }"""
    )
    assert page.evaluate("window.ran") is None
    wait_until(page, "() => document.querySelector('body > img').complete")
    page.close()
    assert {address for address in answered if not address.startswith("data:")} == {path.as_uri()}
    assert blocked == [("https://example.org/a.png", "csp")]


def test_the_map_of_a_fixed_text_has_the_parts_and_stages_that_fit(
    open_page: Open, tmp_path: Path
) -> None:
    found = load(train_tiny(tmp_path).path).attn(TEXT)
    one = make_subject(found)
    page = open_page(one)
    parts = contributions(found.model.reader, found.layers, one.lens.ids[-1])
    for position in (T - 1, 2):
        page.locator("#lens tbody tr").nth(0).locator("td").nth(position).click()
        page.locator("#next li:nth-child(2) .term").click()
        shown = values_of(page.locator("#stream .part"))
        np.testing.assert_allclose(shown, parts.values[position, 1], rtol=1e-5, atol=1e-6)
        page.locator("#next li:nth-child(2) .term").click()
    page.locator("#stream .part", has_text="ff").nth(1).click()
    assert (chosen(page, "stages"), "layer=1" in address(page)) == ("feed-forward", True)
    values = [float(line[-1]) for line in lines_of(saved(page))[1:]]
    stages = more_stages(found.model.reader, found.layers[1], 1)
    np.testing.assert_allclose(values, stages["ffn"].ravel(), rtol=1e-6)
    vector = values_of(page.locator(".terms li"))  # of the kept character
    np.testing.assert_allclose(vector, stages["ffn"][2], rtol=1e-6)
    small = open_page(one, limit=0)
    assert small.locator("#stages [data-stage=ffn]").is_disabled()
    assert small.locator("#stream .part small").count() == 0


def test_a_page_of_a_model_without_feed_forward_layers_does_not_offer_their_stages(
    open_page: Open, tmp_path: Path
) -> None:
    found = load(train_tiny(tmp_path, feed_forward=False, position="none").path).attn(TEXT)
    page = open_page(make_subject(found), hash="stage=ffn&layer=1")
    assert chosen(page, "stages") == "softmax"
    for limit in ({}, {"limit": 0}):  # also where contributions and stages do not fit
        page = open_page(make_subject(found), **limit)
        for name in ("norm2", "ffn_hidden", "ffn"):
            assert not page.locator(f"#stages [data-stage={name}]").is_visible()
        assert page.locator("#stages [data-stage=resid_post]").is_visible()
        assert page.locator("#stream .part", has_text="H1").count() == 2
        assert page.locator("#stream .part", has_text="ff").count() == 0
