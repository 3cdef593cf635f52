"""Losses over steps as an SVG; its colours are those of the card around it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.storage.comparison import Curve
from gpt.view.notebook.card import decimal, safe

Array = npt.NDArray[np.float64]

WIDTH, HEIGHT = 640, 260  # in its own pixels
LEFT, RIGHT, TOP, BOTTOM = 52, 96, 12, 34  # around its lines
POINTS = 400  # most points of a line
MARKED = 60  # most evaluations that show their numbers under the mouse
SHARE = 0.04  # of the values' range, added above and below


def chart(found: Curve, lines: dict[str, Array]) -> str:
    """Lines over the steps of a curve with one evaluation or more; the lowest validation loss is
    marked.
    """
    values = np.concatenate([each[np.isfinite(each)] for each in lines.values()])
    low, high = float(values.min()), float(values.max())
    margin = SHARE * (high - low) or 0.05
    low, high = low - margin, high + margin
    first, last = int(found.steps[0]), int(found.steps[-1])

    def x(step: float) -> float:
        share = (step - first) / (last - first) if last > first else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = []
    digits = max(0, int(np.ceil(-np.log10(_step(high - low)))))
    for value in _ticks(low, high):
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}"/><text x="{LEFT - 7}" y="{y(value) + 4:.1f}" '
            f'text-anchor="end">{decimal(value, digits)}</text>'
        )
    for step in sorted({*map(int, _ticks(first, last, 5)), *([first] if first == last else [])}):
        parts.append(
            f'<text x="{x(step):.1f}" y="{HEIGHT - 16}" text-anchor="middle">{step:,}</text>'
        )
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 2}">step</text>')
    kept = np.unique(np.linspace(0, len(found) - 1, min(POINTS, len(found))).astype(int))
    ends: list[tuple[float, str]] = []
    for name, each in lines.items():
        places = kept[np.isfinite(each[kept])]
        points = " ".join(f"{x(found.steps[at]):.1f},{y(each[at]):.1f}" for at in places)
        parts.append(f'<polyline class="{name}" points="{points}"/>')
        if len(places):
            ends.append((y(each[places[-1]]), f"{name} {each[places[-1]]:.3f}"))
    above = float(HEIGHT - BOTTOM)
    for height, text in sorted(ends, reverse=True):  # labels of near lines do not overlap
        place = min(height, above)
        above = place - 14
        parts.append(
            f'<text class="key" x="{WIDTH - RIGHT + 8}" y="{place + 4:.1f}">{safe(text)}</text>'
        )
    best = int(np.nanargmin(found.val))
    marked = range(len(found)) if len(found) <= MARKED else [best]
    for at in marked:
        if not np.isfinite(found.val[at]):
            continue
        radius = 4.5 if at == best else 2
        said = f"step {found.steps[at]:,}: " + ", ".join(
            f"{name} {each[at]:.4f}" for name, each in lines.items()
        )
        parts.append(
            f'<circle class="dot" cx="{x(found.steps[at]):.1f}" cy="{y(found.val[at]):.1f}" '
            f'r="{radius}"><title>{said}</title></circle>'
        )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="losses over steps">{"".join(parts)}</svg>'
    )


def _step(room: float, most: int = 5) -> float:
    """The distance of round ticks: 1, 2 or 5 times a power of ten, at most `most` in the room."""
    power = 10.0 ** np.floor(np.log10(max(room, 1e-9) / most))
    return float(next(power * each for each in (1, 2, 5, 10) if power * each >= room / most))


def _ticks(low: float, high: float, most: int = 5) -> list[float]:
    step = _step(high - low, most)
    return [each * step for each in range(int(np.ceil(low / step)), int(high / step) + 1)]
