"""Shows the progress of work on stderr: a bar on a terminal, plain lines elsewhere.

For a training, it shows the plan as a card, a line for each evaluation, and the result at the end.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from gpt.commands import console
from gpt.errors import GptxError, OutOfMemory, StorageError
from gpt.signals import stop_on_signals

if TYPE_CHECKING:
    from tqdm import tqdm

    from gpt.training.events import Event
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

SLOWER = 1.5  # steps that take so many times as long as planned are named at once
HEADING = f"{'step':>7}  {'loss':>6}   the model writes"


def run_training(trainer: Trainer, plan: Plan, as_json: bool) -> None:
    """Runs the training loop; the first rank reports. If a signal ended the loop, it sets the exit
    code. A second Ctrl-C ends it at once, with a line that says what is saved.
    """
    from gpt.training import ranks
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
        _report_end(trainer, stopped, as_json)
    ranks.leave()
    if stopped.reason in signal.Signals.__members__:
        raise typer.Exit(128 + signal.Signals[stopped.reason])


def _report_end(trainer: Trainer, stopped: Any, as_json: bool) -> None:
    """Prints how the training ended; with --json also as a record."""
    from gpt.storage.overview import outcome_record
    from gpt.training.card import end_card

    run, manifest = trainer.run, trainer.manifest
    console.print_facts(end_card(run, manifest, stopped.reason, trainer.corpus))
    if as_json:
        record = outcome_record(run.name, manifest)
        console.write_json({**record, "reason": stopped.reason, "spent": dict(stopped.spent)})


def _reported(trainer: Trainer, plan: Plan) -> Iterator[Event]:
    """Yields the events; shows a bar with losses, and a line for each evaluation."""
    from gpt.interface.training import BAR_FORMAT, show_bar
    from gpt.training.card import slower_text
    from gpt.training.events import Evaluated, Sampled

    loss, told = "", False
    layout = BAR_FORMAT.replace("{bar}", "{bar:12}")
    with _bar(layout, total=1.0, initial=trainer.manifest.progress) as bar:
        for event in show_bar(trainer, bar):
            if trainer.stop_reason and not told:
                told = True
                saved = f"the steps after {trainer.saved_step or 0:,}"
                _say(bar, f"saving, then ending; a second Ctrl-C ends at once, without {saved}")
            if isinstance(event, Evaluated):
                if not loss:
                    if trainer.counting.note:
                        _say(bar, f"note: {trainer.counting.note}")
                    if trainer.timing.slowdown > SLOWER:
                        _say(bar, slower_text(plan, trainer.timing.slowdown))
                    _say(bar, HEADING)
                loss = f"{event.val_loss:.3f}"
            elif isinstance(event, Sampled):
                width = console.width(sys.stderr) or console.WIDE
                _say(bar, sample_line(event.step, loss, event.text, width))
            yield event


def sample_line(step: int, loss: str, text: str, width: int) -> str:
    """A step, its loss, and what the model writes after it, on one line."""
    from gpt.characters import cut

    written = " ".join(text.split()) or text.replace("\n", "⏎").replace("\t", "⇥")
    return cut(f"{step:>7,}  {loss:>6}   {written}", width)


def _say(bar: tqdm[NoReturn], line: str) -> None:
    """Prints a line above the bar."""
    if bar.disable:
        console.say(line)
    else:
        bar.write(console.wrap_for_stderr(line), file=sys.stderr)


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


@contextmanager
def progress_bar(what: str = "") -> Iterator[Callable[[float], object]]:
    """Shows a bar after half a second, for work that reports the share that is done. `what`: the
    name of the work.
    """
    name = f"{what} " if what else ""
    layout = f"{name}{{percentage:3.0f}}%|{{bar:12}}| ETA {{remaining}}"
    with _bar(layout, total=1.0, delay=0.5) as bar:
        yield lambda share: bar.update(share - bar.n)


def _bar(layout: str, **options: Any) -> tqdm[NoReturn]:
    """A bar on stderr that disappears at the end; disabled if stderr is not a terminal."""
    from tqdm import tqdm

    return tqdm(
        disable=not sys.stderr.isatty(),
        file=sys.stderr,
        dynamic_ncols=True,
        leave=False,
        bar_format=layout,
        **options,
    )
