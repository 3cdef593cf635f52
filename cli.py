"""gptx on the command line: train, sample, attn, eval, runs. The work is done in gpt/."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpt import console, presets
from gpt.config import (
    ModelConfig,
    SampleConfig,
    Scale,
    Stage,
    TrainConfig,
    View,
    to_toml,
)
from gpt.console import only_given, options_from
from gpt.devices import Device, share_cores
from gpt.errors import CheckpointError, ConfigError, NumericsError
from gpt.version import __version__

if TYPE_CHECKING:
    from gpt.reading.trained import TrainedGPT
    from gpt.run import Checkpoint, Run
    from gpt.training.plan import Plan
    from gpt.training.trainer import Trainer

SAMPLE_LENGTH = 160  # characters of the sample at each evaluation
TORCH_PAYS = 10**10  # parameters × characters from which a GPU is worth importing torch for

app = typer.Typer(
    name="gptx",
    help="Train a character-level GPT on any text, sample from it, see what its heads do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Checkpoints = Annotated[
    Path, typer.Option("--checkpoints", envvar="GPTX_CHECKPOINTS", help="Folder of the runs.")
]
Data = Annotated[Path, typer.Option("--data", envvar="GPTX_DATA", help="Folder of the corpora.")]
RunName = Annotated[str | None, typer.Option("--run", help="A run's name.", show_default="newest")]
Step = Annotated[str, typer.Option(help="best, last, or a kept step's number.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
OnDevice = Annotated[Device, typer.Option(help="Where to compute.")]
Unknown = Annotated[
    Literal["error", "skip"], typer.Option(help="Characters that the model does not know.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        is_eager=True,
        callback=console.use_config_file,
        help="TOML file with values for any of these options.",
    ),
]


@app.callback(invoke_without_command=True)
def gptx(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """What `gptx` does before any command."""
    if version:
        console.write(f"gptx {__version__}\n")
        raise typer.Exit


@app.command()
@options_from(
    ModelConfig,
    TrainConfig,
    defaults={**presets.preset("default", "cpu"), **dict.fromkeys(presets.FITTED, "fitted")},
)
def train(
    context: typer.Context,
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text files, folders, - for standard input, or a known name: shakespeare. "
            "Nothing trains on the Python language reference that comes with Python.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        presets.Preset, typer.Option(help="classic: nanoGPT's recipe; best: slow, untuned yet.")
    ] = "default",
    minutes: Annotated[float | None, typer.Option(help="Fit the steps to this time.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run.")] = False,
    changed_corpus: Annotated[
        bool, typer.Option("--changed-corpus", help="Go on although the text is another one.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Stop after the card.")] = False,
    run: Annotated[
        str | None, typer.Option(help="The run's name.", show_default="the corpus's and a number")
    ] = None,
    device: OnDevice = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    data: Data = Path("data"),
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Train a model on a text, and keep its best and last checkpoints.

    Defaults are those of --preset default on a CPU; "fitted": corpus and time decide.
    """
    share_cores()
    from gpt.run import check_run_name, discard_if_empty, find_run, new_run
    from gpt.training.plan import find_corpus, make_plan, read_corpus, resume_plan, usable_device
    from gpt.training.sources import corpus_name, printable
    from gpt.training.trainer import Trainer

    names, options, stdin = corpus or [], only_given(given), sys.stdin.buffer
    typed = console.typed(context)
    if minutes is not None and "minutes" in typed and "steps" not in typed:
        options.pop("steps", None)  # what a config file says of them
    if run is not None:
        check_run_name(run)
    if changed_corpus and not resume:
        raise ConfigError("--changed-corpus: only with --resume")
    if not resume:
        told = (context.default_map or {}).get("preset", preset)
        if told != preset:
            raise ConfigError(f"--preset: {preset}, but --config says {told}; give one of them")
        folder = None if dry_run else new_run(checkpoints, corpus_name(names), run)
        try:
            read, chosen = read_corpus(names, data, stdin), usable_device(device)
            plan = make_plan(read, options, preset, chosen, minutes)
            _show_card(plan)
            if folder is not None:
                with folder.lock():
                    corpus = [printable(name) for name in names] or None
                    folder.write("config.toml", to_toml({"corpus": corpus, **plan.settings()}))
                    trainer = Trainer(folder, read, plan.manifest, chosen)
                    _train(trainer, min(plan.ngrams), as_json)
        finally:
            if folder is not None:
                discard_if_empty(folder)
        return
    if minutes is not None:
        raise ConfigError(
            "--minutes: a resumed run keeps its schedule; use --steps to train longer"
        )
    folder = find_run(checkpoints, run)
    with folder.lock():
        checkpoint, warnings = folder.last_valid()
        if typed.get("preset", checkpoint.manifest.preset) != checkpoint.manifest.preset:
            raise ConfigError(
                f"--preset: this run has {checkpoint.manifest.preset}; leave the option out, or "
                "train a new run"
            )
        read = find_corpus(checkpoint.manifest, names, data, stdin, changed_corpus)
        plan = resume_plan(checkpoint, read, options, usable_device(device))
        for warning in [*warnings, *plan.warnings]:
            console.say(f"warning: {warning}")
        console.say(f"resuming {folder.name} at step {checkpoint.manifest.step:,}")
        _show_card(plan)
        if checkpoint.manifest.step == plan.manifest.train.steps:
            console.say("this run has done all its steps; train longer with --steps N")
        if not dry_run:
            trainer = Trainer.resume(folder, read, checkpoint, plan.manifest.train, plan.device)
            _train(trainer, min(plan.ngrams), as_json)


def _show_card(plan: Plan) -> None:
    """What will happen, before it does."""
    from gpt.view import reports

    manifest, identity, measured = plan.manifest, plan.corpus.identity, plan.measurement
    model, training = manifest.model, manifest.train
    step_characters = training.batch_size * model.block_size
    left = measured.total_seconds(training, manifest.step)
    rows = {
        "corpus": reports.corpus_facts(identity.sources, identity.characters, model),
        "characters": reports.character_facts(plan.rare, plan.only_in_val),
        "split": f"{plan.train_characters:,} to train on, {plan.val_characters:,} to validate",
        "model": reports.model_facts(model),
        "heads": reports.heads_facts(model),
        "training": reports.training_facts(training, step_characters, plan.train_characters),
        "fitted": "; ".join(plan.why),
        "device": reports.device_facts(plan.device, manifest.environment, measured.memory),
        "time": reports.time_facts(measured.seconds_per_step, step_characters, left),
        "to beat": reports.baseline_facts(plan.uniform, plan.ngrams),
    }
    for note in plan.corpus.notes:
        console.say(f"note: {note}")
    console.show_aside(reports.card(rows))


def _train(trainer: Trainer, to_beat: float, as_json: bool) -> None:
    """Runs the loop: one bar, a line an evaluation, a farewell. A signal sets the exit code."""
    from gpt.progress import TrainingBar
    from gpt.training.trainer import Evaluated, Saved, Stepped, Stopped
    from gpt.view import reports

    run, config, reason = trainer.run, trainer.config, ""
    step_characters = config.batch_size * trainer.manifest.model.block_size
    with (
        console.graceful(trainer.stop) as signals,
        TrainingBar(trainer.manifest.step, config.steps, step_characters) as bar,
    ):
        for event in trainer.events():
            if isinstance(event, Stepped):
                bar.step(event.step, event.loss)
            elif isinstance(event, Evaluated):
                bar.evaluated(event.val_loss, best=not event.since_best)
                bar.say(reports.evaluation_line(**vars(event)))
            elif isinstance(event, Saved):
                text = _short_sample(run, event.checkpoint)
                bar.say(reports.sample_line(text, console.aside_width()))
            elif isinstance(event, Stopped):
                reason = event.reason
    manifest = trainer.manifest
    console.show_aside(reports.card(reports.farewell(run, manifest, reason, to_beat)))
    if as_json:
        console.write(json.dumps(reports.result(run.name, manifest, reason)) + "\n")
    if signals:
        raise typer.Exit(128 + signals[0])


def _short_sample(run: Run, checkpoint: Checkpoint) -> str:
    """What the model writes by now. Opening it proves the file that has just been saved."""
    from gpt.reading.trained import TrainedGPT

    text = TrainedGPT(checkpoint.model()).generate(length=SAMPLE_LENGTH)
    run.append("samples", {"step": checkpoint.manifest.step, "text": text})
    return text


@app.command()
@options_from(SampleConfig)
def sample(
    text: Annotated[
        str | None, typer.Argument(help="The prompt; - reads stdin.", show_default=False)
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="The same as an option.")] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="File with the prompt.")] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; repeatable.")
    ] = None,
    unknown: Unknown = "error",
    run: RunName = None,
    step: Step = "best",
    device: OnDevice = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    config: ConfigFile = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Continue a prompt, character by character."""
    options = SampleConfig(**only_given(given))
    begin = _one_text({"TEXT": text, "--prompt": prompt, "--prompt-file": prompt_file}) or ""
    model = _open(checkpoints, run, step, device, options.length * options.n)
    begin = model.vocabulary.decode(model.vocabulary.encode(begin, unknown))
    if len(begin) > model.config.block_size:
        console.say(
            f"note: the prompt has {len(begin):,} characters; the model sees the last "
            f"{model.config.block_size} at most"
        )
    pieces = model.stream(begin, options, stop or ())
    if options.n == 1 and not as_json:
        console.stream(begin, (gained[0] for gained in pieces))
        return
    texts = [begin] * options.n
    for gained in pieces:
        texts = [so_far + new for so_far, new in zip(texts, gained, strict=True)]
    if not as_json:
        console.stream("\n---\n".join(texts))
        return
    origin = {"prompt": begin, "seed": options.seed, **_origin(model)}
    for number, written in enumerate(texts):
        record = {"sample": number, "text": written, **origin}
        console.write(json.dumps(record, ensure_ascii=False) + "\n")


@app.command()
def attn(
    text: Annotated[
        str | None,
        typer.Argument(help="What to look at; - reads stdin.", show_default="from validation"),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File with the text.")] = None,
    run: RunName = None,
    step: Step = "best",
    layer: Annotated[str | None, typer.Option(help="A number, or all.", show_default="0")] = None,
    head: Annotated[
        str | None, typer.Option(help="A number, all, or mean.", show_default="0")
    ] = None,
    stage: Annotated[Stage, typer.Option(help="Which part of the computation.")] = "weights",
    query: Annotated[str | None, typer.Option(help="Rows A:B, or one.", show_default="all")] = None,
    key: Annotated[
        str | None, typer.Option(help="Columns A:B, or one.", show_default="all")
    ] = None,
    view: Annotated[View, typer.Option(help="heads: all of them, small.")] = "auto",
    top: Annotated[int, typer.Option(help="Keys in a line of --view top.", min=1)] = 3,
    precision: Annotated[int, typer.Option(help="Digits.", min=0, max=9)] = 2,
    scale: Annotated[Scale, typer.Option(help="row: each row's largest is full.")] = "fixed",
    format: Annotated[
        Literal["text", "json", "csv", "npz"] | None,
        typer.Option(help="What to write.", show_default="by the ending of -o, else text"),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file.")] = None,
    window: Annotated[
        Literal["error", "last"], typer.Option(help="For a text longer than the context.")
    ] = "error",
    unknown: Unknown = "error",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Labels in ASCII.")] = False,
    color: Annotated[Literal["auto", "always", "never"], typer.Option(help="Colours.")] = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    config: ConfigFile = None,
) -> None:
    """Show what attention heads do with a text: every stage, every number checked."""
    from gpt.view import exports
    from gpt.view.attention import Page, render
    from gpt.view.characters import escape
    from gpt.view.selection import select

    form = format or exports.form_of(output)
    chosen = _one_text({"TEXT": text, "--file": file})
    model = _open(checkpoints, run, step)
    if chosen is None:
        chosen = model.example()
        console.say(f'no TEXT given; from the validation split: "{escape(chosen)}"')
    attention = model.attention(chosen, unknown=unknown, window=window)
    default = "all" if view == "heads" else "0"
    selection = select(attention, layer or default, head or default, stage, query, key)
    if form == "text":
        page = Page(
            width=None if output else console.page_width(),
            ascii_only=ascii_only or not (output or console.speaks_utf8()),
            precision=precision,
            scale=scale,
            top=top,
        )
        lines = render(attention, selection, view, page)
        console.deliver_lines(lines, output, color)
    elif form == "npz":
        console.deliver(exports.to_npz(attention), output)
    else:
        written = (
            exports.to_csv(attention, selection)
            if form == "csv"
            else exports.to_json(attention, selection, _origin(model)) + "\n"
        )
        console.deliver(written.encode(), output)
    failed = [check.name for check in attention.checks if not check.passed]
    if failed:
        raise NumericsError(f"a check failed: {', '.join(failed)}; do not trust these numbers")


@app.command("eval")
def evaluate(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; - reads stdin.", show_default="the validation split"),
    ] = None,
    run: RunName = None,
    step: Step = "best",
    unknown: Unknown = "error",
    checkpoints: Checkpoints = Path("checkpoints"),
    data: Data = Path("data"),
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """How well a model predicts a text: nats and bits per character, perplexity."""
    from gpt.reading.scoring import score
    from gpt.run import find_run
    from gpt.view import reports

    model = _open(checkpoints, run, step)
    scores = {name: model.score(console.read_text(name), unknown=unknown) for name in files or ()}
    if not files:
        from gpt.training.plan import find_corpus

        manifest = find_run(checkpoints, run).at(step).manifest
        corpus = find_corpus(manifest, (), data, sys.stdin.buffer)
        _, val = corpus.split(manifest.train.val_fraction, manifest.model.block_size)
        scores["validation split"] = score(model.reader, val)
    for name, result in scores.items():
        if as_json:
            record = {"text": name, **reports.score_record(result), **_origin(model)}
            console.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            console.stream(f"{name}: {reports.score_line(result)}")


@app.command()
def runs(
    name: Annotated[str | None, typer.Argument(help="One run's story.", show_default=False)] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every byte, prove every model's numbers.")
    ] = False,
    checkpoints: Checkpoints = Path("checkpoints"),
    as_json: Json = False,
) -> None:
    """The runs; or one run's options, loss curve and samples."""
    from gpt.run import all_runs, find_run
    from gpt.view import reports

    if verify:
        chosen = [find_run(checkpoints, name)] if name else all_runs(checkpoints)
        _verify(chosen or [find_run(checkpoints)], as_json)
        return
    if name is None:
        found = all_runs(checkpoints) or [find_run(checkpoints)]
        rows, broken = reports.readable(found)
        for problem in broken:
            console.say(f"warning: {problem}")
        if as_json:
            for run, manifest in rows:
                console.write(json.dumps(reports.result(run.name, manifest, "")) + "\n")
        else:
            console.show(reports.runs_table(rows))
        return
    run = find_run(checkpoints, name)
    manifest = run.last().manifest
    metrics, samples = run.records("metrics"), run.records("samples")
    if as_json:
        story = {**reports.result(run.name, manifest, ""), "metrics": metrics, "samples": samples}
        console.write(json.dumps(story, ensure_ascii=False) + "\n")
        return
    console.show(reports.story(run, manifest, metrics, samples))


def _verify(runs: list[Run], as_json: bool) -> None:
    """A line a checkpoint. Raises CheckpointError if one is damaged."""
    from gpt.loading import open_model
    from gpt.run import Checkpoint

    found, damaged = 0, 0
    for run in runs:
        for path in run.step_paths():
            step, problem = int(path.name[5:]), ""
            try:
                checkpoint = Checkpoint.open(path)
                checkpoint.verify()
                open_model(checkpoint.model())
            except CheckpointError as error:
                problem = str(error)
            found, damaged = found + 1, damaged + bool(problem)
            if as_json:
                record = {"run": run.name, "step": step, "whole": not problem, "problem": problem}
                console.write(json.dumps(record, ensure_ascii=False) + "\n")
            else:
                console.stream(f"{run.name}  step {step:,}  {problem or 'whole'}")
    if damaged:
        raise CheckpointError(
            f"{damaged} of {found} checkpoints damaged; gptx train --resume goes on from the "
            "newest whole one"
        )


def _open(
    checkpoints: Path, run: str | None, step: str, device: str = "cpu", characters: int = 0
) -> TrainedGPT:
    """The chosen checkpoint. "auto" takes a GPU only for work that outlasts importing torch."""
    from gpt.devices import choose
    from gpt.loading import open_model
    from gpt.run import find_run

    stored = find_run(checkpoints, run).model(step)
    if device == "auto":
        large = stored.config.parameters() * characters >= TORCH_PAYS
        device = choose("auto") if large else "cpu"
    return open_model(stored, device)


def _origin(model: TrainedGPT) -> dict[str, Any]:
    """Which checkpoint an answer came from, for programs."""
    path = model.stored.source.parent
    return {"run": path.parent.name, "step": model.stored.step, "checkpoint": model.stored.sha256}


def _one_text(given: dict[str, str | Path | None]) -> str | None:
    """The text that was given in one of several ways, read if it is a file or stdin."""
    sources = {name: value for name, value in given.items() if value is not None}
    if len(sources) > 1:
        raise ConfigError(f"{' and '.join(sources)}: give the text once")
    for value in sources.values():
        is_file = isinstance(value, Path) or value == "-"
        return console.read_text(str(value)) if is_file else str(value)
    return None


def main() -> None:
    """The entry point of the `gptx` script and of `python -m cli`."""
    console.run(app)


if __name__ == "__main__":
    main()
