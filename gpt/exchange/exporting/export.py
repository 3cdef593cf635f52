"""Writes a model for transformers: `gptx export` and `gpt.export`.

All bytes are made and checked before the first one is written, so a failed export leaves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt.checks import checks_arguments
from gpt.errors import ConfigError
from gpt.exchange.exporting.architectures import architecture_of
from gpt.exchange.exporting.huggingface import Losses, files_of, losses_of
from gpt.storage import files
from gpt.storage.checkpoint import MANIFEST, MODEL
from gpt.storage.run import Run
from gpt.trained import TrainedGPT
from gpt.trained.generation import require_decoder_only
from gpt.words import printable

CARD, MARK = "README.md", "\n- gptx\n"  # the card's name, and a line of its front matter
#: How the file of weights begins, after the length of its header.
WEIGHTS_BEGIN = b'{"__metadata__":{"format":"pt"}'


@dataclass(frozen=True)
class Exported:
    """What an export wrote. path: the folder; architecture: the class in transformers; files: name
    -> bytes. losses: of a model that counts, whose export has the GPT alone; None for other models.
    """

    path: Path
    architecture: str
    files: Mapping[str, int]
    losses: Losses | None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())

    @property
    def note(self) -> str:
        """What the export leaves out of a model that counts; "" for other models."""
        return self.losses.note if self.losses else ""

    @property
    def record(self) -> dict[str, Any]:
        """For JSON. The losses are in nats per character."""
        known = self.losses
        losses = {"gpt": known.exported, "with_counting": known.nats} if known else None
        return {
            "path": printable(self.path),
            "architecture": self.architecture,
            "files": dict(self.files),
            "losses": losses,
        }


@checks_arguments
def export(model: TrainedGPT, path: str | Path, *, force: bool = False) -> Exported:
    """Writes the model into a folder that `transformers` opens.

    force: replace an earlier export; other files of its folder stay. Raises ConfigError for a model
    with an encoder, for one that no architecture of transformers computes, and for a path that
    exists (with force: for one that is no earlier export); StorageError.
    """
    path = Path(path)
    require_decoder_only(model.config, "export")
    architecture = architecture_of(model.config)
    is_folder = _is_folder(path)
    _check_outside_runs(path)
    if is_folder is False:
        raise ConfigError(f"export: {path} is a file; name a folder")
    if is_folder and os.listdir(path):
        if not force:
            raise ConfigError(
                f"export: {path} exists already and has files; name another folder, or replace an "
                "earlier export with `force`"
            )
        _check_replaceable(path)
    losses = losses_of(model)
    contents = files_of(model, architecture, losses)
    with files.storage_errors(f"write {path}"):
        files.fill_folder(path, contents)
    sizes = {name: len(data) for name, data in contents.items()}
    counted = losses if model.config.counting else None
    return Exported(path, architecture.name, sizes, counted)


def _check_replaceable(folder: Path) -> None:
    """Raises ConfigError for a folder that is no earlier export."""
    card, weights = folder / CARD, folder / MODEL
    with files.storage_errors(f"write {folder}"):
        if not (card.is_file() and MARK in card.read_text("utf-8", "replace")):
            why = f'has no {CARD} with the tag "{MARK.strip()}"'
        elif not _begins(weights, 8, WEIGHTS_BEGIN):
            why = f"has no {MODEL} of one"
        else:
            return
    raise ConfigError(f"export: {folder} is no earlier export, it {why}; name another folder")


def _check_outside_runs(path: Path) -> None:
    """Raises ConfigError for a run, a step, and any place in them."""
    with files.storage_errors(f"write {path}"):
        real = Path(os.path.realpath(path))
        inside = (real / MANIFEST).exists()
        for folder in (real, *real.parents[:2]):
            begun = (folder / ".lock").exists() and (folder / "config.toml").exists()
            inside = inside or begun or bool(Run(folder).steps())
    if inside:
        raise ConfigError(f"export: {path} is in a folder of a run; name another place")


def _begins(path: Path, place: int, content: bytes) -> bool:
    """Whether a regular file has this content at a place. Raises OSError."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(place + len(content))[place:] == content


def _is_folder(path: Path) -> bool | None:
    """None: there is nothing of this name. Raises StorageError for an impossible name."""
    with files.storage_errors(f"write {path}"):
        os.stat(path.parent)
        return os.path.isdir(path) if os.path.lexists(path) else None
