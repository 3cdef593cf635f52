"""`gptx train`: trains a new run or resumes one, in one process or as one of several ranks."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console
from gpt.commands.options import OutputOptions, argument, refuse_if
from gpt.config import ModelConfig, RunConfig, TrainConfig
from gpt.config.fields import Options, option
from gpt.devices import let_threads_sleep

if TYPE_CHECKING:
    from gpt.interface.training import PlannedTraining
    from gpt.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """The texts to train on, and whether to begin, continue or only plan a run."""

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
    overrides: Annotated[dict[str, Any], ModelConfig, TrainConfig],
    output: OutputOptions,
) -> None:
    """Train a model on a text; keep its best checkpoint and the two newest.

    The defaults are those of --preset default on a CPU. "fitted": gptx computes the
    value from the corpus and the time.
    """
    let_threads_sleep()
    from gpt.corpus.sources import Texts
    from gpt.interface.training import begin_run, resume_run
    from gpt.storage.run import find_run
    from gpt.training import ranks

    texts, bar = Texts(action.corpus, sys.stdin.buffer), console.progress_bar("encoding")
    with ranks.report_once():
        if ranks.world_size() > 1:
            run = replace(run, device=ranks.join(run.device))  # type: ignore[arg-type]
        if action.resume:
            keeps = "a resumed run keeps its own weights; leave out --init-from or --resume"
            refuse_if(run.init_from is not None, f"--init-from: {keeps}")
            stored = find_run(run.checkpoints, run.run)
            preparing = resume_run(stored, run, overrides, texts, bar)
        else:
            preparing = begin_run(run, overrides, texts, bar, dry=action.dry_run)
        with preparing as training:
            if ranks.is_first():
                _show_plan(training, action, output.json)
            if not action.dry_run:
                run_training(training.make_trainer(), output.json)


def _show_plan(training: PlannedTraining, action: TrainOptions, as_json: bool) -> None:
    """Prints the plan on stderr. With --dry-run and --json, also writes it to stdout."""
    from gpt.training.card import plan_card, plan_record, whole_card

    if action.resume:
        console.say(f"resuming {training.run.name} at step {training.plan.manifest.step:,}")
    facts = whole_card(training.plan) if action.all else plan_card(training.plan)
    console.print_facts(facts)
    if training.plan.manifest.progress >= 1:
        console.say("this run is finished; train it longer with --minutes M")
    if action.dry_run and as_json:
        console.write_json(plan_record(training.plan))


def run_training(trainer: Trainer, as_json: bool) -> None:
    """Trains to the end or until a signal, which sets the exit code. The first rank prints the
    progress. A second Ctrl-C ends the training at once, and a line says up to which step the run is
    saved.
    """
    from gpt.interface.training import BAR_FORMAT, train_to_end
    from gpt.storage.overview import outcome_record
    from gpt.training import ranks
    from gpt.training.card import EventLines, end_card

    run, width = trainer.run, console.terminal_width(sys.stderr) or console.WIDE
    lines = EventLines(trainer, width) if ranks.is_first() else None
    bar = console.make_bar(
        BAR_FORMAT, total=1.0, initial=trainer.manifest.progress, shows=bool(lines)
    )
    try:
        stopped = train_to_end(trainer, bar, "SIGINT", "SIGTERM", "SIGHUP", lines=lines)
    except KeyboardInterrupt:
        if lines:
            saved = f"{run.name} is saved up to step {trainer.saved_step or 0:,}"
            console.say(f"ended at once; {saved}, and --resume goes on from there")
        raise
    if lines:
        console.print_facts(end_card(run, trainer.manifest, stopped.reason, trainer.corpus))
        if as_json:
            ended = {"reason": stopped.reason, "spent": dict(stopped.spent)}
            console.write_json({**outcome_record(run.name, trainer.manifest), **ended})
    ranks.leave()
    if stopped.reason in signal.Signals.__members__:
        raise typer.Exit(128 + signal.Signals[stopped.reason])
