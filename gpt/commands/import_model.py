"""`gptx import`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpt.commands import console
from gpt.commands.options import Command
from gpt.config.train import Data
from gpt.errors import ConfigError, TextError

if TYPE_CHECKING:
    from gpt.corpus.corpus import Corpus
    from gpt.exchange.importing.nanogpt import ImportedModel

#: The file that nanoGPT's prepare.py reads, in the folder of meta.pkl.
INPUT = "input.txt"


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
        "input.txt beside meta.pkl",
    ] = None
    run: Annotated[str | None, "Name of the new run.", "data set and a number"] = None
    data: Data = Path("data")

    def execute(self) -> None:
        from gpt.blocks import Facts
        from gpt.exchange.importing.nanogpt import save_run
        from gpt.storage.overview import model_facts
        from gpt.storage.runs import check_run_name

        if self.run is not None:
            check_run_name(self.run)
        model, folder = self._read()
        saved = save_run(model, self.checkpoints, self.run, self._corpus(model, folder))
        manifest, name = saved.manifest, saved.path.parent.name
        if self.as_json:
            record = {"run": name, "step": manifest.step, "imported": manifest.imported}
            corpus = {"corpus": manifest.corpus.sources, "val_characters": manifest.val_characters}
            console.write_json({**record, **corpus, "parameters": model.config.parameters()})
            return
        where = (
            "" if self.checkpoints == Path("checkpoints") else f" --checkpoints {self.checkpoints}"
        )
        known = ", ".join(manifest.corpus.sources)
        commands = ("gptx sample", "gptx attn", f"gptx eval{'' if known else ' FILE'}")
        facts = {
            "imported": manifest.imported,
            "model": model_facts(model.config),
            "characters": f"{len(model.characters):,}",
            "corpus": known or "not known; --corpus FILE names it, for eval and --novelty",
            "saved": str(saved.path.parent),
            "next": [f"{command}{where}" for command in commands],
        }
        console.print_blocks([Facts(facts)])

    def _read(self) -> tuple[ImportedModel, Path]:
        """The model, and the folder where its text may be. Raises ForeignModelError."""
        if os.path.isdir(self.file):
            from gpt.storage.run import Run

            own = os.path.isfile(self.file / "manifest.json") or Run(self.file).steps()
            says = "a folder; give the path of nanoGPT's ckpt.pt"
            if own:
                says = f"a run of gptx; other commands open it: --run {self.file}"
            raise ConfigError(f"{self.file} is {says}")
        from gpt.exchange.importing.nanogpt import read_nanogpt

        model, meta = read_nanogpt(self.file, self.meta)
        return model, meta.parent

    def _corpus(self, model: ImportedModel, folder: Path) -> Corpus | None:
        """The text of --corpus; else the folder's input.txt, if the model fits it."""
        from gpt.exchange.importing.nanogpt import find_training_text

        if self.corpus is not None:
            return find_training_text(model, str(self.corpus), self.data, guessed=False)
        guess = folder / INPUT
        if not os.path.isfile(guess):
            return None
        try:
            return find_training_text(model, str(guess), self.data, guessed=True)
        except TextError as error:
            console.say(f"note: {guess} does not seem to be the model's text: {error}")
            return None
