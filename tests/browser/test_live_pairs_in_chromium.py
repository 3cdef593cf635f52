"""The live page of a model with an encoder in a browser: it computes what Python computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from browsing import address, expect_csv, lines_of, saved, settled, wait_until
from encoded import SPOKEN, SYMBOLS, encoded_file, hooked_logits

import gpt
from gpt.config import AttentionKind
from gpt.heads.ablation import Texts, mean_contexts
from gpt.heads.contributions import contributions
from gpt.heads.pair_measures import spread_pairs
from gpt.interface.trained import TrainedGPT
from gpt.reading.layers import Array
from gpt.reading.score import surprisals
from gpt.reading.targets import pair_ids, score_pairs, target_settings, write_targets
from gpt.view.exports import to_csv
from gpt.view.selection import select

if TYPE_CHECKING:
    from playwright.sync_api import Page

OpenFile = Any  # see browsing.OpenFile
SOURCE, TARGET = "24 abc", "2-1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    folder = tmp_path_factory.mktemp("live-pairs")
    return gpt.load(encoded_file(folder / "p.safetensors"))


@pytest.fixture(scope="module")
def file(run: TrainedGPT) -> Path:
    return run.live(run.stored.source.with_name("live.html"), text=SOURCE)


#: Whether a side shows a text.
SHOWS = """([side, text]) => text ===
    Array.from(document.querySelectorAll(`#pair-${side} .character > span:first-child`),
        (each) => each.textContent).join("")"""


def shown(text: str) -> str:
    return text.translate({ord(" "): "␣", ord("\t"): "⇥", ord("\n"): "⏎"})


def ready(page: Page, source: str, read: str) -> Page:
    """Waits until the page shows a source, and a target with its end."""
    page.locator("main:not([hidden])").wait_for()
    for side, text in (("source", source), ("target", read)):
        wait_until(page, SHOWS, [side, shown(text)])
    return page


def written(run: TrainedGPT, source: str, **options: Any) -> str:
    """What the page's target line shows: TAB, the target and its end, if the model ended it."""
    settings = target_settings(run.config, **options)
    ((found,),) = write_targets(run.reader, run.vocabulary, [source], settings)
    return f"\t{run.vocabulary.decode(found.ids)}" + "\n" * found.ended


def test_typed_sources_have_pythons_target_and_attention_of_every_kind(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SOURCE, written(run, SOURCE))
    source = "4 ab 2"
    page.locator("#source").fill(source)
    ready(page, source, written(run, source))
    target = written(run, source).strip("\t\n")
    assert page.locator("#target").input_value() == target
    nats = score_pairs(run.reader, run.vocabulary, f"{source}\t{target}\n").nats
    chances = page.locator("#pair-target small").all_inner_texts()[1:]
    expected = np.exp(-nats)[: len(chances)]
    np.testing.assert_allclose([float(each) for each in chances], expected, atol=6e-3)
    for n, kind in enumerate(("cross", "encoder", "decoder")):
        page.locator("#kind button").nth(n).click()
        page.locator("#heads-title", has_text=kind).wait_for()
        page.locator('#heads [data-layer="1"][data-head="1"]').click()
        found = run.attn(f"{source}\t{target}", attention=kind)  # type: ignore[arg-type]
        for stage, key in (("weights", "4"), ("masked", "3"), ("concat", "6")):
            page.keyboard.press(key)
            expect_csv(page, to_csv([select(found, "1", "1", stage)]), 1e-4)  # type: ignore[arg-type]
        page.keyboard.press("4")
    proof = page.locator("#checks li").all_inner_texts()
    assert [each.split()[1] for each in proof[:4]] == ["logits", "encoder", "decoder", "cross"]


def test_a_target_of_ones_own_unknown_characters_and_sources_that_cannot_be_read(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SOURCE, written(run, SOURCE))
    page.locator("#target").fill(TARGET)
    ready(page, SOURCE, f"\t{TARGET}\n")
    page.locator("#pair-target .character").nth(2).hover()
    nats = score_pairs(run.reader, run.vocabulary, f"{SOURCE}\t{TARGET}\n").nats
    chance = float(np.exp(-nats)[1])
    said = page.locator("#pair-said").inner_text()
    assert float(said.split("probability ")[1].split(",")[0]) == pytest.approx(chance, abs=1e-4)
    page.locator("#source").fill("24 xabcé")
    assert page.locator("#input-unknown mark").all_inner_texts() == ["x", "é"]
    ready(page, SOURCE, f"\t{TARGET}\n")
    limit = run.config.block_size
    for source, target, reason in (
        ("", TARGET, "the source is empty"),
        ("a" * (limit + 1), TARGET, f"the source has {limit + 1} characters"),
        (SOURCE, "1" * limit, f"the target has {limit} characters"),
    ):
        page.locator("#source").fill(source)
        page.locator("#target").fill(target)
        page.locator("#input-said.refused", has_text=reason).wait_for()
        assert page.locator("#matrices").is_hidden()
        assert page.locator("#pair").is_hidden()
    page.locator("#source").evaluate(  # as if a pair were pasted
        "input => { input.value = '2b\\t3c'; input.dispatchEvent(new Event('input')); }"
    )
    ready(page, "2b", "\t3c\n")
    assert page.locator("#matrices").is_visible()
    page.locator("#source").press("Enter")
    ready(page, "2b", written(run, "2b"))


def losses(run: TrainedGPT, off: dict[tuple[str, int, int], Any]) -> float:
    """Mean nats of the target, with the outputs of heads replaced. off: by kind, layer, head."""

    def replace(kind: str, name: str, layer: int, array: Array) -> Array:
        array = array.copy()
        for (of, where, head), value in off.items():
            if (of, where, "context") == (kind, layer, name):
                array[:, head] = value
        return array

    source, read = run.vocabulary.encode(SOURCE), run.vocabulary.encode(f"\t{TARGET}\n")
    logits = hooked_logits(run.reader, source, read[:-1], replace).astype(np.float64)
    return float(surprisals(logits, read[1:]).mean())


def loss_shown(page: Page, column: int) -> float:
    return float(page.locator("#loss td").nth(column).inner_text())


def test_symbols_are_read_written_and_marked_whole(open_file: OpenFile, tmp_path: Path) -> None:
    path = encoded_file(tmp_path / "s.safetensors", SPOKEN, vocabulary=SYMBOLS)
    run = gpt.load(path)
    page = ready(open_file(run.live(tmp_path / "s.html", text="2ba")), "2ba", written(run, "2ba"))
    assert page.locator("#target").input_value() == run.answers(["2ba"])[0]
    page.locator("#source").fill("2ɒb")  # no source has ɒ
    ready(page, "2b", written(run, "2b"))
    assert page.locator("#input-unknown mark").all_inner_texts() == ["ɒ"]
    page.locator("#target").fill("t͡s  t͡ʃ bː")
    wait_until(page, SHOWS, ["target", "⇥t͡sbː⏎"])
    assert page.locator("#input-unknown mark").all_inner_texts() == ["ɒ", "t͡ʃ"]
    assert "target: 2 of 15 symbols" in page.locator("#input-said").inner_text()
    tiles = page.locator("#pair-target .character > span:first-child").all_inner_texts()
    assert tiles == ["⇥", "t͡s", "bː", "⏎"]
    first, second = run.eval("2b\tt͡s bː").pairs.each[0][:2]  # type: ignore[union-attr]
    chances = page.locator("#pair-target .character > small").all_inner_texts()
    for chance, nats in zip(chances[1:], (first, second), strict=False):
        assert float(chance.replace("−", "-")) == pytest.approx(np.exp(-nats), abs=6e-3)
    page.locator("#kind button", has_text="target → target").click()
    settled(page)
    assert {line[5] for line in lines_of(saved(page))[1:]} == {"\t", "t͡s", "bː"}


def test_heads_of_every_kind_can_be_off_and_a_weight_can_be_set(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = open_file(file, hash=f"text={SOURCE}%09{TARGET}&cell=1,2&layer=0&head=0&view=head")
    ready(page, SOURCE, f"\t{TARGET}\n")
    chosen = [("cross", 0, 1), ("encoder", 2, 0), ("decoder", 1, 1)]
    for n, (kind, layer, head) in enumerate(chosen):
        page.locator("#kind button").nth(n).click()
        page.locator("#heads-title", has_text=kind).wait_for()
        page.locator(f'#heads [data-switch="{layer}.{head}"]').click()
    page.locator("#kind button").first.click()
    assert page.locator("#changes-said").inner_text().startswith("cross L0 H1, encoder L2 H0")
    pairs = spread_pairs(
        pair_ids(run.vocabulary, run.stored.excerpt_lines, run.config.block_size), 32
    )
    texts = Texts.of_pairs(pairs, last=0)
    means = {kind: mean_contexts(run.reader, texts, kind) for kind in get_args(AttentionKind)}
    for how in ("zero", "mean"):
        page.locator("#how button", has_text=how).click()
        settled(page)
        off: dict[tuple[str, int, int], Any] = {
            place: 0 if how == "zero" else means[place[0]][place[1:]]  # type: ignore[index]
            for place in chosen
        }
        assert loss_shown(page, 0) == pytest.approx(losses(run, {}), abs=6e-4)
        assert loss_shown(page, 1) == pytest.approx(losses(run, off), abs=6e-4)
    page.locator("#all-on").click()
    page.evaluate("location.hash += '&cell=1,2&layer=0&head=0'")
    page.locator("#weight").evaluate(
        "slider => { slider.value = '0.75'; slider.dispatchEvent(new Event('input')); }"
    )
    page.locator("#loss").wait_for()
    settled(page)
    assert page.locator("#by-hand label").inner_text().startswith("cross L0 H0: target 1 '2'")
    line = [each for each in lines_of(saved(page))[1:] if each[2:5:2] == ["1", "2"]]
    assert float(line[0][-1]) == pytest.approx(0.75)
    page.locator("#kind button").nth(1).click()
    page.locator("#share").check()
    settled(page)
    again = open_file(file, hash=address(page))  # shows the encoder; the row is of the decoder
    again.locator("#loss").wait_for()
    settled(again)
    assert "kind=encoder" in address(again)
    assert "rows=cross.0.0%3A1%3A2%3D0.75" in address(again)
    assert loss_shown(again, 1) == loss_shown(page, 1) != loss_shown(page, 0)
    page.bring_to_front()
    page.locator("#kind button").first.click()
    page.locator("#heads-title", has_text="cross").wait_for()
    page.evaluate("location.hash += '&cell=1,2&layer=0&head=0'")
    page.locator("#row-reset").click()
    page.locator("#loss").wait_for(state="detached")
    page.locator("#pin").click()
    page.locator("#source").fill("2b")
    page.locator("#written td").first.wait_for()
    page.locator("#of button", has_text="A | B").click()
    assert page.locator(".matrix-box").count() == 2


def test_the_map_has_pythons_parts_of_the_logit_of_a_kept_character(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = open_file(file, hash=f"text={SOURCE}%09{TARGET}&layer=0&head=0&view=head")
    ready(page, SOURCE, f"\t{TARGET}\n")
    maps = [run.attn(f"{SOURCE}\t{TARGET}", attention=kind) for kind in ("decoder", "cross")]
    layers = [list(each) for each in zip(*(each.layers for each in maps), strict=True)]
    page.locator("#pair-target .character").nth(2).click()  # the "-" after row 1
    page.locator("#next .term", has_text="1").click()
    settled(page)
    ids = np.full((4, 1), run.vocabulary.encode("1")[0])
    found = contributions(run.reader, layers, ids)
    shown = page.locator("#stream .part").evaluate_all("all => all.map(e => +e.dataset.value)")
    np.testing.assert_allclose(shown, found.values[1, 0], rtol=1e-3, atol=1e-4)
    assert page.locator("#stream strong").inner_text().startswith("logit of '1' = ")


def test_a_seed_writes_the_target_of_sample_and_the_address_restores_the_view(
    open_file: OpenFile, run: TrainedGPT, file: Path
) -> None:
    page = ready(open_file(file), SOURCE, written(run, SOURCE))
    options: dict[str, Any] = {"temperature": 1.5, "top_k": 9, "seed": 7}
    for name, value in options.items():
        page.locator(f"#option-{name}").fill(str(value))
    expected = written(run, SOURCE, **options)
    assert expected != written(run, SOURCE)
    ready(page, SOURCE, expected)
    page.locator("#kind button").nth(1).click()
    page.locator("#heads-title", has_text="encoder").wait_for()
    page.locator("#share").check()
    settled(page)
    again = open_file(file, hash=address(page), width=360, scheme="dark")
    ready(again, SOURCE, expected)
    assert again.locator("#kind [aria-pressed='true']").inner_text() == "source → source"
    assert again.evaluate("document.documentElement.scrollWidth") <= 360


DAMAGE = {
    "the proof of attention": ('"weight_tolerance":', "1e-30", "other numbers"),
    "the proof of logits": ('"tolerance":', "1e-30", "other numbers"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_file_shows_the_reason_and_no_number(
    open_file: OpenFile, file: Path, tmp_path: Path, what: str
) -> None:
    name, value, reason = DAMAGE[what]
    html = file.read_text("utf-8")
    at = html.index(name) + len(name)
    damaged = tmp_path / "damaged.html"
    damaged.write_text(html[:at] + value + html[html.index(",", at) :], "utf-8")
    page = open_file(damaged)
    page.locator("#notice.failed", has_text=reason).wait_for()
    assert page.locator("main").is_hidden()
