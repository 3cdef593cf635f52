"""`gptx export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpt.commands import console, shared


class Export(shared.CheckpointCommand):
    """Write a model for other programs: a folder that Hugging Face's transformers opens."""

    path: Annotated[Path, typer.Argument(help="Folder to write.")]
    force: Annotated[bool, "Replace the files of an earlier export; other files stay."] = False

    def execute(self) -> None:
        from gpt.exchange.to_transformers import export
        from gpt.words import printable

        opened = self.opened
        exported = export(opened, self.path, force=self.force)
        if exported.note:
            console.say(f"note: {exported.note}")
        if self.as_json:
            record = {"path": printable(exported.path), "architecture": exported.architecture}
            files = {"files": dict(exported.files), "note": exported.note}
            console.write_json(record | files | opened.origin)
        how = f"{exported.architecture} of transformers; README.md in it says how to open it"
        size = sum(exported.files.values()) / 1e6
        console.say(f"exported: {opened.title} to {exported.path}, {size:.2f} MB: {how}")
