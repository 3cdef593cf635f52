"""A tour of a live page in a browser: its stops, its numbers, its text in a link and an editor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pytest
from browsing import address, settled
from pages import HOSTILE

import gpt
from gpt.corpus.repeats import repeats
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Hook, no_hook
from gpt.reading.layers import Array
from gpt.view.page.tour import TOURS

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
    return run.live(path, steps="all", tour=TOURS / "repeats.md")


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
    assert count == 9
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


def test_stops_of_other_steps_need_several_of_them(
    open_file: OpenFile, run: TrainedGPT, tmp_path: Path
) -> None:
    path = run.live(tmp_path / "one.html", tour=TOURS / "repeats.md")
    page = at(open_file(path, hash="stop=8"), "8")
    assert said(page, "place") == "8 / 8"
    assert said(page, "title") == "Your own word"
    assert not page.locator("#steps").is_visible()


def test_a_link_carries_a_tour_and_anything_in_it_stays_text(
    open_file: OpenFile, file: Path
) -> None:
    text = HOSTILE.replace("\n", " ")
    strange = "see: layer=99&head=__proto__&cell=1e9,-1&off=constructor,9.9&rows=x:1:1=2,0.0:99:0=1"
    tour = f"## {text}\n{strange}&step=abc&temperature=-1&view=<b>&text=q%00\n{text}{{now f}}\n"
    page = at(open_file(file, hash=f"stop=1&tour={quote(tour)}"), "1")
    shown = page.locator("#tour-title").evaluate("title => title.textContent")
    assert shown == text.replace("\0", "\0")
    assert page.locator("#tour-stop *").count() == 4
    assert page.evaluate("window.hacked") is None
    assert page.locator("#tour-place").inner_text() == "1 / 1"
    huge = open_file(file, hash="stop=2&tour=" + quote("## A\n" * 30_000))
    assert said(at(huge, "2"), "place") == "2 / 9"  # the file's
    empty = open_file(file, hash="stop=77&tour=nothing")
    empty.locator("main:not([hidden])").wait_for()
    settled(empty)
    assert empty.locator("#tour").is_hidden()


def test_a_stop_of_the_present_view_is_added_and_its_link_opens_it(
    open_file: OpenFile, file: Path
) -> None:
    page = open_file(file)
    page.locator("main:not([hidden])").wait_for()
    page.locator("#tour-open").click()
    at(page, "1").locator("#tour-edit").click()
    source, text = page.locator("#tour-source"), "qwe+ & 5% qw"
    assert source.input_value() == (TOURS / "repeats.md").read_text("utf-8")
    page.locator("#input").fill(text)
    page.locator('#heads [data-layer="1"][data-head="0"]').click()
    page.locator('#heads [data-switch="0.1"]').click()
    page.locator("#loss").wait_for()
    source.fill("# Mine\n")
    page.locator("#tour-apply").click()
    assert said(page, "said").startswith("there is no stop")
    source.fill("# Mine\n## A\nsee: layr=1")
    page.locator("#tour-apply").click()
    assert said(page, "said") == "line 3: no setting 'layr'"
    source.fill("# Mine\n")
    page.locator("#tour-add").click()
    written = source.input_value()
    see = f"layer=1&head=0&off=0.1&text={quote(text)}&temperature=1"
    assert written == f"# Mine\n\n## A new stop\nsee: {see}\nSay here what to look at.\n"
    page.locator("#tour-apply").click()
    at(page, "1").locator("#tour-title", has_text="A new stop").wait_for()
    assert page.locator("#input").input_value() == text
    page.evaluate("window.saved = []")
    page.locator("#tour-save").click()
    assert page.evaluate("window.saved[0].text()") == written
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")
    page.locator("#tour-link").click()
    link = said(page, "said")
    assert link == f"{file.as_uri()}#tour={quote(written, safe='')}&stop=1"
    again = at(open_file(file, hash=link.split("#")[1]), "1")
    assert (said(again, "title"), said(again, "place")) == ("A new stop", "1 / 1")
    assert again.locator("#input").input_value() == text
    off = again.locator('#heads [aria-checked="false"]')
    assert [each.get_attribute("data-switch") for each in off.all()] == ["0.1"]
