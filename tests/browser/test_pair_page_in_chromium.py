"""The page of a model with an encoder in a browser: the texts of both sides and their numbers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from encoded import encoded_file

from gpt import load
from gpt.heads.attention_map import AttentionMap
from gpt.view.files.exports import to_csv
from gpt.view.page.page import subject_of
from gpt.view.selection import select

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Any  # see browsing.Open
READ, SOURCE = "\t2-1", "24 abc"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoded_file(tmp_path_factory.mktemp("pairs") / "p.safetensors").parent


def map_of(folder: Path, kind: Any = "cross") -> AttentionMap:
    return load(folder / "p.safetensors").attention(f"{SOURCE}{READ}", kind=kind)


def lines_of(page: Page) -> list[list[str]]:
    with page.expect_download() as waiting:
        page.locator("#save-csv").click()
    text = Path(waiting.value.path()).read_text("utf-8")
    return list(csv.reader(text.splitlines(keepends=True), strict=True))


@pytest.mark.parametrize(
    ("kind", "axes"),
    [
        ("cross", "rows = target, columns = source; a row predicts the character after it"),
        ("encoder", "rows = query, columns = key"),
        ("decoder", "rows = query, columns = key"),
    ],
)
def test_the_saved_numbers_are_the_maps(
    open_page: Open, folder: Path, kind: Any, axes: str
) -> None:
    found = map_of(folder, kind)
    page = open_page([subject_of(found)], hash="layer=1&head=1&view=head")
    assert page.locator("#axes").inner_text() == axes
    expected = list(csv.reader(to_csv([select(found, "1", "1")]).splitlines(keepends=True)))
    lines = lines_of(page)
    assert [line[:-1] for line in lines] == [line[:-1] for line in expected]
    numbers = [[float(line[-1]) for line in each[1:]] for each in (lines, expected)]
    np.testing.assert_allclose(*numbers, rtol=1e-6)


def test_a_cell_names_the_character_of_each_text(open_page: Open, folder: Path) -> None:
    found = map_of(folder)
    page = open_page([subject_of(found)], hash="layer=0&head=0&view=head&cell=2,4")
    weight = f"{found.layers[0].weights[0, 2, 4]:.3f}".lstrip("0")
    said = page.locator("#readout").inner_text()
    assert said.startswith(f"target 2 '-' → source 4 'b' · weight {weight}"[:-1])
    cell = page.locator("#cell").inner_text()
    assert "target 2 '-' · source 4 'b'" in cell
    assert "softmax over keys 0 … 5" in cell
    assert "6 characters of the source, 4 characters" in page.locator("#precision").inner_text()


def test_cards_that_need_one_text_are_hidden(open_page: Open, folder: Path) -> None:
    page = open_page([subject_of(map_of(folder))])
    for name in ("#text", "#lens", "#next"):
        assert not page.locator(name).is_visible()
    assert page.locator("#measures").is_visible()
    assert page.locator("#view button:has-text('rollout')").is_disabled()
    page.locator("#heads button").nth(3).click()
    page.keyboard.press("[")
    assert page.locator('#heads [aria-pressed="true"]').count() == 1


def test_two_models_are_compared(open_page: Open, folder: Path) -> None:
    encoded_file(folder / "other.safetensors", n_head=4)
    other = load(folder / "other.safetensors").attention(f"{SOURCE}{READ}")
    subjects = [subject_of(map_of(folder)), subject_of(other, "other")]
    page = open_page(subjects, hash="of=diff&layer=0&head=0&view=head")
    lines = lines_of(page)
    assert lines[0][-1] == "difference"
    expected = other.layers[0].weights[0] - map_of(folder).layers[0].weights[0]
    differences = [float(line[-1]) for line in lines[1:]]
    np.testing.assert_allclose(differences, expected.ravel(), atol=1e-6)
