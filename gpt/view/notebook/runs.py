"""A trained GPT, a list of runs, several runs side by side, and a curve of losses."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from gpt.errors import CheckpointError
from gpt.storage.checkpoint import Checkpoint
from gpt.storage.comparison import Comparison, Curve, RunTable, TrainingCurve, mean_and_deviation
from gpt.trained import TrainedGPT
from gpt.view.notebook.card import MOST_ROWS, Cell, card, facts, label, note, table
from gpt.view.notebook.chart import chart
from gpt.view.terminal.comparison import validation_text
from gpt.view.terminal.plan_card import corpus_facts, model_facts, parent_facts
from gpt.view.terminal.runs import PART
from gpt.view.terminal.scores import best_facts, counting_facts, than_counting
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
    next_ = note(f"run.generate({text})   run.attention({text})   run.following({text})")
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
