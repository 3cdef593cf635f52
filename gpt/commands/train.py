"""`gptx train`: trains a new run or resumes one, in one process or as one of several ranks."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpt.commands import console
from gpt.commands.options import Asked, argument
from gpt.commands.shared import OutputOptions, note, refuse_if
from gpt.config import ModelConfig, RunConfig, TrainConfig
from gpt.config.fields import Options, only_fields, option
from gpt.devices import let_threads_sleep
from gpt.errors import GptxError, OutOfMemory, StorageError
from gpt.signals import stop_on_signals

if TYPE_CHECKING:
    from gpt.interface.training import Start
    from gpt.training.events import Event
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

SLOWER = 1.5  # steps that take so many times as long as planned are named at once
HEADING = f"{'step':>7}  {'loss':>6}   the model writes"


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
    from gpt.corpus.sources import Texts
    from gpt.interface.training import begin_run, resume_run
    from gpt.storage.run import find_run

    typed, in_file = asked
    options = {**in_file, **typed}
    if "minutes" in typed and "steps" not in typed:  # it overrides the steps of a config file
        options.pop("steps", None)
    if "steps" in typed and "minutes" not in typed:
        run = replace(run, minutes=None)
    options = only_fields(ModelConfig, options) | only_fields(TrainConfig, options)
    texts, bar = Texts(action.corpus, sys.stdin.buffer), console.progress_bar("encoding")
    if not action.resume:
        is_last = options.get("split", "last") == "last"
        refuse_if("val_fraction" in typed and not is_last, "--val-fraction: only with --split last")
        other = in_file.get("preset", run.preset)
        refuse_if(other != run.preset, f"--preset: {run.preset}, but --config has {other}")
        return begin_run(run, options, texts, bar, dry=action.dry_run)
    refuse_if(
        "init_from" in typed,
        "--init-from: a resumed run keeps its own weights; leave out --init-from or --resume",
    )
    stored = find_run(run.checkpoints, run.run)
    if "preset" not in typed:
        run = replace(run, preset=None)
    return resume_run(stored, run, options, texts, bar)


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


def run_training(trainer: Trainer, plan: Plan, as_json: bool) -> None:
    """Runs the training loop; the first rank reports. If a signal ended the loop, it sets the exit
    code. A second Ctrl-C ends it at once, with a line that says what is saved.
    """
    from gpt.storage.overview import outcome_record
    from gpt.training import ranks
    from gpt.training.card import end_card
    from gpt.training.events import Stopped

    stopped, first = Stopped(0, ""), ranks.is_first()
    try:
        with stop_on_signals(trainer.stop, "SIGINT", "SIGTERM", "SIGHUP"):
            for event in _reported(trainer, plan) if first else trainer.events():
                if isinstance(event, Stopped):
                    stopped = event
    except KeyboardInterrupt:
        if first:
            saved = f"{trainer.run.name} is saved up to step {trainer.saved_step or 0:,}"
            console.say(f"ended at once; {saved}, and --resume goes on from there")
        raise
    if first:
        run, manifest = trainer.run, trainer.manifest
        console.print_facts(end_card(run, manifest, stopped.reason, trainer.corpus))
        if as_json:
            ended = {"reason": stopped.reason, "spent": dict(stopped.spent)}
            console.write_json({**outcome_record(run.name, manifest), **ended})
    ranks.leave()
    if stopped.reason in signal.Signals.__members__:
        raise typer.Exit(128 + signal.Signals[stopped.reason])


def _reported(trainer: Trainer, plan: Plan) -> Iterator[Event]:
    """Yields the events; shows a bar with losses, and a line for each evaluation."""
    from gpt.interface.training import BAR_FORMAT, train_with_bar
    from gpt.training.card import slower_text
    from gpt.training.events import Evaluated, Sampled

    def say(line: str) -> None:  # above the bar
        if bar.disable:
            console.say(line)
        else:
            bar.write(console.one_line(line), file=sys.stderr)

    loss, is_told = "", False
    layout = BAR_FORMAT.replace("{bar}", "{bar:12}")
    with console.bar(layout, total=1.0, initial=trainer.manifest.progress) as bar:
        for event in train_with_bar(trainer, bar):
            if trainer.stop_reason and not is_told:
                is_told = True
                saved = f"the steps after {trainer.saved_step or 0:,}"
                say(f"saving, then ending; a second Ctrl-C ends at once, without {saved}")
            if isinstance(event, Evaluated):
                if not loss:
                    if trainer.counting.note:
                        say(f"note: {trainer.counting.note}")
                    if trainer.timing.slowdown > SLOWER:
                        say(slower_text(plan, trainer.timing.slowdown))
                    say(HEADING)
                loss = f"{event.val_loss:.3f}"
            elif isinstance(event, Sampled):
                width = console.width(sys.stderr) or console.WIDE
                say(sample_line(event.step, loss, event.text, width))
            yield event


def sample_line(step: int, loss: str, text: str, width: int) -> str:
    """A step, its loss, and what the model writes after it, on one line."""
    from gpt.characters import cut

    return cut(f"{step:>7,}  {loss:>6}   {' '.join(text.split())}", width)


@contextmanager
def one_report() -> Iterator[None]:
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
