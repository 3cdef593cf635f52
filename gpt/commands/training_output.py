"""What a training shows: the card before it, the bar and a line an evaluation, the farewell."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer

from gpt.commands import console, program
from gpt.storage import files

if TYPE_CHECKING:
    from gpt.config import TrainConfig
    from gpt.storage.checkpoint import Checkpoint
    from gpt.storage.run import Run
    from gpt.training.plan import Plan
    from gpt.training.trainer import Event, Trainer

CONFIG_LIMIT = 2**20  # bytes of config.toml
SAMPLE_LENGTH = 160  # characters of the sample at each evaluation


def show_card(plan: Plan, recipe: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Prints the plan of a training before it starts. recipe: options set by a known corpus."""
    from gpt.view.terminal import lines, plan_card

    manifest, identity, measured = plan.manifest, plan.corpus.identity, plan.measurement
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
            plan.validation.read(training.eval_part or training.eval_chars),
            plan.validation.read(training.eval_chars),
        ),
        "model": plan_card.model_facts(model),
        "heads": plan_card.heads_facts(model),
        "recipe": plan_card.recipe_facts(recipe),
        "training": plan_card.training_facts(
            training, step_characters, plan.train_characters, plan.is_timed, manifest.since
        ),
        "fitted": "; ".join(plan.why),
        "device": plan_card.device_facts(plan.device, manifest.environment, measured.memory),
        "time": plan_card.time_facts(
            measured.seconds_per_step,
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
    """What the card says, for programs: every option, and what was counted and measured."""
    from gpt.view.terminal import scores

    return {
        "dry_run": True,
        **plan.settings(),
        "characters": plan.corpus.identity.characters,
        "train_characters": plan.train_characters,
        "val_characters": plan.val_characters,
        "vocab_size": plan.manifest.model.vocab_size,
        "parameters": plan.manifest.model.parameters(),
        "step_seconds": plan.measurement.seconds_per_step,
        "seconds_left": plan.seconds_left,
        "uniform": plan.uniform,
        "counting": scores.comparison_record(None, 0, plan.baseline),
    }


def run_training(trainer: Trainer, as_json: bool) -> None:
    """Runs the loop; a signal that ended it is the exit code. Of several ranks the first tells."""
    from gpt.training.trainer import Stopped

    reason = ""
    with program.graceful(trainer.stop):
        for event in _told(trainer) if trainer.ranks.first else trainer.events():
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
        if not trainer.ranks.launch.comes_again:  # else torchrun would start all again
            raise typer.Exit(128 + signal.Signals[reason])


def _told(trainer: Trainer) -> Iterator[Event]:
    """The events, with one bar and a line an evaluation."""
    from gpt.commands.progress import TrainingBar
    from gpt.training.trainer import Evaluated, EvaluatedWhole, Evaluating, Saved, Stepped
    from gpt.view.terminal import training_lines

    run, recorded = trainer.run, trainer.config
    step_characters = recorded.batch_size * trainer.manifest.model.block_size
    with TrainingBar(trainer.manifest.step, recorded.steps, step_characters) as bar:
        for event in trainer.events():
            if isinstance(event, Stepped):
                bar.step(event.step, event.loss, trainer.config.steps)
            elif isinstance(event, Evaluated):
                share = event.characters / event.of
                bar.evaluated(event.val_loss, best=not event.since_best, share=share)
                bar.say(training_lines.evaluation_line(**vars(event)))
            elif isinstance(event, Evaluating):
                bar.evaluating(event.share)
            elif isinstance(event, EvaluatedWhole):
                bar.say(training_lines.whole_line(**vars(event)))
            elif isinstance(event, Saved):
                if trainer.config != recorded:
                    recorded = trainer.config
                    _record_plan(run, recorded)
                text = _short_sample(run, event.checkpoint)
                bar.say(training_lines.sample_line(text, console.aside_width()))
            yield event


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
    """What the model writes by now. Opening it proves the file that has just been saved."""
    from gpt.trained import TrainedGPT

    text = TrainedGPT(checkpoint.model()).generate(length=SAMPLE_LENGTH)
    run.append("samples", {"step": checkpoint.manifest.step, "text": text})
    return text
