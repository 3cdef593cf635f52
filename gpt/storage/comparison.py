"""Compares several runs: a table of their losses and of the options that differ, and their
curves.

Each row of the table has a letter, which also marks its curve, so a drawing needs no colours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from string import ascii_letters
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import (
    Block,
    Cell,
    Column,
    Curves,
    Fold,
    Line,
    Note,
    Paragraph,
    Records,
    Table,
    Title,
)
from gpt.characters import cut
from gpt.checks import TableResult
from gpt.storage.curves import curve_line, highest_late_value
from gpt.storage.manifest import Manifest
from gpt.storage.overview import Overview, overview_of
from gpt.storage.run import Run
from gpt.storage.runs import natural_key
from gpt.words import counted, duration, measured_on, millions, ordinal

Array = npt.NDArray[np.float64]

#: Options that the clock sets in a run with a time budget: they are results, like its losses.
TIMED = ("steps", "step_plan", "evaluations")
#: Options that are not part of a recipe: split and val_fraction choose the validation text, the
#: machine's speed sets eval_part, and the corpus sets vocab_size.
OF_TEXT = ("split", "val_fraction", "eval_part", "vocab_size")
LONGEST = 16  # cells for an option's value


def recipe_of(manifest: Manifest) -> dict[str, Any]:
    """Every option of the recipe, the seed too; "from": the model that it started with, or ""."""
    values: dict[str, Any] = {**vars(manifest.model), **vars(manifest.train)}
    values["from"] = manifest.parent.title if manifest.parent else ""
    left_out: tuple[str, ...] = OF_TEXT
    if manifest.budget is not None:
        values["minutes"] = manifest.budget.ends / 60
        left_out += TIMED
    return {name: value for name, value in values.items() if name not in left_out}


def validation_of(manifest: Manifest) -> tuple[Any, ...]:
    """What determines the validation text: losses are comparable only if all of it is equal."""
    corpus, train = manifest.corpus, manifest.train
    share = (train.split, train.val_fraction) if train.split == "last" else (train.every,)
    text = (corpus.digest, corpus.boundary, corpus.order)
    return *text, *share, manifest.val_characters


@dataclass(frozen=True)
class Group:
    """Runs of one recipe, which differ only in their seed. label: a name for all of them.

    options: the recipe's values of the options that differ in the comparison.
    """

    entries: tuple[Overview, ...]
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [entry.name for entry in self.entries]

    @property
    def losses(self) -> list[float]:
        """(n,) the losses of the runs that were evaluated, in nats per character."""
        return [entry.loss for entry in self.entries if entry.loss is not None]

    @property
    def repeats(self) -> list[str]:
        """Runs whose seed another run of the group has, too; they are no further evidence."""
        seeds: dict[int, str] = {}
        return [
            entry.name
            for entry in self.entries
            if seeds.setdefault(entry.manifest.train.seed, entry.name) != entry.name
        ]

    @property
    def gpt_losses(self) -> list[float]:
        """The losses of the GPT alone, for runs with counting."""
        known = (entry.manifest.gpt_loss for entry in self.entries)
        return [loss for loss in known if loss is not None]

    @property
    def share(self) -> float:
        """The smallest share of the validation split on which a loss was measured."""
        parts = (each.manifest.shown_loss for each in self.entries if each.loss is not None)
        return min((read / of for _, read, of in parts if of), default=1.0)

    @property
    def read(self) -> list[int]:
        """The numbers of characters on which the `losses` were measured."""
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

    def mean_curve(self, characters: bool = False) -> tuple[Array, Array] | None:
        """The mean of the lines; None if they were not evaluated at the same places."""
        lines = self.lines(characters)
        if not lines or any(not np.array_equal(lines[0][0], x) for x, _ in lines):
            return None
        return lines[0][0], np.mean([y for _, y in lines], axis=0)


def mean_and_deviation(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean and the sample standard deviation, whose denominator is n − 1; None where
    undefined.

    The deviation tells how far single seeds lie from the mean; the error of the mean is smaller by
    √n.
    """
    if not values:
        return None, None
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True, repr=False)
class Comparison(TableResult):
    """Several runs. Each set has one validation text; its groups are ordered by mean loss.

    differs: the options that differ between groups.
    """

    sets: tuple[tuple[Group, ...], ...]
    differs: tuple[str, ...]

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
    def compares_by_characters(self) -> bool:
        """Whether steps are not comparable: those of some runs read more characters."""
        units = {entry.manifest.step_characters for each in self.groups for entry in each.entries}
        return len(units) > 1

    def blocks(self) -> list[Block]:
        """For each validation text: a table of losses and differing options, notes and curves."""
        several = f"{len(self.sets)} validation texts: compare losses only within one table"
        blocks: list[Block] = [Paragraph(several, "strong")] * (len(self.sets) > 1)
        for groups in self.sets:
            blocks += [_title(groups), self._table(groups), *map(Note, _notes(groups))]
            blocks += self._curves(groups)
        return blocks

    def _table(self, groups: Sequence[Group]) -> Table:
        columns: list[tuple[str, list[str]]] = [
            (name, [_option(group.options.get(name)) for group in groups]) for name in self.differs
        ]
        several = any(len(group.losses) > 1 for group in groups)
        shares = [group.share for group in groups]
        mixed = len({*shares}) > 1  # else the heading says it
        parts = [f" ({share:.0%})" * (mixed and share < 1) for share in shares]
        for name, losses in (
            ("val nats", [group.losses for group in groups]),
            ("GPT alone", [group.gpt_losses for group in groups]),
        ):
            if any(losses) or name == "val nats":
                means, spreads = zip(*map(mean_and_deviation, losses), strict=True)
                columns.append((name, [*map(_loss, means, parts)]))
                columns += [("±", [*map(_loss, spreads)])] * several
        columns += [("n", [str(len(group.losses)) for group in groups])] * several
        columns.append(
            ("best step", [_span(g, lambda each: each.manifest.best_step) for g in groups])
        )
        whole = [
            ("step", [_span(g, lambda each: each.manifest.step) for g in groups]),
            ("characters", [_span(g, lambda each: each.characters, millions) for g in groups]),
            ("parameters", [_span(g, lambda each: each.parameters, millions) for g in groups]),
            ("time", [_span(g, lambda each: round(each.elapsed), duration) for g in groups]),
        ]
        del whole[1 : 1 + (not self.compares_by_characters)]  # where steps say the same
        columns += [(name, cells) for name, cells in whole if len({*cells}) > 1]
        labels = [
            f"{mark:1} {each.label}" for mark, each in zip(row_letters(groups), groups, strict=True)
        ]
        rows = [
            [*map(Cell, row)] for row in zip(labels, *(cells for _, cells in columns), strict=True)
        ]
        return Table([Column("run", left=True), *(Column(name) for name, _ in columns)], rows)

    def _curves(self, groups: Sequence[Group]) -> list[Block]:
        """The validation losses over steps or, if the runs' steps read different numbers of
        characters, over the characters of training. A group of seeds is shown by its mean, or as
        single runs if they were not evaluated after the same steps.
        """
        lines: list[Line] = []
        means, by_characters = False, self.compares_by_characters
        for mark, group in zip(row_letters(groups), groups, strict=True):
            every, mean = group.lines(by_characters), group.mean_curve(by_characters)
            means |= mean is not None and len(every) > 1
            lines += [curve_line(mark, *each) for each in ([mean] if mean else every)]
        if not lines:
            return []
        unit = "characters" if by_characters else "step"
        curves = Curves(lines, unit, highest_late_value(lines))
        title = f"validation loss, nats per character{', means over seeds' * means}"
        return [Fold(title, [curves], opened=True)]

    def records(self) -> Records:
        """A row for each group: its runs, and means over them. facts: the options that differ, and
        each single run.

        n: how many runs were evaluated. *_sd: sample standard deviations, None for fewer than two.
        val_characters: how many characters the losses were measured on, None if that differs
        between the runs. validation: the number of the set, whose runs have the same validation
        text.
        """
        rows = [
            _record(group) | {"validation": number}
            for number, groups in enumerate(self.sets, start=1)
            for group in groups
        ]
        entries = [entry for group in self.groups for entry in group.entries]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return Records(columns, {"differs": list(self.differs), "runs": [*map(_nested, entries)]})


def _nested(entry: Overview) -> dict[str, Any]:
    """One run of several, for programs: its facts and its rows."""
    run = entry.records()
    columns = {name: np.asarray(each).tolist() for name, each in run.columns.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {**run.facts, "rows": rows}


def row_letters(groups: Sequence[Group]) -> list[str]:
    """A letter for each group; "" after the 52nd."""
    return [*ascii_letters, *[""] * len(groups)][: len(groups)]


def validation_text(manifest: Manifest) -> str:
    """ "the last 10 % of corpus.txt"."""
    if not manifest.corpus.digest:
        return "a text that is not known"
    train, sources = manifest.train, ", ".join(manifest.corpus.sources)
    share = f"{100 * train.val_fraction:g} %"
    if train.split == "last":
        return f"the last {share} of {sources}"
    return f"every {ordinal(train.every)} piece of {sources}" if train.every else train.split


def curve_characters(groups: Sequence[Group]) -> str:
    """The number of characters on which the curves are measured, unless it is that of the table."""
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


def _title(groups: Sequence[Group]) -> Title:
    """How many runs the table has, and on which text they were validated."""
    runs = counted(sum(len(group.entries) for group in groups), "run")
    seeds = f" of {counted(len(groups), 'recipe')}" * any(len(each.entries) > 1 for each in groups)
    manifest = groups[0].entries[0].manifest
    size = f", {manifest.val_characters:,} characters" if manifest.val_characters else ""
    parts = {entry.manifest.shown_loss[1:] for group in groups for entry in group.entries}
    if len(parts) == 1:
        size += measured_on(*parts.pop())
    return Title(f"{runs}{seeds}", [f"validated on {validation_text(manifest)}{size}"])


def _option(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "–" if value is None else cut(text, LONGEST)


def _loss(nats: float | None, part: str = "") -> str:
    return "–" if nats is None else f"{nats:.4f}{part}"


def _span(
    group: Group, value: Callable[[Overview], Any], shown: Callable[[Any], str] = "{:,}".format
) -> str:
    """The value that all runs have, or the smallest and the largest."""
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
                imported = bool(entry.manifest.imported)
                why = "imported, so it has no losses" if imported else "not evaluated yet"
                notes.append(f"{why}: {entry.name}")
            else:
                parts.setdefault((read, of), {})[group.label] = None
    if len(parts) > 1:  # else the title says it
        for (read, of), labels in parts.items():
            notes += [f"losses on {read:,} of {of:,} characters: {', '.join(labels)}"] * (read < of)
    return [*notes, on] if (on := curve_characters(groups)) else notes


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


def compare_runs(rows: Iterable[tuple[Run, Manifest]]) -> Comparison:
    """Compares runs; a run that is given twice counts once. Raises CheckpointError for a log that
    cannot be read.
    """
    distinct = {run.path: (run, manifest) for run, manifest in rows}
    entries = [overview_of(run, manifest) for run, manifest in distinct.values()]
    by_recipe: dict[str, list[Overview]] = {}
    for entry in entries:
        kept = recipe_of(entry.manifest) | {"seed": None}
        key = repr((validation_of(entry.manifest), kept))
        by_recipe.setdefault(key, []).append(entry)
    grouped = [*by_recipe.values()]
    firsts = [recipe_of(group[0].manifest) for group in grouped]
    columns = tuple(
        name
        for name in dict.fromkeys(key for each in firsts for key in each)
        if len({repr(each.get(name)) for each in firsts}) > 1 and name != "seed"
    )
    every = [entry.name for entry in entries]
    sets: dict[tuple[Any, ...], list[Group]] = {}
    for group, first in zip(grouped, firsts, strict=True):
        label = group_label([entry.name for entry in group], every)
        shown = {name: first.get(name) for name in columns}
        found = Group(tuple(sorted(group, key=lambda each: natural_key(each.name))), label, shown)
        sets.setdefault(validation_of(group[0].manifest), []).append(found)
    return Comparison(tuple(tuple(sorted(each, key=_rank)) for each in sets.values()), columns)


def _rank(group: Group) -> tuple[bool, float]:
    """Sort key. Losses on a part of the split are not comparable and come last."""
    mean, _ = mean_and_deviation(group.losses)
    return group.share < 1, float("inf") if mean is None else mean


def group_label(names: Sequence[str], every: Sequence[str]) -> str:
    """A name for some of the runs: their common beginning and end around "*", or a few names."""
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
    """The longest common beginning of these names."""
    first, last = min(names), max(names)
    return next(first[:end] for end in range(len(first), -1, -1) if last.startswith(first[:end]))
