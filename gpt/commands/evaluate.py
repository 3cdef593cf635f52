"""`gptx eval`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpt import console
from gpt.commands.common import known_text, open_run, origin, splits
from gpt.commands.options import Checkpoints, ConfigFile, Data, Json, RunName, Step, Unknown
from gpt.errors import ConfigError

if TYPE_CHECKING:
    from gpt.reading.trained import TrainedGPT
    from gpt.view.lines import Page

# Pieces that --against compares: ten of a short text, but longer than words.
FEWEST, SHORTEST = 10, 16
MOST_SHOWN = 10_000  # characters of the validation split that --chars shows unasked


def evaluate(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; - reads stdin.", show_default="the validation split"),
    ] = None,
    run: RunName = None,
    step: Step = "best",
    chars: Annotated[
        bool, typer.Option("--chars", help="Colour every character by its surprise.")
    ] = False,
    worst: Annotated[int, typer.Option(help="Surprises that --chars lists.", min=0)] = 10,
    against: Annotated[
        str | None,
        typer.Option(help="Another run, or RUN:STEP, on the same text.", show_default=False),
    ] = None,
    unknown: Unknown = "error",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Labels in ASCII.")] = False,
    color: Annotated[Literal["auto", "always", "never"], typer.Option(help="Colours.")] = "auto",
    checkpoints: Checkpoints = Path("checkpoints"),
    data: Data = Path("data"),
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """How well a model predicts a text: nats and bits per character, perplexity."""
    from gpt.reading.scoring import score as score_of
    from gpt.view import reports
    from gpt.view.lines import Page

    if chars and against is not None:
        raise ConfigError("--chars and --against: give one of them")
    model = open_run(checkpoints, run, step)
    other = None
    if against is not None:
        name, _, place = against.partition(":")
        other = open_run(checkpoints, name, place or "best")
    page = Page(console.page_width(), ascii_only or not console.speaks_utf8())
    encode, decode = model.vocabulary.encode, model.vocabulary.decode
    texts = {
        name: encode(known_text(model, console.read_text(name), unknown)) for name in files or ()
    }
    if not files:
        _, texts["validation split"] = splits(checkpoints, run, step, data)
    for name, ids in texts.items():
        record = {"text": name, **origin(model)}
        if other is not None:
            told = _compared(model, other, decode(ids), record, unknown)
        elif chars:
            shown = decode(ids if files else ids[:MOST_SHOWN])
            told = _characters(model, shown, record, page, worst, color, as_json)
        else:
            score = score_of(model.reader, ids)
            record |= reports.score_record(score)
            told = reports.score_line(score)
        if as_json:
            console.write(json.dumps(record, ensure_ascii=False) + "\n")
        elif told:
            console.stream(f"{name}: {told}")


def _characters(
    model: TrainedGPT,
    text: str,
    record: dict[str, Any],
    page: Page,
    worst: int,
    color: str,
    as_json: bool,
) -> str:
    """Shows every character's surprise, or puts it into the record."""
    from gpt.view import reports, surprise

    found = model.surprises(text)
    score = found.score
    record |= reports.score_record(score)
    characters = model.vocabulary.characters
    if as_json:
        record["per_character"] = surprise.surprise_record(text, characters, found)
        return ""
    digits = not console.colours(color)
    lines = [
        *surprise.coloured(text, found, page, digits),
        *surprise.scale(page, digits),
        *surprise.worst(text, characters, found, worst, page),
    ]
    console.deliver_lines(lines, None, color)
    return reports.score_line(score)


def _compared(
    model: TrainedGPT, other: TrainedGPT, text: str, record: dict[str, Any], unknown: str
) -> str:
    """How two models differ on the characters that both know."""
    from gpt.reading.scoring import paired
    from gpt.view import surprise

    text = known_text(other, text, unknown)
    first, second = model.surprises(text), other.surprises(text)
    size = max(model.config.block_size, other.config.block_size)
    size = min(size, max(SHORTEST, len(first.nats) // FEWEST))
    found = paired(first.nats, second.nats, size)
    places = [origin(each) for each in (model, other)]
    names = [place["run"] for place in places]
    if names[0] == names[1]:
        names = [f"step {place['step']:,}" for place in places]
    record |= {"against": places[1], **surprise.paired_record(found)}
    return surprise.paired_line(names[0], names[1], found)
