"""`gptx train`: the card, the loop with its bar, the farewell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt import console, presets
from gpt.commands.options import (
    Checkpoints,
    ConfigFile,
    Data,
    Json,
    OnDevice,
    only_given,
    options_from,
    typed,
)
from gpt.config import ModelConfig, TrainConfig, to_toml
from gpt.devices import share_cores
from gpt.errors import ConfigError

if TYPE_CHECKING:
    from gpt.run import Checkpoint, Run
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

SAMPLE_LENGTH = 160  # characters of the sample at each evaluation


@options_from(
    ModelConfig,
    TrainConfig,
    defaults={**presets.preset("default", "cpu"), **dict.fromkeys(presets.FITTED, "fitted")},
)
def train(
    context: typer.Context,
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders, - for standard input, or a known name: shakespeare. "
            "Nothing trains on the Python language reference that comes with Python.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        presets.Preset, typer.Option(help="classic: nanoGPT's recipe; best: lowest loss, slow.")
    ] = "default",
    minutes: Annotated[float | None, typer.Option(help="Fit the steps to this time.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run.")] = False,
    changed_corpus: Annotated[
        bool, typer.Option("--changed-corpus", help="Go on although the text is another one.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Stop after the card.")] = False,
    run: Annotated[
        str | None, typer.Option(help="The run's name.", show_default="the corpus's and a number")
    ] = None,
    device: OnDevice = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    data: Data = Path("data"),
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Train a model on a text, and keep its best and last checkpoints.

    Defaults are those of --preset default on a CPU; "fitted": corpus and time decide.
    """
    share_cores()
    from gpt.run import check_run_name, discard_if_empty, find_run, new_run
    from gpt.training.finding import find_corpus, read_corpus
    from gpt.training.plan import make_plan, resume_plan, usable_device
    from gpt.training.sources import corpus_name, printable
    from gpt.training.trainer import Trainer

    names, options, stdin = corpus or [], only_given(given), sys.stdin.buffer
    spelled = typed(context)
    if minutes is not None and "minutes" in spelled and "steps" not in spelled:
        options.pop("steps", None)  # what a config file says of them
    if run is not None:
        check_run_name(run)
    if changed_corpus and not resume:
        raise ConfigError("--changed-corpus: only with --resume")
    if not resume:
        told = (context.default_map or {}).get("preset", preset)
        if told != preset:
            raise ConfigError(f"--preset: {preset}, but --config says {told}; give one of them")
        folder = None if dry_run else new_run(checkpoints, corpus_name(names), run)
        try:
            read, chosen = read_corpus(names, data, stdin), usable_device(device)
            plan = make_plan(read, options, preset, chosen, minutes)
            _show_card(plan)
            if folder is not None:
                with folder.lock():
                    corpus = [printable(name) for name in names] or None
                    folder.write("config.toml", to_toml({"corpus": corpus, **plan.settings()}))
                    trainer = Trainer(folder, read, plan.manifest, chosen)
                    _train(trainer, min(plan.ngrams), as_json)
        finally:
            if folder is not None:
                discard_if_empty(folder)
        return
    if minutes is not None:
        raise ConfigError(
            "--minutes: a resumed run keeps its schedule; use --steps to train longer"
        )
    folder = find_run(checkpoints, run)
    with folder.lock():
        checkpoint, warnings = folder.last_valid()
        if spelled.get("preset", checkpoint.manifest.preset) != checkpoint.manifest.preset:
            raise ConfigError(
                f"--preset: this run has {checkpoint.manifest.preset}; leave the option out, or "
                "train a new run"
            )
        read = find_corpus(checkpoint.manifest, names, data, stdin, changed_corpus)
        plan = resume_plan(checkpoint, read, options, usable_device(device))
        for warning in [*warnings, *plan.warnings]:
            console.say(f"warning: {warning}")
        console.say(f"resuming {folder.name} at step {checkpoint.manifest.step:,}")
        _show_card(plan)
        if checkpoint.manifest.step == plan.manifest.train.steps:
            console.say("this run has done all its steps; train longer with --steps N")
        if not dry_run:
            trainer = Trainer.resume(folder, read, checkpoint, plan.manifest.train, plan.device)
            _train(trainer, min(plan.ngrams), as_json)


def _show_card(plan: Plan) -> None:
    """What will happen, before it does."""
    from gpt.view import reports

    manifest, identity, measured = plan.manifest, plan.corpus.identity, plan.measurement
    model, training = manifest.model, manifest.train
    step_characters = training.batch_size * model.block_size
    left = measured.total_seconds(training, manifest.step)
    rows = {
        "corpus": reports.corpus_facts(identity.sources, identity.characters, model),
        "characters": reports.character_facts(plan.rare, plan.only_in_val),
        "split": f"{plan.train_characters:,} to train on, {plan.val_characters:,} to validate",
        "model": reports.model_facts(model),
        "heads": reports.heads_facts(model),
        "training": reports.training_facts(training, step_characters, plan.train_characters),
        "fitted": "; ".join(plan.why),
        "device": reports.device_facts(plan.device, manifest.environment, measured.memory),
        "time": reports.time_facts(measured.seconds_per_step, step_characters, left),
        "to beat": reports.baseline_facts(plan.uniform, plan.ngrams),
    }
    for note in plan.corpus.notes:
        console.say(f"note: {note}")
    console.show_aside(reports.card(rows))


def _train(trainer: Trainer, to_beat: float, as_json: bool) -> None:
    """Runs the loop: one bar, a line an evaluation, a farewell. A signal sets the exit code."""
    from gpt.progress import TrainingBar
    from gpt.training.trainer import Evaluated, Saved, Stepped, Stopped
    from gpt.view import reports

    run, config, reason = trainer.run, trainer.config, ""
    step_characters = config.batch_size * trainer.manifest.model.block_size
    with (
        console.graceful(trainer.stop) as signals,
        TrainingBar(trainer.manifest.step, config.steps, step_characters) as bar,
    ):
        for event in trainer.events():
            if isinstance(event, Stepped):
                bar.step(event.step, event.loss)
            elif isinstance(event, Evaluated):
                bar.evaluated(event.val_loss, best=not event.since_best)
                bar.say(reports.evaluation_line(**vars(event)))
            elif isinstance(event, Saved):
                text = _short_sample(run, event.checkpoint)
                bar.say(reports.sample_line(text, console.aside_width()))
            elif isinstance(event, Stopped):
                reason = event.reason
    manifest = trainer.manifest
    console.show_aside(reports.card(reports.farewell(run, manifest, reason, to_beat)))
    if as_json:
        console.write(json.dumps(reports.result(run.name, manifest, reason)) + "\n")
    if signals:
        raise typer.Exit(128 + signals[0])


def _short_sample(run: Run, checkpoint: Checkpoint) -> str:
    """What the model writes by now. Opening it proves the file that has just been saved."""
    from gpt.reading.trained import TrainedGPT

    text = TrainedGPT(checkpoint.model()).generate(length=SAMPLE_LENGTH)
    run.append("samples", {"step": checkpoint.manifest.step, "text": text})
    return text
