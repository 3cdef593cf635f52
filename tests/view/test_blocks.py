"""Blocks in a terminal and as HTML: the same words and numbers, at any width, safe."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
from drawn import shown

from gpt.blocks import (
    Block,
    Cell,
    Column,
    Curves,
    Facts,
    Fold,
    Legend,
    Line,
    Note,
    Paragraph,
    Passage,
    Table,
    Title,
    format_number,
)
from gpt.view.html import MOST_COLOURED, MOST_ROWS, html_card
from gpt.view.terminal.blocks import lines_of
from gpt.view.terminal.lines import Page, shade

HOSTILE = "a\x1b[31m<script>\u202e\n"
COLUMNS = [Column("name", left=True), Column("share"), Column("bar", bars=True)]
ROWS = [
    [Cell("é ␠"), Cell(".25", 0.25), Cell(".500", 0.5, "gone")],
    [Cell("b"), Cell("–"), Cell("1.000", 1.0)],
]
BLOCKS: list[Block] = [
    Title("a title", ["one fact", "another"]),
    Facts({"model": "2 layers × 4 heads", "empty": "", "long": "word " * 40, "two": ["a b", "c"]}),
    Paragraph("A sentence.", "strong"),
    Passage("some words\nof it", dim=4),
    Table(COLUMNS, ROWS),
    Fold("more", [Note("inside · of it")]),
    Curves([Line("val", [1, 2, 8], [4.0, 2.0, 1.0], True), Line("train", [8], [1.5])], top=2),
    Note("a remark"),
    Legend("a b\n"),
]


class Words(HTMLParser):
    """The words of a page, without its style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(html.partition("</style>")[2])

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def words_of(blocks: list[Block]) -> list[str]:
    """The words of the terminal, without signs that only separate or draw."""
    words = " ".join(shown(blocks, Page())).split()
    return sorted(word for word in words if not re.fullmatch("[·█▏▎▍▌▋▊▉│└─●vt]+", word))


def test_both_renderers_say_the_same_words_and_numbers() -> None:
    html = re.sub("<title>.*?</title>", "", html_card(BLOCKS))  # shown under a mouse
    page = [word.replace("␣", "␠") for word in Words(html).words if word != "·"]
    title = ["a", "title"]
    assert sorted(page[:2]) == ["A", "title"]
    assert sorted(title + page[2:]) == words_of(BLOCKS)


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [20, 40, 80, None])
def test_lines_fit_any_page(width: int | None, ascii_only: bool) -> None:
    lines = shown(BLOCKS, Page(width, ascii_only))
    assert any("\\xe9 \\s" in line for line in lines) == ascii_only


def test_ascii_names_a_control_character_and_not_its_symbol() -> None:
    (line,) = shown([Table([Column()], [[Cell("␛[31m ␇ ␡ ␠ ⏎")]])], Page(ascii_only=True))
    assert line == r"\x1b[31m \x07 \x7f \s \n"


def test_any_text_is_safe() -> None:
    column = Column(HOSTILE, left=True)
    hostile: list[Block] = [
        Title(HOSTILE, [HOSTILE]),
        Facts({HOSTILE: HOSTILE}),
        Paragraph(HOSTILE),
        Passage(HOSTILE, [1.0] * len(HOSTILE), HOSTILE, hints=[HOSTILE] * len(HOSTILE)),
        Table([column], [[Cell(HOSTILE, hint=HOSTILE)]]),
        Fold(HOSTILE, [Note(HOSTILE)]),
        Legend(HOSTILE),
        Curves([Line(HOSTILE, [1], [1.0])], HOSTILE),
    ]
    assert shown(hostile, Page(40))
    page = html_card(hostile)
    assert "<script" not in page
    assert not re.search("[\x1b\u202e]", page)


def test_columns_that_do_not_fit_follow_below_with_the_labels() -> None:
    columns = [Column("name", left=True), *(Column(f"column {n}") for n in range(5))]
    rows = [[Cell("first"), *(Cell(f"{n}.00") for n in range(5))]]
    lines = shown([Table(columns, rows)], Page(30))
    assert [line for line in lines if line.startswith("first")] == [
        "first      0.00      1.00",
        "first      2.00      3.00",
        "first      4.00",
    ]


def test_texts_are_wrapped_if_that_lets_all_columns_fit_and_a_narrow_page_leaves_some_out() -> None:
    columns = [Column("name", left=True), Column("n"), Column("meaning", left=True, least=30)]
    rows = [[Cell("a-name-of-one-word"), Cell("7"), Cell("what it means")]]
    lines = shown([Table(columns, rows)], Page(30))
    assert lines == [
        "name          n  meaning",
        "a-name-of-on  7  what it means",
        "e-word",
    ]
    assert shown([Table(columns, rows)], Page(29))[1:] == ["a-name-of-one-word  7"]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_curves_are_drawn_between_the_ends_of_their_axis(ascii_only: bool) -> None:
    line = Line("val", [100, 200, 400], [9.0, 2.0, 3.0], lowest=True)
    curves = Curves([line, Line("train", [100, 400], [4.0, 2.5])], "step", 4.0)
    assert (curves.last, curves.ends) == (400, (2.0, 4.0))
    assert curves.ticks == {2.0: "2.0", 2.5: "2.5", 3.0: "3.0", 3.5: "3.5", 4.0: "4.0"}
    lines = shown([curves], Page(60, ascii_only))
    rows, rest = lines[:16], lines[16:]
    assert [row[:3] for row in rows if row[0] != " "] == ["4.0", "3.5", "3.0", "2.5", "2.0"]
    mark = "o" if ascii_only else "●"
    assert [(n, row.index(mark)) for n, row in enumerate(rows) if mark in row] == [(15, 32)]
    assert rest[1].split() == ["0", "step", "400"]
    between = " | " if ascii_only else " · "
    assert rest[2:] == [between.join(["val", "train", "above 4.0000 not shown"])]
    page = html_card([curves])
    assert page.count("<polyline") == 2
    assert page.count("<circle") == 4  # that of the value above the axis is left out
    assert "<title>step 200: val 2</title>" in page


def test_ticks_are_round_and_one_value_is_its_own() -> None:
    def ticks(*values: float) -> list[str]:
        return [*Curves([Line("", [*range(len(values))], values)]).ticks.values()]

    assert ticks(1.4754, 1.9708) == ["1.5", "1.6", "1.7", "1.8", "1.9"]
    assert ticks(0, 70_000) == ["0", "20,000", "40,000", "60,000"]
    assert ticks(0.0004, 0.002) == [".0005", ".0010", ".0015", ".0020"]
    assert ticks(2.0, 2.0) == ["2.0000"]


def test_bars_of_several_columns_become_one_if_they_would_be_short() -> None:
    columns = [Column(left=True), Column("one", bars=True), Column("two", bars=True)]
    rows = [[Cell("a"), Cell(".500", 0.5), Cell(".250", 0.25)]]
    assert [line.count("█") for line in shown([Table(columns, rows)], Page(90))] == [0, 24]
    (_, line) = shown([Table(columns, rows)], Page(24))
    assert line.startswith("a  .500 ████")
    assert line.endswith(".250")


TEXT = "ab c\n東é a"
VALUES = [math.nan, 0.2, 1.0, 2.4, 8.0, 12.0, 3.0, 0.0, 30.0]


def test_a_text_has_colours_or_digits() -> None:
    block = Passage(TEXT, VALUES, "bits of surprisal", hints=[f"<{n}" for n in range(9)])
    assert shown([block], Page()) == [
        *("ab c⏎", " 0128", "東é a", "9 309"),
        "digits: bits of surprisal · 9: nine or more",
    ]
    first, _, scale = lines_of([block], Page(coloured=True))
    assert first.plain == "ab c⏎"
    styles = [str(span.style) for span in first.spans]
    assert styles == ["dim", *(str(shade(each / 8)) for each in VALUES[1:5])]
    assert scale.plain.split() == ["bits", "of", "surprisal", *"01234567", "8+"]
    page = html_card([block])
    classes = re.findall(r"<b class=(\w+) title=", page)
    assert classes == ["dim", "s0", "s1", "s2", "s8", "s8", "s3", "s0", "s8"]
    words = Words(page).words
    assert words[-12:] == ["bits", "of", "surprisal", *"01234567", "8+"]
    assert page.count('title="&lt;') == 9


@pytest.mark.parametrize("width", [4, 5, 40])
def test_lines_of_a_text_fit_the_page_and_keep_every_character(width: int) -> None:
    lines = shown([Passage(TEXT, VALUES)], Page(width, coloured=True))
    assert "".join(lines).startswith(TEXT.replace("\n", "⏎"))
    assert shown([Passage(TEXT, dim=2)], Page(40)) == TEXT.split("\n")


def test_a_long_text_is_cut_in_a_page() -> None:
    many = MOST_COLOURED + 1
    page = html_card([Passage("a" * many, [1.0] * many)])
    assert page.count("a" * MOST_COLOURED) == 1
    assert f"the first {MOST_COLOURED:,} of {many:,} characters" in page


def test_shares_and_tones_style_cells() -> None:
    cells = [Cell("a", 0.1), Cell("b", 0.5), Cell("c", 0.9), Cell("d", 0.9, "dim"), Cell("e")]
    (_, line) = lines_of([Table([Column(str(n)) for n in range(5)], [cells])], Page())
    styles = {line.plain[span.start : span.end].strip(): span.style for span in line.spans}
    assert styles == {"a": "dim", "c": "bold", "d": "dim"}
    assert 'style="--v:90%"' in html_card([Table([Column()], [[Cell("c", 0.9)]])])


def test_a_long_table_of_a_page_says_how_many_rows_there_are() -> None:
    rows = [[Cell(str(n))] for n in range(MOST_ROWS + 5)]
    page = html_card([Table([Column()], rows)])
    assert page.count("<tr>") == MOST_ROWS
    assert "the first 100 of 105 rows" in page


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.254, ".25"), (-0.5, "−.50"), (1.0, "1.00"), (math.nan, "–"), (-math.inf, "−inf")],
)
def test_numbers_have_no_leading_zero(value: float, text: str) -> None:
    assert format_number(value) == text
