"""`gptx export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import CheckpointOptions, OutputOptions, argument
from gpt.config.fields import Options, option


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    path: Annotated[Path, argument("Folder to write.")]
    force: Annotated[bool, option("Replace the files of an earlier export; other files stay.")] = (
        False
    )


def command(options: ExportOptions, choice: CheckpointOptions, output: OutputOptions) -> None:
    """Write a model for other programs: a folder that Hugging Face's transformers opens."""
    from gpt.exchange.to_transformers import export
    from gpt.words import printable

    model = choice.open()
    exported = export(model, options.path, force=options.force)
    if exported.note:
        console.say(f"note: {exported.note}")
    if output.json:
        record = {"path": printable(exported.path), "architecture": exported.architecture}
        files = {"files": dict(exported.files), "note": exported.note}
        console.write_json(record | files | model.origin)
    how = f"{exported.architecture} of transformers; the folder's README.md says how to open it"
    size = sum(exported.files.values()) / 1e6
    console.say(f"exported: {model.stored.title} to {exported.path}, {size:.2f} MB: {how}")
