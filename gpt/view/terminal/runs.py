"""The table of all runs; and one run's facts, options, loss curve and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gpt.characters import cut, escape
from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import field_help
from gpt.storage.losses import best_facts, counting_facts, than_counting
from gpt.storage.manifest import Manifest
from gpt.storage.run import Run
from gpt.view.terminal.lines import BOLD, card
from gpt.view.terminal.training import (
    corpus_facts,
    folded_facts,
    frozen_facts,
    model_facts,
    parent_facts,
    time_of,
)
from gpt.words import measured_on, millions

#: Columns of `runs` -> the least width of a terminal that shows them.
COLUMNS = {"run": 0, "step": 60, "of": 60, "best nats": 0, "than counting": 0}
COLUMNS |= {"parameters": 80, "corpus": 60}
LONGEST = 100  # most cells of an option
#: What a percentage beside a loss means.
PART = "(%): on this share of the validation split; losses on other shares do not compare"
AXIS = 30  # most cells between the lowest and the highest loss of a curve


def runs_table(rows: Sequence[tuple[Run, Manifest]], width: int | None = None) -> Table:
    """A row for each run, the most recently saved last; a narrow table has fewer columns.

    Numbers are never broken into two lines. Losses on parts of the split have a caption.
    """
    kept = [name for name, least in COLUMNS.items() if not width or width >= least]
    table = Table(box=None, pad_edge=False, header_style="bold cyan", caption_justify="left")
    for name in kept:
        if name in ("run", "corpus"):
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for run, manifest in rows:
        best, characters, of = manifest.shown_loss
        on = f" ({characters / of:.0%})" if characters < of else ""  # share of the split
        cells: dict[str, RenderableType] = {
            "run": Text(run.name),
            "step": f"{manifest.step:,}",
            "of": f"{manifest.train.steps:,}",
            "best nats": "–" if best is None else f"{best:.4f}" + on,
            "than counting": than_counting(manifest),
            "parameters": millions(manifest.model.parameters()),
            "corpus": Text(cut(", ".join(manifest.corpus.sources), LONGEST)),
        }
        table.add_row(*(cells[name] for name in kept))
        table.caption = PART if on else table.caption
    return table


def story(
    run: Run,
    manifest: Manifest,
    metrics: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
) -> Group:
    """One run: its facts and options, the loss at each evaluation, and the samples."""
    config, train = manifest.model, manifest.train
    trained = f" of {train.steps:,}, {time_of(manifest)}"
    facts = {
        "run": f"{run.name}, step {manifest.step:,}{'' if manifest.imported else trained}",
        "imported": manifest.imported,
        "corpus": corpus_facts(
            manifest.corpus.sources, manifest.corpus.characters, config, manifest.parent
        ),
        "from": parent_facts(manifest.parent),
        "folded": folded_facts(manifest.corpus),
        "model": model_facts(config),
        "frozen": frozen_facts(config, train.freeze),
        "best": best_facts(manifest) if not manifest.imported else "",
        "to beat": counting_facts(manifest) if not manifest.imported else "",
    }
    options = vars(config) if manifest.imported else {**vars(config), **vars(train)}
    parts: list[RenderableType] = [card(facts), Text()]
    parts += [Text("options", BOLD), config_table(options), Text()]
    evaluations = [record for record in metrics if "val_loss" in record]
    if evaluations:
        parts += [*loss_curve(evaluations, measured_on(*manifest.part)), Text()]
    for sample in samples:
        text = escape(str(sample["text"])).strip("\n")
        parts += [Text(f"step {sample['step']:,}", BOLD), Text(text), Text()]
    return Group(*parts)


def config_table(values: Mapping[str, Any]) -> Table:
    """Every option of a run with what it means; of an imported one, those of the model."""
    comments = field_help(ModelConfig) | field_help(TrainConfig)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for name, comment in comments.items():
        if name not in values:
            continue
        table.add_row(name, Text(cut(str(values[name]), LONGEST)), Text(comment))
    return table


def loss_curve(metrics: Sequence[Mapping[str, Any]], on: str = "") -> tuple[Text, Table]:
    """A heading, and a row for each evaluation: both losses, and a mark for the validation loss.

    on: see `measured_on`. The axis goes from the lowest to the highest validation loss, because on
    an axis from 0 small improvements would not be visible; the heading states both ends.
    """
    values = [record["val_loss"] for record in metrics]
    lowest, highest = min(values), max(values)
    where = f"from {lowest:.4f} to {highest:.4f}" if highest > lowest else f"at {lowest:.4f}"
    heading = f"loss{on}, nats per character; ● is the validation loss, {where}"
    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    longest = max(len(f"{record['step']:,}") for record in metrics)
    for name, width in (("step", max(4, longest)), ("train", 6), ("val", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    ends = (f"{lowest:.2f}", f"{highest:.2f}") if highest > lowest else (f"{lowest:.2f}",)
    table.add_column(_Spread(0.0, ends, "bold cyan"))
    for record, value in zip(metrics, values, strict=True):
        share = (value - lowest) / (highest - lowest) if highest > lowest else 0.0
        mark = _Spread(share, ("●",), "green" if value == lowest else "blue")
        numbers = f"{record['step']:,}", f"{record['train_loss']:.4f}", f"{value:.4f}"
        table.add_row(*numbers, mark)
    return Text(heading, BOLD), table


class _Spread:
    """A text that begins at `share` (0 … 1) of the width; a second text ends at the right."""

    def __init__(self, share: float, texts: Sequence[str], style: str) -> None:
        self.share, self.texts, self.style = share, texts, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first, *others = self.texts
        room = min(options.max_width, AXIS) - len(first)
        line = " " * round(self.share * room) + first
        yield Text(line + "".join(text.rjust(room) for text in others), self.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(9, options.max_width), min(AXIS, options.max_width))
