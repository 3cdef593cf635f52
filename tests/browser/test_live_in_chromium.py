"""The page of a model in a browser: it computes what Python computes, and proves it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import numpy as np
import pytest
from browsing import address, expect_csv, lines_of, saved, settled
from conftest import train_tiny
from pages import HOSTILE, unpack

import gpt
from gpt.characters import label
from gpt.heads.attention_map import select
from gpt.heads.contributions import Part, contributions
from gpt.heads.why import SUMS, signed_number
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Hook, no_hook
from gpt.reading.layers import Array
from gpt.reading.sampler import window_start
from gpt.reading.score import surprisals
from gpt.view.page.page import more_stages
from gpt.view.page.shipping import means_record

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenFile = Any  # see browsing.OpenFile
CONTEXT = 16
#: A text that fits into the context.
SHORT = "no rat sat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs: one with counting, one without."""
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def run(folder: Path) -> TrainedGPT:
    return gpt.load(train_tiny(folder / "counted", counting=4).path.parent, step="last")


@pytest.fixture(scope="module")
def alone(folder: Path) -> TrainedGPT:
    checkpoint = train_tiny(
        folder / "alone", {"learning_rate": 0.02}, position="learned", activation="relu2"
    )
    return gpt.load(checkpoint.path.parent)


@pytest.fixture(scope="module")
def file(run: TrainedGPT, folder: Path) -> Path:
    return run.live(folder / "run.html", text=SHORT)


@pytest.fixture(scope="module")
def file_alone(alone: TrainedGPT, folder: Path) -> Path:
    return alone.live(folder / "alone.html", text=SHORT)


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("–", "nan"))


def ready(page: Page, text: str | None = None) -> Page:
    """Waits until the page shows the numbers of a text of so many characters in its context."""
    page.locator("main:not([hidden])").wait_for()
    if text is not None:
        shown = window_of(text)
        at = "#text .character[data-position='{}']"
        page.locator(at.format(len(shown) - 1)).wait_for()
        page.locator(at.format(len(shown))).wait_for(state="detached")
    return page


def window_of(text: str) -> str:
    return text[window_start(len(text), CONTEXT) :]


def typed(page: Page, text: str) -> None:
    page.locator("#input").fill(text)
    ready(page, text)
    settled(page)


OF_FFN = ("norm2", "ffn_hidden", "ffn")
STAGES = ("scores", "scaled", "masked", "weights", "context", "concat")


def expect_stages(page: Page, run: TrainedGPT, text: str, every: bool = False) -> None:
    """Stages of a head of the last layer equal Python's for the text: two of them, or every one and
    those of a head of the first layer.
    """
    for layer, head in ((0, 1), (1, 0))[not every :]:
        page.locator(f'#heads [data-layer="{layer}"][data-head="{head}"]').click()
        for stage in STAGES if every else ("weights", "concat"):
            page.keyboard.press(str(STAGES.index(stage) + 1))
            selection = select(run.attn(text), str(layer), str(head), stage)  # type: ignore[arg-type]
            expect_csv(page, selection.to_csv(), 2e-5)
    page.keyboard.press("4")


def loss_of(page: Page, column: int) -> float:
    """Mean nats of the text: 0 of A, 1 of B."""
    return number(page.locator("#loss td").nth(column).inner_text())


def next_of(page: Page) -> dict[str, float]:
    """The likeliest next characters in the chart, as B expects them."""
    rows = page.locator(ROWS)
    labels = map(character_of, rows.locator(".term").all_inner_texts())
    return dict(zip(labels, values_of(rows), strict=True))


#: The chart's rows, without the rest.
ROWS = "#next li:not([hidden], .rest)"


def values_of(rows: Any, name: str = "value") -> list[float]:
    """Numbers of the chart's rows."""
    return list(rows.evaluate_all(f"all => all.map(e => Number(e.dataset.{name}))"))


def switch(page: Page, layer: int, head: int) -> Any:
    """The switch of a head."""
    return page.locator(f'#heads [data-switch="{layer}.{head}"]')


def character_of(label: str) -> str:
    return {"␣": " ", "⏎": "\n"}.get(label, label)


def expect_effect(page: Page, run: TrainedGPT, hook: Hook) -> None:
    """The chart shows the loss and the next characters with and without the hook."""
    before, after = nats_of(run, SHORT), nats_of(run, SHORT, hook)
    assert abs(before[1] - after[1]).max() > 1e-3
    assert loss_of(page, 0) == pytest.approx(before[0], abs=6e-4)
    assert loss_of(page, 1) == pytest.approx(after[0], abs=6e-4)
    olds = values_of(page.locator(ROWS), "before")
    for (character, chance), old in zip(next_of(page).items(), olds, strict=True):
        place = run.vocabulary.encode(character)[0]
        assert chance == pytest.approx(float(after[1][place]), rel=1e-3, abs=1e-6)
        assert old == pytest.approx(float(before[1][place]), rel=1e-3, abs=1e-6)


def set_weight(page: Page) -> None:
    """Moves the slider of the pinned weight."""
    page.locator("#weight").evaluate(
        "slider => { slider.value = '0.75'; slider.dispatchEvent(new Event('input')); }"
    )
    page.locator("#loss").wait_for()


def nats_of(run: TrainedGPT, text: str, hook: Hook = no_hook) -> tuple[float, Array]:
    """The GPT's mean surprisal of a text and (V,) probabilities of the next character, with stages
    changed by the hook.
    """
    ids, reader = run.vocabulary.encode(text), run.reader
    x = reader.blocks(reader.embed(ids[None]), range(run.config.n_layer), hook)
    logits = reader.logits(reader.final_norm(x))[0].astype(np.float64)
    chances = np.exp(logits[-1] - logits[-1].max())
    return float(surprisals(logits[:-1], ids[1:]).mean()), chances / chances.sum()


@pytest.mark.parametrize("which", ["counted", "alone"])
def test_typed_and_edited_texts_have_pythons_numbers(
    open_file: OpenFile, request: pytest.FixtureRequest, which: str
) -> None:
    run = request.getfixturevalue("run" if which == "counted" else "alone")
    page = open_file(request.getfixturevalue("file" if which == "counted" else "file_alone"))
    ready(page, SHORT)
    expect_stages(page, run, SHORT, every=which == "counted")
    box = page.locator("#input")
    box.press("End")
    box.type(" on a", delay=5)
    ready(page, SHORT + " on a")
    box.evaluate("input => input.setSelectionRange(3, 6)")
    box.type("cat")
    settled(page)
    expect_stages(page, run, "no cat sat on a")


def test_the_page_states_its_proof_and_has_pythons_next_characters_and_surprisals(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file, hash="temperature=1"), SHORT)
    proof = page.locator("#checks li").first.inner_text()
    found = re.match(r"✓ logits = numpy's, .* (\S+) ≤ (\S+)$", proof.replace("\n", " "))
    assert found, proof
    assert 0 < number(found[1]) <= number(found[2]) <= 1e-4
    assert "float32, as trained" in page.locator("#precision").inner_text()
    assert "This page shows the GPT alone" in page.locator("#gpt-alone").inner_text()
    nats, chances = nats_of(run, SHORT)
    found_next = next_of(page)
    wanted = chances[run.vocabulary.encode("".join(found_next))]
    np.testing.assert_allclose([*found_next.values()], wanted, rtol=1e-4, atol=1e-6)
    page.locator("#direction button", has_text="surprisal").click()
    mean = page.locator("#text-said").inner_text().split("mean ")[1].split()[0]
    assert number(mean) == pytest.approx(nats, abs=6e-4)


def test_unknown_characters_are_marked_and_no_text_begins_as_that_of_sample(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    page.locator("#input").fill("no ráté sat日")
    page.locator("#input-unknown:visible").wait_for()
    assert page.locator("#input-unknown mark").all_inner_texts() == ["á", "é", "日"]
    said = page.locator("#input-unknown").inner_text()
    assert "'á' (U+00E1) at position 4" in said
    assert "'日' (U+65E5) at position 11" in said
    settled(page)
    expect_stages(page, run, "no rt sat")
    typed(page, SHORT)
    assert page.locator("#input-unknown").is_hidden()
    page.locator("#input").fill("")
    page.locator('#text .character[data-position="1"]').wait_for(state="detached")
    assert page.locator("#text .character").all_inner_texts() == ["⏎"]


def test_a_text_beyond_the_context_has_the_window_of_sample(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    text = "the cat sat on the mat. the rat"
    typed(page, text)
    window = window_of(text)
    assert len(window) < len(text)
    expect_stages(page, run, window)
    assert f"sees the last {len(window)}" in page.locator("#input-said").inner_text()
    switch(page, 0, 0).click()
    page.locator("#loss").wait_for()
    page.locator("#all-on").click()
    page.locator("#loss").wait_for(state="detached")
    found = run.next(text, temperature=1.0, only="gpt")
    page.locator("#option-temperature").fill("1")
    settled(page)
    shown = page.locator("#next li .number").first.inner_text()
    assert number(shown) == pytest.approx(found.expected.max(), abs=6e-4)


def test_heads_that_are_off_and_a_weight_set_by_hand_change_predictions_as_in_python(
    open_file: OpenFile, alone: TrainedGPT, file_alone: Path
) -> None:
    query, key = len(SHORT) - 1, 3
    page = open_file(file_alone, hash=f"layer=0&head=1&cell={query},{key}&temperature=1")
    ready(page, SHORT)
    switch(page, 0, 1).click()
    switch(page, 1, 0).click()
    record = means_record(alone)
    assert record is not None
    for how in ("zero", "mean"):
        page.locator("#how button", has_text=how).click()
        page.locator("#loss").wait_for()
        settled(page)
        means = unpack(record).reshape(2, 2, -1) * (how == "mean")

        def off(name: str, layer: int, array: Array, means: Array = means) -> Array:
            if name == "context":
                head = {0: 1, 1: 0}[layer]
                array = array.copy()
                array[:, head] = means[layer, head]
            return array

        expect_effect(page, alone, off)
    page.locator("#all-on").click()
    page.locator("#loss").wait_for(state="detached")
    set_weight(page)
    settled(page)

    def by_hand(name: str, layer: int, array: Array) -> Array:
        if name == "weights" and layer == 0:
            array = array.copy()
            row = array[0, 1, query, : query + 1]
            row *= 0.25 / (1 - row[key])
            row[key] = 0.75
        return array

    expect_effect(page, alone, by_hand)
    # The loss ends with the last character; the row of that one predicts only the next.
    assert loss_of(page, 0) == loss_of(page, 1)
    said = page.locator("#next-said").inner_text()
    assert said.endswith("The loss does not contain this next character.")
    link = address(page)
    assert f"rows=0.1%3A{query}%3A{key}%3D0.75" in link

    def saved_weight() -> float:
        (line,) = (it for it in lines_of(saved(page)) if it[2:5:2] == [str(query), str(key)])
        return float(line[-1])

    assert saved_weight() == pytest.approx(0.75)
    page.locator("#of button", has_text="B − A").click()
    computed = float(alone.attn(SHORT).layers[0].weights[1, query, key])
    assert saved_weight() == pytest.approx(0.75 - computed, abs=1e-5)
    page.locator("#of").get_by_role("button", name="B", exact=True).click()
    again = ready(open_file(file_alone, hash=link), SHORT)
    again.locator("#loss").wait_for()
    expect_effect(again, alone, by_hand)
    again.locator("#option-top_k").fill("5")
    assert f"rows=0.1%3A{query}%3A{key}%3D0.75" in address(again)
    page.locator("#row-reset").click()
    page.locator("#loss").wait_for(state="detached")
    assert "rows" not in address(page)


def test_two_pinned_texts_are_compared_and_the_small_heads_are_those_of_the_text(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    page.locator("#pin").click()
    page.locator("#loss").wait_for()
    typed(page, "the cat")
    settled(page)
    assert loss_of(page, 0) == pytest.approx(nats_of(run, SHORT)[0], abs=6e-4)
    assert loss_of(page, 1) == pytest.approx(nats_of(run, "the cat")[0], abs=6e-4)
    pictures = []
    for choice in ("B", "A | B", "A"):
        page.locator("#of").get_by_role("button", name=choice, exact=True).click()
        page.locator("#heads").scroll_into_view_if_needed()
        settled(page)
        pictures.append(page.locator("#heads .sheet").evaluate("sheet => sheet.toDataURL()"))
        if choice == "A | B":
            titles = page.locator(".panel-title").all_inner_texts()
            assert ["no rat sat" in titles[0], "the cat" in titles[1]] == [True, True]
            assert page.locator(".matrix-box").count() == 2
    assert pictures[0] == pictures[1] != pictures[2]
    page.locator("#pin").click()
    page.locator("#loss").wait_for(state="detached")


#: Options of `sample`.
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.3, "top_k": 7, "seed": 5},
    {"top_p": 0.9, "min_p": 0.02, "seed": 2**40 + 1},
    {"temperature": 0.0, "seed": 3},
]


def test_a_seed_writes_the_text_of_sample_and_filters_show_what_they_removed(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    expected = run.sample(SHORT, length=400, only="gpt", seed=1)
    for count in range(1, 4):
        page.locator("#step").click()
        page.locator("#step:enabled").wait_for()
        assert page.locator("#input").input_value() == expected[: len(SHORT) + count]
    page.locator("#option-length").fill("100000")
    page.locator("#write").click()
    page.locator("#input-said", has_text="written").wait_for()
    page.locator("#input").press("Escape")
    page.locator("#write", has_text="write").wait_for()
    written = page.locator("#input").input_value()
    assert len(SHORT) + 3 < len(written) < 100_000
    assert written[:300] == expected[:300][: len(written)]
    typed(page, SHORT)
    empty: dict[str, Any] = {"top_k": "", "top_p": "", "min_p": "", "seed": 0}
    for options in OPTIONS:
        for name, value in {**empty, "length": 120, "temperature": 0.8, **options}.items():
            page.locator(f"#option-{name}").fill(str(value))
        page.locator("#write").click()
        expected = run.sample(SHORT, length=120, only="gpt", **{"seed": 0, **options})
        page.locator("#input-said", has_text="120 characters written").wait_for()
        page.locator("#write", has_text="write").wait_for()
        assert page.locator("#input").input_value() == expected, options
        page.locator("#unwrite").click()
        assert page.locator("#input").input_value() == SHORT
        settled(page)
    for name, value in {**empty, "temperature": 1.5, "top_k": 6, "min_p": 0.95}.items():
        page.locator(f"#option-{name}").fill(str(value))
    settled(page)
    found = run.next(SHORT, temperature=1.5, top_k=6, min_p=0.95, only="gpt")
    left = int((found.filtered > 0).sum())
    drawable = f" {left} of {len(run.vocabulary)} characters can be drawn"
    page.locator("#draw-said", has_text=drawable).wait_for()
    reasons = page.locator("#next .out .number").all_inner_texts()
    assert {"top-k", "min-p"} == set(reasons)
    kept = page.locator("#next li:not(.out, .rest, [hidden]) .number").all_inner_texts()
    chances = np.sort(found.filtered[found.filtered > 0])[::-1]
    np.testing.assert_allclose([number(each) for each in kept], chances, atol=6e-4)
    page.locator("#option-top_p").fill("7")
    assert (
        "top-p: a number more than 0, at most 1" in page.locator("#options .refused").inner_text()
    )


def test_the_map_has_pythons_parts_of_a_logit_and_every_stage_of_a_layer(
    open_file: OpenFile, alone: TrainedGPT, file_alone: Path
) -> None:
    run, page = alone, ready(open_file(file_alone, hash="head=0"), SHORT)
    attention = run.attn(SHORT)
    every = np.tile(np.arange(len(run.vocabulary)), (len(SHORT), 1))
    found = contributions(run.reader, attention.layers, every)
    logits = run.logits(SHORT)[0]
    last, third = len(SHORT) - 1, page.locator("#next li:nth-child(3) .term")
    for position, id in ((last, int(logits[last].argmax())), (last, None), (4, None)):
        if position == 4:  # the same character, elsewhere
            page.locator('#text .character[data-position="4"]').click()
        elif id is None:
            third.click()
        settled(page)
        if id is None:
            id = int(run.vocabulary.encode(parse_qs(address(page))["next"][0])[0])
        shown = values_of(page.locator("#stream .part"))
        np.testing.assert_allclose(shown, found.values[position, id], rtol=1e-3, atol=1e-4)
        logit = page.locator("#stream strong").inner_text().split("= ")[1]
        assert number(logit) == pytest.approx(logits[position, id], abs=2e-3)
    other = page.locator("#stream select option").nth(2).get_attribute("value") or ""
    page.locator("#stream select").select_option(other)
    settled(page)
    assert parse_qs(address(page))["against"] == [other]
    values = found.values[4, id] - found.values[4, run.vocabulary.id_of(other)]
    shown = values_of(page.locator("#stream .part"))
    np.testing.assert_allclose(shown, values, rtol=1e-3, atol=1e-4)
    character = run.vocabulary.characters[id]
    why = run.why(SHORT[:5], char=character, against=other)
    assert (
        page.locator("#stream strong")
        .inner_text()
        .startswith(f"logit of '{label(character)}' − logit of '{label(other)}' = ")
    )
    head, heads = Part("head", 1, 0), [part for part in why.parts if part.kind in SUMS]
    sources = why.sources[heads.index(head)]
    most = int(np.abs(sources).argmax())
    title = page.locator("#stream .part").nth(why.parts.index(head)).get_attribute("title") or ""
    assert f"; {most} '{label(SHORT[most])}' {signed_number(sources[most])}" in title.replace(
        "0.", "."
    )
    shared = page.locator("#stream strong").inner_text()
    again = ready(open_file(file_alone, hash=address(page)), SHORT)  # as the address says
    again.locator("#stream strong", has_text=shared).wait_for()
    page.bring_to_front()
    page.locator("#stream select").select_option("")
    settled(page)
    assert "✓ the parts of a logit sum to it" in page.locator("#checks").inner_text()
    more = more_stages(run.reader, attention.layers[1], 1)
    page.locator("#stream .layer").nth(1).click()
    for stage, values in {**more, "q": attention.layers[1].q[0]}.items():
        page.locator(f"#stages [data-stage={stage}]").click()
        settled(page)
        page.locator(".matrix-box").wait_for()
        numbers = [float(line[-1]) for line in lines_of(saved(page))[1:]]
        np.testing.assert_allclose(numbers, values.ravel(), rtol=1e-4, atol=1e-4)
    page.locator("#stream .part", has_text="H1").first.click()
    assert "layer=0&head=1" in address(page)


def test_without_feed_forward_layers_the_map_has_neither_their_parts_nor_their_stages(
    open_file: OpenFile, folder: Path
) -> None:
    shape: dict[str, Any] = {"position": "none", "feed_forward": False}
    run = gpt.load(train_tiny(folder / "bare", {"learning_rate": 0.02}, **shape).path.parent)
    file = run.live(folder / "bare.html", text=SHORT)
    page = ready(open_file(file, hash="layer=1&stage=ffn_hidden"), SHORT)  # of another model's link
    settled(page)
    expect_stages(page, run, SHORT)
    layers, last = run.attn(SHORT).layers, len(SHORT) - 1
    id = int(run.logits(SHORT)[0, last].argmax())
    found = contributions(run.reader, layers, np.full((len(SHORT), 1), id))
    shown = values_of(page.locator("#stream .part"))
    np.testing.assert_allclose(shown, found.values[last, 0], rtol=1e-3, atol=1e-4)
    assert page.locator("#stream .part", has_text="ff").count() == 0
    assert not any(page.locator(f"#stages [data-stage={name}]").is_visible() for name in OF_FFN)
    page.locator("#stages [data-stage=resid_post]").click()
    settled(page)
    numbers = [float(line[-1]) for line in lines_of(saved(page))[1:]]
    post = layers[int(parse_qs(address(page))["layer"][0])].resid_post
    np.testing.assert_allclose(numbers, post.ravel(), rtol=1e-4, atol=1e-4)


def test_taking_back_keeps_what_was_typed_and_wrong_options_stop_writing(
    open_file: OpenFile, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    page.locator("#step").click()
    page.locator("#unwrite:enabled").wait_for()
    page.locator("#input").press("Control+End")
    page.locator("#input").type("a")
    settled(page)
    assert page.locator("#unwrite").is_disabled()
    typed = page.locator("#input").input_value()
    page.locator("#step").click()
    page.locator("#unwrite:enabled").wait_for()
    page.locator("#unwrite").evaluate("button => { button.click(); button.click(); }")
    settled(page)
    assert page.locator("#input").input_value() == typed
    page.locator("#option-top_k").fill("0")
    page.locator("#option-temperature").fill("2")
    assert "top-k: a whole number" in page.locator("#options .refused").inner_text()
    assert page.locator("#write").is_disabled()


def test_the_address_restores_all_but_the_text_on_a_narrow_dark_screen(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    typed(page, "a rat on cat")
    switch(page, 1, 1).click()
    page.locator("#how button", has_text="mean").click()
    page.locator("#option-top_k").fill("4")
    settled(page)
    shown = address(page)
    assert "rat" not in shown
    again = ready(open_file(file, hash=shown, width=360, scheme="dark"), SHORT)
    again.locator("#loss").wait_for()
    off = again.locator('#heads [aria-checked="false"]')
    assert [each.get_attribute("data-switch") for each in off.all()] == ["1.1"]
    assert again.locator('#how [aria-pressed="true"]').text_content() == "mean"
    assert again.locator("#option-top_k").input_value() == "4"
    assert again.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#share").check()
    shared = ready(open_file(file, hash=address(page)), "a rat on cat")
    assert shared.locator("#input").input_value() == "a rat on cat"


def test_back_restores_the_settings_and_a_link_the_whole_view(
    open_file: OpenFile, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    switch(page, 0, 1).click()
    page.locator("#loss").wait_for()
    page.locator('#heads [data-layer="1"][data-head="1"]').click()
    page.evaluate("location.hash = location.hash.replace('off=0.1', 'off=1.0') + '&top_k=3'")
    page.locator('[data-switch="1.0"][aria-checked="false"]').wait_for()
    assert page.locator("#option-top_k").input_value() == "3"
    page.go_back()
    page.locator('[data-switch="0.1"][aria-checked="false"]').wait_for()
    assert page.locator("#option-top_k").input_value() == ""
    text = "the cat sat on"
    link = f"of=diff&layer=1&head=0&cell=9,4&pins=12&off=0.0&text={text.replace(' ', '%20')}"
    other = ready(open_file(file, hash=link), text)
    assert other.locator('#of [aria-pressed="true"]').inner_text() == "B − A"
    assert "cell=9,4" in address(other)
    assert other.locator('#text [aria-selected="true"]').count() == 1


def test_the_demo_opens_and_follows_the_text(open_file: OpenFile) -> None:
    page = open_file(Path(__file__).parents[2] / "docs" / "demo.html")
    page.locator("main:not([hidden])").wait_for()
    page.locator("#input").fill("The value of the argument is the valu")
    page.locator('#text .character[data-position="36"]').wait_for()
    page.locator("#next li:first-child .term", has_text="e").wait_for()


def changed_in(html: str, name: str, change: Any) -> str:
    """The page with another value of a field of its data; the field's last one."""
    begin = html.rindex(f'"{name}":') + len(name) + 3
    value = re.match(r'"[^"]*"|[^,}]*', html[begin:])
    assert value
    return html[:begin] + change(value[0]) + html[begin + len(value[0]) :]


def other_byte(base64: str) -> str:
    return base64[:60] + ("A" if base64[60] != "A" else "B") + base64[61:]


DAMAGE: dict[str, tuple[str, Any, str]] = {
    "the model": ("base64", other_byte, "its bytes do not match their checksum"),
    "the bound of the proof": ("tolerance", lambda value: "1e-12", "other numbers"),
    "a proof without logits": ("logits", lambda value: '""', "other numbers"),
    "the activation": ("activation", lambda value: '"other"', "cannot compute"),
    "its script": ("class Session", None, "the page shows no numbers"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_shows_the_reason_and_no_number(
    chromium: Any, file: Path, tmp_path: Path, what: str
) -> None:
    (name, change, reason), html = DAMAGE[what], file.read_text("utf-8")
    html = changed_in(html, name, change) if change else html.replace(name, "class Sessiom")
    damaged = tmp_path / "damaged.html"
    damaged.write_text(html, "utf-8")
    page = chromium.new_page()
    page.goto(damaged.as_uri())
    page.locator("#notice", has_text=reason).wait_for()
    assert page.locator("main").is_hidden()
    assert page.locator("footer").is_hidden()
    assert not page.locator("#text").is_visible()
    page.close()


def test_any_text_stays_a_text(open_file: OpenFile, tmp_path: Path) -> None:
    from conftest import corpus_of, manifest_of

    from gpt.storage.runs import new_run
    from gpt.training.events import Saved
    from gpt.training.trainer import Job, Trainer

    text = HOSTILE.replace("\0", "\x01")  # no text that trains has a NUL
    corpus = corpus_of((text + "\n") * 20, tmp_path)
    hostile = new_run(tmp_path / "checkpoints", "hostile", "hostile")
    manifest = manifest_of(corpus, counting=3, block_size=200)
    for event in Trainer(hostile, Job(corpus, manifest)).events():
        if isinstance(event, Saved):
            last = event.checkpoint
    run = gpt.load(last.path)
    page = open_file(run.live(tmp_path / "hostile.html", text=text))
    page.locator("main:not([hidden])").wait_for()
    page.locator("#text .character").nth(len(text) - 1).wait_for()
    page.locator("#pin").click()
    page.locator("#write").click()
    page.locator("#write", has_text="write").wait_for()
    assert page.evaluate("typeof window.hacked") == "undefined"
    assert page.locator("main img, main script").count() == 0


#: Records which of the text and the lens change; one that is drawn later is in a later list.
RECORD = """
() => {
  window.drawn = [];
  new MutationObserver((changes) => {
    drawn.push(changes.map(({ target }) => target.closest("#text, #lens")?.id));
  }).observe(document.querySelector("main"), { subtree: true, childList: true });
}
"""


#: Waits until the part has left the window and the page knows it: the browser calls observers in
#: the order of their creation, so the page's own ones before this one.
OUTSIDE = """
part => new Promise((done) => {
  new IntersectionObserver(([each]) => each.isIntersecting || done()).observe(part);
})
"""


def test_what_is_in_the_window_is_drawn_first(open_file: OpenFile, file: Path) -> None:
    page = ready(open_file(file), SHORT)
    settled(page)
    page.locator("#lens").evaluate(OUTSIDE)
    page.evaluate(RECORD)
    page.locator("#input").evaluate(
        "input => { input.value += ' a'; input.dispatchEvent(new Event('input')); }"
    )
    for name in ("text", "lens"):
        added = f"#{name} [data-position='{len(SHORT) + 1}']"
        page.locator(added).first.wait_for(state="attached")
    drawn = page.evaluate("drawn")
    first, second = (
        min(n for n, names in enumerate(drawn) if name in names) for name in ("text", "lens")
    )
    assert first < second


def test_keyboard_reaches_the_tools_and_letters_stay_in_the_text(
    open_file: OpenFile, file: Path
) -> None:
    page = ready(open_file(file), SHORT)
    page.locator("#input").focus()
    page.keyboard.press("Control+End")
    page.keyboard.type(" on x")
    settled(page)
    assert page.locator('#heads [aria-checked="false"]').count() == 0
    page.keyboard.press("Control+Shift+Enter")
    page.locator("#step:enabled").wait_for()
    assert len(page.locator("#input").input_value()) == len(SHORT) + 6
    page.locator("#heads button").first.click()
    page.keyboard.press("x")
    page.locator('[data-switch="0.0"][aria-checked="false"]').wait_for()
    assert page.locator('#heads [aria-checked="false"]').count() == 1
    for control in ("#input", "#write", "#pin", "#share", "#option-seed", "#heads .switch"):
        assert page.locator(control).first.evaluate("each => each.tabIndex") == 0, control
        name = page.locator(control).first.evaluate(
            "each => each.labels?.[0]?.textContent || each.textContent || each.ariaLabel"
        )
        assert name.strip(), control
