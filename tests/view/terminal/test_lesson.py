"""Lessons in the terminal and in files: width, numbers, escaping."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from drawn import drawn
from rich.cells import cell_len

from gpt.checks import Check
from gpt.explain.lesson import Lesson, Step, Table
from gpt.view.files.lessons import lesson_record, lessons_markdown
from gpt.view.terminal.lesson import digits_of, lesson_lines, list_lines, name_of, table_lines
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
    for precision in (0, 4, 9):
        page = Page(width, ascii_only, precision)
        tables = table_of(), table_of(numbered=True), wide, stack, Table("row", NUMBERS[0])
        drawn(lesson_lines(lesson_of(*tables), page), page)


@pytest.mark.parametrize("width", [40, 80, None])
def test_folded_table_keeps_every_number(width: int | None) -> None:
    text = "\n".join(line.plain for line in table_lines(table_of(), Page(width, precision=4)))
    numbers = re.findall(r"[−]?\d+\.\d{4}", text)
    assert sorted(numbers) == sorted(digits_of(each, 4) for each in NUMBERS.flat)
    title, *lines = text.split("\n")
    assert title == "scores (7, 7)"
    blank = [number for number, line in enumerate(lines) if not line]
    first = lines[: blank[0]] if blank else lines
    columns = {cell_len(line) for line in first}
    assert len(columns) == 1, "aligned whatever the script"


LONG = Table(
    "scores",
    np.arange(900).reshape(30, 30),
    tuple("abc" * 10),
    tuple("abc" * 10),
    numbered=True,
    digits=0,
)


@pytest.mark.parametrize("width", [40, 80, None])
def test_long_table_is_cut_and_names_omitted_rows_and_columns(
    width: int | None,
) -> None:
    lines = drawn(table_lines(LONG, Page(width)), Page(width))
    assert len(lines) <= 14
    shown = set(re.findall(r"\d+", " ".join(lines[3:])))
    assert {"0", "1", "899", "869", "779"} <= shown, "the first rows and the last ones"
    assert "450" not in shown
    assert "  … rows 2–24 left out; --full shows all" in lines
    title = " ".join(lines[:2])
    if width is None:
        assert "left out" not in title
    else:
        first, last = map(int, re.findall(r"columns (\d+)–(\d+) left out", title)[0])
        counted = next(line for line in lines if "…" in line).split()
        assert counted[first] == "…"
        numbers = [int(each) for each in counted if each != "…"]
        assert numbers == [each for each in range(30) if not first <= each <= last]
    in_ascii = Page(width, ascii_only=True)
    drawn(table_lines(LONG, in_ascii), in_ascii)


@pytest.mark.parametrize("width", [12, 30, 80, None])
def test_rows_are_left_out_only_if_that_saves_two_lines(width: int | None) -> None:
    for rows in range(2, 16):
        table = Table("t", np.zeros((rows, 2)), digits=0)
        cut, whole = (len(table_lines(table, Page(width), full)) for full in (False, True))
        assert whole - cut != 1
        assert cut <= whole
        assert cut < whole or rows < 12 or width == 12


@pytest.mark.parametrize("width", [40, 80, None])
def test_full_option_shows_every_row_and_column(width: int | None) -> None:
    wide = Table("wide", LONG.values, digits=0)  # columns without names
    for table in (LONG, wide):
        text = "\n".join(drawn(table_lines(table, Page(width), full=True), Page(width)))
        assert {str(number) for number in range(900)} <= set(re.findall(r"\d+", text))
        assert "left out" not in text
        assert "first" not in text


def test_only_the_first_unnamed_columns_are_shown() -> None:
    eight = "".join(f"{line.plain}\n" for line in table_lines(Table("x", np.ones((1, 8))), Page()))
    nine = "".join(f"{line.plain}\n" for line in table_lines(Table("x", np.ones((1, 9))), Page()))
    assert eight.count("1.00") == 8
    assert nine.count("1.00") == 6
    assert nine.startswith("x (1, 9), first 6 columns\n")


def test_numbered_rows_show_position_and_character() -> None:
    table = Table("w", np.eye(3), tuple("a a"), tuple("a a"), numbered=True, digits=0, source="W")
    lines = [line.plain for line in table_lines(table, Page())]
    assert lines == [
        "w (3, 3)",
        "from W",
        "       0  1  2",
        "       a  ␠  a",
        "  0 a  1  0  0",
        "  1 ␠  0  1  0",
        "  2 a  0  0  1",
    ]


@pytest.mark.parametrize(
    ("value", "digits", "text", "in_ascii"),
    [
        (0.95444, 4, "0.9544", "0.9544"),
        (-0.0739, 4, "−0.0739", "-0.0739"),
        (-0.00001, 4, "0.0000", "0.0000"),
        (-0.4, 0, "0", "0"),
        (2, 0, "2", "2"),
        (1_000_003, 0, "1000003", "1000003"),
        (1_000_003.0, 0, "1.0e+06", "1.0e+06"),
        (-np.inf, 4, "−∞", "-inf"),
        (np.inf, 4, "∞", "inf"),
        (np.nan, 4, "nan", "nan"),
        (-1.5e12, 4, "−1.5e+12", "-1.5e+12"),
    ],
)
def test_numbers_are_formatted_with_the_given_digits(
    value: float, digits: int, text: str, in_ascii: str
) -> None:
    assert digits_of(value, digits) == text
    assert digits_of(value, digits, ascii_only=True) == in_ascii


def test_labels_are_escaped_and_cut() -> None:
    assert name_of(" ", False) == "␠"
    assert name_of("head 0", False) == "head 0"
    assert name_of("e\u0301a", False) == "e\u0301a"
    assert name_of("\x1b[31m", False) == "␛[31m"
    assert name_of("Donaudampfschifffahrt", False) == "Donaudamp…"
    assert name_of("Donaudampfschifffahrt", True) == "Donaudamp~"
    assert "\x1b" not in "".join(each.plain for each in lesson_lines(lesson_of(), Page(80)))


def test_list_of_lessons_wraps_beside_the_names() -> None:
    lines = list_lines({"a": "one two three four five", "longer": "six"}, Page(20))
    assert [each.plain for each in lines] == [
        "a       one two",
        "        three four",
        "        five",
        "longer  six",
    ]


def test_a_failed_check_is_shown() -> None:
    failing = Step("t", "x", checks=(Check("sum = 1", float("nan"), 1e-7),))
    lesson = Lesson("n", "a", (failing,))
    assert lesson.failed == ["sum = 1"]
    assert "✗ FAILED" in "".join(each.plain for each in lesson_lines(lesson, Page()))
    assert "- ✗ sum = 1 (error nan, allowed 1e-07)" in lessons_markdown([lesson])


def test_markdown_has_a_line_per_row_and_escapes_its_signs() -> None:
    text = lessons_markdown([lesson_of(table_of())])
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 * (1 + len(WORDS))
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) == len(WORDS) + 2
    assert "a\\|b\\*c" in text
    assert "\x1b" not in text
    assert "weights = softmax(scores), and more" in text
    page = lessons_markdown([lesson_of(table_of()), lesson_of()])
    assert page.startswith("# Attention")
    assert "- [name](#name): What it is about" in page


def test_lesson_json_has_every_number_and_null_for_infinity() -> None:
    masked = np.where(np.tri(2, dtype=bool), 0.123456789012, -np.inf)
    record = lesson_record(lesson_of(Table("masked", masked)), {"run": "r"})
    again = json.loads(json.dumps(record, allow_nan=False))
    assert (again["schema"], again["lesson"], again["run"]) == (1, "name", "r")
    table = again["steps"][0]["tables"][0]
    assert table["values"] == [[0.123456789, None], [0.123456789, 0.123456789]]
    assert table["shape"] == [2, 2]
    ids = lesson_record(lesson_of(Table("ids", np.array([3, 4]))), {})
    assert ids["steps"][0]["tables"][0]["values"] == [3, 4]
