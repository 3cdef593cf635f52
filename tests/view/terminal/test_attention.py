"""Attention in the terminal: exact output of a known head; any text at any width."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
from rich.console import Console

from gpt.checks import Check
from gpt.config import Drawing, ModelConfig
from gpt.heads.attention_map import AttentionMap, inspect
from gpt.reading.gpt import Reader, Stages
from gpt.storage.checkpoint import Checkpoint
from gpt.trained import TrainedGPT
from gpt.view.selection import select
from gpt.view.terminal.attention import overview, render
from gpt.view.terminal.lines import GLYPHS, Page, checks
from gpt.view.terminal.matrix import heat, numbers, top
from gpt.vocabulary import Vocabulary

PLAIN = "abcdefghijklmnopqrstuvwxyz0123456789ABCD"  # each label is one cell wide
TEXTS = {
    "one": "x",
    "newlines": "\n" * 12,
    "markup": "[red]bold[/red] [link=x]",
    "hungarian": "Árvíztűrő tükörfúrógép",
    "japanese": "東京は日本の首都です。大きい都市",
    "emoji": "👍🏽👨\u200d👩\u200d👧🇭🇺❤\ufe0f hi",
    "controls": "\x1b[31m\r\x00\u202eab\u200be\u0301",
}
WEIGHTS = [[[1, 0, 0, 0], [0.3, 0.7, 0, 0], [0.05, 0.9, 0.05, 0], [0.25] * 4], np.eye(4)]


@cache
def map_of(text: str) -> AttentionMap:
    """Two layers of two strong random heads for any text."""
    vocabulary = Vocabulary.from_text(text)
    shape: dict[str, Any] = {"block_size": 64, "n_layer": 2, "n_head": 2, "n_embd": 8}
    config = ModelConfig(vocab_size=len(vocabulary), **shape)
    random = np.random.default_rng(1)
    tensors = {
        name: (2 * random.normal(size=shape)).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    return inspect(Reader(config, tensors), text, vocabulary.encode(text))


@pytest.fixture
def known() -> AttentionMap:
    """One layer of two heads with the weights WEIGHTS on four characters."""
    weights = np.array(WEIGHTS, np.float32)
    scores = np.log(np.maximum(weights, 1e-9))
    masked = np.where(np.tri(4, dtype=bool), scores, -np.inf)
    none, layer = np.zeros((2, 4, 2)), np.zeros((4, 4))
    stages = Stages(
        *(layer, none, none, none, scores, scores, masked, weights, none),
        *(layer, layer, layer, layer),
    )
    passed = (Check("rows sum to 1", 1e-7, 1e-6), Check("above the diagonal exactly 0", 0, 0))
    return AttentionMap("hé\n ", np.arange(4), (stages,), passed)


def drawn(attention: AttentionMap, view: Drawing, page: Page, **options: Any) -> list[str]:
    lines = render(select(attention, **options), view, page)
    return [line.plain for line in lines]


BODIES: dict[Drawing, str] = {
    "heat": """
      0
      h é ⏎ ␠
  0 h @@
  1 é --**
  2 ⏎   %%
  3 ␠ ::::::::""",
    "top": """
0 'h' ← 0 'h' 1.00
1 'é' ← 1 'é' .70 · 0 'h' .30
2 '⏎' ← 1 'é' .90 · 0 'h' .05 · rest .05
3 '␠' ← 0 'h' .25 · 1 'é' .25 · rest .50""",
    "heads": """
layer 0 head 0  layer 0 head 1
@               @
-*               @
 %                @
::::               @""",
}


def test_table_of_a_known_head(known: AttentionMap) -> None:
    expected = """\
layer 0 head 0 · weights · rows = query, columns = key · T=4 · head_size=2

          0    1    2    3
          h    é    ⏎    ␠
  0 h  1.00                 → 0 'h'
  1 é   .30  .70            → 1 'é'
  2 ⏎   .05  .90  .05       → 1 'é'
  3 ␠   .25  .25  .25  .25  → 0 'h'

␠ space · ⏎ newline
checks: rows sum to 1 ±1e-07 · above the diagonal exactly 0 ✓"""
    assert "\n".join(drawn(known, "numbers", Page())) == expected


def test_a_weight_that_is_not_a_number_is_shown_as_nan(known: AttentionMap) -> None:
    weights = np.where(np.eye(4, dtype=bool), np.nan, known.layers[0].weights)
    broken = replace(known, layers=(replace(known.layers[0], weights=weights),))
    assert " nan" in drawn(broken, "numbers", Page())[4]


@pytest.mark.parametrize("view", BODIES)
def test_each_view_of_a_known_head(known: AttentionMap, view: Drawing) -> None:
    lines = drawn(known, view, Page(top=2), head="all" if view == "heads" else "0")
    body = "\n".join(line.rstrip() for line in lines[1:])
    assert body.partition("\n\n")[0] == BODIES[view]


def test_selected_part_of_a_known_head(known: AttentionMap) -> None:
    assert drawn(known, "numbers", Page(), key="1:3")[2:8] == [
        "         1   2",
        "         é   ⏎",
        "  0 h",
        "  1 é  .70      → 1 'é'",
        "  2 ⏎  .90 .05  → 1 'é'",
        "  3 ␠  .25 .25  → 1 'é'",
    ]


def test_ascii_output_of_a_known_head(known: AttentionMap) -> None:
    page = Page(ascii_only=True, precision=1)
    assert drawn(known, "numbers", page, stage="masked", query="1:3")[2:] == [
        "             0    1    2    3",
        "             h \\xe9   \\n   \\s",
        "  1 \\xe9  -1.2  -.4 -inf -inf",
        "  2 \\n    -3.0  -.1 -3.0 -inf",
        "",
        "\\s space | \\n newline",
        "checks: rows sum to 1 +-1e-07 | above the diagonal exactly 0 ok",
    ]


@pytest.mark.parametrize("view", get_args(Drawing))
@pytest.mark.parametrize("text", TEXTS)
def test_lines_fit_the_page_and_are_printable(text: str, view: Drawing) -> None:
    attention = map_of(TEXTS[text])
    for stage in ("masked", "weights", "context", "proj"):
        for width in (40, 80, None):
            for ascii_only in (False, True):
                for line in render(
                    select(attention, layer="1", head="all", stage=stage),
                    view,
                    Page(width, ascii_only, scale="row" if width == 80 else "fixed"),
                ):
                    assert width is None or line.cell_len <= width
                    assert line.plain.isprintable()
                    assert line.plain.isascii() or not ascii_only


@pytest.mark.parametrize("view", ["numbers", "top", "heads"])
def test_long_text_fits_the_page(view: Drawing) -> None:
    attention = map_of(PLAIN)
    for stage in ("scores", "weights", "context"):
        for width in (40, 80):
            selection = select(attention, layer="all", head="all", stage=stage)
            for line in render(selection, view, Page(width)):
                assert line.cell_len <= width


def test_later_keys_are_blank_in_weights_infinite_in_masked_and_shown_in_scores() -> None:
    attention = map_of("abcdefgh")
    values = attention.stage("weights", 0, 0)
    for stage, finite, infinite in (("weights", 0, 0), ("masked", 0, 1), ("scores", 1, 0)):
        lines = drawn(attention, "numbers", Page(precision=9), stage=stage)[4:12]
        for query, line in enumerate(lines):
            index, name, *cells = re.sub(" +→.*", "", line).split()
            assert (index, name) == (str(query), "abcdefgh"[query])
            later = 7 - query
            assert len(cells) == query + 1 + later * (finite + infinite)
            assert cells[query + 1 :] == ["−inf"] * (later * infinite) or stage == "scores"
            if stage == "weights":
                assert [float(cell) for cell in cells] == pytest.approx(
                    values[query, : query + 1].tolist(), abs=1e-9
                )


def test_wide_tables_continue_below_with_row_labels() -> None:
    lines = drawn(map_of(PLAIN), "numbers", Page(width=60))[:-1]
    starts = [
        number for number, line in enumerate(lines) if re.fullmatch(r" {9,}\d+( +\d+)*", line)
    ]
    blocks = [lines[start : start + 42] for start in starts if lines[start - 1] == ""]
    positions = [int(position) for block in blocks for position in block[0].split()]
    assert len(blocks) > 1
    assert positions == list(range(40))
    assert [name for block in blocks for name in block[1].split()] == list(PLAIN)
    for query, character in enumerate(PLAIN):
        rows = [re.sub(" +→.*", "", block[2 + query]) for block in blocks]
        assert all(row.split()[:2] == [str(query), character] for row in rows)
        assert sum(len(row.split()) - 2 for row in rows) == query + 1


def test_heat_grows_with_the_value_and_is_blank_for_later_keys() -> None:
    attention = map_of(PLAIN[:30])
    selection = select(attention)
    (panel,) = selection.panels()
    fixed, by_row = (
        [line.plain[7:] for line in heat(panel, Page(80, scale=scale))[2:]]
        for scale in ("fixed", "row")
    )
    for query, values in enumerate(panel.values):
        glyphs = fixed[query].ljust(60)
        assert glyphs[::2] == glyphs[1::2]  # two cells a key
        for key, value in enumerate(values):
            expected = GLYPHS[min(9, int(float(value) * 10))] if key <= query else " "
            assert glyphs[2 * key] == expected
        assert by_row[query][2 * int(values.argmax())] == "@"


def test_top_names_the_strongest_keys_in_order_and_the_rest() -> None:
    attention = map_of(PLAIN)
    selection = select(attention, query="5:", key="2:30")
    (panel,) = selection.panels()
    lines = top(panel, Page(precision=9))
    for query, line in zip(selection.queries, lines, strict=True):
        head, *items = re.split(" ← | · ", line.plain)
        assert head == f"{query:>2} '{PLAIN[query]}'"
        allowed = attention.stage("weights", 0, 0)[query, 2 : min(query + 1, 30)]
        order = np.argsort(-allowed, kind="stable")[:3]
        named = [(int(item.split()[0]), item.split()[1][1]) for item in items[:3]]
        assert named == [(key + 2, PLAIN[key + 2]) for key in order]
        shown = [float(item.split()[-1].replace("−", "-")) for item in items]
        assert shown[:3] == pytest.approx(allowed[order].tolist(), abs=1e-8)
        assert sum(shown) == pytest.approx(float(allowed.sum()), abs=1e-6)


def test_overview_shows_every_head_with_maxima_of_cell_areas() -> None:
    attention = map_of(PLAIN)
    selection = select(attention, layer="all", head="all")
    panels = selection.panels()
    lines = [line.plain for line in overview(selection, Page())]
    titles = [title for line in lines for title in re.findall(r"layer \d head \d", line)]
    assert titles == ["layer 0 head 0", "layer 0 head 1", "layer 1 head 0", "layer 1 head 1"]
    picture = [line[:20].ljust(20) for line in lines[3:23]]
    covered = panels[0].values.reshape(20, 2, 20, 2).max(axis=(1, 3))
    expected = [
        "".join(GLYPHS[min(9, int(float(value) * 10))] for value in row[: number + 1]).ljust(20)
        for number, row in enumerate(covered)
    ]
    assert picture == expected


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abcdefgh", 80, "numbers"),
        (PLAIN, None, "numbers"),
        (PLAIN[:30], 80, "heat"),
        (PLAIN, 40, "top"),
    ],
)
def test_auto_view_is_numbers_then_heat_then_strongest_as_space_allows(
    text: str, width: int | None, expected: Drawing
) -> None:
    attention = map_of(text)
    assert drawn(attention, "auto", Page(width)) == drawn(attention, expected, Page(width))


def test_labels_are_never_interpreted_as_markup() -> None:
    attention, shown = map_of("[red]x[/]"), io.StringIO()
    console = Console(file=shown, width=200, force_terminal=False)
    for line in numbers(select(attention).panels()[0], Page()):
        console.print(line)
    assert shown.getvalue().splitlines()[1].split() == list("[red]x[/]")


def test_a_failed_check_shows_its_error_and_bound() -> None:
    results = (Check("a", 2e-5, 1e-6), Check("b", 0.0, 0.0), Check("c", 1e-7, 1e-6))
    (line,) = checks(results, Page())
    assert line.plain == "checks: a (error 2e-05, allowed 1e-06) · b · c ±1e-07 ✗ FAILED"
    (line,) = checks((Check("x exactly 0", 3e-2, 0.0),), Page())
    assert line.plain == "checks: x exactly 0 (error 0.03, allowed 0) ✗ FAILED"
    assert "red" in str(line.style)
    (line,) = checks(results[1:], Page())
    assert line.plain == "checks: b · c ±1e-07 ✓"


@pytest.mark.parametrize("view", ["heat", "auto"])
@pytest.mark.parametrize("width", [40, 42, 80])
def test_long_heat_map_fits_the_page_with_its_ruler(view: Drawing, width: int) -> None:
    attention = map_of(PLAIN)
    for line in render(select(attention, key="3:"), view, Page(width)):
        assert line.cell_len <= width, line.plain


@pytest.mark.parametrize("view", ["heat", "heads", "auto", "top"])
def test_fully_masked_selection_is_drawn(view: Drawing) -> None:
    assert drawn(map_of(PLAIN), view, Page(40), stage="masked", query="0:2", key="3:")


def test_ascii_output_with_many_digits_has_no_negative_rest() -> None:
    for line in drawn(map_of("👍" * 12), "top", Page(40, ascii_only=True, precision=9)):
        assert line.isascii()
    for text in (PLAIN, PLAIN[:7], PLAIN[:20]):
        lines = drawn(map_of(text), "top", Page(), layer="all", head="all")
        assert not any("rest −" in line for line in lines)


@pytest.mark.parametrize("view", ["heat", "heads"])
def test_zero_weight_is_shown_as_a_cell(view: Drawing) -> None:
    attention = map_of("abcdefgh")
    lines = render(select(attention), view, Page(80))
    cells = [sum("on" in str(span.style) for span in line.spans) for line in lines]
    assert [count for count in cells if count] == list(range(1, 9))


def test_dimensions_are_ranked_by_their_size_and_keys_by_their_value() -> None:
    attention = map_of("to be or not")
    shown = {
        stage: drawn(attention, "top", Page(top=2), stage=stage) for stage in ("context", "scaled")
    }
    negative = 0
    for line, row in zip(shown["context"][2:], attention.layers[0].context[0], strict=False):
        ranked = np.argsort(-np.abs(row), kind="stable")[:2]
        assert [int(number) for number in re.findall(r"[←·] (\d+) ", line)] == ranked.tolist()
        negative += (row[ranked] < 0).sum()
    assert negative
    scaled = attention.layers[0].scaled[0, 3]
    keys = [int(number) for number in re.findall(r"[←·] (\d+) '", shown["scaled"][2 + 3])]
    assert keys == np.argsort(-scaled, kind="stable")[:2].tolist()


def test_overview_explains_its_cells() -> None:
    attention = map_of("to be or not to be that is the question")
    assert "a cell = the largest of 2 × 2" in drawn(attention, "heads", Page())[0]
    assert "a cell" not in drawn(map_of("to be"), "heads", Page())[0]
    signed = drawn(map_of("to be"), "heads", Page(), stage="scores")[0]
    assert signed.endswith("each from its least to its largest")
    assert drawn(map_of("to be"), "heads", Page())[0].endswith("scale 0–1")
    by_row = drawn(map_of("to be"), "heads", Page(scale="row"))[0]
    assert by_row.endswith("scale: each row's largest = full")


def test_faint_heat_map_suggests_another_scale() -> None:
    even = np.tri(40) / np.arange(1, 41)[:, None]
    attention = map_of("x" * 40)
    layer = replace(attention.layers[0], weights=np.stack([even, np.eye(40)]))
    attention = replace(attention, layers=(layer,))
    assert "faint: --scale row shows more" in drawn(attention, "heat", Page())[0]
    assert "faint" not in drawn(attention, "heat", Page(), head="1")[0]
    assert "faint" not in drawn(attention, "heat", Page(scale="row"))[0]


def test_all_checks_of_a_trained_model_fit_four_lines(tiny: Checkpoint) -> None:
    found = TrainedGPT(tiny.model()).attention("the cat")
    assert all(check.passed for check in found.checks)
    assert len(checks(found.checks, Page(width=80))) == 4
