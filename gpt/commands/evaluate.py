"""`gptx eval`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpt.commands import console, shared
from gpt.errors import ConfigError, TextError

if TYPE_CHECKING:
    from gpt.loading import Saved
    from gpt.storage.manifest import Baseline, Manifest
    from gpt.trained import TrainedGPT
    from gpt.vocabulary import Ids

SCHEMA = 2
MOST_SHOWN = 10_000  # characters of the validation split that --chars shows unasked
MOST_SCORED = 1_000_000  # characters of a longer split that are scored
SHORTEST_PART, LONGEST_SEARCHED = 100, 50_000_000  # characters: --counting looks for the text
WORST = 10  # surprises that --chars lists unasked


@dataclass(frozen=True)
class Scored:
    """A text as the model takes it in, what to call it, and what programs are told of it.

    places: where in its file each character stands, when some were left out. baseline: the run's
    stored baseline for this text.
    """

    label: str
    facts: dict[str, Any]
    ids: Ids
    places: list[int] | None = None
    baseline: Baseline | None = None


def evaluate(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Texts, or folders of them; - reads stdin.", show_default="the validation split"
        ),
    ] = None,
    run: shared.RunName = None,
    step: shared.Step = "best",
    chars: Annotated[
        bool,
        typer.Option(
            "--chars", help="Colour each character by its surprise after half a window or more."
        ),
    ] = False,
    worst: Annotated[
        int | None,
        typer.Option(help="Surprises that --chars lists.", min=0, show_default=str(WORST)),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Run, RUN:STEP or model file to compare with on this text. This compares two "
            "models; to compare recipes, train several seeds of each.",
            show_default=False,
        ),
    ] = None,
    counting: Annotated[
        bool,
        typer.Option(
            "--counting",
            help="Compare a FILE, too, with n-grams counted in the training text.",
        ),
    ] = False,
    unknown: shared.Unknown = "error",
    ascii_only: shared.Ascii = False,
    color: shared.Color = "auto",
    checkpoints: shared.Checkpoints = Path("checkpoints"),
    data: shared.Data = Path("data"),
    config: shared.ConfigFile = None,
    as_json: shared.Json = False,
) -> None:
    """How well a model predicts a text: nats and bits per character, perplexity.

    By training's windows, side by side; --chars gives each character half a window or more.
    """
    from gpt.view.terminal import scores

    if chars and against is not None:
        raise ConfigError("--chars and --against: give one of them")
    if counting and against is not None:
        raise ConfigError("--counting and --against: give one of them")
    if worst is not None and not chars:
        raise ConfigError("--worst: goes with --chars")
    opened = shared.open_run(checkpoints, run, step)
    model, other, may_have_seen = opened.model, None, None
    if against is not None:
        other = shared.open_run(checkpoints, *_run_and_step(against))
        if not files and opened.manifest:
            may_have_seen = earlier_sight(opened.manifest, other.manifest, other.name)
    trained_on = _counted_text(opened, data) if counting else None
    output = console.Output(None, ascii_only, color)

    def tell(text: Scored) -> None:
        record = {"schema": SCHEMA, "scored": text.label, **text.facts, **opened.origin}
        if other is not None:
            record["may_have_seen"] = may_have_seen and other.name
            told = _compared(opened, other, text, record, unknown)
        elif chars:
            listed = WORST if worst is None else worst
            told = _characters(model, text, record, output, listed, as_json)
        else:
            found = model.score(text.ids)
            record |= scores.score_record(found)
            told = scores.score_line(found)
        if other is None:
            told += _beside_counting(text, record, trained_on, opened)
        if as_json:
            console.write_json(record)
        else:
            console.tell(f"{text.label}: {told}")

    failed: list[int] = []
    for chosen in files or ():
        with _named(chosen, failed):
            for name in _files_of(chosen, data):
                with _named(name, failed):
                    tell(_file(name, opened, unknown, trained_on))
    if not files:
        try:
            _, ids = opened.splits(data)
        except TextError as error:
            remedy = "restore it, or give a FILE" if opened.manifest else "give a FILE"
            told = f"the validation split needs the corpus: {error}; {remedy}"
            raise TextError(told) from None
        tell(_split(ids, opened.name if other else None, chars, opened.manifest))
    if may_have_seen:
        console.say(f"warning: {may_have_seen}")
    if failed:
        raise typer.Exit(failed[0])


def _run_and_step(against: str) -> tuple[str, str]:
    if os.path.isfile(against):  # a path may contain colons
        return against, "best"
    name, _, step = against.partition(":")
    return name, step or "best"


def _files_of(chosen: str, data: Path) -> list[str]:
    """The file itself, or a folder's texts, as `gptx train` finds them. Raises TextError."""
    from gpt.corpus.sources import find_sources

    if not chosen or not os.path.isdir(chosen):
        return [chosen]
    return [str(source.path) for source in find_sources([chosen], data, sys.stdin.buffer)]


@contextmanager
def _named(name: str, failed: list[int]) -> Iterator[None]:
    """A text that cannot be scored is told by its name, and the others have their turn."""
    try:
        yield
    except TextError as error:
        told, label = str(error), _label(name)
        console.say_error(told if label in told else f"{label}: {told}")
        failed.append(error.exit_code)


def _label(name: str) -> str:
    return "standard input" if name == "-" else name


def _file(name: str, opened: Saved, unknown: str, trained_on: Ids | None) -> Scored:
    """A file's characters that the model knows. Raises TextError."""
    model, label, text = opened.model, _label(name), console.read_text(name)
    ids = model.vocabulary.encode(shared.known_text(model, text, unknown, label))
    places = None
    if len(ids) < len(text):
        places = model.vocabulary.known(text).nonzero()[0].tolist()
    seen = _is_corpus(name, len(text), opened.manifest) or _is_part(ids, trained_on)
    if seen:
        console.say(
            f"warning: {label} is in the text that this run was trained on, so its loss says "
            "nothing about new texts"
        )
    facts = {"file": name, "split": None, "left_out": _left_out(model, text), "trained_on": seen}
    return Scored(label, facts, ids, places)


def _is_corpus(name: str, characters: int, manifest: Manifest | None) -> bool:
    """Whether the file is the whole text that the run was trained and validated on."""
    from gpt.corpus.sources import Source
    from gpt.corpus.text import algorithm_of, measured, pieces_of

    if manifest is None or name == "-" or characters != manifest.corpus.characters:
        return False
    pieces = pieces_of([Source(Path(name), name)], manifest.train.between, [])
    algorithm = algorithm_of(manifest.corpus.digest)
    return measured(pieces, algorithm).digest == manifest.corpus.digest


def _is_part(ids: Ids, trained_on: Ids | None) -> bool:
    """Whether the characters are a part of the training text that --counting counts."""
    if trained_on is None or not SHORTEST_PART <= len(ids) <= len(trained_on) <= LONGEST_SEARCHED:
        return False
    return trained_on.tobytes().find(ids.astype(trained_on.dtype).tobytes()) >= 0


def _split(ids: Ids, of_run: str | None, chars: bool, manifest: Manifest | None) -> Scored:
    """The validation split; only the first MOST_SHOWN (--chars) or MOST_SCORED of a long one.

    manifest: the checkpoint's; it has the loss that training measured, and the baseline.
    """
    label = "validation split" + (f" of {of_run}" if of_run else "")
    most = MOST_SHOWN if chars else MOST_SCORED + 1  # the first one is context only
    if len(ids) > most:
        if not chars:
            trained = ""
            if manifest and manifest.best_step == manifest.step:
                nats, characters, of = manifest.shown_loss
                trained = f"; training measured {nats:.4f} nats on {characters:,} of {of:,}"
            console.say(
                f"note: scoring only the first {MOST_SCORED:,} of {len(ids):,} characters of the "
                f"{label}; to score all, give the validation text as a file{trained}"
            )
        label, ids = f"the first {most - (not chars):,} characters of the {label}", ids[:most]
    baseline = manifest.baseline if manifest else None
    return Scored(label, {"file": None, "split": "validation"}, ids, baseline=baseline)


def _counted_text(opened: Saved, data: Path) -> Ids:
    """The training text that --counting counts. Raises TextError."""
    from gpt.corpus.baseline import MOST_TRAIN

    try:
        train, _ = opened.splits(data)
    except TextError as error:
        remedy = "; restore it" if opened.manifest else ""
        raise TextError(f"--counting needs the corpus: {error}{remedy}") from None
    if len(train) > MOST_TRAIN:
        console.say(f"note: counting only the last {MOST_TRAIN:,} characters of the training text")
    return train


def _beside_counting(
    text: Scored, record: dict[str, Any], trained_on: Ids | None, opened: Saved
) -> str:
    """Adds the comparison with the baseline to the record; its line, or "" without a baseline.

    Counting knows its training text by heart: on that there is no comparison.
    """
    from gpt.view.terminal import scores

    baseline = text.baseline
    if baseline is None and trained_on is not None and not text.facts.get("trained_on"):
        from gpt.corpus.baseline import count_baseline

        baseline = count_baseline(trained_on, text.ids, len(opened.model.vocabulary))
    nats, characters = record["nats"], record["characters"]
    record["counting"] = scores.comparison_record(nats, characters, baseline)
    if baseline is None:
        return ""
    return f" · {scores.comparison(nats, characters, baseline, opened.manifest)}"


def _left_out(model: TrainedGPT, text: str) -> dict[str, Any]:
    """For programs: what of a text the model does not know."""
    count = int((~model.vocabulary.known(text)).sum())
    return {"characters": count, "which": model.vocabulary.unknown(text) if count else ""}


def _characters(
    model: TrainedGPT,
    text: Scored,
    record: dict[str, Any],
    output: console.Output,
    worst: int,
    as_json: bool,
) -> str:
    """Shows every character's surprise, or puts it into the record."""
    from gpt.view.terminal import scores, surprise

    whole, found = model.score(text.ids), model.surprises(text.ids)
    plain, characters = model.vocabulary.decode(text.ids), model.vocabulary.characters
    record |= {**scores.score_record(whole), "in_context": scores.score_record(found.score)}
    if as_json:
        each = surprise.surprise_record(plain, characters, found, text.places)
        record["per_character"] = each
        return ""
    page, digits = output.page(), not console.colours(output.color)
    lines = [
        *surprise.coloured(plain, found, page, digits),
        *surprise.scale(page, digits),
        *surprise.worst(plain, characters, found, worst, page, text.places),
    ]
    output.lines(lines)
    one_window = len(text.ids) - 1 <= model.config.block_size
    return scores.score_line(whole, None if one_window else found.score)


def _compared(
    opened: Saved, against: Saved, scored: Scored, record: dict[str, Any], unknown: str
) -> str:
    """How two models differ on the characters that both know."""
    from gpt.view.terminal import scores

    model, other = opened.model, against.model
    whole = model.vocabulary.decode(scored.ids)
    text = shared.known_text(other, whole, unknown, f"{scored.label} for {against.name}")
    found = model.compare(other, text)
    names = [opened.name, against.name]
    if names[0] == names[1]:
        names = [f"step {each.stored.step:,}" for each in (model, other)]
    its = {**against.origin, "left_out": _left_out(other, whole)}
    record |= {"against": its, **scores.paired_record(found)}
    return scores.paired_line(names[0], names[1], found)


def earlier_sight(mine: Manifest, its: Manifest | None, name: str) -> str | None:
    """Why another model may have learnt from the validation split of mine; None if it has not."""
    from gpt.corpus.text import algorithm_of

    text = mine.corpus.digest
    if its is None:
        why = "is a model file without its run, so it may have seen this text"
    elif algorithm_of(its.corpus.digest) != algorithm_of(text):
        why = "has another release's name for its corpus, so it may have seen this text"
    elif its.corpus.digest != text:
        sources = ", ".join(its.corpus.sources)
        why = f"was trained on another corpus ({sources}) and may have seen this text"
    elif any(digest != text for _, digest in its.earlier_corpora):
        why = "was first trained on another corpus and may have seen this text"
    elif its.train.val_fraction < mine.train.val_fraction:
        why = f"was trained on more of this corpus (--val-fraction {its.train.val_fraction:g})"
    else:
        return None
    return f"{name} {why}"
