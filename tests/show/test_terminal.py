"""Any result on any screen: it fits, no number is cut, and nothing controls the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from drawn import shown

from gpt.show.result import (
    Check,
    Column,
    Passage,
    PlotLine,
    Result,
    short_number,
    signed_number,
)
from gpt.show.terminal import Screen, draw

HOSTILE = "\x1b[31m[red]\u202eevil\n" + "ü" * 300 + "日本語שלום"


@dataclass(frozen=True)
class Row:
    """A row with a text, a share and a number."""

    name: str
    share: float | None
    number: float


@dataclass(frozen=True, repr=False)
class Example(Result):
    """A result with everything that results may have."""

    name: str = "novel"
    failed: bool = False

    COLUMNS = (
        Column("name", "name"),
        Column("share", "weight there", short_number, bar=True),
        Column("number", "loss without it", signed_number, right=True),
    )

    def columns(self, all: bool = False) -> Sequence[Column]:
        digits = Column("number", "all digits", lambda value: f"{value:.6f}", right=True)
        return (*self.COLUMNS, digits) if all else self.COLUMNS

    @property
    def title(self) -> str:
        return f"results of {self.name}"

    def facts(self, all: bool = False) -> Mapping[str, str]:
        return {"text": self.name, "left out": "", "two lines": "one\ntwo"}

    def curves(self) -> Sequence[PlotLine]:
        return (
            PlotLine("val", [0, 100, 200, 300, 400], [4.2, 2.0, 1.7, 1.6, 1.5]),
            PlotLine("train", [0, 100, 200, 300, 400], [4.1, 1.9, math.nan, 1.4, 1.3]),
        )

    def passage(self) -> Passage:
        return Passage("To be\nor", [0.1, 0.5, 0.9, 1.0, 0, 0.3, math.nan, 0.2], "digits: tenths")

    @property
    def rows(self) -> Sequence[Row]:
        return Row("first", 0.91, 0.22), Row(self.name, None, -123456.34)

    def sentence(self, all: bool = False) -> str:
        return "everything: --all" if not all else "everything is here"

    def list_checks(self) -> Sequence[Check]:
        bound = 1e-9 if self.failed else 1e-6
        return Check("rows sum to 1", 1e-7, bound), Check("logits", 3e-7, None, detail=True)


DRAWN = """\
results of novel
text       novel
two lines  one
           two

2.000 │                 ·v·
      │                 ·· ····
      │                   ········v·
      │                        t········
      │                             ····t··v······
      │                                  ······   ··v········v·
      │                                        ··t··           ·······v····v
      │                                             ·····
      │                                                  ·t········t·
1.300 │                                                              ······t
       0                               step                              400
       val, train

To be⏎
159903
or
 2
digits: tenths

name   weight there   loss without it
first  .91 ▇▇▇▇▇▇▇▇▇             +.22
novel                     −123,456.34

everything: --all
rows sum to 1 ✓"""


def test_a_result_on_a_wide_screen() -> None:
    assert "\n".join(shown(Example(), 80)) == DRAWN


@pytest.mark.parametrize("width", [20, 40, 80, None])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_any_name_fits_any_screen_and_no_number_is_cut(width: int | None, ascii_only: bool) -> None:
    text = "\n".join(shown(Example(HOSTILE), width, ascii_only))
    assert ".91" in text
    assert "-123,456.34" in text.replace("−", "-")
    assert "[red]" in text.replace("\n", "")
    assert "\x1b" not in text


def test_a_table_that_does_not_fit_has_a_line_for_each_cell() -> None:
    lines = shown(Example(), 24)
    start = lines.index("first")
    assert lines[start : start + 5] == [
        "first",
        "  weight there .91",
        "  loss without it +.22",
        "novel",
        "  loss without it",
    ]


def test_the_long_form_has_more_columns_and_every_check() -> None:
    text = draw(Example(), Screen(None, all=True))
    assert "all digits" in text
    assert "−123456.340000" in text or "-123456.340000" in text
    assert "rows sum to 1 ±1e-7, logits ±3e-7 ✓" in text
    assert "everything is here" in text


def test_a_failed_check_is_named_with_its_error() -> None:
    assert "rows sum to 1 (error 1e-7, allowed 1e-9), logits ±3e-7 ✗ FAILED" in draw(
        Example(failed=True), Screen(None)
    )


def test_colours_are_written_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = draw(Example(), Screen(80, color="always"))
    assert "\x1b[" in coloured
    assert "159" not in coloured  # colours, not digits
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in draw(Example(), Screen(80, color="never"))


def test_a_notebook_shows_the_same_and_escapes_html() -> None:
    html = Example("<script>")._repr_html_()
    assert "<script>" not in html
    assert "results of &lt;script&gt;" in html
    assert "−123,456.34" in html


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, ".25"), (-0.5, "−.50"), (-math.inf, "−inf"), (math.nan, "–"), (1234.5, "1,234.50")],
)
def test_numbers_have_no_leading_zero(value: float, text: str) -> None:
    assert short_number(value) == text
    assert signed_number(value).lstrip("+") == text
