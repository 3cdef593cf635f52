"""Writes results into files: attention maps and models, the same files as `gptx attn -o` and `gptx
live`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt.config import DrawnStage
from gpt.errors import ConfigError
from gpt.heads.attention_map import AnyHead, AnyLayer, AttentionMap
from gpt.interface.trained import TrainedGPT
from gpt.storage import files
from gpt.view import exports
from gpt.view.selection import Selection, select
from gpt.view.terminal.attention import render
from gpt.view.terminal.lines import Page


def selected(found: AttentionMap, layer: AnyLayer, head: AnyHead, stage: DrawnStage) -> Selection:
    """The part of a map that the Python arguments select. Raises ConfigError."""
    return select(found, str(layer), str(head), stage)


def save(
    attention: AttentionMap, path: str | Path, layer: AnyLayer, head: AnyHead, stage: DrawnStage
) -> Path:
    """See AttentionMap.save."""
    target = Path(path)
    form = exports.FORMS.get(target.suffix.lower())
    if form is None:
        endings = ", ".join(filter(None, exports.FORMS))
        raise ConfigError("path", f"{target.name} does not end in one of {endings}")
    selection = selected(attention, layer, head, stage)
    if form == "text":
        single = len(selection.panels()) == 1
        lines = render(selection, "auto" if single else "heads", Page())
        content: str | bytes = "".join(f"{line.plain}\n" for line in lines)
    else:
        origin = attention.model.stored.origin if attention.model else {}
        content, _ = file_of(selection, form, origin)
    return _write(target, content.encode() if isinstance(content, str) else content)


def file_of(
    selection: Selection,
    form: exports.FileForm,
    origin: Mapping[str, Any],
    ascii_only: bool = False,
) -> tuple[str | bytes, list[str]]:
    """The content of a file in any form but text, and warnings. origin: what JSON says about the
    model. ascii_only: a figure has ASCII labels. Raises ConfigError for a page of a map that was
    made without a model.
    """
    if form == "npz":
        return exports.to_npz(selection.attention), []
    if form == "csv":
        return exports.to_csv(selection), []
    if form == "json":
        return exports.to_json(exports.selection_record(selection, origin)), []
    if form == "html":
        from gpt.view.page.live import live_page

        attention = selection.attention
        if attention.model is None:
            raise ConfigError("this map was made without a model; make one with run.attn(text)")
        (layer, *layers), (head, *heads) = selection.layers, selection.heads
        if layers or heads or head in ("all", "mean"):
            return live_page(attention.model, attention.text), []
        return live_page(attention.model, attention.text, layer, int(head)), []
    from gpt.view.figure.figure import draw
    from gpt.view.figure.sheet import to_bytes

    figure, warnings = draw(selection, ascii_only)
    return to_bytes(figure, form), warnings


def save_live(model: TrainedGPT, path: str | Path, text: str | None) -> Path:
    """See TrainedGPT.live."""
    from gpt.view.page.live import live_page

    return _write(Path(path), live_page(model, text).encode())


def _write(path: Path, data: bytes) -> Path:
    with files.storage_errors(f"write {path}"):
        files.write_output(path, data)
    return path
