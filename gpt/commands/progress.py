"""Shows the progress of work on stderr: a bar on a terminal, plain lines elsewhere.

For a training, it shows the plan as a card, a line for each evaluation, and the result at the end.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from gpt.commands import console
from gpt.config.fields import with_flags
from gpt.signals import stop_on_signals

if TYPE_CHECKING:
    from tqdm import tqdm

    from gpt.training.events import Event
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer


def show_card(plan: Plan, recipe: Mapping[str, Any]) -> None:
    """Prints the plan of a training before it starts. recipe: options set by a known corpus."""
    from gpt.training.card import plan_card

    for note in plan.corpus.notes:
        console.say(with_flags(f"note: {note}"))
    console.print_facts(plan_card(plan, recipe))


def run_training(trainer: Trainer, as_json: bool) -> None:
    """Runs the training loop; the first rank reports. If a signal ended the loop, it sets the exit
    code. A second Ctrl-C ends it at once, with a line that says what is saved.
    """
    from gpt.training import ranks
    from gpt.training.events import Spent, Stopped

    reason, spent, first = "", Spent(), ranks.is_first()
    try:
        with stop_on_signals(trainer.stop, "SIGINT", "SIGTERM", "SIGHUP"):
            for event in _reported(trainer) if first else trainer.events():
                if isinstance(event, Stopped):
                    reason, spent = event.reason, event.spent
    except KeyboardInterrupt:
        if first:
            saved = f"{trainer.run.name} is saved up to step {trainer.saved_step or 0:,}"
            console.say(f"ended at once; {saved}, and --resume goes on from there")
        raise
    if first:
        from gpt.storage.overview import outcome_record
        from gpt.training.card import end_card

        run, manifest = trainer.run, trainer.manifest
        console.print_facts(end_card(run, manifest, reason, spent))
        if as_json:
            record = {**outcome_record(run.name, manifest), "reason": reason}
            console.write_json(record | {"spent": asdict(spent)})
    ranks.leave()
    if reason in signal.Signals.__members__:
        raise typer.Exit(128 + signal.Signals[reason])


def _reported(trainer: Trainer) -> Iterator[Event]:
    """Yields the events; shows a bar with losses and speed, and a line for each evaluation."""
    from gpt.interface.training import BAR_FORMAT, show_bar
    from gpt.training.events import Chosen, Evaluated, EvaluatedWhole, Sampled, Saved

    first_save, told = True, False
    done = trainer.manifest.step / trainer.config.steps
    with _bar(BAR_FORMAT.replace("{bar}", "{bar:12}"), total=1.0, initial=done) as bar:
        for event in show_bar(trainer, bar):
            if trainer.stop_reason and not told:
                told = True
                saved = f"the steps after {trainer.saved_step or 0:,}"
                _say(bar, f"saving, then ending; a second Ctrl-C ends at once, without {saved}")
            if isinstance(event, Evaluated | Chosen | EvaluatedWhole):
                _say(bar, str(event))
            elif isinstance(event, Saved):
                if first_save and trainer.counting.note:
                    _say(bar, f"note: {trainer.counting.note}")
                first_save = False
            elif isinstance(event, Sampled):
                width = console.width(sys.stderr) or console.WIDE
                _say(bar, sample_line(event.text, width))
            yield event


def sample_line(text: str, width: int) -> str:
    """A short sample on one line."""
    from gpt.characters import cut

    return cut(f"  │ {text.replace(chr(10), '⏎').replace(chr(9), '⇥')}", width)


def _say(bar: tqdm[NoReturn], line: str) -> None:
    """Prints a line above the bar."""
    if bar.disable:
        console.say(line)
    else:
        bar.write(console.wrap_for_stderr(line), file=sys.stderr)


@contextmanager
def progress_bar(what: str = "") -> Iterator[Callable[[float], object]]:
    """Shows a bar after half a second, for work that reports the share that is done. `what`: the
    name of the work.
    """
    layout = f"{what}{' ' * bool(what)}{{percentage:3.0f}}%|{{bar:12}}| ETA {{remaining}}"
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
