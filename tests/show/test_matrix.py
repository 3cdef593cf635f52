"""Attention in the terminal: pictures of a known head; any text at any width."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from drawn import random_map
from rich.cells import cell_len

from gpt.heads.attention_map import select_matrices
from gpt.show.matrix import View, draw
from gpt.show.result import Check, Matrix
from gpt.show.terminal import Screen
from gpt.words import escape

TEXTS = {
    "one": "x",
    "newlines": "\n" * 12,
    "markup": "[red]bold[/red] [link=x]",
    "hungarian": "Árvíztűrő tükörfúrógép",
    "japanese": "東京は日本の首都です。大きい都市",
    "hebrew": "שלום עולם",
    "emoji": "👍🏽👨\u200d👩\u200d👧🇭🇺❤\ufe0f hi",
    "controls": "\x1b[31m\r\x00\u202eab\u200be\u0301",
    "long": "abcdefghijklmnopqrstuvwxyz0123456789ABCD",
}
NAN = np.nan
WEIGHTS = [[1, NAN, NAN, NAN], [0.3, 0.7, NAN, NAN], [0.05, 0.9, 0.05, NAN], [0.25] * 4]
KNOWN = Matrix("layer 0 head 0", np.array(WEIGHTS), "hé\n ", range(4), range(4))
CHECKS = (Check("rows sum to 1", 1e-7, 1e-6), Check("the same in float64", 3e-7))
PICTURES: dict[View, str] = {
    "numbers": """\
         0    1    2    3
         h    é    ⏎    ␠
 0 h  1.00                  → 0 h
 1 é   .30  .70             → 1 é
 2 ⏎   .05  .90  .05        → 1 é
 3 ␠   .25  .25  .25  .25   → 0 h
""",
    "heat": """\
     0
     h é ⏎ ␠
 0 h @@
 1 é --##
 2 ⏎   @@
 3 ␠ ::::::::

.00  .:-=+*#%@ 1.00
""",
    "top": """\
 0 h  ← 0 h 1.00
 1 é  ← 1 é .70 · 0 h .30
 2 ⏎  ← 1 é .90 · 0 h .05 · rest .05
 3 ␠  ← 0 h .25 · 1 é .25 · rest .50
""",
    "heads": """\
layer 0 head 0  layer 0 head 0
@               @
-#              -#
 @               @
::::            ::::
""",
}


def picture(view: View, screen: Screen, count: int = 1, digits: int = 2) -> str:
    titles, options = ["title"] * count, {"across": 2, "digits": digits, "top": 2}
    return draw([KNOWN] * count, titles, ["remark"], CHECKS, screen, view=view, **options)


@pytest.mark.parametrize("view", PICTURES)
def test_each_view_of_a_known_head(view: View) -> None:
    drawn = picture(view, Screen(), 2 if view == "heads" else 1)
    remark = "remark · ␠ space · ⏎ newline · rows sum to 1, the same in float64 ±3e-7 ✓"
    assert drawn == f"title\n\n{PICTURES[view]}\n{remark}\n"


def test_ascii_and_digits() -> None:
    lines = picture("numbers", Screen(ascii=True), digits=1).splitlines()
    assert lines[2:5] == [
        "            0    1    2    3",
        "            h \\xe9   \\n   \\s",
        " 0 h      1.0                  -> 0 h",
    ]
    assert lines[-1].endswith("rows sum to 1, the same in float64 +-3e-7 ok")


def test_columns_that_do_not_fit_follow_below_with_the_labels() -> None:
    lines = picture("numbers", Screen(16)).splitlines()
    assert lines[2:8] == [
        "         0    1",
        "         h    é",
        " 0 h  1.00",
        " 1 é   .30  .70",
        " 2 ⏎   .05  .90",
        " 3 ␠   .25  .25",
    ]


def test_a_map_without_room_for_two_cells_a_column_has_one() -> None:
    assert picture("heat", Screen(13)).splitlines()[3] == "     h é ⏎ ␠"
    assert picture("heat", Screen(12)).splitlines()[2:8] == [
        "     0",
        "     hé⏎␠",
        " 0 h @",
        " 1 é -#",
        " 2 ⏎  @",
        " 3 ␠ ::::",
    ]


@pytest.mark.parametrize("view", get_args(View))
@pytest.mark.parametrize("text", TEXTS)
def test_any_text_fits_and_controls_nothing(text: str, view: View) -> None:
    attention = random_map(TEXTS[text])
    for width, ascii_only in ((40, True), (42, False), (80, True), (None, False)):
        for stage in ("masked", "weights", "context", "proj"):
            selection = select_matrices(attention, "1", "all", stage, key="0:")  # type: ignore[arg-type]
            drawn = selection.draw(Screen(width, ascii_only), view, digits=2, top=3)
            assert drawn.isascii() or not ascii_only
            for line in drawn.splitlines():
                assert escape(line) == line
                assert width is None or view == "top" or cell_len(line) <= width
