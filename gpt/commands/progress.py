"""Shows the progress of work on stderr: a bar on a terminal, plain lines elsewhere.

For a training: its plan as a card, a line for each evaluation, and the result at the end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from gpt.commands import console, program
from gpt.config.schedule import characters_read
from gpt.storage import files

if TYPE_CHECKING:
    from tqdm import tqdm

    from gpt.config import TrainConfig
    from gpt.storage.checkpoint import Checkpoint
    from gpt.storage.run import Run
    from gpt.training.events import Event
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

CONFIG_LIMIT = 2**20  # bytes of config.toml
SAMPLE_LENGTH = 160  # characters of the sample at each evaluation


def show_card(plan: Plan, recipe: Mapping[str, Any]) -> None:
    """Prints the plan of a training before it starts. recipe: options set by a known corpus."""
    from gpt.view.terminal import lines, plan_card

    manifest, identity = plan.manifest, plan.corpus.identity
    model, training = manifest.model, manifest.train
    step_characters = training.batch_size * model.block_size
    rows = {
        "corpus": plan_card.corpus_facts(identity.sources, identity.characters, model),
        "characters": plan_card.character_facts(plan.rare, plan.only_in_val),
        "folded": plan_card.folded_facts(identity, training.replacement),
        "split": plan_card.split_facts(
            plan.train_characters,
            plan.val_characters,
            training,
            plan.corpus.block,
            manifest.part[0],
            characters_read(manifest.val_characters, model.block_size, training.eval_chars),
        ),
        "model": plan_card.model_facts(model),
        "recipe": plan_card.recipe_facts(recipe),
        "training": plan_card.training_facts(
            training, step_characters, plan.train_characters, plan.is_timed, manifest.since
        ),
        "fitted": "; ".join(plan.why),
        "device": plan_card.device_facts(plan.device, plan.environment),
        "time": plan_card.time_facts(
            plan.speed.seconds_per_step,
            step_characters,
            plan.seconds_left,
            plan.last_seconds,
            plan.is_timed,
        )
        + plan.longer,
        "to beat": plan_card.baseline_facts(plan.uniform, plan.baseline, plan.counts_all),
        "nats/char": plan_card.NATS,
    }
    for note in plan.corpus.notes:
        console.say(f"note: {note}")
    console.show_aside(lines.card(rows))


def plan_record(plan: Plan) -> dict[str, Any]:
    """The plan as JSON: every option, and the counts and measurements it is based on."""
    from gpt.view.terminal import scores

    return {
        "dry_run": True,
        **plan.settings(),
        "characters": plan.corpus.identity.characters,
        "train_characters": plan.train_characters,
        "val_characters": plan.val_characters,
        "vocab_size": plan.manifest.model.vocab_size,
        "parameters": plan.manifest.model.parameters(),
        "step_seconds": plan.speed.seconds_per_step,
        "seconds_left": plan.seconds_left,
        "uniform": plan.uniform,
        "counting": scores.comparison_record(None, 0, plan.baseline),
    }


def run_training(trainer: Trainer, as_json: bool) -> None:
    """Runs the loop; the first rank reports. A signal that ended the loop sets the exit code."""
    from gpt.training.events import Stopped

    reason = ""
    with program.graceful(trainer.stop, "SIGINT", "SIGTERM", "SIGHUP"):
        for event in _reported(trainer) if trainer.ranks.first else trainer.events():
            if isinstance(event, Stopped):
                reason = event.reason
    if trainer.ranks.first:
        from gpt.view.terminal import lines, training_lines

        run, manifest, shard = trainer.run, trainer.manifest, trainer.ranks.shard
        console.show_aside(lines.card(training_lines.farewell(run, manifest, reason, shard)))
        if as_json:
            console.write_json(training_lines.result(run.name, manifest, reason))
    if reason in signal.Signals.__members__:
        trainer.ranks.leave()
        if not trainer.ranks.launch.comes_again:  # else torchrun would restart all ranks
            raise typer.Exit(128 + signal.Signals[reason])


def _reported(trainer: Trainer) -> Iterator[Event]:
    """Yields the events; shows a bar with losses and speed, and a line for each evaluation."""
    from gpt.training.events import Evaluated, EvaluatedWhole, Evaluating, Saved, Stepped
    from gpt.view.terminal import training_lines

    run, recorded = trainer.run, trainer.config
    step_characters = recorded.batch_size * trainer.manifest.model.block_size
    val = best = ""
    first_save = True
    layout = "{percentage:3.0f}%|{bar:12}| {n_fmt}/{total_fmt} {desc}ETA {remaining}"
    with _bar(layout, total=recorded.steps, initial=trainer.manifest.step) as bar:
        for event in trainer.events():
            if isinstance(event, Stepped) and not bar.disable:
                rate = bar.format_dict["rate"]
                speed = f" {rate * step_characters / 1000:.1f}k char/s" if rate else ""
                shown = f"loss {event.loss:.3f}{val}{best}{speed} "
                bar.set_description_str(shown, refresh=False)
                bar.total = trainer.config.steps
                bar.update(event.step - bar.n)
            elif isinstance(event, Evaluated):
                share = event.characters / event.of
                val = f" val{f'({share:.0%})' if share < 1 else ''} {event.val_loss:.3f}"
                best = best if event.since_best else f" best {event.val_loss:.3f}"
                _say(bar, training_lines.evaluation_line(**vars(event)))
            elif isinstance(event, Evaluating):
                bar.set_description_str(f"evaluating the whole split: {event.share:.0%} ")
            elif isinstance(event, EvaluatedWhole):
                _say(bar, training_lines.whole_line(**vars(event)))
            elif isinstance(event, Saved):
                if first_save and trainer.counting.note:
                    _say(bar, f"note: {trainer.counting.note}")
                first_save = False
                if trainer.config != recorded:
                    recorded = trainer.config
                    _record_plan(run, recorded)
                if event.checkpoint.manifest.step:  # before the first step, no model has learned
                    text = _short_sample(run, event.checkpoint)
                    width = console.width(sys.stderr) or console.WIDE
                    _say(bar, training_lines.sample_line(text, width))
            yield event


def _say(bar: tqdm[NoReturn], line: str) -> None:
    """Prints a line above the bar."""
    if bar.disable:
        console.say(line)
    else:
        bar.write(console.one_line(line), file=sys.stderr)


def _record_plan(run: Run, config: TrainConfig) -> None:
    """Writes the changed number of steps to config.toml, so that it repeats the run."""
    from gpt.storage.config_file import from_toml, to_toml

    path = run.path / "config.toml"
    if os.path.isfile(path):
        text = files.read(path, CONFIG_LIMIT).decode("utf-8", "replace")
        values = from_toml(text, str(path))
        plan = {"steps": config.steps, "step_plan": config.step_plan}
        run.write(path.name, to_toml({**values, **plan}))


def _short_sample(run: Run, checkpoint: Checkpoint) -> str:
    """A text that the model generates now. Opening the checkpoint checks the file just saved."""
    from gpt.trained import TrainedGPT

    text = TrainedGPT(checkpoint.model()).generate(length=SAMPLE_LENGTH)
    run.append("samples", {"step": checkpoint.manifest.step, "text": text})
    return text


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
