"""Writes results into files: attention maps and models, the same files as `gptx attn -o` and `gptx
live`, and figures over training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, SupportsIndex

from gpt.config import DrawnStage, LiveConfig, Scale
from gpt.errors import ConfigError
from gpt.heads.attention_map import AnyHead, AnyLayer, AttentionMap
from gpt.heads.measures import choose_head
from gpt.heads.next_character import Lens
from gpt.heads.survey import Development
from gpt.interface.trained import TrainedGPT
from gpt.storage import files
from gpt.storage.runs import Steps
from gpt.view import exports
from gpt.view.exports import Figure as Form
from gpt.view.figure import development, figure, lens
from gpt.view.figure.sheet import to_bytes
from gpt.view.page.page import build_page, make_subject
from gpt.view.selection import Selection, select
from gpt.view.terminal.attention import render
from gpt.view.terminal.lines import Page


def selected(found: AttentionMap, layer: AnyLayer, head: AnyHead, stage: DrawnStage) -> Selection:
    """The part of a map that the Python arguments select. Raises ConfigError."""
    last = len(found.layers) - 1
    layer = last if head == "rollout" and layer == "all" else layer
    name = found.model.stored.title if found.model else ""
    return select(found, str(layer), str(head), stage, name=name)


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
        page = build_page([subject], choose_head(subject.measures), subject.name)
        return _write(target, page.encode())
    selection = selected(attention, layer, head, stage)
    if form == "npz":
        return _write(target, exports.to_npz([attention]))
    if form in ("svg", "png", "pdf"):
        return _write(target, to_bytes(figure.draw(selection)[0], form))
    if form == "csv":
        text = exports.to_csv([selection])
    elif form == "json":
        origin = attention.model.stored.origin if attention.model else {}
        text = exports.to_json([exports.selection_record(selection, origin)])
    else:
        single = len(selection.panels()) == 1
        lines = render(selection, "auto" if single else "heads", Page())
        text = "".join(f"{line.plain}\n" for line in lines)
    return _write(target, text.encode())


def save_lens(found: Lens, path: str | Path) -> Path:
    """See Lens.save."""
    return _write(path, to_bytes(lens.draw({"": found})[0], _form(path)))


def save_live(
    model: TrainedGPT,
    path: str | Path,
    text: str | None,
    steps: Steps | None,
    options: LiveConfig,
) -> Path:
    """See TrainedGPT.live."""
    from gpt.view.page.live import live_page

    return _write(path, live_page(model, text, steps, options).html.encode())


def save_development(
    found: Development,
    path: str | Path,
    *,
    name: str = "",
    every: bool = False,
    sort: str | None = None,
    top: int | None = None,
    names: Sequence[str] = (),
) -> Path:
    """Draws `run.heads(steps=…)` into a .svg, .png or .pdf file; see figure.development.draw.

    Raises ConfigError, StorageError.
    """
    drawn = development.draw(found, name, every, sort, top, names)
    return _write(path, to_bytes(drawn, _form(path)))


def save_strip(
    attentions: Mapping[str, AttentionMap],
    path: str | Path,
    *,
    layer: SupportsIndex | Literal["all"] = 0,
    head: SupportsIndex | Literal["all", "mean", "rollout"] = 0,
    stage: DrawnStage = "weights",
    scale: Scale = "fixed",
    name: str = "",
) -> Path:
    """Draws the same matrix of several checkpoints side by side into a .svg, .png or .pdf file.

    attentions: the checkpoint's name, as in "step 400", -> its attention map of the same text.
    name: is written under the title. Raises ConfigError, StorageError.
    """
    if len({attention.text for attention in attentions.values()}) != 1:
        raise ConfigError("attentions", "give one map or more, all of the same text")
    chosen: dict[str, Any] = {"layer": str(layer), "head": str(head), "stage": stage}
    selections = [select(each, **chosen, name=title) for title, each in attentions.items()]
    drawn, _ = figure.draw(selections, scale, name=name)
    return _write(path, to_bytes(drawn, _form(path)))


def _form(path: str | Path) -> Form:
    """The format that the path's ending names. Raises ConfigError."""
    form = exports.FORMS.get(Path(path).suffix.lower())
    if form in ("svg", "png", "pdf"):
        return form
    raise ConfigError("path", f"{Path(path).name} does not end in .svg, .pdf or .png")


def _write(path: str | Path, data: bytes) -> Path:
    with files.storage_errors(f"write {path}"):
        files.write_output(Path(path), data)
    return Path(path)
