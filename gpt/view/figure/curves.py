"""Validation losses of several runs as a figure: a panel for each validation text, a colour and a
mark for each recipe; thin lines for its seeds, a thick line for their mean.

The same input gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpt.characters import cut
from gpt.storage.comparison import (
    Comparison,
    Group,
    curve_characters,
    mean_and_deviation,
    validation_text,
)
from gpt.storage.curves import UNSEEN
from gpt.view.figure.development import STYLES
from gpt.view.figure.fonts import find_fonts
from gpt.view.figure.layout import DPI
from gpt.view.figure.sheet import GREY, figure_style, small_line, style_curve_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, TOP, PANEL, LINE = 6.0, 0.25, 3.2, 0.16  # inches: a panel, and a line of its legend
MARKS = 12  # marks on a line
LONGEST = 60  # characters of a name in the legend


def draw(found: Comparison) -> Figure:
    """An Axes for each validation text, its legend below it. Raises ConfigError if matplotlib is
    not installed.
    """
    with figure_style():
        from matplotlib.figure import Figure

        height = TOP + sum(PANEL + LINE * len(groups) for groups in found.sets)
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
        figure.suptitle("validation loss, nats per character", size=8.5)
        panels = figure.subplots(len(found.sets), squeeze=False)[:, 0]
        for axes, groups in zip(panels, found.sets, strict=True):
            _panel(axes, found, groups)
            text = f"validated on {validation_text(groups[0].entries[0].manifest)}"
            on = curve_characters(groups).replace("the table's", "the legend's")
            text, font = small_line(f"{text}; {on}" if on else text, round(WIDTH * DPI))
            axes.set_title(text, fontproperties=font, color=GREY, pad=3)
        return figure


def _panel(axes: Axes, found: Comparison, groups: Sequence[Group]) -> None:
    """The curves of one validation text; the loss axis is the same as in the terminal."""
    by_characters = found.compares_by_characters
    late: list[float] = []
    every = [(group.lines(by_characters), group.mean_curve(by_characters)) for group in groups]
    last = max((float(x[-1]) for lines, _ in every for x, _ in lines), default=1.0)
    for place, (lines, mean) in enumerate(every):
        colour, mark = STYLES[place % len(STYLES)]
        thick = [mean] if mean and len(lines) > 1 else lines
        for x, y in lines:
            axes.plot(x, y, color=colour, lw=0.5, alpha=0.45, zorder=1)
            late += y[x >= last / UNSEEN].tolist()
        for x, y in thick:
            gap = math.ceil(len(x) / MARKS)
            line: dict[str, Any] = {"color": colour, "marker": mark, "ms": 3, "mew": 0, "lw": 1.1}
            axes.plot(x, y, markevery=gap, **line)
    axes.set_xlim(0, last)
    if late:
        margin = 0.05 * (max(late) - min(late)) or 0.01
        axes.set_ylim(min(late) - margin, max(late) + margin)
    style_curve_axes(axes)
    axes.set_xlabel("characters of training" if by_characters else "step", size=7, labelpad=1.5)
    _legend(axes, groups)


def _legend(axes: Axes, groups: Sequence[Group]) -> None:
    """A line for each group below the axis: its name and its loss."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.lines import Line2D

    handles, texts = [], []
    for place, group in enumerate(groups):
        colour, mark = STYLES[place % len(STYLES)]
        mean, deviation = mean_and_deviation(group.losses)
        loss = "" if mean is None else f" · {mean:.4f}"
        loss += "" if deviation is None else f" ± {deviation:.4f} (n = {len(group.losses)})"
        options = ", ".join(f"{name}={value}" for name, value in group.options.items())
        name = f"{group.label} · {options}" if options else group.label
        handles.append(Line2D([], [], color=colour, marker=mark, ms=3.5, mew=0, lw=1.1))
        texts.append(cut(name, LONGEST) + loss)
    fonts = find_fonts(frozenset(texts))
    shown = [text if text in fonts else ascii(text)[1:-1] for text in texts]
    legend = axes.legend(
        handles,
        shown,
        loc="upper left",
        bbox_to_anchor=(0, -0.12),
        frameon=False,
        fontsize=6.5,
        handlelength=2.6,
        labelspacing=0.35,
        borderaxespad=0,
    )
    for text, words in zip(legend.get_texts(), texts, strict=True):
        text.set_fontproperties(FontProperties(fname=fonts.get(words, fonts[""]), size=6.5))
