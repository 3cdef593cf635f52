"""`gptx train`: trains a new run or resumes one, in one process or as one of several ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.options import Command, options_of
from gpt.commands.progress import progress_bar, run_training, show_card
from gpt.config import ModelConfig, RunConfig, TrainConfig, presets
from gpt.config.fields import with_flags
from gpt.devices import let_threads_sleep
from gpt.errors import ConfigError, GptxError, OutOfMemory, StorageError
from gpt.storage.config_file import RECORDED

if TYPE_CHECKING:
    from gpt.interface.preparing import Start
    from gpt.storage.run import Run

TIMED = ("steps", "evaluations", "eval_part")  # options that --minutes sets


class Train(Command):
    """Train a model on a text; keep its best checkpoint and the two newest.

    Defaults are those of --preset default on a CPU; "fitted": chosen to suit corpus and time.
    """

    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders, - for standard input; or a known name: shakespeare "
            "(downloaded once), or repeats (generated, with options of its own; trains induction "
            "heads in a minute). Without CORPUS: the Python language reference that comes with "
            "Python.",
            show_default=False,
        ),
    ] = None
    settings: Annotated[dict[str, Any], options_of(RunConfig)]
    resume: Annotated[bool, "Continue the newest run, or --run NAME; no corpus is needed."] = False
    dry_run: Annotated[bool, "Show the plan without training."] = False
    given: Annotated[dict[str, Any], options_of(ModelConfig, TrainConfig, defaults=presets.SHOWN)]

    def execute(self) -> None:
        let_threads_sleep()
        from gpt.interface.preparing import Texts, begin_run, resume_run
        from gpt.training import ranks

        typed, in_file = self._typed(), self.context.default_map or {}
        if {"minutes", "steps"} & typed.keys():  # they override the plan of a config file
            for name in {"step_plan", *(TIMED if "minutes" in typed else ())} - typed.keys():
                self.given.pop(name, None)
        options = RunConfig(**self.settings, checkpoints=self.checkpoints)
        self._check(options, typed, in_file)
        with _one_report():
            if ranks.world_size() > 1:
                options = replace(options, device=ranks.join(options.device))  # type: ignore[arg-type]
            texts = Texts(self.corpus or (), sys.stdin.buffer)
            if self.resume:
                if "preset" not in typed:
                    options = replace(options, preset=None)
                run = self._named_run(options.run)
                preparing = resume_run(run, options, self.given, texts, progress_bar)
            else:
                recorded = {name: in_file[name] for name in RECORDED if name in in_file}
                preparing = begin_run(
                    options, self.given, texts, progress_bar, recorded, dry=self.dry_run
                )
            with preparing as start:
                self._train(start, ranks.is_first())

    def _typed(self) -> dict[str, Any]:
        """The options given on the command line itself, without those of a config file."""
        return {
            name: value
            for name, value in self.context.params.items()
            if (source := self.context.get_parameter_source(name)) and source.name == "COMMANDLINE"
        }

    def _check(
        self, options: RunConfig, typed: Mapping[str, Any], in_file: Mapping[str, Any]
    ) -> None:
        """Raises ConfigError for options that contradict each other."""
        stored = in_file.get("preset", options.preset)
        shared.refuse_if(
            (
                "init_from" in typed and self.resume,
                "--init-from: a resumed run keeps its own weights; leave out --init-from or "
                "--resume",
            ),
            (
                stored != options.preset and not self.resume,
                f"--preset: {options.preset}, but --config has {stored}; give one of them",
            ),
            (
                "val_fraction" in typed
                and self.given.get("split", "last") != "last"
                and not self.resume,
                "--val-fraction: only with --split last",
            ),
        )

    def _named_run(self, name: str | None) -> Run:
        """The run to resume. Raises CheckpointError, ConfigError."""
        from gpt.storage.runs import find_run

        try:
            return find_run(self.checkpoints, name)
        except GptxError:
            if name is None or not os.path.isfile(name):
                raise
            raise ConfigError(
                f"--run: {name} is a file, but only a run can be resumed; give the name of a "
                f"run in {self.checkpoints}"
            ) from None

    def _train(self, start: Start, first: bool) -> None:
        """Shows the plan and trains; with --dry-run, only writes the plan if --json is given."""
        plan = start.plan
        for warning in plan.warnings if first else ():
            console.say(f"warning: {with_flags(warning)}")
        if first and self.resume:
            console.say(f"resuming {start.run.name} at step {plan.manifest.step:,}")
        if first:
            show_card(plan, start.recipe)
        if first and self.resume and plan.manifest.step == plan.manifest.train.steps:
            console.say("this run has trained all its steps; train longer with --minutes M")
        if not self.dry_run:
            run_training(start.trainer(), self.as_json)
        elif self.as_json and first:
            from gpt.training.card import plan_record

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
