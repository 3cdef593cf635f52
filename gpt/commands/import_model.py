"""`gptx import`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gpt.commands import console
from gpt.commands.options import OutputOptions, argument
from gpt.config.fields import option
from gpt.config.train import Checkpoints, Data


@dataclass(frozen=True, kw_only=True)
class ImportOptions(OutputOptions):
    file: Annotated[Path, argument("nanoGPT's ckpt.pt.")]
    meta: Annotated[
        Path | None,
        option(
            "nanoGPT's meta.pkl, which holds the characters.", "beside FILE, or in data/DATASET"
        ),
    ] = None
    corpus: Annotated[
        Path | None,
        option(
            "Text that the model was trained on; its last tenth is for validation.", "not known"
        ),
    ] = None
    run: Annotated[str | None, option("Name of the new run.", "data set and a number")] = None
    checkpoints: Checkpoints = Path("checkpoints")
    data: Data = Path("data")


def command(options: ImportOptions) -> None:
    """Turn a character model that nanoGPT has trained into a run.

    gptx runs no code from nanoGPT's files.
    """
    from gpt.exchange.from_nanogpt import import_nanogpt  # imports torch
    from gpt.storage.overview import model_facts

    checkpoint = import_nanogpt(
        options.file,
        options.checkpoints,
        meta=options.meta,
        corpus=options.corpus,
        run=options.run,
        data=options.data,
    )
    manifest, run = checkpoint.manifest, checkpoint.path.parent
    sources = manifest.corpus.sources
    if options.json:
        record = {"run": run.name, "step": manifest.step, "imported": manifest.imported}
        corpus = {"corpus": sources, "val_characters": manifest.val_characters}
        console.write_json({**record, **corpus, "parameters": manifest.model.parameters()})
        return
    folder = options.checkpoints
    where = "" if folder == Path("checkpoints") else f" --checkpoints {folder}"
    console.print_facts(
        {
            "imported": manifest.imported,
            "model": model_facts(manifest.model),
            "corpus": ", ".join(sources)
            or "not known; name it with --corpus FILE, because eval and --novelty need it",
            "saved": str(run),
            "next": [f"gptx sample{where}", f"gptx attn{where}"],
        }
    )
