"""Figures over training as files, for Python: measures of heads, and one head at several steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, SupportsIndex, get_args

from gpt.config import Scale, Stage
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap
from gpt.heads.development import Development
from gpt.storage import files
from gpt.view.figure import development
from gpt.view.figure.figure import to_figure
from gpt.view.files.exports import Figure as Form
from gpt.view.selection import select


def save_development(
    found: Development,
    path: str | Path,
    *,
    name: str = "",
    every: bool = False,
    sort: str | None = None,
    top: int | None = None,
) -> Path:
    """Draws `run.heads(steps=…)` into a .svg, .png or .pdf file; see figure.development.draw.

    Raises ConfigError, StorageError.
    """
    drawn = development.to_figure(found, _form(path), name, every, sort, top)
    return _write(path, drawn)


def save_strip(
    attentions: Mapping[str, AttentionMap],
    path: str | Path,
    *,
    layer: SupportsIndex | Literal["all"] = 0,
    head: SupportsIndex | Literal["all", "mean", "rollout"] = 0,
    stage: Stage = "weights",
    scale: Scale = "fixed",
    name: str = "",
) -> Path:
    """Draws the same matrix of several checkpoints side by side into a .svg, .png or .pdf file.

    attentions: the checkpoint's name, as in "step 400", -> its attention map of the same text.
    name: stands under the title. Raises ConfigError, StorageError.
    """
    if len({attention.text for attention in attentions.values()}) != 1:
        raise ConfigError("attentions", "give one map or more, all of the same text")
    chosen: dict[str, Any] = {"layer": str(layer), "head": str(head), "stage": stage}
    selections = [select(each, **chosen, name=title) for title, each in attentions.items()]
    drawn, _ = to_figure(selections, _form(path), scale, name=name)
    return _write(path, drawn)


def _form(path: str | Path) -> Form:
    """The format for the path's ending. Raises ConfigError."""
    known: dict[str, Form] = {f".{form}": form for form in get_args(Form)}
    ending = Path(path).suffix.lower()
    if ending not in known:
        raise ConfigError("path", f"{Path(path).name} does not end in {', '.join(known)}")
    return known[ending]


def _write(path: str | Path, data: bytes) -> Path:
    with files.storage_errors(f"write {path}"):
        files.output(Path(path), data)
    return Path(path)
