"""Runs side by side: a table of what differs and of their losses, and the curves in one picture.

Each row of the table has a letter, which also draws its curve: the picture needs no colours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import Any

import numpy as np
from rich.text import Text

from gpt.characters import cut, escape
from gpt.storage.comparison import Array, Comparison, Entry, Group, mean_and_deviation
from gpt.storage.manifest import Manifest
from gpt.view.terminal.lines import BOLD, DIM, Page, Row, grid, in_ascii, styled
from gpt.words import counted, duration, measured_on, millions, ordinal

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
NARROW = 60  # cells of a page: on a narrower one, the picture is lower
WIDEST = 100  # cells of the picture
APART = 9  # cells between two letters of a curve
UNSEEN = 4  # the axis of losses begins at the highest loss after the first 1/UNSEEN of the training


def comparison_lines(found: Comparison, page: Page) -> list[Text]:
    """For each validation text: a heading, the table, notes, and the curves."""
    lines: list[Text] = []
    if len(found.sets) > 1:
        what = f"{len(found.sets)} validation texts: losses compare only within each table"
        lines += [*styled([what], page, BOLD), Text()]
    for number, groups in enumerate(found.sets):
        lines += [Text()] * (number > 0)
        lines += [*styled(_heading(groups), page, BOLD), Text(), *_table(found, groups, page)]
        lines += [Text(), *(line for note in _notes(groups) for line in styled([note], page, DIM))]
        lines += [Text(), *curve_lines(found, groups, page)]
    return lines


def validation_text(manifest: Manifest) -> str:
    """ "the last 10 % of corpus.txt"."""
    if not manifest.corpus.digest:
        return "a text that is not known"
    train, sources = manifest.train, ", ".join(manifest.corpus.sources)
    share = f"{100 * train.val_fraction:g} %"
    kinds = {"last": f"the last {share}", "source": f"{share} of the sources"}
    part = f"every {ordinal(train.every)} piece" if train.every else kinds.get(train.split)
    return f"{part} of {escape(sources)}" if part else escape(train.split)


def marks(groups: Sequence[Group]) -> list[str]:
    """A letter for each group; none for those after the 52nd."""
    return [*ascii_letters, *[""] * len(groups)][: len(groups)]


def _heading(groups: Sequence[Group]) -> list[str]:
    runs = counted(sum(len(group.entries) for group in groups), "run")
    seeds = f" of {counted(len(groups), 'recipe')}" * any(len(each.entries) > 1 for each in groups)
    manifest = groups[0].entries[0].manifest
    size = f", {manifest.val_characters:,} characters" if manifest.val_characters else ""
    parts = {entry.manifest.shown_loss[1:] for group in groups for entry in group.entries}
    if len(parts) == 1:
        size += measured_on(*parts.pop())
    return [f"{runs}{seeds}", f"validated on {validation_text(manifest)}{size}"]


def _table(found: Comparison, groups: Sequence[Group], page: Page) -> list[Text]:
    columns: dict[str, list[str]] = {
        name: [_option(group.options.get(name)) for group in groups] for name in found.columns
    }
    several = any(len(group.losses) > 1 for group in groups)
    for name, losses in (
        ("val nats", [group.losses for group in groups]),
        ("GPT alone", [group.gpt_losses for group in groups]),
    ):
        if any(losses) or name == "val nats":
            means = [mean_and_deviation(each) for each in losses]
            columns[name] = [_loss(mean) for mean, _ in means]
            if several:
                columns["±" + " " * (name != "val nats")] = [_loss(spread) for _, spread in means]
    if several:
        columns["n"] = [str(len(group.losses)) for group in groups]
    columns["best step"] = [_span(group, lambda each: each.manifest.best_step) for group in groups]
    whole = {
        "steps": [_span(group, lambda each: each.manifest.step) for group in groups],
        "characters": [_span(group, lambda each: each.characters, millions) for group in groups],
        "parameters": [_span(group, lambda each: each.parameters, millions) for group in groups],
        "time": [_span(group, lambda each: round(each.elapsed), duration) for group in groups],
    }
    if not found.by_characters:
        del whole["characters"]  # as many as steps
    columns |= {name: cells for name, cells in whole.items() if len({*cells}) > 1}
    longest = 24 if page.width is None else max(12, page.width // 3)
    labels = [
        f"{mark:1} {cut(group.label, longest)}"
        for mark, group in zip(marks(groups), groups, strict=True)
    ]
    names = [in_ascii(name) if page.ascii_only else name for name in columns]
    rows: list[Row] = [("", names, "bold cyan")]
    for label, cells in zip(labels, zip(*columns.values(), strict=True), strict=True):
        rows.append((label, [*cells], ""))
    widths = [2 + max(map(len, (name, *cells))) for name, cells in columns.items()]
    return grid(rows, widths, page)


def _option(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "–" if value is None else cut(text, 16)


def _loss(nats: float | None) -> str:
    return "–" if nats is None else f"{nats:.4f}"


def _span(
    group: Group, value: Callable[[Entry], Any], shown: Callable[[Any], str] = "{:,}".format
) -> str:
    """The value of all runs, or the smallest and the largest."""
    known = [each for each in map(value, group.entries) if each is not None]
    ends = dict.fromkeys(shown(each) for each in (min(known), max(known))) if known else ("–",)
    return "–".join(ends)


def _notes(groups: Sequence[Group]) -> list[str]:
    notes = []
    parts: dict[tuple[int, int], dict[str, None]] = {}  # (read, of) -> labels of groups
    if any(len(group.losses) > 1 for group in groups):
        notes.append("±: standard deviation over n seeds; ± / √n is the error of the mean")
    manifests = [entry.manifest for group in groups for entry in group.entries]
    baselines = {each.baseline for each in manifests}
    if len(baselines) == 1 and (baseline := baselines.pop()):
        on = f"on {baseline.scored:,} characters"
        notes.append(f"counting {baseline.order}-grams: {baseline.nats:.4f} nats {on}")
    for group in groups:
        if group.repeats:
            notes.append(f"the same seed twice in {group.label}: {', '.join(group.repeats)}")
        for entry in group.entries:
            _, read, of = entry.manifest.shown_loss
            if not entry.ended:
                steps = f"{entry.manifest.step:,} of {entry.manifest.train.steps:,}"
                notes.append(f"not finished: {entry.name}, step {steps}")
            if entry.loss is None:
                why = (
                    "imported, so it has no losses"
                    if entry.manifest.imported
                    else "not evaluated yet"
                )
                notes.append(f"{why}: {entry.name}")
            else:
                parts.setdefault((read, of), {})[group.label] = None
    if len(parts) > 1:  # else the heading says it
        for (read, of), labels in parts.items():
            notes += [f"losses on {read:,} of {of:,} characters: {', '.join(labels)}"] * (read < of)
    return notes


def curve_lines(found: Comparison, groups: Sequence[Group], page: Page) -> list[Text]:
    """The validation losses over the steps, or over the characters of training if the runs' steps
    read different numbers of them. Groups of seeds: the mean; or every run, if the runs were not
    evaluated after the same steps.
    """
    by_characters = found.by_characters
    curves: list[tuple[str, str, Array, Array]] = []
    means = False
    for place, (mark, group) in enumerate(zip(marks(groups), groups, strict=True)):
        lines, mean = group.lines(by_characters), group.mean_line(by_characters)
        means |= mean is not None and len(lines) > 1
        for x, y in [mean] if mean else lines:
            curves.append((mark or " ", COLOURS[place % len(COLOURS)], x, y))
    if not curves:
        return []
    last = max(float(x[-1]) for _, _, x, _ in curves)
    values = np.concatenate([y for *_, y in curves])
    late = np.concatenate([y[x >= last / UNSEEN] for *_, x, y in curves])
    low, high = float(values.min()), float((late if len(late) else values).max())
    title = [f"validation loss, nats per character{', means over seeds' * means}"]
    title += [f"above {high:.4f} not shown"] if values.max() > high else []
    title += [text] if (text := curves_on(groups)) else []
    unit = "characters" if by_characters else "step"
    return [*styled(title, page, BOLD), *_picture(curves, (low, high), last, unit, page)]


def curves_on(groups: Sequence[Group]) -> str:
    """The characters that the curves are measured on, unless they are those of the table."""
    entries = [entry for group in groups for entry in group.entries]
    drawn = [entry.curve.characters for entry in entries if entry.curve.characters is not None]
    curves = sorted({int(read) for each in drawn for read in each})
    table = sorted({read for group in groups for read in group.read})
    if not curves or not table or curves == table:
        return ""
    of = entries[0].manifest.val_characters
    first, second = (
        " to ".join(f"{read:,}" for read in dict.fromkeys((each[0], each[-1])))
        for each in (curves, table)
    )
    return f"curves on {first}, the table's losses on {second} of {of:,} characters"


def _picture(
    curves: Sequence[tuple[str, str, Array, Array]],
    ends: tuple[float, float],
    last: float,
    unit: str,
    page: Page,
) -> list[Text]:
    """Curves (letter, colour, x, y) in a frame. ends: of the axis of losses."""
    low, high = ends
    width = min(page.width or WIDEST, WIDEST)
    height = 16 if width >= NARROW else 12
    digits = 2 if high - low > 0.2 else 3 if high - low > 0.02 else 4
    gutter = len(f"{high:.{digits}f}") + 2
    across = width - gutter
    dot = "." if page.ascii_only else "·"
    cells = [[(" ", "")] * across for _ in range(height)]
    for number, (mark, colour, x, y) in [*enumerate(curves)][::-1]:  # the best one comes last
        columns = np.unique(np.rint(x / max(last, 1) * (across - 1)).astype(int))
        for column in range(columns[0], columns[-1] + 1):
            loss = float(np.interp(column * last / max(1, across - 1), x, y))
            if loss > high:
                continue
            row = round((high - loss) / (high - low) * (height - 1)) if high > low else height // 2
            lettered = (column + 3 * number) % APART == 0 or column == columns[-1]
            if lettered:
                cells[row][column] = (mark, colour)
            elif cells[row][column][0] in (" ", dot):  # letters of lower curves stay visible
                cells[row][column] = (dot, colour)
    labels = {0: high, (height - 1) // 2: high - (high - low) * ((height - 1) // 2) / (height - 1)}
    labels |= {height - 1: low}
    edge, corner, floor = "|+-" if page.ascii_only else "│└─"
    lines = []
    for row, signs in enumerate(cells):
        label = f"{labels[row]:.{digits}f}" if row in labels and (high > low or not row) else ""
        line = Text(f"{label:>{gutter - 2}} {edge}", DIM)
        for sign, colour in signs:
            line.append(sign, colour)
        line.rstrip()
        lines.append(line)
    final = millions(round(last)) if unit == "characters" else f"{round(last):,}"
    middle = unit.center(max(0, across - len(final) - 1))
    lines.append(Text(" " * (gutter - 1) + corner + floor * across, DIM))
    lines.append(Text(f"{' ' * gutter}0{middle}{final}"[:width], DIM))
    return lines
