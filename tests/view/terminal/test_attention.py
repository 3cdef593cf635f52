"""Attention in the terminal: exact output of a known head; any text at any width."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from drawn import drawn, random_map

from gpt.checks import Check
from gpt.config import View
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Stages
from gpt.view.selection import select
from gpt.view.terminal.attention import heat, overview, render, strongest_keys
from gpt.view.terminal.lines import GLYPHS, Page, check_lines

PLAIN = "abcdefghijklmnopqrstuvwxyz0123456789ABCD"  # each label is one cell wide
TEXTS = {
    "one": "x",
    "newlines": "\n" * 12,
    "markup": "[red]bold[/red] [link=x]",
    "hungarian": "Árvíztűrő tükörfúrógép",
    "japanese": "東京は日本の首都です。大きい都市",
    "emoji": "👍🏽👨\u200d👩\u200d👧🇭🇺❤\ufe0f hi",
    "controls": "\x1b[31m\r\x00\u202eab\u200be\u0301",
    "long": PLAIN,
}
WEIGHTS = [[[1, 0, 0, 0], [0.3, 0.7, 0, 0], [0.05, 0.9, 0.05, 0], [0.25] * 4], np.eye(4)]


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
    passed = (Check("rows sum to 1", 1e-7, 1e-6), Check("above the diagonal exactly 0", 0, 0, True))
    return AttentionMap(
        "hé\n ", np.arange(4), (stages,), passed, rounding=dict.fromkeys(vars(stages), 3e-7)
    )


def shown(attention: AttentionMap, view: View, page: Page, **options: Any) -> list[str]:
    return drawn(render(select(attention, **options), view, page), page)


BODIES: dict[View, str] = {
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
checks: rows sum to 1 ±1e-7 · the same in float64 ±3e-7 · above the diagonal exactly 0 ✓"""
    assert "\n".join(shown(known, "numbers", Page())) == expected


def test_a_weight_that_is_not_a_number_is_shown_as_nan(known: AttentionMap) -> None:
    weights = np.where(np.eye(4, dtype=bool), np.nan, known.layers[0].weights)
    broken = replace(known, layers=(replace(known.layers[0], weights=weights),))
    assert " nan" in shown(broken, "numbers", Page())[4]


@pytest.mark.parametrize("view", BODIES)
def test_each_view_of_a_known_head(known: AttentionMap, view: View) -> None:
    lines = shown(known, view, Page(top=2), head="all" if view == "heads" else "0")
    body = "\n".join(line.rstrip() for line in lines[1:])
    assert body.partition("\n\n")[0] == BODIES[view]


def test_selected_part_of_a_known_head(known: AttentionMap) -> None:
    assert shown(known, "numbers", Page(), key="1:3")[2:8] == [
        "         1   2",
        "         é   ⏎",
        "  0 h",
        "  1 é  .70      → 1 'é'",
        "  2 ⏎  .90 .05  → 1 'é'",
        "  3 ␠  .25 .25  → 1 'é'",
    ]


def test_ascii_output_of_a_known_head(known: AttentionMap) -> None:
    page = Page(ascii_only=True, precision=1)
    assert shown(known, "numbers", page, stage="masked", query="1:3")[2:] == [
        "             0    1    2    3",
        "             h \\xe9   \\n   \\s",
        "  1 \\xe9  -1.2  -.4 -inf -inf",
        "  2 \\n    -3.0  -.1 -3.0 -inf",
        "",
        "\\s space | \\n newline",
        "checks: rows sum to 1 +-1e-7 | the same in float64 +-3e-7 | above the diagonal exactly 0"
        " ok",
    ]


@pytest.mark.parametrize("view", get_args(View))
@pytest.mark.parametrize("text", TEXTS)
def test_lines_fit_the_page_and_are_printable(text: str, view: View) -> None:
    attention = random_map(TEXTS[text])
    key = f"{min(3, len(attention.text) - 1)}:"  # masks all keys of the first rows
    for width, ascii_only in ((40, True), (42, False), (80, True), (None, False)):
        page = Page(width, ascii_only)
        for stage in ("masked", "weights", "context", "proj"):
            lines = shown(attention, view, page, layer="1", head="all", stage=stage, key=key)
            assert lines
            assert "".join(lines).isprintable()


def test_a_sum_of_rests_is_not_negative() -> None:
    for text in (PLAIN, PLAIN[:7], PLAIN[:20]):
        lines = shown(random_map(text), "top", Page(), layer="all", head="all")
        assert not any("rest −" in line for line in lines)


def test_wide_tables_continue_below_with_row_labels() -> None:
    lines = shown(random_map(PLAIN), "numbers", Page(width=60))[:-1]
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
    attention = random_map(PLAIN[:30])
    selection = select(attention)
    (panel,) = selection.panels()
    lines = [line.plain[7:] for line in heat(panel, Page(80))[2:]]
    for query, values in enumerate(panel.values):
        glyphs = lines[query].ljust(60)
        assert glyphs[::2] == glyphs[1::2]  # two cells a key
        for key, value in enumerate(values):
            expected = GLYPHS[min(9, int(float(value) * 10))] if key <= query else " "
            assert glyphs[2 * key] == expected


def test_top_names_the_strongest_keys_in_order_and_the_rest() -> None:
    attention = random_map(PLAIN)
    selection = select(attention, query="5:", key="2:30")
    (panel,) = selection.panels()
    lines = strongest_keys(panel, Page(precision=9))
    for query, line in zip(selection.queries, lines, strict=True):
        head, *items = re.split(" ← | · ", line.plain)
        assert head == f"{query:>2} '{PLAIN[query]}'"
        allowed = attention["weights", 0, 0][query, 2 : min(query + 1, 30)]
        order = np.argsort(-allowed, kind="stable")[:3]
        named = [(int(item.split()[0]), item.split()[1][1]) for item in items[:3]]
        assert named == [(key + 2, PLAIN[key + 2]) for key in order]
        weights = [float(item.split()[-1].replace("−", "-")) for item in items]
        assert weights[:3] == pytest.approx(allowed[order].tolist(), abs=1e-8)
        assert sum(weights) == pytest.approx(float(allowed.sum()), abs=1e-6)


def test_overview_shows_every_head_with_maxima_of_cell_areas() -> None:
    attention = random_map(PLAIN)
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
    text: str, width: int | None, expected: View
) -> None:
    attention = random_map(text)
    assert shown(attention, "auto", Page(width)) == shown(attention, expected, Page(width))


def test_a_failed_check_shows_its_error_and_bound() -> None:
    results = (Check("a", 2e-5, 1e-6), Check("b", 0.0, 0.0), Check("c", 1e-7, 1e-6))
    (line,) = check_lines(results, Page())
    assert line.plain == "checks: a (error 2e-5, allowed 1e-6) · b · c ±1e-7 ✗ FAILED"
    (line,) = check_lines((Check("x exactly 0", 3e-2, 0.0),), Page())
    assert line.plain == "checks: x exactly 0 (error 0.03, allowed 0) ✗ FAILED"
    assert "red" in str(line.style)
    (line,) = check_lines(results[1:], Page())
    assert line.plain == "checks: b · c ±1e-7 ✓"


@pytest.mark.parametrize("view", ["heat", "heads"])
def test_zero_weight_is_shown_as_a_cell(view: View) -> None:
    attention = random_map("abcdefgh")
    lines = render(select(attention), view, Page(80))
    lines = [line for line in lines if not line.plain.startswith("shades")]
    cells = [sum("on" in str(span.style) for span in line.spans) for line in lines]
    assert [count for count in cells if count] == list(range(1, 9))


def test_dimensions_are_ranked_by_their_size_and_keys_by_their_value() -> None:
    attention = random_map("to be or not")
    context, scores = (
        shown(attention, "top", Page(top=2), stage=stage) for stage in ("context", "scaled")
    )
    negative = 0
    for line, row in zip(context[2:], attention.layers[0].context[0], strict=False):
        ranked = np.argsort(-np.abs(row), kind="stable")[:2]
        assert [int(number) for number in re.findall(r"[←·] (\d+) ", line)] == ranked.tolist()
        negative += (row[ranked] < 0).sum()
    assert negative
    scaled = attention.layers[0].scaled[0, 3]
    keys = [int(number) for number in re.findall(r"[←·] (\d+) '", scores[2 + 3])]
    assert keys == np.argsort(-scaled, kind="stable")[:2].tolist()


def test_overview_explains_its_cells() -> None:
    attention = random_map("to be or not to be that is the question")
    assert "a cell = the largest of 2 × 2" in shown(attention, "heads", Page())[0]
    assert "a cell" not in shown(random_map("to be"), "heads", Page())[0]
    signed = shown(random_map("to be"), "heads", Page(), stage="scores")[0]
    assert signed.endswith("each from its least to its largest")
    assert shown(random_map("to be"), "heads", Page())[0].endswith("scale 0–1")


def test_heat_names_its_shades_and_numbers_mark_the_largest_weight(known: AttentionMap) -> None:
    assert "shades: .00  .:-=+*#%@ 1.00" in shown(known, "heat", Page())
    assert not any("shades" in line for line in shown(known, "heat", Page(20)))
    rows = render(select(known), "numbers", Page())[4:8]
    bold = [[each for each in row.spans if str(each.style) == "bold"] for row in rows]
    marked = [row.plain[each.start : each.end] for row, (each,) in zip(rows, bold, strict=True)]
    assert marked == ["1.00", ".70", ".90", ".25"]


def test_checks_that_passed_are_a_short_line_unless_the_page_names_them(
    known: AttentionMap,
) -> None:
    short = "rows sum to 1, the same in float64 ±3e-7 ✓"
    assert shown(known, "heat", Page(checks=False))[-1] == short
    failed = replace(known, checks=(*known.checks, Check("wrong", 1.0, 0.5)))
    assert any("wrong (error 1" in line for line in shown(failed, "heat", Page(checks=False)))
