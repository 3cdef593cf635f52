"""`gptx import`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpt.commands import console
from gpt.commands.options import argument
from gpt.commands.shared import OutputOptions
from gpt.config.fields import option
from gpt.config.train import Checkpoints, Data
from gpt.errors import ConfigError

if TYPE_CHECKING:
    from gpt.storage.run import Checkpoint


@dataclass(frozen=True, kw_only=True)
class ImportOptions(OutputOptions):
    """The files of nanoGPT, and the run to make."""

    file: Annotated[Path, argument("nanoGPT's ckpt.pt.")]
    meta: Annotated[
        Path | None,
        option("nanoGPT's meta.pkl, the characters.", "beside FILE, or in data/DATASET"),
    ] = None
    corpus: Annotated[
        Path | None,
        option(
            "Text that the model was trained on; its last tenth is for validation.",
            "not known",
        ),
    ] = None
    run: Annotated[
        str | None,
        option("Name of the new run.", "data set and a number"),
    ] = None
    checkpoints: Checkpoints = Path("checkpoints")
    data: Data = Path("data")


def command(asked: ImportOptions) -> None:
    """Make a run of a character model that nanoGPT has trained.

    Runs no code from its files.
    """
    from gpt.storage.runs import check_run_name

    if asked.run is not None:
        check_run_name(asked.run)
    if os.path.isdir(asked.file):
        raise ConfigError(f"{asked.file} is a folder; give the path of nanoGPT's ckpt.pt")
    from gpt.exchange.from_nanogpt import import_nanogpt

    _report(
        asked,
        import_nanogpt(
            asked.file,
            asked.checkpoints,
            meta=asked.meta,
            corpus=asked.corpus,
            run=asked.run,
            data=asked.data,
        ),
    )


def _report(asked: ImportOptions, saved: Checkpoint) -> None:
    """Says what was imported, and what to do with it."""
    from gpt.storage.overview import model_facts

    manifest, name = saved.manifest, saved.path.parent.name
    if asked.json:
        record = {"run": name, "step": manifest.step, "imported": manifest.imported}
        corpus = {"corpus": manifest.corpus.sources, "val_characters": manifest.val_characters}
        console.write_json({**record, **corpus, "parameters": manifest.model.parameters()})
        return
    where = ""
    if asked.checkpoints != Path("checkpoints"):
        where = f" --checkpoints {asked.checkpoints}"
    known = ", ".join(manifest.corpus.sources)
    commands = ("gptx sample", "gptx attn", "gptx eval" if known else "gptx eval FILE")
    facts = {
        "imported": manifest.imported,
        "model": model_facts(manifest.model),
        "characters": f"{len(manifest.vocabulary):,}",
        "corpus": known or "not known; --corpus FILE names it, for eval and --novelty",
        "saved": str(saved.path.parent),
        "next": [f"{command}{where}" for command in commands],
    }
    console.print_facts(facts)
