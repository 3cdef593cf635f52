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
        from gpt.exchange.exporting.export import export

        opened = self.opened
        found = export(opened, self.path, force=self.force)
        if found.note:
            console.say(f"note: {found.note}")
        if self.as_json:
            console.write_json(found.record | opened.origin)
        how = f"{found.architecture} of transformers; README.md in it says how to open it"
        console.say(f"exported: {opened.title} to {found.path}, {found.size / 1e6:.2f} MB: {how}")
