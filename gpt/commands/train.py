"""`gptx train`: trains a new run or resumes one, in one process or as one of several ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.options import Command, options_of
from gpt.commands.progress import run_training, show_card, working
from gpt.config import ModelConfig, TrainConfig, presets
from gpt.config.fields import with_flags
from gpt.config.train import BY_SHARE, Tracker
from gpt.devices import share_cores
from gpt.errors import ConfigError, GptxError, OutOfMemory, StorageError
from gpt.storage.config_file import RECORDED

if TYPE_CHECKING:
    from gpt.preparing import Start
    from gpt.storage.run import Run

TIMED = ("steps", "evaluations", "eval_part")  # options that --minutes decides


class Train(Command):
    """Train a model on a text, and keep its best and last checkpoints.

    Defaults are those of --preset default on a CPU; "fitted": chosen to suit corpus and time.
    """

    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders, - for standard input; files *.tsv: pairs, lines of SOURCE "
            "TAB TARGET; or a known name: shakespeare (downloaded once), dates (generated pairs) "
            "or repeats (generated; sets its own options; trains induction heads in a minute). "
            "Without CORPUS: the Python language reference that comes with Python.",
            show_default=False,
        ),
    ] = None
    preset: Annotated[presets.Preset, "classic: nanoGPT's recipe; best: lowest loss, slow."] = (
        "default"
    )
    minutes: Annotated[
        float | None,
        "Time budget from the first step to the last save, evaluations included; gptx fits the "
        "model's shape and the steps to it.",
        "2 for --preset default without --steps",
    ] = None
    resume: Annotated[bool, "Train a run further."] = False
    parent: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A run's name, or the path of a run or a model file, whose weights a new run "
            "starts with; its vocabulary grows, its layout stays.",
            show_default=False,
        ),
    ] = None
    dry_run: Annotated[bool, "Show the plan without training."] = False
    run: Annotated[str | None, "The run's name.", "the corpus's name and a number"] = None
    device: shared.OnDevice = "auto"
    data: shared.Data = Path("data")
    shard: Annotated[bool, "Under torchrun: spread the weights over the ranks."] = False
    log: Annotated[
        Tracker | None,
        "Send the records of metrics.jsonl to a tracker, too: the run's folder tensorboard.",
        False,
    ] = None
    given: Annotated[
        dict[str, Any],
        options_of(
            ModelConfig,
            TrainConfig,
            defaults=presets.preset("default", "cpu") | dict.fromkeys(presets.FITTED, "fitted"),
        ),
    ]

    def execute(self) -> None:
        share_cores()
        from gpt.preparing import Order, begun, resumed
        from gpt.training import ranks

        device = str(self.device)
        typed, in_file = self.typed(), self.context.default_map or {}
        if {"minutes", "steps"} & typed.keys():  # they override the plan of a config file
            for name in {"step_plan", *(TIMED if "minutes" in typed else ())} - typed.keys():
                self.given.pop(name, None)
        stored = in_file.get("preset", self.preset)
        shared.refuse(
            (
                "parent" in typed and self.resume,
                "--from: a resumed run keeps its own weights; leave out --from or --resume",
            ),
            (
                stored != self.preset and not self.resume,
                f"--preset: {self.preset}, but --config has {stored}; give one of them",
            ),
            (
                self.minutes is not None and self.resume,
                "--minutes: a resumed run keeps its schedule and its time; use --steps to train "
                "longer",
            ),
            (
                "val_fraction" in typed
                and self.given.get("split", "last") not in BY_SHARE
                and not self.resume,
                "--val-fraction: only with --split last or --split source",
            ),
            (
                self.shard and ranks.size() == 1,
                "--shard: needs several processes; start them with torchrun",
            ),
        )
        with _one_report():
            if ranks.size() > 1:
                device = ranks.join(device)
            interrupted = ranks.interrupted(self.checkpoints)
            resumes = interrupted is not None or self.resume
            settings = typed if resumes else {**typed, **in_file}
            order = Order(
                corpus=self.corpus or (),
                pipe=sys.stdin.buffer,
                given=self.given,
                preset=self.preset if "preset" in settings else None,
                minutes=self.minutes,
                run=self.run,
                device=device,
                checkpoints=self.checkpoints,
                data=self.data,
                parent=self.parent,
                shard=self.shard,
                log=self.log,
                recorded={name: in_file[name] for name in RECORDED if name in in_file},
                working=working,
            )
            if resumes:
                plans = resumed(order, interrupted or self._named_run())
            else:
                plans = begun(order, dry=self.dry_run)
            with plans as start:
                self._train(start, resumes, ranks.is_first())

    def _named_run(self) -> Run:
        """The run to resume. Raises CheckpointError, ConfigError."""
        from gpt.storage.runs import find_run

        try:
            return find_run(self.checkpoints, self.run)
        except GptxError:
            if self.run is None or not os.path.isfile(self.run):
                raise
            raise ConfigError(
                f"--run: {self.run} is a file, but only a run can be resumed; give the name of a "
                f"run in {self.checkpoints}"
            ) from None

    def _train(self, start: Start, resumes: bool, first: bool) -> None:
        """Shows the plan and trains; with --dry-run, only writes the plan if --json is given."""
        plan = start.plan
        for warning in plan.warnings if first else ():
            console.say(f"warning: {with_flags(warning)}")
        if first and resumes:
            console.say(f"resuming {start.run.name} at step {plan.manifest.step:,}")
        if first:
            show_card(plan, start.recipe)
        if first and resumes and plan.manifest.step == plan.manifest.train.steps:
            console.say("this run has trained all its steps; train longer with --steps N")
        if not self.dry_run:
            run_training(start.trainer(), self.as_json)
        elif self.as_json and first:
            from gpt.training.card import record_of

            console.write_json(record_of(plan))


@contextmanager
def _one_report() -> Iterator[None]:
    """Only the first rank reports an error that all have; each reports its own, of its machine."""
    from gpt.training import ranks

    try:
        yield
    except (OutOfMemory, StorageError) as error:
        named = f"rank {ranks.rank()}: {error}" if ranks.size() > 1 else str(error)
        raise type(error)(named) from None
    except GptxError as error:
        if ranks.is_first():
            raise
        raise typer.Exit(error.exit_code) from None
