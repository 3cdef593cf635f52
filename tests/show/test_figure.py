"""Figures: cells, labels, fonts, and the same bytes each time."""

from __future__ import annotations

import io
import re
import warnings

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib
from drawn import random_map
from matplotlib.image import imread

from gpt.errors import ConfigError
from gpt.heads.attention_map import select_matrices
from gpt.show.figure import RAMP, _Labels, bars_figure, matrices_figure
from gpt.show.result import Matrix

TEXTS = {
    "one": "x",
    "mathematics": "$x^2$ \\a_{b}",
    "markup": "[red]<svg>&</svg>",
    "hungarian": "Árvíztűrő\n\ttükör",
    "japanese": "東京は日本の首都です",
    "emoji": "👍🏽👨\u200d👩🇭🇺❤\ufe0f",
    "controls": "\x1b[31m\r\x00\u202eab\u200b\xad\x7f",
}


def known(values: list[list[float]]) -> Matrix:
    T = len(values)
    return Matrix("layer 0 head 0", np.array(values), "abcdefgh"[:T], range(T), range(T))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_any_text_gives_a_figure_without_other_output(
    text: str, form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    matrices = select_matrices(random_map(TEXTS[text])).matrices()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = matrices_figure(matrices, f"weights of {TEXTS[text]}", 1, form)
    assert data.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[form])
    assert capfd.readouterr() == ("", "")


def pixels_of(values: list[list[float]], colour: str) -> int:
    """How many pixels of a figure have this colour."""
    data = matrices_figure([known(values)], "title", 1, "png")
    pixels = (imread(io.BytesIO(data))[..., :3] * 255).round().astype(int)
    return int((pixels == [int(colour[n : n + 2], 16) for n in (1, 3, 5)]).all(axis=-1).sum())


def test_cells_have_the_colours_of_their_values_and_masked_ones_are_blank() -> None:
    masked, zero = [[1.0, np.nan], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]
    blank = pixels_of(masked, "#ffffff") - pixels_of(zero, "#ffffff")
    lowest = pixels_of(zero, RAMP[0]) - pixels_of(masked, RAMP[0])
    cell = pixels_of(masked, RAMP[0])
    assert 0.9 * cell < lowest <= blank < 1.1 * cell
    assert pixels_of(masked, RAMP[-1]) > 1.8 * cell


def test_a_character_that_no_font_draws_is_labelled_by_its_code_point() -> None:
    labels = _Labels(["DejaVu Sans"], ascii_only=False)
    drawn = [labels(character) for character in "\U00012000a\n\x1b"]
    assert drawn == ["U+12000", "a", "⏎", "U+001B"]


def test_bytes_depend_neither_on_the_time_nor_on_the_users_settings() -> None:
    matrices = select_matrices(random_map("abcabc")).matrices()
    for form in ("svg", "pdf", "png"):
        first = matrices_figure(matrices, "title", 1, form)
        with matplotlib.rc_context({"font.size": 20, "axes.grid": True}):
            assert matrices_figure(matrices, "title", 1, form) == first
            assert matplotlib.rcParams["font.size"] == 20


def test_svg_contains_outlines_and_no_network_address() -> None:
    data = matrices_figure([known([[1.0]])], "title", 1, "svg")
    assert b"<text" not in data
    addresses = set(re.findall(rb'(?<!xmlns=")(?<!xmlns:xlink=")http[^"<]*', data))
    assert not {address for address in addresses if b"href" in address}
    assert b"DOCTYPE" not in data


def test_pdf_has_neither_a_date_nor_a_type_3_font() -> None:
    data = matrices_figure([known([[1.0]])], "title", 1, "pdf")
    assert b"CreationDate" not in data
    assert b"/Type3" not in data


def test_bars_are_a_figure() -> None:
    bars = {"weight there": [0.9, None], "loss without it": [0.2, -0.01]}
    assert b"<svg" in bars_figure(["L0H0", "L1H1"], bars, "heads", "svg")


def test_a_figure_that_is_too_large_is_refused_with_advice() -> None:
    wide = Matrix("layer 0", np.zeros((2, 40_000)), "ab", range(2), range(40_000), square=False)
    with pytest.raises(ConfigError, match="too large; choose fewer matrices with --layer"):
        matrices_figure([wide] * 16, "title", 4, "png")
