"""The figure of measures over a training: lines, reference, axes, legend, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from hand_built import SIZE, hand_built
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from gpt.errors import ConfigError
from gpt.heads.measures import Measure
from gpt.heads.survey import DEFAULT_MEASURES, Development, Survey, development, survey
from gpt.view.figure.development import STYLES, draw
from gpt.view.figure.sheet import to_bytes
from gpt.view.notebook.saving import save_development


@pytest.fixture(scope="module")
def found() -> Development:
    ids = np.random.default_rng(0).integers(0, 6, 8 * SIZE + 1)
    surveys = [survey(hand_built(back), ids, ablation="mean") for back in (9, 9, 1, 1)]
    return development([0, 10, 20, 30], surveys)


def random(steps: list[int], layers: int, heads: int) -> Development:
    """A measure of random heads."""
    values = np.random.default_rng(0).random((len(steps), layers, heads))
    one = Measure("sink", "sink", "", values[0], values[0] / 9, 0.1, 4)
    return development(steps, [Survey((replace(one, values=each),), 4, 5) for each in values])


def test_each_measure_has_a_panel_with_a_line_for_each_head(found: Development) -> None:
    shown = [each for each in found.measures if each.name in DEFAULT_MEASURES]
    panels = draw(found, "a-run", names=DEFAULT_MEASURES).axes
    assert [axes.get_title() for axes in panels] == [each.title for each in shown]
    for axes, measure in zip(panels, shown, strict=True):
        lines, uniform = axes.lines[:8], axes.lines[8]
        number = found.names.index(measure.name)
        drawn = [line.get_ydata() for line in lines]
        assert np.array_equal(drawn, found.of(measure.name).reshape(4, 8).T)
        assert all(line.get_xdata().tolist() == [0, 10, 20, 30] for line in lines)
        if measure.name == "back":  # a uniform line for each head, at its distances
            even = [line.get_ydata() for line in axes.lines[8:]]
            assert np.array_equal(even, found.uniform[:, 0].reshape(4, 8).T)
        else:
            assert set(uniform.get_ydata()) == {measure.uniform}
        assert uniform.get_linestyle() == "--"
        band = axes.collections[0].get_paths()[0].get_extents().height
        first, errors = found.of(measure.name)[:, 0, 0], found.errors[:, number, 0, 0]
        expected = (first + 2 * errors).max() - (first - 2 * errors).min()
        assert band == pytest.approx(expected, nan_ok=True)
        low, high = axes.get_ylim()
        assert low <= min(0, np.nanmin(drawn)) <= np.nanmax(drawn) <= high


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes]


def test_at_most_four_measures_are_drawn_ablation_and_those_that_name_heads(
    found: Development,
) -> None:
    assert titles(draw(found)) == ["Δloss", "n back", "duplicate", "induction in text"]
    expected = {  # the name of all heads at the last step -> the titles
        "induction": ["Δloss", "induction in text", "induction, synthetic"],
        "3 back": ["Δloss", "n back"],
        "sink": ["Δloss", "sink"],
        "": ["Δloss", "n back", "duplicate", "induction in text"],
    }
    for name, measures in expected.items():
        kinds = np.full_like(found.kinds, "", dtype="<U9")
        kinds[-1] = name
        assert titles(draw(replace(found, kinds=kinds))) == measures


def test_chosen_measures_are_drawn_and_unknown_ones_refused(
    found: Development, tmp_path: Path
) -> None:
    assert titles(draw(found, names=["sink", "entropy"])) == ["sink", "entropy"]
    assert len(draw(found, every=True).axes) == len(found.names)
    with pytest.raises(ConfigError, match=r"^measure: 'size' is not one of back, previous"):
        found.save(tmp_path / "heads.svg", measures=["size"])


def test_texts_are_legible_on_a_slide(found: Development) -> None:
    for names in (
        [],
        ["sink"],
        ["sink", "entropy"],
        ["sink", "back", "entropy"],
        DEFAULT_MEASURES[:6],
    ):
        figure = draw(found, "a-run", names=names)
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        scale = min(1280 / width, 720 / height)  # pixels of an inch
        texts = [each for each in figure.findobj(Text) if each.get_text() and each.get_visible()]
        assert len(texts) > 20
        assert min(each.get_fontsize() for each in texts) / 72 * scale >= 15


def test_heads_differ_in_lightness_or_mark_and_have_names(found: Development) -> None:
    figure = draw(found)
    lines = figure.axes[0].lines[:8]
    assert len({line.get_marker() for line in lines}) == len(STYLES) == 8
    assert len({to_rgb(line.get_color()) for line in lines}) == 8
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0] == "layer 0 head 0 previous"
    assert "layer 1 head 0 induction" in texts
    assert texts[-1] == "uniform attention"


def test_only_the_most_changed_of_many_heads_have_marks() -> None:
    found = random([0, 1, 2], 4, 5)
    lines = draw(found).axes[0].lines[:-1]
    marked = [line for line in lines if line.get_marker() != "None"]
    assert (len(lines), len(marked)) == (20, 8)
    spread = sorted(np.ptp(line.get_ydata()) for line in lines)[-8:]
    assert sorted(np.ptp(line.get_ydata()) for line in marked) == pytest.approx(spread)
    few = draw(found, top=2).axes[0].lines[:-1]
    assert sum(line.get_marker() != "None" for line in few) == 2
    with pytest.raises(ConfigError, match=r"^sort: 'size' is not one of sink"):
        draw(found, sort="size")


@pytest.mark.parametrize(
    ("steps", "scale"),
    [
        ([0, 100, 200, 800], "linear"),
        ([1, 10, 100, 1000], "symlog"),
        ([0, 1, 10, 100], "symlog"),
        ([0, 50], "linear"),
    ],
)
def test_steps_that_span_decades_have_a_logarithmic_axis(steps: list[int], scale: str) -> None:
    axes = draw(random(steps, 1, 2)).axes[0]
    assert axes.get_xscale() == scale
    assert axes.get_xlim() == (steps[0], steps[-1])


def test_texts_stay_within_the_figure(found: Development) -> None:
    for each in (found, random([0, 1, 2], 4, 5)):
        for every in (False, True):
            figure = draw(each, "a-run", every=every)
            figure.draw_without_rendering()
            whole = figure.bbox
            for axes in figure.axes:
                box = axes.get_tightbbox()
                assert whole.x0 <= box.x0 < box.x1 <= whole.x1
                assert whole.y0 <= box.y0 < box.y1 <= whole.y1
            for legend in figure.legends:
                box = legend.get_window_extent()
                assert whole.x0 <= box.x0 < box.x1 <= whole.x1
                assert all(not box.overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_names_that_no_font_draws_are_written_in_ascii(found: Development) -> None:
    figure = draw(found, "a\ue000b")  # a missing glyph would cause a warning, which fails the test
    figure.draw_without_rendering()
    assert figure.legends[0].get_title().get_text().startswith("a\\ue000b")


def test_unknown_values_are_left_out() -> None:
    one = survey(hand_built(), np.arange(SIZE))  # no repeated character
    assert draw(development([1, 2], [one, one])).axes


def test_the_same_measures_give_the_same_file(found: Development, tmp_path: Path) -> None:
    few = development(found.steps[:2].tolist(), found.surveys[:2])
    path = save_development(few, tmp_path / "heads.pdf")
    assert path.read_bytes() == to_bytes(draw(few), "pdf")
    assert path.read_bytes().startswith(b"%PDF")
    with pytest.raises(ConfigError, match=r"^path: heads.gif does not end in .svg, .pdf or .png"):
        save_development(found, tmp_path / "heads.gif")
