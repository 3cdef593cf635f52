"""The lessons contain every table that the tutorials print, equal to four digits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from goldens import GOLDENS, PRINTING, SHAPES, SUMS, Golden
from torch import nn

from gpt.lessons.catalogue import make_lesson
from gpt.lessons.ladder import SplitAttention
from gpt.lessons.lesson import Lesson, Table

HALF_A_DIGIT = 0.5e-4 + 1e-9


@cache
def played(name: str) -> Lesson:
    return make_lesson(name)  # type: ignore[arg-type]


def table_of(name: str, table: str) -> Table:
    found = [each for step in played(name).steps for each in step.tables if each.name == table]
    assert len(found) == 1, table
    return found[0]


@pytest.mark.parametrize(
    "golden", [pytest.param(each, id=f"{each.cells} {each.table}") for each in GOLDENS]
)
def test_lesson_table_equals_the_tutorials_table(golden: Golden) -> None:
    values = table_of(golden.lesson, golden.table).values
    printed = np.array([float(word) for word in golden.printed.split()]).reshape(values.shape)
    assert np.array_equal(np.isneginf(values), np.isneginf(printed))
    finite = np.isfinite(printed)
    assert np.abs(values[finite] - printed[finite]).max() <= HALF_A_DIGIT


def test_every_tutorial_cell_with_output_has_a_golden() -> None:
    cells = [each.cells for each in GOLDENS] + [each[0] for each in (*SUMS, *SHAPES)]
    held = {tuple(cell.split(":")) for named in cells for cell in named.split()}
    printing = {(document, str(cell)) for document, them in PRINTING.items() for cell in them}
    assert printing <= held, sorted(printing - held)


@pytest.mark.parametrize(
    ("lesson", "table"), [pytest.param(*each, id=f"{cells} {each[1]}") for cells, *each in SUMS]
)
def test_lesson_table_sums_to_one_as_in_the_tutorial(lesson: str, table: str) -> None:
    assert table_of(lesson, table).values.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("lesson", "table", "shape"),
    [pytest.param(*each, id=f"{cells} {each[1]}") for cells, *each in SHAPES],
)
def test_lesson_table_has_the_tutorials_shape(
    lesson: str, table: str, shape: tuple[int, ...]
) -> None:
    assert table_of(lesson, table).values.shape == shape


def test_004_46_attention_of_gpt_2_has_the_tutorials_size() -> None:
    import torch

    with torch.device("meta"):
        attention: nn.Module = SplitAttention(768, 768, 1024, n_head=12)
    parameters = sum(each.numel() for each in attention.parameters())
    assert f"{parameters:,} numbers" in played("multi-head").steps[-1].text


def test_002_shiny_shows_the_exact_and_the_printed_result() -> None:
    exact = table_of("shiny", "context of “shiny”").values
    assert [f"{each:.4f}" for each in exact] == ["0.3990", "0.3854", "0.8610"]
    both = table_of("shiny", "exact, printed, difference").values
    assert both[1].tolist() == [0.3992, 0.3858, 0.8610]
    np.testing.assert_array_equal(both[0], exact)
    np.testing.assert_array_equal(both[2], both[1] - both[0])
    parts = table_of("shiny", "printed parts").values
    np.testing.assert_allclose(parts.sum(axis=0), both[1], rtol=0, atol=1e-12)
    told = played("shiny").steps[-1].text
    assert "0.3992, 0.3858, 0.8610" in told
    assert "0.3990, 0.3854, 0.8610" in told


def test_000_both_mistakes_are_shown_and_repaired() -> None:
    steps = {step.title: step for step in played("mistakes").steps}
    spread = steps["Slip 1: the scale"].tables[0].values
    np.testing.assert_allclose(spread, [8**0.5, 1, 0.5], rtol=0.02)
    assert "'HastyHead' object has no attribute 'dropout'" in (
        steps["Slip 2: a dropout that was never made"].text
    )
    slipped = table_of("mistakes", "weights with the slip").values
    mended = table_of("mistakes", "weights, repaired").values
    assert (slipped.max(axis=-1)[1:] < mended.max(axis=-1)[1:] - 0.02).all()
    assert mended.max(axis=-1)[1:].max() < 0.75, "repaired weights are not near one-hot"
    largest = table_of("mistakes", "largest weight of each word’s row").values
    even = 1 / np.arange(1, 7)
    np.testing.assert_allclose(largest, [even, slipped.max(axis=-1), mended.max(axis=-1)])
