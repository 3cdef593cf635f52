"""Figures: position and colour of every cell, labels, fonts, files."""

from __future__ import annotations

import hashlib
import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from gpt.config import DrawnStage
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap
from gpt.reading.gpt import Stages
from gpt.view.figure import fonts
from gpt.view.figure.figure import draw
from gpt.view.figure.layout import DPI
from gpt.view.figure.sheet import Form, to_bytes
from gpt.view.selection import select
from gpt.view.terminal.attention import numbers
from gpt.view.terminal.lines import Page

TEXTS = {
    "one": "x",
    "mathematics": "$x^2$ \\a_{b}",
    "markup": "[red]<svg>&</svg>",
    "hungarian": "Árvíztűrő\n\ttükör",
    "combining": "e\u0301a\u0302",
    "japanese": "東京は日本の首都です",
    "emoji": "👍🏽👨\u200d👩🇭🇺❤\ufe0f",
    "controls": "\x1b[31m\r\x00\u202eab\u200b\xad\x7f",
    "others": "կաक\u093f\u05d0\u0e01\ue000",
}


def map_of(text: str, layers: int = 1, heads: int = 1, size: int = 4) -> AttentionMap:
    """Random heads for any text, with the shapes and masks of a model."""
    T, random = len(text), np.random.default_rng(1)
    allowed = np.tri(T, dtype=bool)

    def layer() -> Stages:
        scores = 3 * random.normal(size=(heads, T, T))
        masked = np.where(allowed, scores / 2, -np.inf)
        weights = np.exp(masked - masked.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        narrow = random.normal(size=(heads, T, size))
        wide = random.normal(size=(T, heads * size))
        stages = (wide, *3 * (narrow,), scores, scores / 2, masked, weights, narrow, *4 * (wide,))
        return Stages(*(values.astype(np.float32) for values in stages))

    return AttentionMap(text, np.arange(T), tuple(layer() for _ in range(layers)), ())


def named(attention: AttentionMap, name: str) -> AttentionMap:
    """The map of a model with this title."""
    return replace(attention, model=SimpleNamespace(title=name))


def made(text: str, form: Form = "png") -> bytes:
    return to_bytes(draw(select(map_of(text)))[0], form)


def labels(axes: Axes) -> tuple[list[str], list[str]]:
    """The labels of rows and columns."""
    return tuple(  # type: ignore[return-value]
        [tick.get_text() for tick in axis.get_ticklabels()] for axis in (axes.yaxis, axes.xaxis)
    )


def written(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


@pytest.fixture
def few_fonts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A machine with only matplotlib's default font and those in the folder."""
    ours = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", ours)
    monkeypatch.setattr(
        font_manager, "findSystemFonts", lambda folders=None: list(map(str, tmp_path.iterdir()))
    )
    fonts.find_fonts.cache_clear()
    yield tmp_path
    fonts.find_fonts.cache_clear()


def make_font(path: Path, characters: str, outline: bool = True) -> str:
    """A font with a square (or nothing, like a colour font) for each of the characters."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    def glyph(ink: bool) -> Any:
        pen = TTGlyphPen(None)
        if ink:
            pen.moveTo((100, 0))
            for corner in ((100, 700), (800, 700), (800, 0)):
                pen.lineTo(corner)
            pen.closePath()
        return pen.glyph()

    names = [".notdef", *(f"uni{ord(character):04X}" for character in characters)]
    builder = FontBuilder(1000)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap(dict(zip(map(ord, characters), names[1:], strict=True)))
    builder.setupGlyf({name: glyph(outline) for name in names})
    builder.setupHorizontalMetrics(dict.fromkeys(names, (900, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": path.stem, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    return str(path)


@pytest.mark.parametrize(
    ("length", "options"),
    [
        (20, {"query": "3:9", "key": "2:17"}),
        (20, {"stage": "masked"}),
        (20, {"stage": "proj", "layer": "all"}),
        (200, {"layer": "all", "head": "all"}),  # cells of a few pixels: a line must not hide them
    ],
)
def test_each_pixel_of_a_cell_has_the_colour_of_its_value(
    length: int, options: dict[str, Any]
) -> None:
    attention = map_of("abcdefghij" * (length // 10), layers=2, heads=2)
    selection = select(attention, **options)
    figure, _ = draw(selection)
    pixels = imread(io.BytesIO(to_bytes(draw(selection)[0], "png")))[..., :3]
    assert pixels.shape[:2] == tuple(round(side * DPI) for side in figure.get_size_inches()[::-1])
    panels = selection.panels()
    assert len(figure.axes) == len(panels) + 1
    for axes, panel in zip(figure.axes, panels, strict=False):
        edges = np.array(axes.get_window_extent().extents)
        left, low, right, high = edges.round().astype(int)
        assert edges == pytest.approx([left, low, right, high], abs=1e-4)
        block = pixels[len(pixels) - high : len(pixels) - low, left:right]
        rows, columns = panel.values.shape
        down, across = block.shape[0] // rows, block.shape[1] // columns
        assert block.shape[:2] == (rows * down, columns * across)
        cells = block.reshape(rows, down, columns, across, 3).swapaxes(1, 2)
        expected = axes.images[0].to_rgba(axes.images[0].get_array())[:, :, None, None, :3]
        edge = 2 if axes.lines else 0  # the line along the diagonal
        inner = cells[:, :, edge : down - edge, edge : across - edge]
        assert inner.size
        assert np.abs(inner - expected).max() < 1 / 255


def test_masked_weights_are_blank_and_a_weight_of_zero_is_not() -> None:
    figure, _ = draw(select(attention := map_of("abcdef")))
    image = figure.axes[0].images[0]
    assert np.array_equal(np.ma.getmaskarray(image.get_array()), ~np.tri(6, dtype=bool))
    colours = image.to_rgba(image.get_array())[..., :3]
    assert (colours[~np.tri(6, dtype=bool)] == 1).all()
    assert np.linalg.norm(image.cmap(0.0)[:3] - np.ones(3)) > 0.1
    figure, _ = draw(select(attention, query="2:4", key="3:6"))
    shown = ~np.ma.getmaskarray(figure.axes[0].images[0].get_array())
    assert shown.tolist() == [[False, False, False], [True, False, False]]
    figure, _ = draw(select(attention, stage="masked"))
    image = figure.axes[0].images[0]
    assert image.to_rgba(image.get_array())[0, 1, :3] == pytest.approx(to_rgb("#d0d0d0"))


@pytest.mark.parametrize("stage", get_args(DrawnStage))
def test_panels_share_one_colour_scale_with_a_labelled_bar(stage: DrawnStage) -> None:
    attention = map_of("abcdefgh", layers=2, heads=2)
    selection = select(attention, stage=stage, layer="all", head="all")
    figure, _ = draw(selection)
    values = [panel.values for panel in selection.panels()]
    largest = max(np.abs(part[np.isfinite(part)]).max() for part in values)
    limits = (0, 1) if stage == "weights" else (-largest, largest)
    for axes in figure.axes:
        assert axes.images[0].get_clim() == pytest.approx(limits)
    words = {"scores": "q·k", "masked": "q·k / √d; grey: masked", "weights": "attention weight"}
    assert figure.axes[-1].get_ylabel() == words.get(stage, figure.axes[-1].get_ylabel())
    assert figure.axes[-1].get_ylim() == pytest.approx(limits)
    ramp = figure.axes[-1].images[0].get_array()
    assert (ramp[0, 0], ramp[-1, 0]) == pytest.approx(limits)
    low, _ = draw(select(attention, stage=stage, query="3:5"))
    low.draw_without_rendering()
    words_beside_the_bar = low.axes[-1].yaxis.label.get_window_extent()
    assert 0 <= words_beside_the_bar.y0 < words_beside_the_bar.y1 <= low.bbox.y1


@pytest.mark.parametrize("stage", ["masked", "context"])
def test_small_matrices_show_the_numbers_of_the_terminal(stage: str) -> None:
    attention = map_of("abcdefghijkl", size=5)
    selection = select(attention, stage=stage, query="4:12")
    figure, _ = draw(selection)
    panel = selection.panels()[0]
    lines = numbers(panel, Page())[-8:]
    terminal = [line.plain.partition("→")[0].split()[2:] for line in lines]
    texts = figure.axes[0].texts
    drawn = [[text.get_text() for text in texts if text.get_position()[1] == n] for n in range(8)]
    assert [list(filter(None, row)) for row in drawn] == terminal
    pitch = figure.axes[0].get_window_extent().width / panel.values.shape[1]
    for text in texts:
        assert text.get_window_extent().width < pitch
        assert text.get_fontsize() >= 4.9
    assert not draw(select(map_of("a" * 13)))[0].axes[0].texts
    several = map_of("abc", heads=2)
    assert not draw(select(several, head="all"))[0].axes[0].texts


def test_numbers_contrast_with_their_cells() -> None:
    def light(colour: Any) -> float:
        parts = np.array(to_rgb(colour))
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for stage in ("weights", "scores"):
        axes = draw(select(map_of("abcdefgh"), stage=stage))[0].axes[0]
        colours = axes.images[0].to_rgba(axes.images[0].get_array())
        for text in filter(lambda text: text.get_text(), axes.texts):
            column, row = map(int, text.get_position())
            pair = sorted([light(colours[row, column, :3]), light(text.get_color())])
            assert (pair[1] + 0.05) / (pair[0] + 0.05) > 3.9


def test_axes_show_characters_if_legible_else_positions_and_the_text_below() -> None:
    text = "the cat\nsat on\tthe mat"
    figure, _ = draw(select(attention := map_of(text), query="3:9"))
    rows, columns = labels(figure.axes[0])
    assert rows == list("␣cat⏎s")
    assert columns == list("the␣cat⏎sat␣on⇥the␣mat")
    assert (figure.axes[0].get_ylabel(), figure.axes[0].get_xlabel()) == ("query", "key")
    below = [each.get_text() for each in figure.texts]
    assert "␣ space · ⏎ newline · ⇥ tab" in below
    assert not any('"' in each for each in below)
    figure, _ = draw(select(attention), ascii_only=True)
    assert labels(figure.axes[0])[1][3:8] == ["\\s", "c", "a", "t", "\\n"]
    for length, step in ((100, 5), (250, 20)):
        long = map_of(("To be,\nor not to be: " * 13)[:length])
        figure, _ = draw(select(long, query="7:"))
        axes, expected = figure.axes[0], range(7 + -7 % step, length, step)
        assert labels(axes)[0] == [str(at) for at in expected]
        assert list(axes.get_yticks()) == [at - 7 for at in expected]
        assert axes.get_ylabel() == "query position"
        assert any(each.get_text().startswith('"To be,⏎or not to be: ') for each in figure.texts)
    wide = map_of("abcdef", size=64)
    axes = draw(select(wide, stage="concat"))[0].axes[0]
    assert labels(axes) == (list("abcdef"), [str(at) for at in range(0, 64, 5)])
    assert axes.get_xlabel() == "dimension"


@pytest.mark.parametrize("length", [1, 24])
def test_labels_neither_overlap_nor_leave_the_figure(length: int) -> None:
    for text in ("m" * length, ("W\u200d \n" * length)[:length]):
        attention = named(map_of(text), "a run")
        for options in ({}, {"query": ":1"}, {"stage": "proj"}):
            figure, _ = draw(select(attention, **options))
            whole = figure.bbox
            for axes in figure.axes:
                boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
                pairs = pairwise(boxes)
                assert all(left.x1 <= right.x0 + 4 for left, right in pairs)
                box = axes.get_tightbbox()
                assert whole.x0 <= box.x0 < box.x1 <= whole.x1
                assert whole.y0 <= box.y0 < box.y1 <= whole.y1
                assert all(not box.overlaps(text.get_window_extent()) for text in figure.texts)


def test_panels_form_a_grid_of_layers_and_heads() -> None:
    attention = named(map_of("abcdefgh", layers=2, heads=3), "a-run")
    figure, _ = draw(select(attention, layer="all", head="all"))
    corners = [
        (round(box.x0, 4), round(box.y0, 4)) for box in (a.get_position() for a in figure.axes)
    ]
    rows, columns = [sorted({corner[axis] for corner in corners[:6]}) for axis in (1, 0)]
    assert corners[:6] == [(x, y) for y in reversed(rows) for x in columns]
    assert (len(rows), len(columns)) == (2, 3)
    names = [f"layer {layer} · head {head}" for layer in (0, 1) for head in (0, 1, 2)]
    assert [axes.get_title() for axes in figure.axes[:6]] == names
    assert figure.get_suptitle() == "layers 0–1 · heads 0–2 · weights"
    assert "a-run · T=8 · head_size=4" in [text.get_text() for text in figure.texts]
    assert ["".join(labels(axes)[0]) for axes in figure.axes[:6]] == ["abcdefgh", "", ""] * 2
    assert ["".join(labels(axes)[1]) for axes in figure.axes[:6]] == [""] * 3 + ["abcdefgh"] * 3
    for options, title in (
        ({"head": "mean"}, "layer 0 · mean of heads · weights"),
        ({"stage": "resid_mid", "layer": "all"}, "layers 0–1 · all heads · resid_mid"),
    ):
        shown, _ = draw(select(attention, **options))
        assert shown.get_suptitle() == title
    folded, _ = draw(select(map_of("ab", heads=12), head="all"))
    assert len({round(axes.get_position().y0, 4) for axes in folded.axes[:12]}) == 3
    widths = [
        draw(select(map_of("a" * length, layers=4, heads=4), **options))[0].get_size_inches()[0]
        for length, options in ((1, {}), (32, {}), (64, {}), (32, {"layer": "all", "head": "all"}))
    ]
    assert widths[0] == pytest.approx(3.4, abs=0.1)  # one column of a paper
    assert widths[0] < widths[1] < widths[2]
    assert widths[2:] == pytest.approx([7, 7], abs=0.3)  # the whole page


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_gives_a_figure_without_other_output(
    text: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    starts: dict[Form, bytes] = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF"}
    selection = select(named(map_of(text), "$a_b$"))
    for form in get_args(Form) if text == TEXTS["others"] else ("svg",):
        figure, warnings = draw(selection)
        data = to_bytes(figure, form)
        assert data.startswith(starts[form])
        assert len(warnings) <= 1
    figure, warnings = draw(selection, ascii_only=True)
    assert warnings == []
    ticks = figure.axes[0].get_xticklabels()
    assert not any(each.get_parse_math() for each in [*ticks, *figure.texts])
    assert f"$a_b$ · T={len(text)} · head_size=4" in [each.get_text() for each in figure.texts]
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_one_warning_names_characters_without_a_font(few_fonts: Path) -> None:
    attention = map_of("aあ東a👍क\ue000")
    figure, warnings = draw(select(attention))
    shown = ["a", "U+3042", "U+6771", "a", "U+1F44D", "U+0915", "U+E000"]
    assert labels(figure.axes[0]) == (shown, shown)
    turned = [tick.get_rotation() for tick in figure.axes[0].get_xticklabels()]
    assert turned == [0 if text == "a" else 90 for text in shown]
    (warning,) = warnings
    assert "あ, 東, 👍, क" in warning
    for remedy in ("Noto Sans CJK", "Noto Emoji", "Devanagari"):
        assert warning.count(remedy) == 1
    assert draw(select(attention), ascii_only=True)[1] == []
    long = map_of("あ" * 100)  # only positions are written
    assert draw(select(long))[1] == []
    many = map_of("".join(map(chr, range(0x4E00, 0x4E14))))
    assert "and 12 more" in draw(select(many))[1][0]
    assert "\\u6771\\u4eac" in draw(select(named(many, "東京")))[0].texts[1].get_text()


def test_fonts_with_the_characters_are_found(few_fonts: Path) -> None:
    make_font(few_fonts / "AColour.ttf", "あ東京क", outline=False)
    most = make_font(few_fonts / "ManySans.ttf", "あ東京")
    rest = make_font(few_fonts / "Rest.ttf", "あक◌\u093f")
    make_font(few_fonts / "ManySans-Bold.ttf", "あ東京")
    make_font(few_fonts / "LastResort.ttf", "あ東京क")
    (few_fonts / "broken.ttf").write_bytes(b"\0\1\0\0 nothing")
    attention = map_of("aあ東京क\u093f")
    figure, warnings = draw(select(attention))
    assert warnings == []
    files = [tick.get_fontproperties().get_file() for tick in figure.axes[0].get_yticklabels()]
    ours = font_manager.findfont("DejaVu Sans")
    assert files == [ours, most, most, most, rest, rest]
    for form in get_args(Form):  # a missing glyph would cause a warning, which fails the test
        figure, warnings = draw(select(attention))
        assert to_bytes(figure, form)
        assert warnings == []


def test_other_fonts_are_searched_only_if_the_default_lacks_a_character(
    few_fonts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[None] = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda _: looked.append(None) or [])
    draw(select(map_of("Árvíz \t\nկ\x1b\x00")))
    assert looked == []
    for _ in range(3):
        draw(select(map_of("あい")))
    assert len(looked) == 1


def test_bytes_depend_neither_on_the_process_nor_on_matplotlib_settings() -> None:
    program = f"""
import hashlib, sys
import gpt.view.figure.figure
print("matplotlib" in sys.modules)  # it is imported late
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_figure import made
for form in ("svg", "pdf"):
    print(hashlib.sha256(made("the cat", form)).hexdigest())
print("matplotlib.pyplot" in sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    def settings() -> dict[str, Any]:  # reading the backend would select one
        return {
            name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"
        }

    forms: tuple[Form, ...] = ("svg", "pdf", "png")
    first, before = [made("the cat", form) for form in forms], settings()
    expected = [hashlib.sha256(data).hexdigest() for data in first[:2]]
    assert run.stdout.split() == ["False", *expected, "False"]
    odd = {"font.size": 30, "svg.fonttype": "none", "savefig.bbox": "tight", "text.usetex": True}
    with matplotlib.rc_context({**odd, "savefig.facecolor": "red", "axes.grid": True}):
        within = settings()
        assert [made("the cat", form) for form in forms] == first
        assert settings() == within != before
    assert settings() == before
    assert logging.getLogger("matplotlib").level == logging.NOTSET


def test_svg_contains_outlines_and_no_external_references() -> None:
    data = made("<a href='x'>&", "svg").decode()
    root = ElementTree.fromstring(data)
    assert root.get("width") == "244.8pt"
    assert "<!" not in data.replace("<!--", "")
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert {"path", "image", "title"} <= {*tags}
    assert not {*tags} & {"script", "text", "foreignObject", "a"}
    assert tags.count("image") == 2
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.endswith("href"):
                assert value.startswith(("#", "data:image/png;base64,"))
            assert not name.startswith("on")
            assert "url(" not in value.replace("url(#", "")
    assert "@import" not in data
    assert "<title>layer 0 · head 0 · weights</title>" in data


def test_png_has_300_dpi_and_pdf_neither_a_date_nor_a_type_3_font() -> None:
    from PIL import Image

    with Image.open(io.BytesIO(made("abc"))) as image:
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.01)
        assert image.size[0] == 1020
        assert image.info["Title"] == "layer 0 · head 0 · weights"
    data = made("abc", "pdf")
    assert b"CreationDate" not in data
    assert b"/Type3" not in data
    assert b"/CIDFontType2" in data


def test_a_figure_that_cannot_be_drawn_is_refused_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attention = map_of("a" * 1000)
    huge = AttentionMap(attention.text, attention.ids, attention.layers * 120, ())
    with pytest.raises(ConfigError, match="choose fewer matrices with --layer"):
        draw(select(huge, layer="all"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=re.escape("pip install -e '.[plot]'")):
        draw(select(attention))
