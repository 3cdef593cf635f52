"""The losses of one run over its training, and its speed, learning rate and gradient norms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Cell, Column, Curves, Fold, Line, Note, Records, Table, Title
from gpt.checks import TableResult
from gpt.config.schedule import cycle_of
from gpt.storage.losses import no_better_text
from gpt.storage.manifest import Manifest
from gpt.storage.run import Run
from gpt.words import counted, measured_on

#: If a loss falls by x in the second half of a cycle, as many steps again lower it by about this
#: times x, in the measured runs (benchmarks/LOG.md). Curves with fewer evaluations or steps say too
#: little.
DOUBLED, LEAST, LEAST_STEPS = 0.5, 4, 250
SMALLEST = 0.001  # nats; seeds differ by more than this
UNSEEN = 4  # `highest_late_value` leaves out the first 1/UNSEEN of a training
#: The names of a run's losses -> what each was measured on.
MEANINGS = {"val": "on the validation text", "train": "on the training text"}
MEANINGS |= {"gpt": "of the GPT alone, without counting, on the validation text"}


@dataclass(frozen=True, repr=False)
class Curve(TableResult):
    """A run's losses at its N evaluations, in nats per character; each array is (N,).

    steps: the step of each evaluation. train: the mean loss of the training steps since the
    evaluation before. val: the loss on the validation split. gpt: in a run with counting, the
    validation loss of the GPT alone, NaN where it was not recorded. name: the run's name.
    characters: how many characters of the split's `of` each `val` was measured on; a list of runs
    may show the best step's loss on the whole split instead.
    """

    steps: npt.NDArray[np.int64]
    train: npt.NDArray[np.float64]
    val: npt.NDArray[np.float64]
    gpt: npt.NDArray[np.float64] | None = None
    name: str = ""
    characters: npt.NDArray[np.int64] | None = None
    of: int = 0

    def __repr__(self) -> str:
        of = f" of {self.name}" if self.name else ""
        if not len(self):
            return f"<Curve{of}: no evaluations>"
        return f"<Curve{of}: {len(self)} evaluations, lowest {self.lowest}>"

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def lowest(self) -> str:
        """The lowest validation loss and its step; also on how many characters, if not on all.
        Raises ValueError if there are no evaluations.
        """
        best = int(np.argmin(np.nan_to_num(self.val, nan=np.inf)))
        read = self.of if self.characters is None else int(self.characters[best])
        return f"{self.val[best]:.4f} nats at step {self.steps[best]:,}{measured_on(read, self.of)}"

    @property
    def losses(self) -> dict[str, npt.NDArray[np.float64]]:
        """The losses that are known for at least one evaluation, by their names in MEANINGS."""
        every = {"val": self.val, "train": self.train, "gpt": self.gpt}
        return {
            n: each for n, each in every.items() if each is not None and np.isfinite(each).any()
        }

    def blocks(self) -> list[Block]:
        """The losses over the steps, the lowest one marked, and a row for each evaluation."""
        title, losses = f"loss of {self.name}" if self.name else "loss", self.losses
        if "val" not in losses:
            return [Title(title, ["no evaluations yet"])]
        lines = [curve_line(name, self.steps, each, name == "val") for name, each in losses.items()]
        texts = [[f"{step:,}" for step in self.steps.tolist()]]
        texts += [[f"{y:.4f}" if np.isfinite(y) else "–" for y in each] for each in losses.values()]
        rows = [[*map(Cell, row)] for row in zip(*texts, strict=True)]
        columns = [Column("step"), *map(Column, losses)]
        words = "; ".join(f"{name}: {MEANINGS[name]}" for name in losses)
        return [
            Title(title, [counted(len(self), "evaluation"), f"lowest {self.lowest}"]),
            Curves(lines),
            Fold("evaluations", [Table(columns, rows)]),
            Note(f"nats per character; {words}; ●: the lowest"),
        ]

    def records(self) -> Records:
        """A row for each evaluation."""
        columns: dict[str, Any] = {"step": self.steps, "train": self.train, "val": self.val}
        columns |= {"gpt": self.gpt, "val_characters": self.characters}
        known = {name: each for name, each in columns.items() if each is not None}
        return Records(known, {"run": self.name})


def estimate_gain(manifest: Manifest, curve: Curve) -> float | None:
    """About how many nats the loss would fall in as many steps again as the last cycle of a
    finished run had. None if the curve does not show it.
    """
    begin, end = cycle_of(manifest.train, manifest.step)[0].start, manifest.step
    known = (curve.steps > begin) & (curve.steps <= end) & np.isfinite(curve.val)
    steps, losses = curve.steps[known], curve.val[known]
    if end < max(manifest.train.steps, begin + LEAST_STEPS) or len(steps) < LEAST:
        return None
    half, last = float(np.interp((begin + end) / 2, steps, losses)), float(losses[-1])
    return DOUBLED * last * (1 - last / half) if last < half else None  # falls by equal shares


def outlook_of(manifest: Manifest, curve: Curve) -> str:
    """Whether the text is the limit, or what more time would gain; "" if not known."""
    budget, best, step = manifest.budget, manifest.best_step, manifest.step
    most = budget.most_steps if budget else 0
    limit = "the text is the limit: {}; more text helps more than more time"
    cycle = cycle_of(manifest.train, step)[0].start
    sure = manifest.since_best > 1 and step >= cycle + LEAST_STEPS
    if sure and best is not None and cycle <= best < step:
        return limit.format(no_better_text(best, *manifest.part))
    if 0 < most <= step:
        read = step * manifest.step_characters
        times = read / max(1, manifest.corpus.characters - manifest.val_characters)
        return limit.format(f"it has been read {times:.0f} times")
    gain = estimate_gain(manifest, curve)
    if gain is None:
        return ""
    free = not most or 2 * step <= most
    within = "the text is not the limit" if free else "then the text is the limit"
    by = f"about {gain:.1g}" if gain >= SMALLEST else f"less than {SMALLEST}"
    return f"twice the time would lower the loss by {by} nats; {within}"


def curve_line(name: str, x: npt.NDArray[Any], y: npt.NDArray[Any], lowest: bool = False) -> Line:
    """y over x, without unknown values."""
    known = np.isfinite(y)
    return Line(name, x[known].tolist(), y[known].tolist(), lowest)


def highest_late_value(lines: Sequence[Line]) -> float:
    """The highest value after the first quarter; earlier ones would hide later differences."""
    last = max(max(line.x) for line in lines)
    every = [zip(line.x, line.y, strict=True) for line in lines]
    return max(y for points in every for x, y in points if x >= last / UNSEEN)


def curve_of(run: Run, manifest: Manifest | None = None) -> Curve:
    """The losses of a run so far. manifest: the newest one, if the caller has read it. Raises
    CheckpointError.
    """
    read, of = (manifest or run.last().manifest).part
    records = [record for record in run.records("metrics") if "val_loss" in record]
    gpt = _column(records, "gpt_loss")
    return Curve(
        steps=_column(records, "step").astype(np.int64),
        train=_column(records, "train_loss"),
        val=_column(records, "val_loss"),
        gpt=gpt if np.isfinite(gpt).any() else None,
        name=run.name,
        characters=np.array(
            [min(max(0, record.get("val_characters", read)), of) for record in records], np.int64
        ),
        of=of,
    )


@dataclass(frozen=True, repr=False)
class TrainingCurve(TableResult):
    """Means over the steps of a training in N records of equally many steps; each array is
    (N,).

    steps: the last step of each record. loss: the mean loss of its batches, nats per character.
    gradient_norm: the mean norm of the gradient before clipping. learning_rate: the rate of the
    next step. speed: characters per second, NaN where it is unknown. name: the run's name.
    """

    steps: npt.NDArray[np.int64]
    loss: npt.NDArray[np.float64]
    gradient_norm: npt.NDArray[np.float64]
    learning_rate: npt.NDArray[np.float64]
    speed: npt.NDArray[np.float64]
    name: str = ""

    def __repr__(self) -> str:
        of = f" of {self.name}" if self.name else ""
        if not len(self):
            return f"<TrainingCurve{of}: no records>"
        last = f"the last at step {self.steps[-1]:,}: loss {self.loss[-1]:.4f} nats"
        return f"<TrainingCurve{of}: {len(self)} records, {last}>"

    def __len__(self) -> int:
        return len(self.steps)

    def blocks(self) -> list[Block]:
        """One curve over the steps for each quantity."""
        title = f"training of {self.name}" if self.name else "training"
        if not len(self):
            return [Title(title, ["no records yet"])]
        last = f"the last at step {self.steps[-1]:,}: loss {self.loss[-1]:.4f} nats"
        quantities = {
            "loss of the steps' batches, nats per character": self.loss,
            "norm of the gradient before clipping": self.gradient_norm,
            "learning rate": self.learning_rate,
            "characters per second": self.speed,
        }
        blocks: list[Block] = [Title(title, [counted(len(self), "record"), last])]
        for name, each in quantities.items():
            line, peaks = curve_line("", self.steps, each), each is self.learning_rate
            if line.x:
                curves = Curves([line], top=math.inf if peaks else highest_late_value([line]))
                blocks.append(Fold(name, [curves], opened=each is self.loss))
        return blocks

    def records(self) -> Records:
        """A row for each record."""
        columns = {"step": self.steps, "loss": self.loss, "gradient_norm": self.gradient_norm}
        columns |= {"learning_rate": self.learning_rate, "characters_per_second": self.speed}
        return Records(columns, {"run": self.name})


def training_curve_of(run: Run) -> TrainingCurve:
    """The records of a run's training so far; empty for an imported run. Raises CheckpointError."""
    records = run.records("training")
    return TrainingCurve(
        steps=_column(records, "step").astype(np.int64),
        loss=_column(records, "train_loss"),
        gradient_norm=_column(records, "gradient_norm"),
        learning_rate=_column(records, "learning_rate"),
        speed=_column(records, "characters_per_second"),
        name=run.name,
    )


def _column(records: Sequence[Mapping[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """One value of each record, NaN where it is missing."""
    return np.array([record.get(name, np.nan) for record in records], np.float64)
