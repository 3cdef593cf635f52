"""Shows the progress of work on stderr: a bar on a terminal, plain lines elsewhere.

For a training: its plan as a card, a line for each evaluation, and the result at the end.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from gpt.commands import console
from gpt.config.schedule import characters_read
from gpt.signals import graceful

if TYPE_CHECKING:
    from tqdm import tqdm

    from gpt.training.events import Event
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer


def show_card(plan: Plan, recipe: Mapping[str, Any]) -> None:
    """Prints the plan of a training before it starts. recipe: options set by a known corpus."""
    from gpt.view.terminal import lines
    from gpt.view.terminal import training as view

    manifest, identity = plan.manifest, plan.corpus.identity
    model, training, budget = manifest.model, manifest.train, manifest.budget
    step_characters = plan.step_characters
    rows = {
        "corpus": view.corpus_facts(identity.sources, identity.characters, model, manifest.parent),
        "from": view.parent_facts(manifest.parent),
        "characters": view.character_facts(plan.rare, plan.only_in_val),
        "folded": view.folded_facts(identity),
        "split": view.split_facts(
            plan.train_characters,
            plan.val_characters,
            training,
            plan.corpus.block,
            manifest.part[0],
            characters_read(manifest.val_characters, model.block_size, training.eval_chars),
            plan.pairs,
        ),
        "model": view.model_facts(model),
        "recipe": view.recipe_facts(recipe),
        "training": view.training_facts(training, step_characters, plan.train_characters, budget),
        "frozen": view.frozen_facts(model, training.freeze),
        "fitted": "; ".join(plan.why),
        "device": view.device_facts(plan.device, plan.environment),
        "time": view.time_facts(
            plan.speed.seconds_per_step,
            step_characters,
            plan.seconds_left,
            plan.last_seconds,
            plan.is_timed,
            budget.seconds if budget and training.steps == budget.most_steps else 0.0,
        )
        + plan.longer,
        "to beat": view.baseline_facts(
            plan.uniform, plan.baseline, plan.counts_all, plan.pairs is not None
        ),
        "nats/char": view.NATS,
    }
    for note in plan.corpus.notes:
        console.say(f"note: {note}")
    console.show_aside(lines.card(rows))


def plan_record(plan: Plan) -> dict[str, Any]:
    """The plan as JSON: every option, and the counts and measurements it is based on."""
    from gpt.storage.losses import comparison_record
    from gpt.view.terminal import training

    return {
        "dry_run": True,
        "parent": training.parent_record(plan.manifest.parent),
        **plan.settings(),
        "characters": plan.corpus.identity.characters,
        "train_characters": plan.train_characters,
        "val_characters": plan.val_characters,
        "vocab_size": plan.manifest.model.vocab_size,
        "parameters": plan.manifest.model.parameters(),
        "step_seconds": plan.speed.seconds_per_step,
        "seconds_left": plan.seconds_left,
        "uniform": plan.uniform,
        "counting": comparison_record(None, 0, plan.baseline),
    }


def run_training(trainer: Trainer, as_json: bool) -> None:
    """Runs the loop; the first rank reports. A signal that ended the loop sets the exit code."""
    from gpt.training import ranks
    from gpt.training.events import Stopped

    reason, first = "", ranks.is_first()
    with graceful(trainer.stop, "SIGINT", "SIGTERM", "SIGHUP"):
        for event in _reported(trainer) if first else trainer.events():
            if isinstance(event, Stopped):
                reason = event.reason
    if first:
        from gpt.view.terminal import lines, training

        run, manifest, shard = trainer.run, trainer.manifest, trainer.shard
        console.show_aside(lines.card(training.farewell(run, manifest, reason, shard)))
        if as_json:
            console.write_json(training.result(run.name, manifest, reason))
    ranks.leave()
    if reason in signal.Signals.__members__ and not ranks.comes_again():
        raise typer.Exit(128 + signal.Signals[reason])  # torchrun would start all ranks again


def _reported(trainer: Trainer) -> Iterator[Event]:
    """Yields the events; shows a bar with losses and speed, and a line for each evaluation."""
    from gpt.notebook import LAYOUT, followed
    from gpt.training.events import Chosen, Evaluated, EvaluatedWhole, Sampled, Saved
    from gpt.view.terminal import training

    first_save = True
    done = trainer.manifest.step / trainer.config.steps
    with _bar(LAYOUT.replace("{bar}", "{bar:12}"), total=1.0, initial=done) as bar:
        for event in followed(trainer, bar):
            if isinstance(event, Evaluated):
                _say(bar, training.evaluation_line(**vars(event)))
            elif isinstance(event, Chosen):
                _say(bar, training.chosen_line(**vars(event)))
            elif isinstance(event, EvaluatedWhole):
                _say(bar, training.whole_line(**vars(event)))
            elif isinstance(event, Saved):
                if first_save and trainer.counting.note:
                    _say(bar, f"note: {trainer.counting.note}")
                first_save = False
            elif isinstance(event, Sampled):
                width = console.width(sys.stderr) or console.WIDE
                _say(bar, training.sample_line(event.text, width))
            yield event


def _say(bar: tqdm[NoReturn], line: str) -> None:
    """Prints a line above the bar."""
    if bar.disable:
        console.say(line)
    else:
        bar.write(console.aside(line), file=sys.stderr)


@contextmanager
def working(what: str = "") -> Iterator[Callable[[float], object]]:
    """A bar for work that reports the share that is done; it disappears at the end.

    It appears after half a second. `what`: the name of the work.
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
