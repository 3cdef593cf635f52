"""The page in a browser: it shows what Python computes, and everything works by keyboard, too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browsing import OpenFile, expect_csv, saved, settled
from conftest import train_tiny
from pages import HOSTILE
from random_models import random_file

import gpt
from gpt.heads.attention_map import select_matrices
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import softmax
from gpt.reading.sampler import window_start
from gpt.vocabulary import Vocabulary

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TEXT = "no rat sat"  # fits into the context of 16
HEADS = ((0, 0), (0, 1), (1, 0), (1, 1))

#: Controls, words and sizes of type that the window shows.
COUNTS = """() => {
    const seen = (e) => {
        const { width, height, top, bottom } = e.getBoundingClientRect();
        return width && height && top < innerHeight && bottom > 0 && e.checkVisibility();
    };
    const controls = [...document.querySelectorAll("button, input, textarea, summary")];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const sizes = new Set();
    let words = 0;
    while (walker.nextNode()) {
        const { textContent, parentElement } = walker.currentNode;
        if (!textContent.trim() || !seen(parentElement)) continue;
        words += textContent.match(/[A-Za-z]{2,}/g)?.length ?? 0;
        sizes.add(getComputedStyle(parentElement).fontSize);
    }
    return [controls.filter(seen).length, words, sizes.size];
}"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    folder = tmp_path_factory.mktemp("page")
    return gpt.load(train_tiny(folder, {"learning_rate": 0.02}, counting=4).path.parent)


@pytest.fixture(scope="module")
def file(run: TrainedGPT, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run.live(tmp_path_factory.mktemp("page") / "page.html", text=TEXT)


@pytest.fixture
def page(open_file: OpenFile, file: Path) -> Page:
    page = open_file(file)
    settled(page)
    return page


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def typed(page: Page, text: str) -> None:
    page.locator("#input").fill(text)
    settled(page)


def head(page: Page, layer: int, number: int) -> Locator:
    return page.get_by_role("radio", name=re.compile(f"^layer {layer} head {number}, "))


def label_of(element: Locator) -> str:
    label = element.get_attribute("aria-label")
    assert label
    return label


def chosen(page: Page) -> str:
    """The label of the chosen head."""
    return label_of(page.locator("#flow [aria-checked=true][role=radio]"))


def bars(page: Page) -> dict[str, float]:
    """The likeliest next characters, as the bars show them."""
    rows = page.locator("#bars > div:visible").all()
    shown = [row.locator("code").all_inner_texts() for row in rows]
    return {{"␣": " ", "⏎": "\n"}.get(name, name): number(value) for name, value in shown}


def expect_bars(page: Page, run: TrainedGPT, text: str) -> None:
    """The bars are Python's probabilities of the likeliest characters after the text."""
    chances = softmax(run.logits(text)[0, -1])
    order = np.argsort(-chances, kind="stable")[:5]
    expected = {run.vocabulary.characters[id]: chances[id] for id in order}
    assert bars(page) == pytest.approx(expected, abs=0.00501)


def test_opens_with_the_head_that_adds_most_and_python_s_numbers(
    page: Page, run: TrainedGPT
) -> None:
    expect_bars(page, run, TEXT)
    added = {at: number(label_of(head(page, *at)).split("adds ")[1]) for at in HEADS}
    most = max(added, key=lambda at: added[at])
    assert chosen(page).startswith("layer {} head {},".format(*most))
    logit = number(page.locator("#flow .end .big").inner_text().split()[-1])
    assert logit == pytest.approx(run.logits(TEXT)[0, -1].max(), abs=0.0501)
    parts = page.locator("#flow small").all_inner_texts()
    assert sum(number(part.removeprefix("biases ") or "0") for part in parts) == pytest.approx(
        logit, abs=0.0501 * len(parts)
    )
    assert "without the counts" in page.locator("#about").inner_text()


def test_typing(page: Page, run: TrainedGPT) -> None:
    text = page.locator("#input")
    text.press("End")
    text.press_sequentially(" cat")
    settled(page)
    expect_bars(page, run, TEXT + " cat")
    text.press("Home")
    text.press_sequentially("a rat ")
    settled(page)
    longer = f"a rat {TEXT} cat"
    expect_bars(page, run, longer[window_start(len(longer), 16) :])
    typed(page, "the 日rat")  # the model reads the text without a character that it does not know
    expect_bars(page, run, "the rat")
    assert "left out: 日" in page.locator("#note").inner_text()
    assert page.locator("#mirror .unknown").inner_text() == "日"
    typed(page, "")
    expect_bars(page, run, "\n")


def test_the_caret_chooses_the_row(page: Page, run: TrainedGPT) -> None:
    page.locator("#input").press("End")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
        settled(page)
    expect_bars(page, run, TEXT[:-4])
    assert page.locator("#mirror .row").inner_text() == TEXT[-5]
    page.keyboard.press("n")  # another text is read to its end
    settled(page)
    expect_bars(page, run, f"{TEXT[:-4]}n{TEXT[-4:]}")


def test_a_head_switched_off_and_on(page: Page, run: TrainedGPT) -> None:
    before = bars(page)
    head(page, 1, 0).click()
    settled(page)
    switch = page.get_by_role("switch")
    assert switch.get_attribute("aria-checked") == "true"
    switch.click()
    settled(page)
    assert switch.get_attribute("aria-checked") == "false"
    assert chosen(page) == "layer 1 head 0, off"
    assert page.locator("#bars .changed").count() == 5
    explained = label_of(page.locator("#bars [aria-checked=true]"))
    assert number(explained.split("before ")[1]) == max(before.values())
    assert "Switched off, " in page.locator("#say").inner_text()
    head(page, 0, 1).click()  # a head that is off keeps its switch
    settled(page)
    assert page.get_by_role("switch").count() == 2
    page.locator(".tile.off").get_by_role("switch").click()
    settled(page)
    expect_bars(page, run, TEXT)


def test_by_keyboard(page: Page) -> None:
    head(page, 0, 0).click()
    settled(page)
    for key, expected in (("ArrowRight", "0 head 1"), ("End", "1 head 1"), ("Home", "0 head 0")):
        page.keyboard.press(key)
        settled(page)
        assert chosen(page).startswith(f"layer {expected},")
    page.keyboard.press("x")
    settled(page)
    assert chosen(page) == "layer 0 head 0, off"
    page.keyboard.press("x")
    settled(page)
    page.locator("#matrix").focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
        settled(page)
    row = page.locator("#mirror .row").inner_text()
    assert row == TEXT[-3]
    label = label_of(page.locator("#matrix"))
    assert label.startswith(f"weights of head 0 of layer 0; “{row}” → ")
    page.locator("#stages [aria-selected=true]").focus()
    page.keyboard.press("Home")
    settled(page)
    assert page.locator("#stages [aria-selected=true]").inner_text() == "q · k"
    page.locator("#spoken", has_text=page.locator("#say").inner_text()).wait_for(state="attached")


def test_a_cell_shows_the_products_that_sum_to_its_score(page: Page, run: TrainedGPT) -> None:
    head(page, 1, 1).click()
    settled(page)
    row, key = 7, 3
    cell = (346 - 28) / len(TEXT)
    place: Any = {"x": 28 + (key + 0.5) * cell, "y": 28 + (row + 0.5) * cell}
    page.locator("#matrix").click(position=place)
    settled(page)
    layer = run.attn(TEXT).layers[1]
    weight = float(layer.weights[1, row, key])
    assert number(page.locator("#cell").inner_text().split()[-1]) == pytest.approx(weight, abs=6e-4)
    products = layer.q[1, row] * layer.k[1, key]
    shown = [number(text) for text in page.locator("#products code").all_inner_texts()]
    largest = sorted(products, key=abs, reverse=True)[: len(shown)]
    assert shown == pytest.approx(largest, rel=0.06, abs=0.006)
    total = re.search(r"sum to (\S+),", page.locator("#products-sum").inner_text())
    assert total
    assert number(total[1]) == pytest.approx(products.sum(), rel=0.06, abs=0.006)


def test_saves_what_the_command_writes(page: Page, run: TrainedGPT) -> None:
    head(page, 0, 1).click()
    for stage, name in (("weights", "weights"), ("dots", "scores"), ("scaled", "scaled")):
        page.locator(f"[data-stage={stage}]").click()
        settled(page)
        selection = select_matrices(run.attn(TEXT), "0", "1", name)  # type: ignore[arg-type]
        expect_csv(page, selection.to_csv(), 2e-5)
    words = "".join(ElementTree.fromstring(saved(page, "svg")).itertext())
    assert run.stored.title in words
    assert "÷ √d of head 1 of layer 0" in words
    page.locator("#save-open").click()
    with page.expect_download() as download:
        page.locator("#save-png").click()
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


def test_writes_and_stops(page: Page, run: TrainedGPT) -> None:
    page.locator("#temperature").fill("0")
    page.locator("#write").click()
    assert page.locator("#write").inner_text() == "■ Stop"
    page.locator(f"#mirror span:nth-child({len(TEXT) + 5})").wait_for()
    page.locator("#write").click()
    page.get_by_role("button", name="▶ Write").wait_for()
    settled(page)
    text = page.locator("#input").input_value()
    expected = TEXT
    while len(expected) < len(text):
        window = expected[window_start(len(expected), 16) :]
        expected += run.vocabulary.characters[int(run.logits(window)[0, -1].argmax())]
    assert text == expected
    page.locator("summary").click()
    page.locator("#temperature").fill("1")
    page.locator("#top-k").fill("2")
    settled(page)
    assert [value > 0 for value in bars(page).values()] == [True, True, False, False, False]


def test_the_tour_has_four_stops(page: Page, run: TrainedGPT) -> None:
    page.locator("#tour-open").click()
    texts = set()
    for stop in range(1, 5):
        settled(page)
        assert page.locator("#tour-stop").inner_text() == f"{stop} of 4"
        texts.add(page.locator("#tour-text").inner_text())
        assert page.locator("#flow .off").count() == (stop == 3)
        page.keyboard.press("Enter")  # "Next" has the focus
    assert len(texts) == 4
    assert page.locator("#tour").is_hidden()
    expect_bars(page, run, TEXT)


def test_panels(page: Page, run: TrainedGPT) -> None:
    page.locator("#lens-open").click()
    page.locator("#lens-table td").last.wait_for()
    chances = softmax(run.logits(TEXT)[0])
    likeliest = [run.vocabulary.characters[id] for id in chances.argmax(axis=-1)]
    last = page.locator("#lens-table tr").last.locator("td").all_inner_texts()
    assert last == [{" ": "␣", "\n": "⏎"}.get(each, each) for each in likeliest]
    page.keyboard.press("Escape")
    page.locator("#measures-open").click()
    page.get_by_role("button", name="layer 0 head 1").click()
    settled(page)
    assert chosen(page).startswith("layer 0 head 1,")
    page.locator("#help-open").click()
    help = page.get_by_role("dialog", name="What this page is").inner_text()
    assert "sends nothing" in help
    assert "adds counts" in help


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_has_the_system_s_theme_until_the_button_changes_it(
    open_file: OpenFile, file: Path, scheme: str
) -> None:
    page = open_file(file, scheme=scheme)
    settled(page)
    theme = "document.documentElement.dataset.theme"
    picture = "document.getElementById('matrix').toDataURL()"
    before = page.evaluate(picture)
    assert page.evaluate(theme) == scheme
    page.locator("#theme").click()
    assert page.evaluate(theme) != scheme
    assert page.evaluate(picture) != before
    page.locator("#surprisal").click()
    settled(page)
    assert page.locator("#surprisal").get_attribute("aria-pressed") == "true"


def test_a_calm_first_screen_with_36_heads_and_128_characters(
    open_file: OpenFile, tmp_path: Path
) -> None:
    shape: dict[str, Any] = {"n_layer": 6, "n_head": 6, "n_embd": 36, "block_size": 128}
    model = gpt.load(random_file(tmp_path / "large.safetensors", **shape))
    path = model.live(tmp_path / "large.html", text="ab cdefgh " * 12 + "abcdefgh")
    for width, height in ((1280, 800), (390, 844)):
        page = open_file(path, width=width, height=height)
        settled(page)
        controls, words, sizes = page.evaluate(COUNTS)
        assert controls <= 30
        assert words <= 120
        assert sizes <= 4
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = page.locator("#matrix").bounding_box()
        assert box
        assert box["y"] < height - 150
        assert page.locator(".tile.chosen").is_visible()


def test_text_is_never_markup(open_file: OpenFile, tmp_path: Path) -> None:
    name = "<img src=x onerror=hacked=1>.safetensors"
    model = gpt.load(random_file(tmp_path / name, Vocabulary.from_text(HOSTILE), block_size=256))
    page = open_file(model.live(tmp_path / "hostile.html", text=HOSTILE))
    settled(page)
    assert page.locator("#input").input_value() == HOSTILE
    page.locator("#lens-open").click()
    page.locator("#lens-table td").last.wait_for()
    page.keyboard.press("Escape")
    ElementTree.fromstring(saved(page, "svg"))
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("kind", ["weights", "data", "probe", "no number"])
def test_a_damaged_file_shows_one_line_and_no_numbers(
    open_file: OpenFile, file: Path, tmp_path: Path, kind: str
) -> None:
    html = file.read_text("utf-8")
    weight = html.index('"tensors":"') + 400
    damaged = {
        "weights": html[:weight] + ("B" if html[weight] == "A" else "A") + html[weight + 1 :],
        "data": html.replace('"schema"', '"schema', 1),
        "probe": html.replace('"tolerance":', '"tolerance":-', 1),
        "no number": html.replace('"texts":[', '"texts":[],"unread":[', 1),
    }
    path = tmp_path / "damaged.html"
    path.write_text(damaged[kind], "utf-8")
    page = open_file(path)
    reason = re.compile(r"^(The (data|model) in this file is damaged|This browser computes other)")
    page.locator("#notice", has_text=reason).wait_for()
    assert page.locator("main").is_hidden()
    assert page.get_by_role("button").count() == 0
