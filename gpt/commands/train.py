"""`gptx train`: a new run, or one that goes on; alone, or as one of several ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.progress import plan_record, run_training, show_card
from gpt.config import ModelConfig, TrainConfig, presets
from gpt.devices import Device, share_cores
from gpt.errors import ConfigError, GptxError, OutOfMemory
from gpt.storage.config_file import to_toml

if TYPE_CHECKING:
    from gpt.storage.run import Run
    from gpt.training.distributed import Ranks
    from gpt.training.plan import Plan

TIMED = ("steps", "evaluations", "eval_part")  # options that --minutes decides
READING = ("separator", "split", "min_count", "replacement")  # options of how a text is read


@shared.options_from(
    ModelConfig,
    TrainConfig,
    defaults={**presets.preset("default", "cpu"), **dict.fromkeys(presets.FITTED, "fitted")},
)
def train(
    context: typer.Context,
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders, - for standard input, or a known name: shakespeare "
            "(downloaded once) or repeats (generated; sets its own options; trains induction heads "
            "in a minute). Without CORPUS: the Python language reference that comes with Python.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        presets.Preset, typer.Option(help="classic: nanoGPT's recipe; best: lowest loss, slow.")
    ] = "default",
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Time budget from the first step to the last save, evaluations included; gptx "
            "fits the model's shape and the steps to it.",
            show_default="2 for --preset default without --steps",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run.")] = False,
    changed_corpus: Annotated[
        bool, typer.Option("--changed-corpus", help="Go on although the text is another one.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Stop after the card.")] = False,
    run: Annotated[
        str | None, typer.Option(help="The run's name.", show_default="the corpus's and a number")
    ] = None,
    device: shared.OnDevice = "auto",
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    data: shared.Data = Path("data"),
    config: shared.ConfigFile = None,
    as_json: shared.Json = False,
    shard: Annotated[
        bool, typer.Option("--shard", help="Under torchrun: spread the weights over the ranks.")
    ] = False,
    **given: Any,
) -> None:
    """Train a model on a text, and keep its best and last checkpoints.

    Defaults are those of --preset default on a CPU; "fitted": corpus and time decide.
    """
    share_cores()
    from gpt.corpus.sources import recipe_of
    from gpt.training.distributed import Ranks
    from gpt.training.launch import Launch

    options, spelled = shared.only_given(given), shared.typed(context)
    if {"minutes", "steps"} & spelled.keys():  # they override the plan of a config file
        for name in {"step_plan", *(TIMED if "minutes" in spelled else ())} - spelled.keys():
            options.pop(name, None)
    recipe: dict[str, Any] = {}
    if not (resume or "preset" in {**spelled, **(context.default_map or {})}):
        recipe = {n: v for n, v in recipe_of(corpus or ()).items() if n not in options}
        if minutes is not None:
            recipe.pop("steps", None)
        options = {**recipe, **options}
    if changed_corpus and not resume:
        raise ConfigError("--changed-corpus: only with --resume")
    stored = (context.default_map or {}).get("preset", preset)
    if not resume and stored != preset:
        raise ConfigError(f"--preset: {preset}, but --config says {stored}; give one of them")
    if resume and minutes is not None:
        raise ConfigError(
            "--minutes: a resumed run keeps its schedule and its time; use --steps to train longer"
        )
    reading = TrainConfig(**{name: options[name] for name in READING if name in options})
    if not resume and reading.split != "last" and "val_fraction" in spelled:
        raise ConfigError("--val-fraction: only with --split last")
    order = _Order(
        *(corpus or [], options, recipe, reading, device),
        *(data, checkpoints, run, dry_run, as_json),
    )
    ranks = Ranks(Launch.here(), shard)
    with _ending_together(ranks):
        interrupted = _interrupted(order, ranks)
        if interrupted is not None or resume:
            _resume(order, ranks, interrupted, spelled.get("preset"), changed_corpus)
        else:
            _begin(order, ranks, preset, minutes)


@dataclass(frozen=True)
class _Order:
    """The options of a new run or of a resumed one."""

    corpus: Sequence[str]
    options: Mapping[str, Any]
    recipe: Mapping[str, Any]  # options that a known corpus sets
    reading: TrainConfig  # how the text is read; its other fields are not decided yet
    device: Device
    data: Path
    checkpoints: Path
    run: str | None
    dry_run: bool
    as_json: bool


@contextmanager
def _ending_together(ranks: Ranks) -> Iterator[None]:
    """Ends all ranks together. Only the first rank reports an error that several have."""
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
    """The run that this launch began before it was started again; the same on all ranks."""
    from gpt.storage.run import Run

    if ranks.size == 1 and not ranks.launch.name:
        return None
    if ranks.first:
        found = ranks.launch.interrupted(order.checkpoints)
        ranks.publish("interrupted", str(found.path) if found else "")
        return found
    path = ranks.wait("interrupted")
    return Run(Path(path)) if path else None


def _begin(order: _Order, ranks: Ranks, preset: presets.Preset, minutes: float | None) -> None:
    """A new run."""
    from gpt.commands.progress import working
    from gpt.corpus.corpus import read_corpus
    from gpt.corpus.sources import corpus_name, printable
    from gpt.heads.proof import prove_tensors
    from gpt.storage.run import Run
    from gpt.storage.runs import check_run_name, discard_if_empty, new_run
    from gpt.training.launch import shared_corpus
    from gpt.training.plan import make_plan, usable_device
    from gpt.training.trainer import Trainer

    if order.run is not None:
        check_run_name(order.run)
    folder = None
    if ranks.first and not order.dry_run:
        folder = new_run(order.checkpoints, corpus_name(order.corpus), order.run)
    locked = False
    try:
        with ExitStack() as stack:
            if folder is not None:
                stack.enter_context(folder.lock())
                locked = True
                ranks.launch.mark(folder)
            device = usable_device(order.device, ranks)
            sources = (order.corpus, order.data, sys.stdin.buffer)
            with working("encoding") as done:
                begin = partial(read_corpus, *sources, config=order.reading, progress=done)
                read = shared_corpus(ranks, order.data, order.reading, begin)
            ranks.init(device)
            plan = make_plan(read, order.options, preset, device, minutes, ranks)
            if ranks.first:
                show_card(plan, order.recipe)
            if order.dry_run:
                _write_plan(order, ranks, plan)
                return
            if folder is not None:
                corpus = [printable(name) for name in order.corpus] or None
                folder.write("config.toml", to_toml({"corpus": corpus, **plan.settings()}))
            run_of = folder or Run(Path())
            trainer = Trainer(run_of, read, plan.manifest, device, ranks, prove_tensors)
            run_training(trainer, order.as_json)
    finally:
        if folder is not None and locked:
            discard_if_empty(folder)


def _resume(
    order: _Order,
    ranks: Ranks,
    interrupted: Run | None,
    preset: str | None,
    changed_corpus: bool,
) -> None:
    """Resumes the interrupted run, or the named one, or the newest."""
    from gpt.commands.progress import working
    from gpt.corpus.corpus import find_corpus
    from gpt.heads.proof import prove_tensors
    from gpt.training.launch import shared_checkpoint, shared_corpus
    from gpt.training.plan import usable_device
    from gpt.training.resume import resume_plan
    from gpt.training.trainer import Trainer

    with ExitStack() as stack:
        folder = interrupted or _named_run(order)
        if ranks.first:
            stack.enter_context(folder.lock())
            ranks.launch.mark(folder)
        checkpoint, warnings = shared_checkpoint(ranks, folder)
        if preset not in (None, checkpoint.manifest.preset):
            raise ConfigError(
                f"--preset: this run has {checkpoint.manifest.preset}; leave the option out, or "
                "train a new run"
            )
        sources = (order.corpus, order.data, sys.stdin.buffer)
        with working("encoding") as done:
            find = partial(find_corpus, checkpoint.manifest, *sources, changed_corpus, done)
            read = shared_corpus(ranks, order.data, checkpoint.manifest.train, find)
        device = usable_device(order.device, ranks)
        ranks.init(device)
        plan = resume_plan(checkpoint, read, order.options, device, ranks)
        if ranks.first:
            for warning in [*warnings, *plan.warnings]:
                console.say(f"warning: {warning}")
            console.say(f"resuming {folder.name} at step {checkpoint.manifest.step:,}")
            show_card(plan)
            if checkpoint.manifest.step == plan.manifest.train.steps:
                console.say("this run has done all its steps; train longer with --steps N")
        if order.dry_run:
            _write_plan(order, ranks, plan)
        else:
            places = (device, ranks, prove_tensors, checkpoint)
            trainer = Trainer(folder, read, plan.manifest, *places)
            run_training(trainer, order.as_json)


def _write_plan(order: _Order, ranks: Ranks, plan: Plan) -> None:
    """The JSON of --dry-run, if --json was given."""
    if order.as_json and ranks.first:
        console.write_json(plan_record(plan))


def _named_run(order: _Order) -> Run:
    """The run to resume. Raises CheckpointError, ConfigError."""
    from gpt.storage.runs import find_run

    try:
        return find_run(order.checkpoints, order.run)
    except GptxError:
        if order.run is None or not os.path.isfile(order.run):
            raise
        raise ConfigError(
            f"--run: {order.run} is a file, but only a run can be resumed; give the name of a run "
            f"in {order.checkpoints}"
        ) from None
