"""Writes a model for other programs: `gptx export` and `gpt.export`.

All bytes are made and checked before the first one is written, so a failed export leaves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gpt.errors import ConfigError
from gpt.exchange.losses import Losses, losses_of
from gpt.storage import files, folders
from gpt.trained import TrainedGPT
from gpt.trained.pairs import require_decoder_only

To = Literal["huggingface"]


@dataclass(frozen=True)
class Exported:
    """What an export wrote. path: the folder or file; to: its format; architecture: the class in
    transformers; files: name -> bytes. losses: of a model that counts, whose export has the GPT
    alone; None for other models.
    """

    path: Path
    to: To
    architecture: str
    files: Mapping[str, int]
    losses: Losses | None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.files.values())

    @property
    def record(self) -> dict[str, Any]:
        """For JSON. The losses are in nats per character."""
        known = self.losses
        losses = {"gpt": known.exported, "with_counting": known.nats} if known else None
        return {
            "to": self.to,
            "path": str(self.path),
            "architecture": self.architecture,
            "files": dict(self.files),
            "losses": losses,
        }

    @property
    def note(self) -> str:
        """What the export leaves out of a model that counts; "" for other models."""
        return self.losses.note if self.losses else ""


def export(
    model: TrainedGPT, path: str | Path, *, to: To = "huggingface", force: bool = False
) -> Exported:
    """Writes the model into a folder that `transformers` opens.

    force: replace files of these names in a folder that has files already; others stay. Raises
    ConfigError for a model with an encoder, for one that no architecture of transformers computes,
    and for a path that exists, StorageError.
    """
    from gpt.exchange.architectures import architecture_of
    from gpt.exchange.huggingface import files_of

    path = Path(path)
    require_decoder_only(model.config, "export")
    if model.config.ngram > 1:
        raise ConfigError("export: not for a model with n-gram embeddings of an earlier release")
    architecture = architecture_of(model.config)
    require_free(path, force)
    losses = losses_of(model)
    contents = files_of(model, architecture, losses)
    with files.storage_errors(f"write {path}"):
        folders.fill(path, contents)
    sizes = {name: len(data) for name, data in contents.items()}
    return Exported(path, to, architecture.name, sizes, losses if model.config.counting else None)


def require_free(path: Path, force: bool) -> None:
    """Raises ConfigError if something would be replaced without `force`, or cannot be a folder."""
    with files.storage_errors(f"write {path}"):
        if not os.path.lexists(path):
            return
        is_folder = os.path.isdir(path)
        if is_folder and (force or not os.listdir(path)):
            return
    if is_folder:
        raise ConfigError(
            f"export: {path} exists already and has files; name another folder, or replace an "
            "earlier export with `force`"
        )
    raise ConfigError(f"export: {path} is a file; name a folder")
