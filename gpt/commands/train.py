"""`gptx train`: trains a new run or resumes one, in one process or as one of several ranks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.commands.options import Command, options_of
from gpt.commands.progress import plan_record, run_training, show_card, working
from gpt.config import ModelConfig, TrainConfig, presets
from gpt.config.fields import only_fields
from gpt.devices import choose, share_cores
from gpt.errors import ConfigError, GptxError, OutOfMemory
from gpt.storage.config_file import to_toml

if TYPE_CHECKING:
    from gpt.corpus.corpus import Corpus
    from gpt.counting.ahead import CountedAhead
    from gpt.storage.run import Run
    from gpt.training.distributed import Ranks
    from gpt.training.launch import Launch, Messages
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

TIMED = ("steps", "evaluations", "eval_part")  # options that --minutes decides
READING = ("separator", "split", "min_count", "replacement")  # options for reading a text


class Train(Command):
    """Train a model on a text, and keep its best and last checkpoints.

    Defaults are those of --preset default on a CPU; "fitted": chosen to suit corpus and time.
    """

    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders, - for standard input, or a known name: shakespeare "
            "(downloaded once) or repeats (generated; sets its own options; trains induction heads "
            "in a minute). Without CORPUS: the Python language reference that comes with Python.",
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
    changed_corpus: Annotated[bool, "With --resume: allow a changed text."] = False
    dry_run: Annotated[bool, "Show the plan without training."] = False
    run: Annotated[str | None, "The run's name.", "the corpus's name and a number"] = None
    device: shared.OnDevice = "auto"
    data: shared.Data = Path("data")
    shard: Annotated[bool, "Under torchrun: spread the weights over the ranks."] = False
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
        from gpt.corpus.sources import recipe_of
        from gpt.training.launch import Launch, Messages

        typed, in_file = self.typed(), self.context.default_map or {}
        if {"minutes", "steps"} & typed.keys():  # they override the plan of a config file
            for name in {"step_plan", *(TIMED if "minutes" in typed else ())} - typed.keys():
                self.given.pop(name, None)
        recipe: dict[str, Any] = {}
        if not (self.resume or "preset" in {**typed, **in_file}):
            recipe = {n: v for n, v in recipe_of(self.corpus or ()).items() if n not in self.given}
            if self.minutes is not None:
                recipe.pop("steps", None)
            self.given |= recipe
        reading = TrainConfig(**{name: self.given[name] for name in READING if name in self.given})
        stored = in_file.get("preset", self.preset)
        shared.refuse(
            (self.changed_corpus and not self.resume, "--changed-corpus: only with --resume"),
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
                "val_fraction" in typed and reading.split != "last" and not self.resume,
                "--val-fraction: only with --split last",
            ),
        )
        launch = Launch.here()
        with _one_report(launch):
            ranks = Messages(launch)
            interrupted = self._interrupted(ranks)
            if interrupted is not None or self.resume:
                self._resume(ranks, interrupted or self._named_run(), typed.get("preset"))
            else:
                self._begin(ranks, reading, recipe)

    def _interrupted(self, ranks: Messages) -> Run | None:
        """The run that this launch created before torchrun restarted it; the same on all ranks."""
        from gpt.storage.run import Run

        if ranks.size == 1 and not ranks.launch.name:
            return None
        if ranks.first:
            found = ranks.launch.interrupted(self.checkpoints)
            ranks.publish("interrupted", str(found.path) if found else "")
            return found
        path = ranks.wait("interrupted")
        return Run(Path(path)) if path else None

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

    def _begin(self, messages: Messages, reading: TrainConfig, recipe: dict[str, Any]) -> None:
        """Trains a new run. reading: options for reading the text; its other fields are not chosen
        yet.
        """
        from gpt.corpus.corpus import read_corpus
        from gpt.corpus.sources import corpus_name, printable
        from gpt.storage.run import Run
        from gpt.storage.runs import check_run_name, discard_if_empty, new_run

        if self.run is not None:
            check_run_name(self.run)
        folder, device = None, choose(self.device)
        if messages.first and not self.dry_run:
            folder = new_run(self.checkpoints, corpus_name(self.corpus or ()), self.run)
        with ExitStack() as unlocked, ExitStack() as stack:
            if folder is not None:
                stack.enter_context(folder.lock())
                unlocked.callback(discard_if_empty, folder)
                messages.launch.mark(folder)
            read = self._read(messages, reading, partial(read_corpus, config=reading))
            ahead = self._counted(read, device)  # meanwhile, torch is imported
            from gpt.heads.proof import prove_tensors
            from gpt.training.distributed import Ranks
            from gpt.training.plan import make_plan, usable_device
            from gpt.training.trainer import Trainer

            ranks = Ranks(messages.launch, self.shard, messages.store)
            device = usable_device(self.device, ranks)
            ranks.init(device)
            plan = make_plan(read, self.given, self.preset, device, self.minutes, ranks, ahead)
            if ranks.first:
                show_card(plan, recipe)
            if folder is not None:
                corpus = [printable(name) for name in self.corpus or ()] or None
                folder.write("config.toml", to_toml({"corpus": corpus, **plan.settings()}))
            run = folder or Run(Path())
            trainer = partial(Trainer, run, read, plan.manifest, device, ranks, prove_tensors)
            self._train(ranks, plan, partial(trainer, ahead=ahead))

    def _counted(self, corpus: Corpus, device: str) -> CountedAhead:
        """Begins to count. Raises ConfigError, TextError."""
        from gpt.counting.ahead import CountedAhead

        size = len(corpus.vocabulary)
        values = presets.changed(presets.preset(self.preset, device), self.given)
        model = ModelConfig(vocab_size=size, **only_fields(ModelConfig, values))
        train = TrainConfig(**only_fields(TrainConfig, values))
        return CountedAhead(*corpus.split(train.val_fraction, 1), size, model.counting)

    def _resume(self, messages: Messages, run: Run, preset: str | None) -> None:
        """Continues training a run. preset: as given by the user."""
        from gpt.corpus.corpus import find_corpus
        from gpt.training.launch import check_resumable, shared_checkpoint

        with ExitStack() as stack:
            if messages.first:
                stack.enter_context(run.lock())
                messages.launch.mark(run)
            checkpoint, warnings = shared_checkpoint(messages, run)
            manifest = checkpoint.manifest
            check_resumable(manifest)
            if preset not in (None, manifest.preset):
                raise ConfigError(
                    f"--preset: this run has {manifest.preset}; leave the option out, or train a "
                    "new run"
                )
            find = partial(find_corpus, manifest, changed=self.changed_corpus)
            read = self._read(messages, manifest.train, find)
            from gpt.heads.proof import prove_tensors
            from gpt.training.distributed import Ranks
            from gpt.training.plan import usable_device
            from gpt.training.resume import resume_plan
            from gpt.training.trainer import Trainer

            ranks = Ranks(messages.launch, self.shard, messages.store)
            device = usable_device(self.device, ranks)
            ranks.init(device)
            plan = resume_plan(checkpoint, read, self.given, device, ranks)
            if ranks.first:
                for warning in [*warnings, *plan.warnings]:
                    console.say(f"warning: {warning}")
                console.say(f"resuming {run.name} at step {manifest.step:,}")
                show_card(plan, {})
                if manifest.step == plan.manifest.train.steps:
                    console.say("this run has trained all its steps; train longer with --steps N")
            places = (device, ranks, prove_tensors, checkpoint)
            trainer = partial(Trainer, run, read, plan.manifest, *places)
            self._train(ranks, plan, trainer)

    def _read(self, ranks: Messages, config: TrainConfig, read: Callable[..., Corpus]) -> Corpus:
        """Calls `read` for the corpus; every rank gets the result. A bar shows the progress."""
        from gpt.training.launch import shared_corpus

        sources = {"names": self.corpus or (), "data": self.data, "stdin": sys.stdin.buffer}
        with working("encoding") as done:
            return shared_corpus(ranks, self.data, config, partial(read, **sources, progress=done))

    def _train(self, ranks: Ranks, plan: Plan, trainer: Callable[[], Trainer]) -> None:
        """Trains as planned; with --dry-run, only writes the plan if --json is given."""
        if not self.dry_run:
            run_training(trainer(), self.as_json)
        elif self.as_json and ranks.first:
            console.write_json(plan_record(plan))
        ranks.leave()


@contextmanager
def _one_report(launch: Launch) -> Iterator[None]:
    """If several ranks have an error, only the first one reports it."""
    try:
        yield
    except OutOfMemory as error:
        named = f"rank {launch.rank}: {error}" if launch.size > 1 else str(error)
        raise OutOfMemory(named) from None
    except GptxError as error:
        if launch.first:
            raise
        raise typer.Exit(error.exit_code) from None
