"""`gptx eval`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gpt import console
from gpt.commands.common import known_text, open_run, origin, validation_ids
from gpt.commands.options import Checkpoints, ConfigFile, Data, Json, RunName, Step, Unknown


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
    from gpt.view import reports

    model = open_run(checkpoints, run, step)
    texts = {name: known_text(model, console.read_text(name), unknown) for name in files or ()}
    scores = {name: model.score(text) for name, text in texts.items()}
    if not files:
        val = validation_ids(checkpoints, run, step, data)
        scores["validation split"] = score(model.reader, val)
    for name, result in scores.items():
        if as_json:
            record = {"text": name, **reports.score_record(result), **origin(model)}
            console.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            console.stream(f"{name}: {reports.score_line(result)}")
