"""`gptx import`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from gpt.commands import console
from gpt.commands.options import Command
from gpt.config.train import Data
from gpt.errors import ConfigError


class Import(Command):
    """Make a run of a character model that nanoGPT has trained.

    Runs no code from its files.
    """

    file: Annotated[Path, typer.Argument(help="nanoGPT's ckpt.pt.", show_default=False)]
    meta: Annotated[
        Path | None, "nanoGPT's meta.pkl, the characters.", "beside FILE, or in data/DATASET"
    ] = None
    corpus: Annotated[
        Path | None,
        "Text that the model was trained on; its last tenth is for validation.",
        "not known",
    ] = None
    run: Annotated[str | None, "Name of the new run.", "data set and a number"] = None
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.blocks import Facts
        from gpt.storage.overview import model_facts
        from gpt.storage.runs import check_run_name

        if self.run is not None:
            check_run_name(self.run)
        if os.path.isdir(self.file):
            raise ConfigError(f"{self.file} is a folder; give the path of nanoGPT's ckpt.pt")
        from gpt.exchange.from_nanogpt import import_nanogpt

        saved = import_nanogpt(
            self.file,
            self.checkpoints,
            meta=self.meta,
            corpus=self.corpus,
            run=self.run,
            data=self.data,
        )
        manifest, name = saved.manifest, saved.path.parent.name
        if self.as_json:
            record = {"run": name, "step": manifest.step, "imported": manifest.imported}
            corpus = {"corpus": manifest.corpus.sources, "val_characters": manifest.val_characters}
            console.write_json({**record, **corpus, "parameters": manifest.model.parameters()})
            return
        where = (
            "" if self.checkpoints == Path("checkpoints") else f" --checkpoints {self.checkpoints}"
        )
        known = ", ".join(manifest.corpus.sources)
        commands = ("gptx sample", "gptx attn", f"gptx eval{'' if known else ' FILE'}")
        facts = {
            "imported": manifest.imported,
            "model": model_facts(manifest.model),
            "characters": f"{len(manifest.vocabulary):,}",
            "corpus": known or "not known; --corpus FILE names it, for eval and --novelty",
            "saved": str(saved.path.parent),
            "next": [f"{command}{where}" for command in commands],
        }
        console.print_blocks([Facts(facts)])
