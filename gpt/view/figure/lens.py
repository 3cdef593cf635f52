"""The logit lens as a figure: a row for each depth, a column for each character of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from gpt.characters import PICTURES, drawn_legend
from gpt.heads.next_character import Lens
from gpt.view.figure.figure import colours, ink
from gpt.view.figure.fonts import font_warning, label_characters
from gpt.view.figure.layout import FigureLayout, SideLabels, points
from gpt.view.figure.sheet import Sheet, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 32  # characters side by side; a longer text continues in the panel below
WIDE, LARGEST = 390, 18.0  # points: width of all cells of a full line, largest cell
Names = Mapping[str, str]  # character -> its label, or the file of a font for it
MEANING = "underlined: the text goes on with it · last row: the model"


def draw(
    lenses: Mapping[str, Lens],
    positions: Sequence[int] | None = None,
    ascii_only: bool = False,
    name: str = "",
) -> tuple[Figure, list[str]]:
    """Draws an Axes for each line of the text, for one checkpoint after the other, then one for the
    colour bar. Also returns warnings (if fonts lack characters).

    lenses: a checkpoint's name -> its lens, all for the same text. positions: which columns to
    show; None: all. name: is written under the title. Raises ConfigError if matplotlib is not
    installed, and if the figure would be too large.
    """
    first, *_ = every = list(lenses.values())
    columns = range(first.ids.shape[1]) if positions is None else positions
    lines = [columns[start : start + LINE] for start in range(0, len(columns), LINE)]
    panels = [(title, lens, line) for title, lens in lenses.items() for line in lines]
    rows = ["embedding", *(f"layer {n}" for n in range(max(len(lens.ids) for lens in every) - 1))]
    text = first.text
    with figure_style():
        guessed = (each for lens in every for each in _guesses(lens, columns).ravel())
        labels, fonts, missing = label_characters([*text, *guessed], ascii_only)
        cell, size = min(LARGEST, WIDE / len(lines[0])), 6.5
        plan = FigureLayout(
            (len(rows), len(lines[0])), len(panels), 1, (points(cell),) * 2, cell / 2
        )

        def below(line: Sequence[int], title: str = "") -> SideLabels:
            texts, files = zip(*((labels[text[at]], fonts[text[at]]) for at in line), strict=True)
            return SideLabels(title, range(len(line)), texts, files, size, cell)

        side = SideLabels("", range(len(rows)), rows, [], size, cell)
        sheet = Sheet(plan, side, below(columns), MEANING, each=True)
        for place, (title, lens, line) in enumerate(panels):
            last = "after this character of the text" * (place == len(panels) - 1)
            axes = sheet.panel(place, below(line, last))
            part = [f"characters {line[0]} to {line[-1]}"] * (len(lines) > 1)
            axes.set_title(" · ".join([title] * (len(every) > 1) + part), size=size, pad=2.5)
            _fill(axes, plan, lens, line, labels, fonts)
        sheet.bar("probability", colours())
        signs = [each for each in drawn_legend(labels, ascii_only) if each[0] not in PICTURES]
        facts = [*filter(None, [name]), f"T={len(text)}", *signs]
        title = "logit lens: the likeliest next character at each depth"
        sheet.words(title, " · ".join(facts), MEANING)
        return sheet.figure, [font_warning(missing)] if missing else []


def _guesses(lens: Lens, line: Sequence[int]) -> npt.NDArray[np.object_]:
    """The likeliest character of each depth and position."""
    return np.array([*lens.characters], object)[lens.ids[:, list(line), 0]]


def _fill(
    axes: Axes, plan: FigureLayout, lens: Lens, line: Sequence[int], labels: Names, fonts: Names
) -> None:
    """Fills the cells of a panel; cells that a shorter line or a smaller model lacks stay white."""
    from matplotlib.font_manager import FontProperties

    chances = np.full(plan.shape, np.nan)
    chances[: len(lens.ids), : len(line)] = lens.probabilities[:, list(line), 0]
    shades = axes.imshow(chances, **colours()).to_rgba(chances)
    for (row, column), guess in np.ndenumerate(_guesses(lens, line)):
        label, colour = labels[guess], ink(shades[row, column])
        font = FontProperties(fname=fonts[guess], size=plan.digits * min(1, 2 / cell_len(label)))
        written = axes.text(column, row, label, color=colour, fontproperties=font)
        written.set(ha="center", va="center_baseline")
        if lens.text[line[column] + 1 :][:1] == guess:
            ends = [column - 0.3, column + 0.3]
            axes.plot(ends, [row + 0.36] * 2, color=colour, lw=0.7, scalex=False, scaley=False)
