"""`gptx train`: the card, the loop with its bar, the farewell."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
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
from gpt.devices import Device, share_cores
from gpt.errors import ConfigError, GptxError, OutOfMemory

if TYPE_CHECKING:
    from gpt.run import Checkpoint, Run
    from gpt.training.plan import Plan
    from gpt.training.ranks import Ranks
    from gpt.training.trainer import Event, Trainer

READING = ("separator", "split", "min_count", "replacement")  # options of how a text is read
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
    shard: Annotated[
        bool, typer.Option("--shard", help="Under torchrun: spread the weights over the ranks.")
    ] = False,
    **given: Any,
) -> None:
    """Train a model on a text, and keep its best and last checkpoints.

    Defaults are those of --preset default on a CPU; "fitted": corpus and time decide.
    """
    share_cores()
    from gpt.training.launch import Launch
    from gpt.training.ranks import Ranks

    options, spelled = only_given(given), typed(context)
    if minutes is not None and "minutes" in spelled and "steps" not in spelled:
        options.pop("steps", None)  # what a config file says of them
    if changed_corpus and not resume:
        raise ConfigError("--changed-corpus: only with --resume")
    told = (context.default_map or {}).get("preset", preset)
    if not resume and told != preset:
        raise ConfigError(f"--preset: {preset}, but --config says {told}; give one of them")
    if resume and minutes is not None:
        raise ConfigError(
            "--minutes: a resumed run keeps its schedule; use --steps to train longer"
        )
    reading = TrainConfig(**{name: options[name] for name in READING if name in options})
    if not resume and reading.split != "last" and "val_fraction" in spelled:
        raise ConfigError("--val-fraction: only with --split last")
    order = _Order(corpus or [], options, reading, device, data, checkpoints, run, dry_run, as_json)
    ranks = Ranks(Launch.here(), shard)
    with _parting(ranks):
        interrupted = _interrupted(order, ranks)
        if interrupted is not None or resume:
            _go_on(order, ranks, interrupted, spelled.get("preset"), changed_corpus)
        else:
            _begin(order, ranks, preset, minutes)


@dataclass(frozen=True)
class _Order:
    """What was asked for, of a new run or of an old one."""

    corpus: Sequence[str]
    options: Mapping[str, Any]
    reading: TrainConfig  # how the text is read; the rest of it is not decided
    device: Device
    data: Path
    checkpoints: Path
    run: str | None
    dry_run: bool
    as_json: bool


@contextmanager
def _parting(ranks: Ranks) -> Iterator[None]:
    """Leaves together. Of an error that all ranks have, or that another had, the first speaks."""
    try:
        yield
    except OutOfMemory as error:
        raise OutOfMemory(f"rank {ranks.rank}: {error}" if ranks.size > 1 else str(error)) from None
    except GptxError as error:
        if ranks.first:
            raise
        raise typer.Exit(error.exit_code) from None
    ranks.leave()


def _interrupted(order: _Order, ranks: Ranks) -> Run | None:
    """The run that this launch began before it was started again; all ranks hear of it."""
    from gpt.run import Run

    if ranks.size == 1 and not ranks.launch.name:
        return None
    if ranks.first:
        found = ranks.launch.interrupted(order.checkpoints)
        ranks.tell("interrupted", str(found.path) if found else "")
        return found
    path = ranks.hear("interrupted")
    return Run(Path(path)) if path else None


def _begin(order: _Order, ranks: Ranks, preset: presets.Preset, minutes: float | None) -> None:
    """A new run."""
    from gpt.progress import working
    from gpt.run import Run, check_run_name, discard_if_empty, new_run
    from gpt.training.finding import read_corpus
    from gpt.training.plan import make_plan, usable_device
    from gpt.training.sharing import shared_corpus
    from gpt.training.sources import corpus_name, printable
    from gpt.training.trainer import Trainer

    if order.run is not None:
        check_run_name(order.run)
    folder = None
    if ranks.first and not order.dry_run:
        folder = new_run(order.checkpoints, corpus_name(order.corpus), order.run)
    try:
        if folder is not None:
            ranks.launch.mark(folder)
        device = usable_device(order.device)
        with working("encoding") as done:
            read = shared_corpus(
                ranks,
                order.data,
                order.reading,
                lambda: read_corpus(
                    order.corpus, order.data, sys.stdin.buffer, config=order.reading, progress=done
                ),
            )
        ranks.meet(device)
        plan = make_plan(read, order.options, preset, device, minutes, ranks)
        if ranks.first:
            _show_card(plan)
        if order.dry_run:
            return
        with ExitStack() as stack:
            if folder is not None:
                stack.enter_context(folder.lock())
                corpus = [printable(name) for name in order.corpus] or None
                folder.write("config.toml", to_toml({"corpus": corpus, **plan.settings()}))
            trainer = Trainer(folder or Run(Path()), read, plan.manifest, device, ranks)
            _train(trainer, min(plan.ngrams), order.as_json)
    finally:
        if folder is not None:
            discard_if_empty(folder)


def _go_on(
    order: _Order,
    ranks: Ranks,
    interrupted: Run | None,
    preset: str | None,
    changed_corpus: bool,
) -> None:
    """The interrupted run, or the named one, or the newest."""
    from gpt.progress import working
    from gpt.run import find_run
    from gpt.training.finding import find_corpus
    from gpt.training.plan import resume_plan, usable_device
    from gpt.training.sharing import shared_checkpoint, shared_corpus
    from gpt.training.trainer import Trainer

    with ExitStack() as stack:
        folder = interrupted or find_run(order.checkpoints, order.run)
        if ranks.first:
            stack.enter_context(folder.lock())
            ranks.launch.mark(folder)
        checkpoint, warnings = shared_checkpoint(ranks, folder)
        if preset not in (None, checkpoint.manifest.preset):
            raise ConfigError(
                f"--preset: this run has {checkpoint.manifest.preset}; leave the option out, or "
                "train a new run"
            )
        with working("encoding") as done:
            read = shared_corpus(
                ranks,
                order.data,
                checkpoint.manifest.train,
                lambda: find_corpus(
                    checkpoint.manifest,
                    order.corpus,
                    order.data,
                    sys.stdin.buffer,
                    changed_corpus,
                    done,
                ),
            )
        device = usable_device(order.device)
        ranks.meet(device)
        plan = resume_plan(checkpoint, read, order.options, device, ranks)
        if ranks.first:
            for warning in [*warnings, *plan.warnings]:
                console.say(f"warning: {warning}")
            console.say(f"resuming {folder.name} at step {checkpoint.manifest.step:,}")
            _show_card(plan)
            if checkpoint.manifest.step == plan.manifest.train.steps:
                console.say("this run has done all its steps; train longer with --steps N")
        if not order.dry_run:
            trainer = Trainer.resume(folder, read, checkpoint, plan.manifest.train, device, ranks)
            _train(trainer, min(plan.ngrams), order.as_json)


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
        "folded": reports.folded_facts(identity, training.replacement),
        "split": reports.split_facts(
            plan.train_characters,
            plan.val_characters,
            training,
            plan.corpus.block,
            plan.evaluated_characters,
        ),
        "model": reports.model_facts(model),
        "heads": reports.heads_facts(model),
        "training": reports.training_facts(training, step_characters, plan.train_characters),
        "fitted": "; ".join(plan.why),
        "device": reports.device_facts(plan.device, manifest.environment, measured.memory),
        "time": reports.time_facts(measured.seconds_per_step, step_characters, left),
        "to beat": reports.baseline_facts(plan.uniform, plan.ngrams, plan.counted_characters),
    }
    for note in plan.corpus.notes:
        console.say(f"note: {note}")
    console.show_aside(reports.card(rows))


def _train(trainer: Trainer, to_beat: float, as_json: bool) -> None:
    """Runs the loop; a signal that ended it is the exit code. Of several ranks the first tells."""
    from gpt.training.trainer import Stopped

    with console.graceful(trainer.stop):
        told = _told(trainer) if trainer.ranks.first else trainer.events()
        reason = next(event.reason for event in told if isinstance(event, Stopped))
    if trainer.ranks.first:
        from gpt.view import reports

        run, manifest = trainer.run, trainer.manifest
        console.show_aside(reports.card(reports.farewell(run, manifest, reason, to_beat)))
        if as_json:
            console.write(json.dumps(reports.result(run.name, manifest, reason)) + "\n")
    if reason in signal.Signals.__members__:
        trainer.ranks.leave()
        raise typer.Exit(128 + signal.Signals[reason])


def _told(trainer: Trainer) -> Iterator[Event]:
    """The events, with one bar and a line an evaluation."""
    from gpt.progress import TrainingBar
    from gpt.training.trainer import Evaluated, Saved, Stepped
    from gpt.view import reports

    run, config = trainer.run, trainer.config
    step_characters = config.batch_size * trainer.manifest.model.block_size
    with TrainingBar(trainer.manifest.step, config.steps, step_characters) as bar:
        for event in trainer.events():
            if isinstance(event, Stepped):
                bar.step(event.step, event.loss)
            elif isinstance(event, Evaluated):
                bar.evaluated(event.val_loss, best=not event.since_best)
                bar.say(reports.evaluation_line(**vars(event)))
            elif isinstance(event, Saved):
                text = _short_sample(run, event.checkpoint)
                bar.say(reports.sample_line(text, console.aside_width()))
            yield event


def _short_sample(run: Run, checkpoint: Checkpoint) -> str:
    """What the model writes by now. Opening it proves the file that has just been saved."""
    from gpt.reading.trained import TrainedGPT

    text = TrainedGPT(checkpoint.model()).generate(length=SAMPLE_LENGTH)
    run.append("samples", {"step": checkpoint.manifest.step, "text": text})
    return text
