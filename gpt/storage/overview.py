"""Results about saved runs: a list of runs, one run with its losses and samples, and sentences that
compare a loss with that of counting n-grams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from gpt.config import ModelConfig
from gpt.config.fields import with_flags
from gpt.errors import CheckpointError
from gpt.show.result import Column, PlotLine, ReadOnlyArrays, Result
from gpt.storage.checkpoint_files import CorpusId, Doubts, Manifest, Parent
from gpt.storage.run import Run, all_runs, find_run, pinned_run, step_folder
from gpt.words import (
    cut,
    duration,
    first_few,
    in_millions,
    layers_and_heads,
    nats_to_bits,
    pluralize,
    quoted_label,
)

# The widths, in cells of the terminal, to which texts are cut.
LONGEST_NAMES, LONGEST_VALUE, LONGEST_SAMPLE = 40, 100, 60
MOST_CHARACTERS = 12  # that `parent_facts` lists, of those that the parent lacks

Losses = npt.NDArray[np.float64]
#: A loss in nats, the number of characters it was measured on, and the number in the whole split.
Measured = tuple[float | None, int, int]


@dataclass(frozen=True, eq=False)
class Curve(ReadOnlyArrays):
    """A run's losses at its N evaluations, in nats per character; all arrays are (N,).

    steps: the steps of the evaluations. train: the mean loss of the training steps since the
    previous evaluation. val: the validation loss. characters: the number of characters on which
    `val` was measured. gpt: in a run with counting, the validation loss of the GPT alone, NaN where
    the log does not have it; None if the log never has it.
    """

    steps: npt.NDArray[np.int64]
    train: Losses
    val: Losses
    characters: npt.NDArray[np.int64]
    gpt: Losses | None = None


@dataclass(frozen=True, repr=False)
class Overview(Result):
    """A saved run: its model, its options, its losses, and three of its samples.

    manifest: that of the newest checkpoint. Methods that read the logs raise CheckpointError.
    """

    run: Run
    manifest: Manifest

    COLUMNS = (
        Column("step", "step", "{:,}".format, right=True),
        Column("loss", "loss", "{:.4f}".format, right=True),
        Column("text", "the model wrote"),
    )

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def path(self) -> Path:
        """The run's folder, which `gpt.load` opens."""
        return self.run.path

    @property
    def title(self) -> str:
        manifest = self.manifest
        title = f"{self.name} · step {manifest.step:,}"
        if manifest.imported:
            return title
        steps = f" of {manifest.train.steps:,}" if manifest.clock is None else ""
        return f"{title}{steps} · {duration(manifest.elapsed)}"

    @property
    def loss(self) -> float | None:
        """The validation loss of the best step, nats per character; None before an evaluation."""
        return self.manifest.shown_loss[0]

    @cached_property
    def curve(self) -> Curve:
        """The losses at all evaluations so far, in nats per character."""
        read, total = self.manifest.evaluated_characters
        records = [record for record in self.run.records("metrics") if "val_loss" in record]

        def column(name: str, missing: float = np.nan) -> Losses:
            return np.array([record.get(name, missing) for record in records], np.float64)

        gpt = column("gpt_loss")
        return Curve(
            steps=column("step").astype(np.int64),
            train=column("train_loss"),
            val=column("val_loss"),
            characters=column("val_characters", read).clip(0, total).astype(np.int64),
            gpt=gpt if np.isfinite(gpt).any() else None,
        )

    @property
    def options(self) -> dict[str, Any]:
        """All options of the model and the training: name -> value."""
        return {**vars(self.manifest.model), **vars(self.manifest.train)}

    def facts(self, all: bool = False) -> Mapping[str, str]:
        """The run's loss, text and model. all: adds the options, if gptx knows them."""
        manifest = self.manifest
        facts: dict[str, str] = {
            "loss": "" if manifest.imported else _loss_facts(manifest),
            "doubts": "; ".join(map(with_flags, manifest.doubts.sentences)),
            "GPT alone": "" if manifest.gpt_loss is None else f"{manifest.gpt_loss:.4f} nats",
            "text": corpus_facts(manifest.corpus, manifest.model, manifest.parent),
            "from": manifest.imported or parent_facts(manifest.parent),
            "model": model_facts(manifest.model),
        }
        if all:
            options = vars(manifest.model) if manifest.imported else self.options
            facts |= {name: cut(str(value), LONGEST_VALUE) for name, value in options.items()}
        return facts

    def curves(self) -> Sequence[PlotLine]:
        """The losses over the steps; nothing before the second evaluation."""
        curve = self.curve
        losses = {"validation": curve.val, "training": curve.train, "GPT alone": curve.gpt}
        steps = curve.steps.tolist()
        lines = [PlotLine(name, steps, y.tolist()) for name, y in losses.items() if y is not None]
        return lines if len(steps) > 1 else ()

    def table_rows(self, all: bool = False) -> Sequence[Mapping[str, Any]]:
        """The first, the middle and the last sample."""
        samples, rows = self.run.records("samples"), []
        losses = dict(zip(self.curve.steps.tolist(), self.curve.val.tolist(), strict=True))
        last = len(samples) - 1
        for number in sorted({0, last // 2, last}) if samples else ():
            step, text = samples[number]["step"], " ".join(samples[number]["text"].split())
            text = cut(text, LONGEST_SAMPLE)
            rows.append({"step": step, "loss": losses.get(step), "text": text})
        return rows

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A row for every evaluation."""
        curve = self.curve
        columns = {"step": curve.steps, "train": curve.train, "val": curve.val}
        if curve.gpt is not None:
            columns["gpt"] = curve.gpt
        columns["val_characters"] = curve.characters
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def record(self) -> Mapping[str, Any]:
        """The run's outcome, options and corpus, for programs."""
        corpus = self.manifest.corpus
        text = {"sources": list(corpus.sources), "characters": corpus.characters}
        return {
            **outcome_record(self.name, self.manifest),
            "options": self.options,
            "parameters": self.manifest.model.parameters(),
            "corpus": {**text, "digest": corpus.digest},
        }


def _loss_facts(manifest: Manifest) -> str:
    """The loss of the best step, compared with counting."""
    nats, characters, total = manifest.shown_loss
    if nats is None:
        return "not evaluated yet"
    loss = f"{nats:.4f} nats a character at step {manifest.best_step or 0:,}"
    read = manifest.evaluated_characters[0]
    if characters < total:
        loss += f" (on {characters:,} of {total:,})"
    elif read < characters:
        loss += f" (on all {total:,} characters; other losses: on {read:,})"
    verdict = compare_with_counting(manifest)
    return f"{loss}, {verdict}" if verdict else loss


def outcome_record(name: str, manifest: Manifest) -> dict[str, Any]:
    """A run's steps, losses and times, for programs."""
    clock = manifest.clock
    best, characters, total = manifest.shown_loss
    return {
        "run": name,
        "step": manifest.step,
        "best_step": manifest.best_step,
        "val_nats": best,
        "val_bits": None if best is None else nats_to_bits(best),
        "val_characters": characters or None,
        "val_split": total or None,
        "seconds": round(manifest.seconds, 3),
        "elapsed": round(manifest.elapsed, 3),
        "minutes": None if clock is None else clock.end_elapsed / 60,
        "gpt_nats": manifest.gpt_loss,
        "doubts": asdict(manifest.doubts),
        "parent": asdict(manifest.parent) if manifest.parent else None,
        "counting": counting_record(manifest),
    }


def corpus_facts(corpus: CorpusId, config: ModelConfig, parent: Parent | None = None) -> str:
    """Says the names and the size of a run's text. parent: the model that the run started from."""
    kinds = f"{config.vocab_size:,} {'in the vocabulary' if parent else 'different'}"
    if not corpus.sources:
        return f"not known, {kinds} characters"
    return f"{first_few(corpus.names, 3, ', ')}: {corpus.characters:,} characters, {kinds}"


def parent_facts(parent: Parent | None) -> str:
    """Names the model that the run started from, and the characters that were new to this model."""
    if parent is None:
        return ""
    if not parent.added:
        return f"{parent.title}, which knows all characters"
    new = pluralize(len(parent.added), "new character")
    added = first_few([quoted_label(character) for character in parent.added], MOST_CHARACTERS)
    return f"{parent.title}; {new}: {added}"


def model_facts(config: ModelConfig) -> str:
    """Says a model's size, shape and context."""
    size = f"{in_millions(config.parameters())} parameters"
    shape = f"{layers_and_heads(config.n_layer, config.n_head)} × {config.head_size}"
    counting = f", counting of up to {config.counting} characters" if config.counting else ""
    return f"{size}: {shape}, context {config.block_size}{counting}"


@dataclass(frozen=True, repr=False)
class Runs(Result):
    """A list of runs, the most recently saved last. `runs["name"]` or `runs[-1]` gives one run."""

    runs: tuple[Overview, ...]

    COLUMNS = (
        Column("run", "run"),
        Column("saved", "saved", right=True),
        Column("trained", "trained", right=True),
        Column("loss", "loss", "{:.4f}".format, right=True),
        Column("counting", "counting", "{:.4f}".format, right=True),
        Column("text", "text"),
    )

    @property
    def title(self) -> str:
        return pluralize(len(self), "run")

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Overview]:
        return iter(self.runs)

    def __getitem__(self, key: str | SupportsIndex) -> Overview:
        if isinstance(key, str):
            return {run.name: run for run in self}[key]
        return self.runs[index(key)]

    def table_rows(self, all: bool = False) -> Sequence[Mapping[str, Any]]:
        rows = []
        for number, run in enumerate(self, start=1):
            manifest = run.manifest
            mark = " (newest)" if 1 < number == len(self) else ""
            if run.run == pinned_run(run.path.parent):
                mark += " (pinned)"
            if manifest.doubts != Doubts():
                mark += " (loss in doubt)"
            saved = ""
            with suppress(OSError):  # someone may have deleted the run meanwhile
                seconds = (run.path / step_folder(manifest.step)).stat().st_mtime
                saved = f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"
            row = {
                "run": run.name + mark,
                "saved": saved,
                "trained": "imported" if manifest.imported else duration(manifest.elapsed),
                "loss": run.loss,
                "counting": manifest.baseline.nats if manifest.baseline else None,
                "text": cut(first_few(manifest.corpus.names, 3, ", "), LONGEST_NAMES),
            }
            rows.append(row)
        return rows

    def sentence(self, all: bool = False) -> str:
        return "nats a character · gptx runs NAME shows one run"

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """A row for every run; see `outcome_record`."""
        return [outcome_record(run.name, run.manifest) for run in self]


def read_runs(root: Path) -> tuple[Runs, list[str]]:
    """The runs in the folder `root`, and an error text for every run whose newest manifest is
    damaged. Raises CheckpointError if the folder has no run.
    """
    runs, problems = list[Overview](), list[str]()
    for run in all_runs(root) or [find_run(root)]:
        try:
            runs.append(Overview(run, run.last().manifest))
        except CheckpointError as error:
            problems.append(str(error))
    return Runs(tuple(runs)), problems


def compare_with_counting(manifest: Manifest, measured: Measured | None = None) -> str:
    """Compares a loss with counting: "0.0037 worse than counting (1.1210)"; "" without a baseline.
    measured: a loss on the validation split; None: the run's shown_loss.
    """
    (nats, *_), record = measured or manifest.shown_loss, counting_record(manifest, measured)
    if record is None or nats is None:
        return ""
    counting = f"counting ({record['nats']:.4f})"
    if not record["same_characters"]:
        return f"{counting} was measured on other characters"
    difference = f"{round(nats, 4) - round(record['nats'], 4):.4f}"
    if float(difference) == 0:
        return f"as good as {counting}"
    verdict = "better" if difference.startswith("-") else "worse"
    return f"{difference.removeprefix('-')} {verdict} than {counting}"


def counting_record(manifest: Manifest, measured: Measured | None = None) -> dict[str, Any] | None:
    """The baseline of counting and the loss's difference from it, for programs; None without a
    baseline. The field "difference" is above 0 if the model is worse, and None if the two losses
    were measured on different characters.
    """
    nats, characters, total = measured or manifest.shown_loss
    baseline = manifest.baseline
    if baseline is None:
        return None
    same = characters == total == baseline.scored
    return {
        "order": baseline.order,
        "nats": baseline.nats,
        **vars(baseline),
        "difference": nats - baseline.nats if nats is not None and same else None,
        "same_characters": same,
    }
