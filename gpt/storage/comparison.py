"""Runs as data: the losses of one run over its training, the training itself, a list of runs, and
several runs side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.checks import TableResult
from gpt.config.train import BY_SHARE
from gpt.storage.manifest import Manifest
from gpt.storage.run import Run
from gpt.storage.runs import natural
from gpt.words import counted, measured_on

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Curve(TableResult):
    """A run's losses at its N evaluations, in nats per character, all (N,).

    steps: the step of each evaluation. train: the mean loss of the training steps since the
    evaluation before. val: on the validation split. gpt: of a run with counting, the validation
    loss of the GPT alone, NaN where it was not recorded. name: the run's. characters: those of the
    split's `of` that each of `val` was measured on; the best step's loss in a list of runs may be
    that of the whole split.
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
        """The lowest validation loss and its step; on how many characters, if not on all. Raises
        ValueError for no evaluations.
        """
        best = int(np.argmin(np.nan_to_num(self.val, nan=np.inf)))
        read = self.of if self.characters is None else int(self.characters[best])
        return f"{self.val[best]:.4f} nats at step {self.steps[best]:,}{measured_on(read, self.of)}"


def curve_of(run: Run, manifest: Manifest | None = None) -> Curve:
    """The losses of a run so far. manifest: its newest, if it has been read. Raises
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
    """What the steps of a training did, in N records of equally many steps, all (N,).

    steps: the last step of each record. loss: the mean loss of its batches, nats per character.
    gradient_norm: the mean norm of the gradient before clipping. learning_rate: of the next step.
    speed: characters per second, NaN where it is unknown. name: the run's.
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


def training_curve_of(run: Run) -> TrainingCurve:
    """The records of a run's training so far; empty for an imported run.

    Raises CheckpointError.
    """
    records = run.records("training")
    return TrainingCurve(
        steps=_column(records, "step").astype(np.int64),
        loss=_column(records, "train_loss"),
        gradient_norm=_column(records, "gradient_norm"),
        learning_rate=_column(records, "learning_rate"),
        speed=_column(records, "characters_per_second"),
        name=run.name,
    )


def _column(records: Sequence[Mapping[str, Any]], name: str) -> Array:
    """A value of each record, NaN where it is missing."""
    return np.array([record.get(name, np.nan) for record in records], np.float64)


@dataclass(frozen=True, repr=False)
class RunTable(TableResult):
    """Runs, each with the manifest of its newest checkpoint, the most recently saved last."""

    rows: tuple[tuple[Run, Manifest], ...]

    def __repr__(self) -> str:
        if not self.rows:
            return "<no runs>"
        names = ", ".join(run.name for run in [*self][-5:])
        return f"<{counted(len(self), 'run')}: {'… ' * (len(self) > 5)}{names}>"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Run]:
        return (run for run, _ in self.rows)


#: Options that the clock decides in a run with a time budget: they are results, like its losses.
TIMED = ("steps", "step_plan", "evaluations")
#: Not options of a recipe: split and val_fraction choose the validation text, the machine's speed
#: decides eval_part, and the corpus decides vocab_size.
OF_TEXT = ("split", "val_fraction", "eval_part", "vocab_size")


@dataclass(frozen=True)
class Entry:
    """One run: the manifest of its newest checkpoint, and its losses."""

    name: str
    manifest: Manifest
    curve: Curve

    @property
    def loss(self) -> float | None:
        """Of the best step, nats per character; None if nothing was evaluated."""
        return self.manifest.shown_loss[0]

    @property
    def options(self) -> dict[str, Any]:
        """Every option of the recipe by its name, the seed included; from: the model that the run
        started with, "" for random weights.
        """
        manifest = self.manifest
        values: dict[str, Any] = {**vars(manifest.model), **vars(manifest.train)}
        parent = manifest.parent
        values["from"] = parent.title if parent else ""
        if manifest.budget is not None:
            values |= {"minutes": manifest.budget.seconds / 60}
            left_out: tuple[str, ...] = (*OF_TEXT, *TIMED)
        else:
            left_out = OF_TEXT
        return {name: value for name, value in values.items() if name not in left_out}

    @property
    def characters(self) -> int:
        """Characters that the run has read to learn from, repeated ones included."""
        return self.manifest.step * self.manifest.step_characters

    @property
    def elapsed(self) -> float:
        """Since training began, evaluations and saves included."""
        return max(self.manifest.elapsed, self.manifest.seconds)

    @property
    def parameters(self) -> int:
        return self.manifest.model.parameters()

    @property
    def ended(self) -> bool:
        """Whether the run has done all its steps, stopped by `patience`, or was imported."""
        manifest, patience = self.manifest, self.manifest.train.patience
        return (
            bool(manifest.imported)
            or manifest.step >= manifest.train.steps
            or 0 < patience <= manifest.since_best
        )


def validation_of(manifest: Manifest) -> tuple[Any, ...]:
    """What decides the validation text: losses compare only if all of it is equal."""
    corpus, train = manifest.corpus, manifest.train
    share = (train.split, train.val_fraction) if train.split in BY_SHARE else (train.every,)
    text = (corpus.digest, corpus.boundary, corpus.order, corpus.folded)
    return *text, *share, manifest.val_characters


@dataclass(frozen=True)
class Group:
    """Runs of one recipe, which differ only in their seed. label: a name for all of them.

    options: the recipe's values of those options that differ in the comparison.
    """

    entries: tuple[Entry, ...]
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    @property
    def losses(self) -> list[float]:
        """Of the n runs that were evaluated, nats per character."""
        return [entry.loss for entry in self.entries if entry.loss is not None]

    @property
    def repeats(self) -> list[str]:
        """Runs with the seed of another run of the group: they are no further evidence."""
        seeds: dict[int, str] = {}
        return [
            entry.name
            for entry in self.entries
            if seeds.setdefault(entry.manifest.train.seed, entry.name) != entry.name
        ]

    @property
    def gpt_losses(self) -> list[float]:
        """Of the GPT alone, for runs with counting."""
        known = (entry.manifest.gpt_loss for entry in self.entries)
        return [loss for loss in known if loss is not None]

    @property
    def read(self) -> list[int]:
        """The numbers of characters that `losses` were measured on."""
        return sorted(
            {each.manifest.shown_loss[1] for each in self.entries if each.loss is not None}
        )

    def lines(self, characters: bool = False) -> list[tuple[Array, Array]]:
        """(x, validation loss) of every run, x in steps, or in characters of training."""
        found: list[tuple[Array, Array]] = []
        for entry in self.entries:
            known = np.isfinite(entry.curve.val)
            unit = entry.manifest.step_characters if characters else 1
            places = (unit * entry.curve.steps[known]).astype(np.float64)
            found.append((places, entry.curve.val[known]))
        return [line for line in found if len(line[0])]

    def mean_line(self, characters: bool = False) -> tuple[Array, Array] | None:
        """The mean of the lines; None if they were not evaluated at the same places."""
        lines = self.lines(characters)
        if not lines or any(not np.array_equal(lines[0][0], x) for x, _ in lines):
            return None
        return lines[0][0], np.mean([y for _, y in lines], axis=0)


def mean_and_deviation(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean and the sample standard deviation, n − 1 in its denominator; None where undefined.

    The deviation tells how far single seeds lie from the mean; the mean's error is that / √n.
    """
    if not values:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True, repr=False)
class Comparison(TableResult):
    """Runs side by side: in each set, which has one validation text, groups by their mean loss.

    columns: the options that differ between groups.
    """

    sets: tuple[tuple[Group, ...], ...]
    columns: tuple[str, ...]

    def __repr__(self) -> str:
        texts = f", {len(self.sets)} validation texts" if len(self.sets) > 1 else ""
        count = sum(len(group.entries) for group in self.groups)
        best = self.groups[0]
        mean, deviation = mean_and_deviation(best.losses)
        loss = "" if mean is None else f": best {best.label} {mean:.4f}"
        loss += "" if deviation is None else f" ± {deviation:.4f}"
        recipes = counted(len(self.groups), "recipe")
        return f"<{counted(count, 'run')} of {recipes}{texts}{loss}>"

    @cached_property
    def groups(self) -> list[Group]:
        return [group for each in self.sets for group in each]

    @property
    def by_characters(self) -> bool:
        """Whether a step reads different numbers of characters, so that steps do not compare."""
        units = {entry.manifest.step_characters for each in self.groups for entry in each.entries}
        return len(units) > 1

    def records(self) -> list[dict[str, Any]]:
        """A row for each group, for programs: its runs, and means over them.

        n: how many were evaluated. *_sd: sample standard deviations, None for fewer than two.
        val_characters: those that the losses are of, None if the runs' differ.
        validation: the number of the set, whose runs have the same validation text.
        """
        return [
            _record(group) | {"validation": number}
            for number, groups in enumerate(self.sets, start=1)
            for group in groups
        ]


def _record(group: Group) -> dict[str, Any]:
    entries = group.entries
    record: dict[str, Any] = {"runs": group.names, "n": len(group.losses), **group.options}
    for name, values in (("val_nats", group.losses), ("gpt_nats", group.gpt_losses)):
        record[name], record[f"{name}_sd"] = mean_and_deviation(values)
    record["val_characters"] = group.read[0] if len(group.read) == 1 else None
    best = [each.manifest.best_step for each in entries if each.manifest.best_step is not None]
    record["best_step"] = float(np.mean(best)) if best else None
    record["step"] = float(np.mean([each.manifest.step for each in entries]))
    for name in ("characters", "elapsed", "parameters"):
        record[name] = float(np.mean([getattr(each, name) for each in entries]))
    return record | {"corpus": ", ".join(entries[0].manifest.corpus.sources)}


def compared(rows: Iterable[tuple[Run, Manifest]], single: bool = False) -> Comparison:
    """Compares one run or more; a run that is there twice counts once. single: no groups of seeds.

    Raises CheckpointError for a log that cannot be read.
    """
    distinct = {run.path: (run, manifest) for run, manifest in rows}
    entries = [Entry(run.name, each, curve_of(run, each)) for run, each in distinct.values()]
    options = {entry.name: entry.options for entry in entries}
    by_recipe: dict[str, list[Entry]] = {}
    for entry in entries:
        kept = {name: value for name, value in options[entry.name].items() if name != "seed"}
        key = repr((validation_of(entry.manifest), kept, entry.name * single))
        by_recipe.setdefault(key, []).append(entry)
    grouped = [*by_recipe.values()]
    firsts = [options[group[0].name] for group in grouped]
    names = [name for name in dict.fromkeys(key for each in firsts for key in each)]
    columns = tuple(
        name
        for name in names
        if len({repr(each.get(name)) for each in firsts}) > 1 and (single or name != "seed")
    )
    every = [entry.name for entry in entries]
    sets: dict[tuple[Any, ...], list[Group]] = {}
    for group, first in zip(grouped, firsts, strict=True):
        label = label_of([entry.name for entry in group], every)
        shown = {name: first.get(name) for name in columns}
        found = Group(tuple(sorted(group, key=lambda each: natural(each.name))), label, shown)
        sets.setdefault(validation_of(group[0].manifest), []).append(found)
    return Comparison(tuple(tuple(sorted(each, key=_rank)) for each in sets.values()), columns)


def _rank(group: Group) -> float:
    mean, _ = mean_and_deviation(group.losses)
    return float("inf") if mean is None else mean


def label_of(names: Sequence[str], every: Sequence[str]) -> str:
    """A name for runs among `every`: their common beginning and end around a "*", or some names."""
    if len(names) == 1:
        return names[0]
    begin = _common(names)
    end = _common([name[len(begin) :][::-1] for name in names])[::-1]
    pattern = f"{begin}*{end}"
    matched = [name for name in every if fnmatchcase(name, pattern)]
    if sorted(matched) == sorted(names):
        return pattern
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"


def _common(names: Sequence[str]) -> str:
    """The longest common beginning."""
    first, last = min(names), max(names)
    length = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[:length] if length is not None else first[: min(len(first), len(last))]
