"""Lessons as blocks, Markdown and JSON: width, numbers, what is left out, escaping."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from drawn import shown
from rich.cells import cell_len

from gpt.checks import Check
from gpt.lessons.lesson import Lesson, Step, Table, digits_of, name_of
from gpt.view.markdown import markdown_of
from gpt.view.records import to_record
from gpt.view.terminal.lines import Page

WORDS = ("árvíztűrő", "日本語", "👩‍👩‍👧", "e\u0301", "\x1b[31m", "a|b*c", "Donaudampfschifffahrt")
NUMBERS = np.random.default_rng(1).normal(scale=30, size=(len(WORDS), len(WORDS)))


def table_of(**changes: object) -> Table:
    given: dict[str, object] = {"rows": WORDS, "columns": WORDS, **changes}
    return Table("scores", NUMBERS, **given)  # type: ignore[arg-type]


def lesson_of(*tables: Table) -> Lesson:
    step = Step(
        "A title",
        f"Sentences about {' and '.join(WORDS)}, long enough to go on in more than one line.",
        "scores = q · kᵀ / √D    weights = softmax(scores), and more than fits a narrow page",
        tables,
        "What to notice, also over more than one line of a narrow page.",
        (Check("a · b", 1e-9, 1e-7), Check("exact", 0.0, 0.0)),
    )
    about = "What it is about, in a line that a narrow page must break."
    return Lesson("name", about, (step, step))


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_lesson_fits_any_width(width: int, ascii_only: bool) -> None:
    wide = Table("wide", np.tile(NUMBERS, 9), WORDS)
    stack = Table("stack", np.stack((NUMBERS, NUMBERS)), WORDS, WORDS)
    for digits in (0, 4, 9):
        tables = table_of(), table_of(numbered=True), wide, stack, Table("row", NUMBERS[0])
        assert shown(lesson_of(*tables).blocks(digits), Page(width, ascii_only))


@pytest.mark.parametrize("width", [40, 80, None])
def test_folded_table_keeps_every_number(width: int | None) -> None:
    title, *lines = shown(table_of().blocks(), Page(width))
    numbers = re.findall(r"[−]?\d+\.\d{4}", "\n".join(lines))
    assert sorted(numbers) == sorted(digits_of(each, 4) for each in NUMBERS.flat)
    assert title == "scores (7, 7)"
    end = lines.index("") if "" in lines else len(lines)
    assert len({cell_len(line) for line in lines[:end]}) == 1, "aligned whatever the script"


LONG = Table(
    "scores",
    np.arange(900).reshape(30, 30),
    tuple("abc" * 10),
    tuple("abc" * 10),
    numbered=True,
    digits=0,
)


@pytest.mark.parametrize("width", [40, 80, None])
def test_long_table_is_cut_and_names_omitted_rows(width: int | None) -> None:
    lines = shown(LONG.blocks(), Page(width))
    assert "rows 2–24 left out; --full shows all" in lines
    rows = [int(line.split()[0]) for line in lines if re.match(" ?[0-9]+ [abc] ", line)]
    assert rows == [0, 1, *range(25, 30)] * (len(rows) // 7)
    numbers = set(re.findall(r"\d+", "\n".join(lines)))
    assert {"0", "59", "750", "899"} <= numbers
    assert "450" not in numbers


def test_rows_are_left_out_only_if_that_saves_two_lines() -> None:
    for rows in range(2, 16):
        table = Table("t", np.zeros((rows, 2)), digits=0)
        lines, whole = (shown(table.blocks(full=full), Page()) for full in (False, True))
        assert len(whole) == 2 + rows
        assert len(lines) == len(whole) or len(lines) == 2 + 7 + 3 <= len(whole) - 2
        assert (len(lines) < len(whole)) == (rows >= 12)


@pytest.mark.parametrize("width", [40, 80, None])
def test_full_option_shows_every_row_and_column(width: int | None) -> None:
    wide = Table("wide", LONG.values, digits=0)  # columns without names
    for table in (LONG, wide):
        text = "\n".join(shown(table.blocks(full=True), Page(width)))
        assert {str(number) for number in range(900)} <= set(re.findall(r"\d+", text))
        assert "left out" not in text
        assert "first" not in text


def test_only_the_first_unnamed_columns_are_shown() -> None:
    eight, nine = ("\n".join(shown(Table("x", np.ones((1, n))).blocks(2), Page())) for n in (8, 9))
    assert eight.count("1.00") == 8
    assert nine.count("1.00") == 6
    assert nine.startswith("x (1, 9)\nthe first 6 of 9 columns; --full shows all\n")


def test_numbered_rows_show_position_and_character() -> None:
    table = Table("w", np.eye(3), tuple("a a"), tuple("a a"), numbered=True, digits=0, source="W")
    assert shown(table.blocks(), Page()) == [
        "w (3, 3)",
        "from W",
        "",
        "     0 a  1 ␠  2 a",
        "0 a    1    0    0",
        "1 ␠    0    1    0",
        "2 a    0    0    1",
    ]


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.95444, 4, "0.9544"),
        (-0.0739, 4, "−0.0739"),
        (-0.00001, 4, "0.0000"),
        (-0.4, 0, "0"),
        (2, 0, "2"),
        (1_000_003, 0, "1000003"),
        (1_000_003.0, 0, "1.0e+06"),
        (-np.inf, 4, "−∞"),
        (np.inf, 4, "∞"),
        (np.nan, 4, "nan"),
        (-1.5e12, 4, "−1.5e+12"),
    ],
)
def test_numbers_are_formatted_with_the_given_digits(value: float, digits: int, text: str) -> None:
    assert digits_of(value, digits) == text


def test_labels_are_escaped_and_cut() -> None:
    assert name_of(" ") == "␠"
    assert name_of("head 0") == "head 0"
    assert name_of("e\u0301a") == "e\u0301a"
    assert name_of("\x1b[31m") == "␛[31m"
    assert name_of("Donaudampfschifffahrt") == "Donaudamp…"


def test_a_failed_check_is_shown() -> None:
    failing = Step("t", "x", checks=(Check("sum = 1", float("nan"), 1e-7),))
    lesson = Lesson("n", "a", (failing,))
    assert lesson.failed == ["sum = 1"]
    lines = "\n".join(shown(lesson.blocks(), Page()))
    assert "FAILED checks: sum = 1" in lines
    assert "✗ FAILED" in lines
    assert "- ✗ sum = 1 (error nan, allowed 1e-07)" in markdown_of(lesson.blocks())


def test_markdown_has_a_line_per_row_and_escapes_its_signs() -> None:
    text = markdown_of(lesson_of(table_of()).blocks())
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 * (1 + len(WORDS))
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == len(WORDS) + 2
    assert "a\\|b\\*c" in text
    assert "\x1b" not in text
    assert "weights = softmax(scores), and more" in text
    assert text.startswith("## name\n\nWhat it is about")
    assert "### 1. A title\n\nSentences about" in text


def test_lesson_json_has_every_number_and_null_for_infinity() -> None:
    masked = np.where(np.tri(2, dtype=bool), 0.123456789012, -np.inf)
    record = to_record(lesson_of(Table("masked", masked)).records(), {"run": "r"})
    again = json.loads(json.dumps(record, allow_nan=False))
    assert (again["schema"], again["lesson"], again["run"]) == (1, "name", "r")
    table = again["steps"][0]["tables"][0]
    assert table["values"] == [[0.123456789, None], [0.123456789, 0.123456789]]
    assert table["shape"] == [2, 2]
    assert again["steps"][0]["checks"][0]["passed"]
    ids = to_record(lesson_of(Table("ids", np.array([3, 4]))).records(), {})
    assert ids["steps"][0]["tables"][0]["values"] == [3, 4]
