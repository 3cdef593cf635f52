"""The built-in tour of a live page in a browser: its stops and its numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browsing import address, settled

import gpt
from gpt.corpus.repeats import repeats
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Hook, no_hook
from gpt.reading.layers import Array
from gpt.view.page import live

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenFile = Any  # see browsing.OpenFile
TEXT = "qwerty asdf qwerty asd"  # of the tour of repeats
TINY: dict[str, Any] = dict(
    n_layer=2, n_head=2, n_embd=32, block_size=64, position="rotary", counting=0, steps=20,
    batch_size=8, warmup_steps=2, learning_rate=1e-2, eval_interval=10, keep_all=True,
    matrix_lr=0.0, embedding_lr=1e-2, precision="float32",  # the same on every machine
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    folder = tmp_path_factory.mktemp("tour")
    text = repeats().decode()[:20_000]
    return gpt.train(text=text, checkpoints=folder, data=folder, **TINY).at("last")


@pytest.fixture(scope="module")
def file(run: TrainedGPT, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "tour.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(live.BUILT_IN, ",".join(run.manifest.corpus.sources), "repeats.md")
        return run.live(path)


def said(page: Page, name: str) -> str:
    return page.locator(f"#tour-{name}").inner_text()


def at(page: Page, number: str) -> Page:
    """Waits until the page shows a stop, "3" or "3!", with its numbers."""
    page.locator("#tour:visible").wait_for()
    page.locator("#tour-place", has_text=re.compile(rf"^{number.strip('!')} / ")).wait_for()
    settled(page)
    assert re.search(rf"(^|&)stop={number}(&|$)", address(page)), address(page)
    return page


def chances(run: TrainedGPT, hook: Hook = no_hook) -> dict[str, float]:
    """The probability of each next character after TEXT, with stages changed by the hook."""
    ids, reader = run.vocabulary.encode(TEXT), run.reader
    x = reader.blocks(reader.embed(ids[None]), range(run.config.n_layer), hook)
    logits = reader.logits(reader.final_norm(x))[0, -1].astype(np.float64)
    found = np.exp(logits - logits.max())
    return dict(zip(run.vocabulary.characters, found / found.sum(), strict=True))


def strongest(run: TrainedGPT, name: str) -> tuple[int, int]:
    measures = {each.name: each for each in run.heads().measures}
    values = measures[name].values
    layer, head = np.unravel_index(values.argmax(), values.shape)
    return int(layer), int(head)


def numbers(text: str) -> list[float]:
    """The numbers of a caption with a point or a power."""
    found = re.findall(r"\d*\.\d+(?:e[−-]\d+)?|\d+e[−-]\d+", text)
    return [float(each.replace("−", "-")) for each in found]


def test_every_stop_of_the_built_in_tour_can_be_shown(open_file: OpenFile, file: Path) -> None:
    page = open_file(file)
    page.locator("#tour-open").click()
    count = int(at(page, "1").locator("#tour-place").inner_text().split(" / ")[1])
    assert count == 8
    for number in range(1, count + 1):
        at(page, f"{number}")
        assert said(page, "title")
        assert said(page, "question")
        assert not said(page, "answer")
        assert not re.search("(^|&)(off|rows)=", address(page))
        page.locator("#tour-show").click()
        at(page, f"{number}!").locator("#tour-answer:not(:empty)").wait_for()
        shown = " ".join(said(page, part) for part in ("text", "question", "answer"))
        assert "{" not in shown, shown
        assert page.locator("#tour-show").is_hidden()
        if number < count:
            page.locator("#tour-next").click()
    assert page.locator("#tour-next").is_disabled()
    page.locator("#tour-close").click()
    page.locator("#tour").wait_for(state="hidden")
    assert "stop=" not in address(page)


def test_the_numbers_of_captions_are_pythons(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    layer, head = strongest(run, "induction")
    before, query = chances(run), len(TEXT) - 1

    def off(name: str, at: int, array: Array) -> Array:
        if name == "context" and at == layer:
            array = array.copy()
            array[:, head] = 0
        return array

    def by_hand(name: str, at: int, array: Array) -> Array:
        if name == "weights" and at == layer:
            array = array.copy()
            array[0, head, query] = 0
            array[0, head, query, 1] = 1
        return array

    page = at(open_file(file, hash="stop=4!"), "4!")
    expected = [before["f"], chances(run, off)["f"]]
    assert numbers(said(page, "answer")) == pytest.approx(expected, rel=2e-3)
    assert expected[0] != pytest.approx(expected[1], rel=1e-2)
    page.evaluate("location.hash = 'stop=7!'")
    at(page, "7!").locator("#tour-answer", has_text="“w” goes").wait_for()
    after = chances(run, by_hand)
    expected = [before["w"], after["w"], before["f"], after["f"]]
    assert numbers(said(page, "answer")) == pytest.approx(expected, rel=2e-3)
    assert expected[0] != pytest.approx(expected[1], rel=1e-2)
    page.evaluate("location.hash = 'stop=3!'")
    at(page, "3!").locator("#tour-answer", has_text="weight").wait_for()
    weight = run.attn(TEXT).layers[layer].weights[head, query, 10]
    assert numbers(said(page, "answer")) == pytest.approx([weight], abs=6e-4)
    assert said(page, "text").startswith(f"L{layer} H{head} ")
    previous = strongest(run, "previous")
    page.evaluate("location.hash = 'stop=5!'")
    at(page, "5!").locator("#tour-answer", has_text="Much less: its weight").wait_for()
    assert f"off={previous[0]}.{previous[1]}" in address(page)


def test_a_stop_begins_as_the_tour_says_whatever_was_done_before(
    open_file: OpenFile, file: Path
) -> None:
    page = at(open_file(file, hash="stop=2"), "2")
    page.locator("#input").fill("a cat")
    page.locator('#heads [data-switch="0.0"]').click()
    page.locator("#option-top_k").fill("3")
    page.locator("#loss").wait_for()
    page.locator("#tour-next").click()
    at(page, "3").locator("#loss").wait_for(state="detached")
    assert page.locator("#input").input_value() == TEXT
    assert page.locator("#option-top_k").input_value() == ""
    assert page.locator("#option-temperature").input_value() == "1"
    assert page.locator('#heads [aria-checked="false"]').count() == 0
    page.go_back()
    at(page, "2")
    assert page.locator("#input").input_value() == TEXT
    page.locator("#option-length").fill("100000")
    page.locator("#write").click()
    page.locator("#input-said", has_text="written").wait_for()
    page.locator("#tour-next").click()
    at(page, "3")
    assert page.locator("#input").input_value() == TEXT
    page.locator("#tour-close").click()
    page.locator("#input").fill("qwe qw")
    page.locator('#text .character[data-position="6"]').wait_for(state="detached")


def test_the_keys_of_a_presenter_step_through_the_tour_but_not_in_a_text_field(
    open_file: OpenFile, file: Path
) -> None:
    page = open_file(file)
    page.locator("main:not([hidden])").wait_for()
    page.keyboard.press("PageDown")
    assert page.locator("#tour").is_hidden()
    page.keyboard.press("n")
    at(page, "1")
    for key, number in [("PageDown", "1!"), ("n", "2"), ("PageDown", "2!"), ("PageUp", "1")]:
        page.keyboard.press(key)
        at(page, number)
    page.locator("#input").press("PageDown")
    page.locator("#input").press("n")
    at(page, "1")
    page.locator(".matrix-box").focus()
    page.keyboard.press("PageDown")
    at(page, "1")


def test_the_bar_covers_neither_text_nor_matrix_and_a_phone_does_not_scroll_sideways(
    open_file: OpenFile, file: Path
) -> None:
    page = at(open_file(file, hash="stop=3"), "3")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.locator("#tour-show").click()
    at(page, "3!")
    bottoms = "all => Math.max(...all.map((each) => each.getBoundingClientRect().bottom))"
    top = page.locator("#tour").evaluate("bar => bar.getBoundingClientRect().top")
    for shown in ("#text", ".matrix-box", "#heads", "#next li:nth-child(8)"):
        assert page.locator(shown).evaluate_all(bottoms) <= top, shown
    inside = page.locator(".matrix-box").evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    assert inside
    page.keyboard.press("p")
    assert page.locator("#tour-answer").is_visible()
    narrow = at(open_file(file, hash="stop=3!", width=360), "3!")
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_link_to_a_stop_that_there_is_not_shows_no_tour(open_file: OpenFile, file: Path) -> None:
    empty = open_file(file, hash="stop=77")
    empty.locator("main:not([hidden])").wait_for()
    settled(empty)
    assert empty.locator("#tour").is_hidden()


def test_a_page_without_a_tour_offers_none(
    open_file: OpenFile, run: TrainedGPT, tmp_path: Path
) -> None:
    page = open_file(run.live(tmp_path / "none.html"), hash="stop=1")
    page.locator("main:not([hidden])").wait_for()
    settled(page)
    page.keyboard.press("n")
    assert page.locator("#tour").is_hidden()
    assert page.locator("#tour-open").is_hidden()
