"""Writes results into files: attention maps and models, the same files as `gptx attn -o` and `gptx
live`.
"""

from __future__ import annotations

from pathlib import Path

from gpt.config import DrawnStage
from gpt.errors import ConfigError
from gpt.heads.attention_map import AnyHead, AnyLayer, AttentionMap
from gpt.heads.measures import choose_head
from gpt.interface.trained import TrainedGPT
from gpt.storage import files
from gpt.view import exports
from gpt.view.figure import figure
from gpt.view.figure.sheet import to_bytes
from gpt.view.page.page import build_page, make_subject
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
    if form == "html":
        subject = make_subject(attention)
        page = build_page(subject, choose_head(subject.measures))
        return _write(target, page.encode())
    selection = selected(attention, layer, head, stage)
    if form == "npz":
        return _write(target, exports.to_npz(attention))
    if form in ("svg", "png", "pdf"):
        return _write(target, to_bytes(figure.draw(selection)[0], form))
    if form == "csv":
        text = exports.to_csv(selection)
    elif form == "json":
        origin = attention.model.stored.origin if attention.model else {}
        text = exports.to_json(exports.selection_record(selection, origin))
    else:
        single = len(selection.panels()) == 1
        lines = render(selection, "auto" if single else "heads", Page())
        text = "".join(f"{line.plain}\n" for line in lines)
    return _write(target, text.encode())


def save_live(model: TrainedGPT, path: str | Path, text: str | None) -> Path:
    """See TrainedGPT.live."""
    from gpt.view.page.live import live_page

    return _write(Path(path), live_page(model, text).html.encode())


def _write(path: Path, data: bytes) -> Path:
    with files.storage_errors(f"write {path}"):
        files.write_output(path, data)
    return path
