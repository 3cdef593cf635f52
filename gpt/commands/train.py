"""`gptx train`: trains a new run or resumes one, in one process or as one of several ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpt.commands import console
from gpt.commands.options import Asked, argument
from gpt.commands.progress import progress_bar, run_training, show_facts
from gpt.commands.shared import OutputOptions, note, refuse_if
from gpt.config import ModelConfig, RunConfig, TrainConfig
from gpt.config.fields import Options, only_fields, option
from gpt.config.toml import RECORDED
from gpt.devices import let_threads_sleep
from gpt.errors import ConfigError, GptxError, OutOfMemory, StorageError

if TYPE_CHECKING:
    from gpt.interface.preparing import Start
    from gpt.storage.run import Run


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """What to train on, and whether to begin, continue or only plan a run."""

    corpus: Annotated[
        tuple[str, ...],
        argument(
            "Text files, folders, - for standard input; or a known name: shakespeare "
            "(downloaded once), or repeats (generated, with options of its own; trains induction "
            "heads in a minute). Without CORPUS: the Python language reference that comes with "
            "Python."
        ),
    ] = ()
    resume: Annotated[
        bool, option("Continue the newest run, or --run NAME; no corpus is needed.")
    ] = False
    dry_run: Annotated[bool, option("Show the plan without training.")] = False
    all: Annotated[bool, option("Show everything about the plan.")] = False


def command(
    action: TrainOptions,
    run: RunConfig,
    asked: Annotated[Asked, ModelConfig, TrainConfig],
    output: OutputOptions,
) -> None:
    """Train a model on a text; keep its best checkpoint and the two newest.

    Defaults are those of --preset default on a CPU; "fitted": chosen to suit corpus and time.
    """
    let_threads_sleep()
    from gpt.interface.preparing import Texts, begin_run, resume_run
    from gpt.training import ranks

    typed, in_file = asked
    given = {**in_file, **typed}
    if "minutes" in typed:  # it overrides the steps of a config file, and --steps its minutes
        if "steps" not in typed:
            given.pop("steps", None)
    elif "steps" in typed:
        run = replace(run, minutes=None)
    if action.resume:
        refuse_if(
            "init_from" in typed,
            "--init-from: a resumed run keeps its own weights; leave out --init-from or --resume",
        )
    else:
        stored = in_file.get("preset", run.preset)
        refuse_if(
            stored != run.preset,
            f"--preset: {run.preset}, but --config has {stored}; give one of them",
        )
        refuse_if(
            "val_fraction" in typed and given.get("split", "last") != "last",
            "--val-fraction: only with --split last",
        )
    given = only_fields(ModelConfig, given) | only_fields(TrainConfig, given)
    with _one_report():
        if ranks.world_size() > 1:
            run = replace(run, device=ranks.join(run.device))  # type: ignore[arg-type]
        texts = Texts(action.corpus, sys.stdin.buffer)
        if action.resume:
            if "preset" not in typed:
                run = replace(run, preset=None)
            preparing = resume_run(_find_run(run), run, given, texts, progress_bar)
        else:
            recorded = {name: in_file[name] for name in RECORDED if name in in_file}
            preparing = begin_run(run, given, texts, progress_bar, recorded, dry=action.dry_run)
        with preparing as start:
            _train(start, action, output)


def _find_run(asked: RunConfig) -> Run:
    """The run to resume. Raises CheckpointError, ConfigError."""
    from gpt.storage.runs import find_run

    try:
        return find_run(asked.checkpoints, asked.run)
    except GptxError:
        if asked.run is None or not os.path.isfile(asked.run):
            raise
        raise ConfigError(
            f"--run: {asked.run} is a file, but only a run can be resumed; give the name of a "
            f"run in {asked.checkpoints}"
        ) from None


def _train(start: Start, action: TrainOptions, output: OutputOptions) -> None:
    """Shows the plan and trains; with --dry-run, only writes the plan if --json is given."""
    from gpt.training import ranks
    from gpt.training.card import plan_card, plan_record, whole_card

    plan, first = start.plan, ranks.is_first()
    if first:
        for warning in plan.warnings:
            note(f"warning: {warning}")
        if action.resume:
            console.say(f"resuming {start.run.name} at step {plan.manifest.step:,}")
        for text in plan.corpus.notes:
            note(f"note: {text}")
        show_facts(whole_card(plan, start.recipe) if action.all else plan_card(plan))
        if plan.manifest.progress >= 1:
            console.say("this run is finished; train it longer with --minutes M")
    if not action.dry_run:
        run_training(start.trainer(), plan, output.json)
    elif output.json and first:
        console.write_json(plan_record(plan))


@contextmanager
def _one_report() -> Iterator[None]:
    """Only the first rank reports an error that all have; each reports errors of its machine."""
    from gpt.training import ranks

    try:
        yield
    except (OutOfMemory, StorageError) as error:
        named = f"rank {ranks.rank()}: {error}" if ranks.world_size() > 1 else str(error)
        raise type(error)(named) from None
    except GptxError as error:
        if ranks.is_first():
            raise
        raise typer.Exit(error.exit_code) from None
