"""A trained GPT, a list of runs, several runs side by side, and a curve of losses as an SVG."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpt.errors import CheckpointError
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.comparison import Comparison, Curve, RunTable, TrainingCurve, mean_and_deviation
from gpt.storage.losses import best_facts, counting_facts, than_counting
from gpt.trained import TrainedGPT
from gpt.view.notebook.card import MOST_ROWS, Cell, card, decimal, facts, label, note, safe, table
from gpt.view.terminal.comparison import validation_text
from gpt.view.terminal.runs import PART
from gpt.view.terminal.training import corpus_facts, model_facts, parent_facts
from gpt.words import counted, millions, some


def trained(found: TrainedGPT) -> str:
    """What the model is, what it was trained on, how good it is, and that its numbers are right."""
    config, stored, proof = found.config, found.stored, found.proof
    characters = found.vocabulary.characters
    values = {"model": model_facts(config)}
    if stored.source.parent.parent.name == stored.name:
        with suppress(CheckpointError):
            manifest = Checkpoint.open(stored.source.parent).manifest
            values["imported"] = manifest.imported or "–"
            values["corpus"] = corpus_facts(
                manifest.corpus.sources,
                manifest.corpus.characters,
                manifest.model,
                manifest.parent,
            )
            values["from"] = parent_facts(manifest.parent)
            values["best"] = "–" if manifest.imported else best_facts(manifest)
            values["to beat"] = counting_facts(manifest)
    values["characters"] = some([label(each) for each in characters], 80)
    values["checked"] = (
        f"✓ numpy computes the logits that torch had at saving: difference {proof.error:.0e}, "
        f"allowed {proof.bound:.0e}"
    )
    here = Path.cwd()
    inside = stored.source.is_relative_to(here)
    values["file"] = str(stored.source.relative_to(here) if inside else stored.source)
    text = repr(found.example())
    next_ = note(f"run.sample({text})   run.attn({text})   run.next({text})")
    size = f"{millions(config.parameters())} parameters"
    return card(
        stored.title,
        size,
        facts({name: each for name, each in values.items() if each != "–"}),
        next_,
    )


def run_table(found: RunTable) -> str:
    """A row for each run, the most recently saved last."""
    losses = [manifest.shown_loss[0] for _, manifest in found.rows]
    shown = found.rows[-MOST_ROWS:]
    rows: list[list[str | Cell]] = []
    for run, manifest in shown:
        best, characters, of = manifest.shown_loss
        on = f" ({characters / of:.0%})" if characters < of else ""  # share of the split
        rows.append(
            [
                run.name,
                f"{manifest.step:,}",
                f"{manifest.train.steps:,}",
                "–" if best is None else f"{best:.4f}{on}",
                than_counting(manifest),
                millions(manifest.model.parameters()),
                ", ".join(manifest.corpus.sources),
            ]
        )
    headings = ["run", "step", "of", "best nats", "than counting", "parameters", "corpus"]
    count = len(losses)
    part = PART if any("%" in str(row[3]) for row in rows) else ""
    cut = f"the newest {len(shown)} of {count:,} runs" if count > len(shown) else ""
    hint = 'run = gpt.load("checkpoints/NAME") opens one' if count else "train one: gptx train"
    return card(
        "Runs",
        counted(count, "run"),
        table(headings, rows, left=(0, 6)),
        note(part),
        note(cut),
        note(hint),
    )


def comparison(found: Comparison) -> str:
    """A table for each validation text: what differs, and the losses."""
    parts = []
    for groups in found.sets:
        several = any(len(group.losses) > 1 for group in groups)
        rows: list[list[str | Cell]] = []
        for group in groups[:MOST_ROWS]:
            mean, spread = mean_and_deviation(group.losses)
            numbers = ["–" if mean is None else f"{mean:.4f}"]
            numbers += [
                "–" if spread is None else f"{spread:.4f}",
                str(len(group.losses)),
            ] * several
            options = [str(group.options[name]) for name in found.columns]
            rows.append([group.label, *options, *numbers])
        headings = ["run", *found.columns, "val nats", *["±", "n"] * several]
        text = validation_text(groups[0].entries[0].manifest)
        parts += [note(f"validated on {text}"), table(headings, rows)]
        parts += [note("±: standard deviation over n seeds")] * several
    separate = "losses compare only within each table" if len(found.sets) > 1 else ""
    return card("Comparison", separate, *parts)


def training_curve(found: TrainingCurve) -> str:
    """A line that says what the records are."""
    return card("Training", repr(found)[1:-1], note("to_pandas() or to_numpy() gives all records"))


def curve(found: Curve) -> str:
    """Lines of the losses over the steps; the lowest validation loss is marked."""
    title = f"Loss{f' of {found.name}' if found.name else ''}"
    lines = {"train": found.train, "val": found.val, "gpt": found.gpt}
    known = {
        name: each for name, each in lines.items() if each is not None and np.isfinite(each).any()
    }
    if not len(found) or "val" not in known:
        return card(title, "no evaluations yet")
    about = f"{len(found)} evaluations · lowest {found.lowest}"
    meanings = {"train": "on the training text", "val": "on the validation text"}
    meanings["gpt"] = "of the GPT alone, without counting"
    words = "; ".join(f"{name}: {meanings[name]}" for name in known)
    return card(title, about, chart(found, known), note(f"nats per character; {words}"))


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
