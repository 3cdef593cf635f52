"""`gptx train`: trains a new run or resumes one, in one process or as one of several ranks."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from gpt.commands import console
from gpt.commands.options import Asked, argument
from gpt.commands.progress import one_report, progress_bar, run_training
from gpt.commands.shared import OutputOptions, note, refuse_if
from gpt.config import ModelConfig, RunConfig, TrainConfig
from gpt.config.fields import Options, only_fields, option
from gpt.devices import let_threads_sleep

if TYPE_CHECKING:
    from gpt.interface.preparing import Start


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
    from gpt.training import ranks

    with one_report():
        if ranks.world_size() > 1:
            run = replace(run, device=ranks.join(run.device))  # type: ignore[arg-type]
        with _preparing(action, run, asked) as start:
            _train(start, action, output)


def _preparing(action: TrainOptions, run: RunConfig, asked: Asked) -> AbstractContextManager[Start]:
    """Plans the run to begin or to resume. Raises ConfigError, CheckpointError."""
    from gpt.interface.preparing import Texts, begin_run, resume_run
    from gpt.storage.run import find_run

    typed, in_file = asked
    options = {**in_file, **typed}
    if "minutes" in typed and "steps" not in typed:  # it overrides the steps of a config file
        options.pop("steps", None)
    if "steps" in typed and "minutes" not in typed:
        run = replace(run, minutes=None)
    options = only_fields(ModelConfig, options) | only_fields(TrainConfig, options)
    texts = Texts(action.corpus, sys.stdin.buffer)
    if not action.resume:
        is_last = options.get("split", "last") == "last"
        refuse_if("val_fraction" in typed and not is_last, "--val-fraction: only with --split last")
        other = in_file.get("preset", run.preset)
        refuse_if(other != run.preset, f"--preset: {run.preset}, but --config has {other}")
        return begin_run(run, options, texts, progress_bar, dry=action.dry_run)
    refuse_if(
        "init_from" in typed,
        "--init-from: a resumed run keeps its own weights; leave out --init-from or --resume",
    )
    name = run.run
    refuse_if(
        name is not None and os.path.isfile(name) and not (run.checkpoints / name).is_dir(),
        f"--run: {name} is a file, but only a run can be resumed; give the name of a run in "
        f"{run.checkpoints}",
    )
    stored = find_run(run.checkpoints, name)
    if "preset" not in typed:
        run = replace(run, preset=None)
    return resume_run(stored, run, options, texts, progress_bar)


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
        console.print_facts(whole_card(plan, start.recipe) if action.all else plan_card(plan))
        if plan.manifest.progress >= 1:
            console.say("this run is finished; train it longer with --minutes M")
    if not action.dry_run:
        run_training(start.trainer(), plan, output.json)
    elif output.json and first:
        console.write_json(plan_record(plan))
