"""Writes a model for other programs: `gptx export` and `gpt.export`.

All bytes are made and checked before the first one is written, so a failed export leaves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from gpt.arguments import checks_arguments
from gpt.config.fields import require
from gpt.errors import ConfigError
from gpt.exchange.exporting.losses import Losses, losses_of
from gpt.storage import files, folders
from gpt.storage.checkpoint import MANIFEST, MODEL
from gpt.storage.run import Run
from gpt.trained import TrainedGPT
from gpt.trained.pairs import require_decoder_only
from gpt.words import printable

To = Literal["huggingface", "onnx"]
CARD, MARK = "README.md", "\n- gptx\n"  # the card's name, and a line of its front matter
#: How the files begin: of safetensors, after the length of its header; of ONNX, after the
#: version of the format: the producer's name and version.
WEIGHTS_BEGIN, ONNX_BEGINS = b'{"__metadata__":{"format":"pt"}', b"\x12\x04gptx\x1a"


@dataclass(frozen=True)
class Exported:
    """What an export wrote. path: the folder, or the ONNX file; architecture: the class in
    transformers, None for ONNX; files: name -> bytes. losses: of a model that counts, whose export
    has the GPT alone; None for other models.
    """

    path: Path
    to: To
    architecture: str | None
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
            "to": self.to,
            "path": printable(self.path),
            "architecture": self.architecture,
            "files": dict(self.files),
            "losses": losses,
        }


@checks_arguments
def export(
    model: TrainedGPT, path: str | Path, *, to: To | None = None, force: bool = False
) -> Exported:
    """Writes the model into a folder that `transformers` opens, or into an ONNX file.

    to: "huggingface" or "onnx"; None: "onnx" for a path that ends in .onnx, else "huggingface".
    force: replace an earlier export; other files of its folder stay. Raises ConfigError for a model
    with an encoder, for one that no architecture of transformers computes, for a path that exists
    (with force: for one that is no earlier export), and for ONNX if the package onnx is not
    installed; StorageError.
    """
    path = Path(path)
    to = to or ("onnx" if path.suffix.lower() == ".onnx" else "huggingface")
    require(to in get_args(To), "to", f"{to!r} is not one of {', '.join(get_args(To))}")
    require_decoder_only(model.config, "export")
    if model.config.ngram > 1:
        raise ConfigError(
            "export: not for a model with n-gram embeddings, which earlier releases trained; train "
            "it again to export it"
        )
    return (_to_onnx if to == "onnx" else _to_huggingface)(model, path, force)


def _to_huggingface(model: TrainedGPT, path: Path, force: bool) -> Exported:
    from gpt.exchange.exporting.architectures import architecture_of
    from gpt.exchange.exporting.huggingface import files_of

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
        folders.fill(path, contents)
    sizes = {name: len(data) for name, data in contents.items()}
    return Exported(path, "huggingface", architecture.name, sizes, _counted(model, losses))


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


def _to_onnx(model: TrainedGPT, path: Path, force: bool) -> Exported:
    from gpt.exchange.exporting.onnx_file import file_of

    is_folder = _is_folder(path)
    if is_folder:
        raise ConfigError(f"export: {path} is a folder; name a file, as in model.onnx")
    if is_folder is False and not force:
        raise ConfigError(f"export: {path} exists already; name another file, or give `force`")
    _check_outside_runs(path)
    with files.storage_errors(f"write {path}"):
        if path.is_file() and not _begins(path, 2, ONNX_BEGINS):  # not a device or a pipe
            raise ConfigError(f"export: {path} is no earlier export; name another file")
    losses = losses_of(model)
    data = file_of(model, losses)
    with files.storage_errors(f"write {path}"):
        files.output(path, data)
    return Exported(path, "onnx", None, {path.name: len(data)}, _counted(model, losses))


def _counted(model: TrainedGPT, losses: Losses | None) -> Losses | None:
    return losses if model.config.counting else None


def _is_folder(path: Path) -> bool | None:
    """None: there is nothing of this name. Raises StorageError for an impossible name."""
    with files.storage_errors(f"write {path}"):
        os.stat(path.parent)
        return os.path.isdir(path) if os.path.lexists(path) else None
