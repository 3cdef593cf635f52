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
    from gpt.storage.manifest import Baseline
    from gpt.trained import TrainedGPT
    from gpt.vocabulary import Ids

SCHEMA = 2
MOST_SHOWN = 10_000  # characters of the validation split that --chars shows unasked
MOST_SCORED = 1_000_000  # characters of a longer split that are scored
SHORTEST_PART, LONGEST_SEARCHED = 100, 50_000_000  # characters: --counting looks for the text
WORST = 10  # surprises that --chars lists unasked


@dataclass(frozen=True)
class Scored:
    """A text's ids, its name for people (label) and what its JSON record says of it (facts).

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

    if chars and against is not None:
        raise ConfigError("--chars and --against: give one of them")
    if counting and against is not None:
        raise ConfigError("--counting and --against: give one of them")
    if worst is not None and not chars:
        raise ConfigError("--worst: goes with --chars")
    opened = shared.open_run(checkpoints, run, step)
    other, may_have_seen = None, None
    if against is not None:
        other = shared.open_run(checkpoints, *_run_and_step(against))
        may_have_seen = None if files else other.exposure_to_split(opened)
    trained_on = _counted_text(opened, data) if counting else None
    output, listed = console.Output(None, ascii_only, color), WORST if worst is None else worst
    asked = (opened, other, trained_on)
    evaluation = _Evaluation(*asked, unknown, chars, listed, as_json, output)
    failed: list[int] = []
    for chosen in files or ():
        with _reported(chosen, failed):
            for name in _files_of(chosen, data):
                with _reported(name, failed):
                    evaluation.show(evaluation.file(name))
    if not files:
        evaluation.show(evaluation.split(data), may_have_seen)
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
def _reported(name: str, failed: list[int]) -> Iterator[None]:
    """Reports a text that cannot be scored by its name, so that the others are still scored."""
    try:
        yield
    except TextError as error:
        problem, label = str(error), _label(name)
        console.say_error(problem if label in problem else f"{label}: {problem}")
        failed.append(error.exit_code)


def _label(name: str) -> str:
    return "standard input" if name == "-" else name


def _is_part(ids: Ids, trained_on: Ids | None) -> bool:
    """Whether the characters are a part of the training text that --counting counts."""
    if trained_on is None or not SHORTEST_PART <= len(ids) <= len(trained_on) <= LONGEST_SEARCHED:
        return False
    return trained_on.tobytes().find(ids.astype(trained_on.dtype).tobytes()) >= 0


def _counted_text(opened: Saved, data: Path) -> Ids:
    """The training text that --counting counts. Raises TextError."""
    from gpt.corpus.baseline import MOST_TRAIN

    train, _ = opened.splits(data, "--counting")
    if len(train) > MOST_TRAIN:
        console.say(f"note: counting only the last {MOST_TRAIN:,} characters of the training text")
    return train


def _left_out(model: TrainedGPT, text: str) -> dict[str, Any]:
    """For programs: the characters of a text that the model does not know."""
    count = int((~model.vocabulary.known(text)).sum())
    return {"characters": count, "which": model.vocabulary.unknown(text) if count else ""}


@dataclass(frozen=True)
class _Evaluation:
    """What to evaluate, and how to show it. trained_on: the text that --counting counts."""

    opened: Saved
    other: Saved | None
    trained_on: Ids | None
    unknown: str
    chars: bool
    worst: int
    as_json: bool
    output: console.Output

    def file(self, name: str) -> Scored:
        """A file's characters that the model knows. Raises TextError."""
        model, label, text = self.opened.model, _label(name), console.read_text(name)
        ids = model.vocabulary.encode(shared.known_text(model, text, self.unknown, label))
        places = None
        if len(ids) < len(text):
            places = model.vocabulary.known(text).nonzero()[0].tolist()
        seen = name != "-" and self.opened.is_corpus(Path(name), len(text))
        seen = seen or _is_part(ids, self.trained_on)
        if seen:
            console.say(
                f"warning: {label} is in the text that this run was trained on, so its loss says "
                "nothing about new texts"
            )
        left_out = _left_out(model, text)
        facts = {"file": name, "split": None, "left_out": left_out, "trained_on": seen}
        return Scored(label, facts, ids, places)

    def split(self, data: Path) -> Scored:
        """The validation split; of a long one, its first characters. Raises TextError."""
        manifest = self.opened.manifest
        advice = ("; restore it, or give a FILE", "; give a FILE")
        _, ids = self.opened.splits(data, "the validation split", *advice)
        label = "validation split" + (f" of {self.opened.name}" if self.other else "")
        most = MOST_SHOWN if self.chars else MOST_SCORED + 1  # the first one is context only
        if len(ids) > most:
            if not self.chars:
                trained = ""
                if manifest and manifest.best_step == manifest.step:
                    nats, characters, of = manifest.shown_loss
                    trained = f"; training measured {nats:.4f} nats on {characters:,} of {of:,}"
                console.say(
                    f"note: scoring only the first {MOST_SCORED:,} of {len(ids):,} characters of "
                    f"the {label}; to score all, give the validation text as a file{trained}"
                )
            shown = most - (not self.chars)
            label, ids = f"the first {shown:,} characters of the {label}", ids[:most]
        baseline = manifest.baseline if manifest else None
        return Scored(label, {"file": None, "split": "validation"}, ids, baseline=baseline)

    def show(self, text: Scored, may_have_seen: str | None = None) -> None:
        """Scores a text and writes the result. Raises TextError."""
        from gpt.view.terminal import scores

        record = {"schema": SCHEMA, "scored": text.label, **text.facts, **self.opened.origin}
        if self.other is not None:
            record["may_have_seen"] = may_have_seen and self.other.name
            line = self._compared(self.other, text, record)
        elif self.chars:
            line = self._characters(text, record) + self._beside_counting(text, record)
        else:
            found = self.opened.model.score(text.ids)
            record |= scores.score_record(found)
            line = scores.score_line(found) + self._beside_counting(text, record)
        if self.as_json:
            console.write_json(record)
        else:
            console.tell(f"{text.label}: {line}")

    def _beside_counting(self, text: Scored, record: dict[str, Any]) -> str:
        """Compares with n-gram counts, unless these contain the text: a line, or "" without."""
        from gpt.view.terminal import scores

        baseline = text.baseline
        if baseline is None and self.trained_on is not None and not text.facts.get("trained_on"):
            from gpt.corpus.baseline import count_baseline

            known = len(self.opened.model.vocabulary)
            baseline = count_baseline(self.trained_on, text.ids, known)
        nats, characters = record["nats"], record["characters"]
        record["counting"] = scores.comparison_record(nats, characters, baseline)
        if baseline is None:
            return ""
        return f" · {scores.comparison(nats, characters, baseline, self.opened.manifest)}"

    def _characters(self, text: Scored, record: dict[str, Any]) -> str:
        """Shows every character's surprise, or puts it into the record."""
        from gpt.view.terminal import scores, surprise

        model, output = self.opened.model, self.output
        whole, found = model.score(text.ids), model.surprises(text.ids)
        plain, characters = model.vocabulary.decode(text.ids), model.vocabulary.characters
        record |= {**scores.score_record(whole), "in_context": scores.score_record(found.score)}
        if self.as_json:
            each = surprise.surprise_record(plain, characters, found, text.places)
            record["per_character"] = each
            return ""
        page, digits = output.page(), not console.colours(output.color)
        worst = surprise.worst(plain, characters, found, self.worst, page, text.places)
        coloured = surprise.coloured(plain, found, page, digits)
        output.lines([*coloured, *surprise.scale(page, digits), *worst])
        one_window = len(text.ids) - 1 <= model.config.block_size
        return scores.score_line(whole, None if one_window else found.score)

    def _compared(self, against: Saved, scored: Scored, record: dict[str, Any]) -> str:
        """How two models differ on the characters that both know."""
        from gpt.view.terminal import scores

        model, other = self.opened.model, against.model
        whole = model.vocabulary.decode(scored.ids)
        name = f"{scored.label} for {against.name}"
        found = model.compare(other, shared.known_text(other, whole, self.unknown, name))
        names = [self.opened.name, against.name]
        if names[0] == names[1]:
            names = [f"step {each.stored.step:,}" for each in (model, other)]
        its = {**against.origin, "left_out": _left_out(other, whole)}
        record |= {"against": its, **scores.paired_record(found)}
        return scores.paired_line(names[0], names[1], found)
