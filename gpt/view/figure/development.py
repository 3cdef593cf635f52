"""Measures over a training as a figure: a panel for each measure, a line for each head.

Heads differ in colour, lightness and mark, so that colour-blind readers and readers of a
black-and-white print can tell them apart. The same input gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpt.errors import ConfigError
from gpt.heads.measures import EFFECTS, KINDS
from gpt.heads.survey import Development
from gpt.view.figure.layout import DPI
from gpt.view.figure.sheet import GREY, INK, figure_style, small_line, style_curve_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colour and mark of each head with a line of its own (colours: Okabe & Ito 2008).
STYLES = (
    *(("#0072b2", "o"), ("#d55e00", "s"), ("#000000", "^"), ("#56b4e9", "D")),
    *(("#009e73", "v"), ("#e69f00", "P"), ("#cc79a7", "X"), ("#7a5c00", "p")),
)
WIDTH, ROW, TOP, LEGEND = 7.0, 1.7, 0.4, 0.7  # inches
SLIDE = WIDTH * 9 / 16  # the largest height of two rows of panels
LEAST = 0.25  # a weight's axis reaches at least this, so that noise does not look like a change
MARKS = 12  # marks on a line
DECADES = 100  # if the largest step is more than this times the smallest, the axis is logarithmic


def draw(
    found: Development,
    name: str = "",
    every: bool = False,
    sort: str | None = None,
    top: int | None = None,
    names: Sequence[str] = (),
) -> Figure:
    """Draws a panel for each measure in `names`, or for all measures with `every`; by default for
    at most four (`Development.main_measures`), so that the texts are legible on a slide.

    At most eight heads, or `top`, have colours and marks: those whose measure `sort` changed most,
    by default those whose measures of KINDS changed most. The lines of the others are thin and
    grey. name: the run's name, shown above the legend. Raises ConfigError if matplotlib is not
    installed and for an unknown measure.
    """
    for option, given in [("sort", sort or found.names[0]), *(("measure", it) for it in names)]:
        if given not in found.names:
            raise ConfigError(option, f"{given!r} is not one of {', '.join(found.names)}")
    with figure_style():
        from matplotlib.figure import Figure

        shown = found.shown(every) if every else found.main_measures()
        shown = [each for each in found.measures if each.name in names] or shown
        heads = _chosen(found, sort, min(len(STYLES), top or len(STYLES)))
        across = 2 if len(shown) == 4 else min(3, len(shown))
        down = math.ceil(len(shown) / across)
        height = SLIDE if down <= 2 else TOP + down * ROW + LEGEND
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).ravel()
        for axes in panels[len(shown) :]:
            axes.remove()
        for place, (axes, measure) in enumerate(zip(panels, shown, strict=False)):
            axes.set_title(measure.title, size=7.5, pad=3)
            _lines(axes, found, measure.name, heads)
            _steps_axis(axes, found, labelled=place + across >= len(shown))
        figure.suptitle("heads over training", size=8.5)
        facts = [*[name] * bool(name), found.measured, "bands: ± 2 standard errors"]
        text, font = small_line(" · ".join(facts), round(WIDTH * DPI))
        legend = figure.legend(
            handles=_handles(found, heads),
            title=text,
            title_fontproperties=font,
            loc="outside lower center",
            ncols=4,
            fontsize=6.5,
            frameon=False,
            handlelength=2.6,
        )
        legend.get_title().set_color(GREY)
        return figure


def _chosen(found: Development, sort: str | None, most: int) -> list[tuple[int, int]]:
    """(layer, head) of the heads with lines of their own, in the order of layers and heads."""
    names = [sort] if sort else [each for each in found.names if each.startswith(KINDS)]
    change = np.max([found.change(name) for name in names], axis=0)
    order = np.argsort(-change, axis=None, kind="stable")[:most]
    return [divmod(int(place), change.shape[1]) for place in sorted(order)]


def _lines(axes: Axes, found: Development, name: str, heads: list[tuple[int, int]]) -> None:
    """A measure's lines with bands of two standard errors, and a uniform head's value, in the
    colour of each head if it differs between heads.
    """
    number, steps, gap = found.names.index(name), found.steps, math.ceil(len(found.steps) / MARKS)
    values, errors = found.of(name), found.errors[:, number]
    uniform, by_head = found.uniform[:, number], found.measures[number].offsets is not None
    for place in np.ndindex(values.shape[1:]):
        if place not in heads:
            axes.plot(steps, values[(..., *place)], color="#b0b0b0", lw=0.6, zorder=1)
    for (colour, mark), place in zip(STYLES, heads, strict=False):
        line, error = values[(..., *place)], 2 * errors[(..., *place)]
        axes.fill_between(steps, line - error, line + error, color=colour, alpha=0.15, lw=0)
        axes.plot(
            steps, line, color=colour, marker=mark, ms=3, mew=0, lw=1, markevery=gap, clip_on=False
        )
    even: dict[str, Any] = {"lw": 0.8, "ls": (0, (4, 3)), "zorder": 1.5}
    for (colour, _), place in zip(STYLES, heads if by_head else (), strict=False):
        axes.plot(steps, uniform[(..., *place)], color=colour, **even)
    if not by_head:
        axes.axhline(float(uniform.flat[0]), color=INK, **even)
    low, high = axes.get_ylim()
    axes.set_ylim(*((0, max(high, LEAST)) if name not in EFFECTS else (low, high)))


def _steps_axis(axes: Axes, found: Development, labelled: bool) -> None:
    """The axis of the steps; logarithmic if they span decades, with 0 on a linear part."""
    first, last = found.steps[found.steps > 0][[0, -1]].tolist()
    if last / first >= DECADES:
        axes.set_xscale("symlog", linthresh=first, linscale=0.3)
    axes.set_xlim(found.steps[0], last)
    style_curve_axes(axes)
    if labelled:
        axes.set_xlabel("step", size=7, labelpad=1.5)


def _handles(found: Development, heads: list[tuple[int, int]]) -> list[Any]:
    """The entries of the legend: the heads with their names, the others, the uniform head."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=colour,
            marker=mark,
            ms=3.5,
            mew=0,
            lw=1,
            label=f"layer {layer} head {head} {found.kinds[-1, layer, head]}".rstrip(),
        )
        for (colour, mark), (layer, head) in zip(STYLES, heads, strict=False)
    ]
    if len(heads) < found.kinds[-1].size:
        handles.append(Line2D([], [], color="#b0b0b0", lw=0.6, label="other heads"))
    return [*handles, Line2D([], [], color=INK, lw=0.8, ls=(0, (4, 3)), label="uniform attention")]
