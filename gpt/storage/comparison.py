"""Compares several runs: their losses, their curves, and the options in which they differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import Any

from gpt.characters import cut
from gpt.show.result import Column, Line, Result
from gpt.storage.manifest import Manifest
from gpt.storage.overview import Overview, overview_of
from gpt.storage.run import Run
from gpt.words import counted

#: Options that nobody chooses: the machine's speed sets eval_chars, the text vocab_size, and the
#: clock the steps of a run with a time budget.
MEASURED = {"eval_chars", "vocab_size"}
TIMED = {"steps"}
LONGEST = 16  # cells of an option's value


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Several runs, the lowest loss first. differs: the options that differ between them."""

    runs: tuple[Overview, ...]
    differs: tuple[str, ...]

    X_AXIS = "characters"
    COLUMNS = (
        Column("run", "run"),
        Column("loss", "loss", "{:.4f}".format, right=True),
        Column("gpt", "GPT alone", "{:.4f}".format, right=True),
        Column("options", "options that differ"),
    )

    @property
    def title(self) -> str:
        return f"{counted(len(self.runs), 'run')}, the lowest loss first"

    @property
    def _names(self) -> list[str]:
        """The names, each after a letter that marks its curve; the 53rd and later have none."""
        letters = ascii_letters.ljust(len(self.runs))
        return [f"{letter} {run.name}" for letter, run in zip(letters, self.runs, strict=False)]

    def curves(self) -> Sequence[Line]:
        """Losses over the characters of training, as steps of other runs may read more of them."""
        return [
            Line(
                name,
                (run.manifest.step_characters * run.curve.steps).tolist(),
                run.curve.val.tolist(),
            )
            for name, run in zip(self._names, self.runs, strict=True)
        ]

    def columns(self, all: bool = False) -> Sequence[Column]:
        counting = any(run.manifest.gpt_loss is not None for run in self.runs)
        return [column for column in self.COLUMNS if counting or column.field != "gpt"]

    def shown(self, all: bool = False) -> Sequence[Mapping[str, Any]]:
        rows = []
        for name, run in zip(self._names, self.runs, strict=True):
            recipe = recipe_of(run.manifest)
            options = [
                f"{option} {cut(str(recipe.get(option)), LONGEST)}" for option in self.differs
            ]
            losses = {"loss": run.loss, "gpt": run.manifest.gpt_loss}
            rows.append({"run": name, **losses, "options": " · ".join(options)})
        return rows

    def sentence(self, all: bool = False) -> str:
        texts = {(run.manifest.corpus.digest, *run.manifest.shown_loss[1:]) for run in self.runs}
        if len(texts) > 1:
            return "not all losses are of the same text: compare only those that are"
        return ""

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A row for each run: its options that differ, and how it went."""
        rows = []
        for run in self.runs:
            manifest, recipe = run.manifest, recipe_of(run.manifest)
            row = {
                "run": run.name,
                **{option: recipe.get(option) for option in self.differs},
                "val_nats": run.loss,
                "gpt_nats": manifest.gpt_loss,
                "counting_nats": manifest.baseline.nats if manifest.baseline else None,
                "val_characters": manifest.shown_loss[1],
                "best_step": manifest.best_step,
                "step": manifest.step,
                "characters": manifest.step * manifest.step_characters,
                "elapsed": manifest.elapsed,
                "parameters": manifest.model.parameters(),
                "corpus": ", ".join(manifest.corpus.sources),
            }
            rows.append(row)
        return rows

    def record(self) -> Mapping[str, Any]:
        return {"differs": list(self.differs)}


def recipe_of(manifest: Manifest) -> dict[str, Any]:
    """Every option that somebody chose, by name."""
    recipe, left_out = {**vars(manifest.model), **vars(manifest.train)}, MEASURED
    if manifest.clock is not None:
        recipe["minutes"] = manifest.clock.ends / 60
        left_out = MEASURED | TIMED
    if manifest.parent is not None:
        recipe["init_from"] = manifest.parent.title
    return {name: value for name, value in recipe.items() if name not in left_out}


def compare_runs(rows: Iterable[tuple[Run, Manifest]]) -> Comparison:
    """Compares runs; a run that is given twice counts once. Raises CheckpointError for a log that
    cannot be read.
    """
    distinct = {run.path: (run, manifest) for run, manifest in rows}
    runs = [overview_of(run, manifest) for run, manifest in distinct.values()]
    runs.sort(key=lambda run: math.inf if run.loss is None else run.loss)
    recipes = [recipe_of(run.manifest) for run in runs]
    names = dict.fromkeys(name for recipe in recipes for name in recipe)
    differs = [name for name in names if len({repr(recipe.get(name)) for recipe in recipes}) > 1]
    return Comparison(tuple(runs), tuple(differs))
