"""Writes attention maps and models into files, the same ones as `gptx attn -o` and `gptx live`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from gpt.config import Stage
from gpt.config.fields import require
from gpt.errors import ConfigError
from gpt.heads.attention_map import AnyHead, AnyLayer, AttentionMap
from gpt.heads.kinds import opening
from gpt.storage import files
from gpt.storage.runs import Steps, run_of, step_numbers
from gpt.trained import TrainedGPT
from gpt.view.files import exports
from gpt.view.page.page import build_page, subject_of
from gpt.view.selection import Selection, select
from gpt.view.terminal.lines import Page

if TYPE_CHECKING:
    from gpt.view.page.live import Precision


def selected(attention: AttentionMap, layer: AnyLayer, head: AnyHead, stage: Stage) -> Selection:
    """The part of a map that Python's arguments name. Raises ConfigError."""
    last = len(attention.layers) - 1
    layer = last if head == "rollout" and layer == "all" else layer
    name = attention.model.stored.title if attention.model else ""
    return select(attention, str(layer), str(head), stage, name=name)


def save(
    attention: AttentionMap, path: str | Path, layer: AnyLayer, head: AnyHead, stage: Stage
) -> Path:
    """See AttentionMap.save."""
    target = Path(path)
    form = exports.FORMS.get(target.suffix.lower())
    if form is None:
        endings = ", ".join(filter(None, exports.FORMS))
        raise ConfigError("path", f"{target.name} does not end in one of {endings}")
    if form == "html":
        return save_page(attention, target)
    if form in get_args(exports.Figure):
        return save_figure(attention, target, layer, head, stage)
    selection = selected(attention, layer, head, stage)
    if form == "npz":
        return _write(target, exports.to_npz([attention]))
    if form == "csv":
        text = exports.to_csv([selection])
    elif form == "json":
        origin = attention.model.stored.origin if attention.model else {}
        text = exports.to_json([exports.record(selection, origin)])
    else:
        from gpt.view.terminal.attention import render

        single = len(selection.panels()) == 1
        lines = render(selection, "auto" if single else "heads", Page())
        text = "".join(f"{line.plain}\n" for line in lines)
    return _write(target, text.encode())


def save_page(attention: AttentionMap, path: str | Path) -> Path:
    """See AttentionMap.page."""
    subject = subject_of(attention)
    page = build_page([subject], opening(subject.measures), subject.name)
    return _write(Path(path), page.encode())


def save_live(
    model: TrainedGPT,
    path: str | Path,
    text: str | None,
    steps: Steps | None,
    precision: Precision,
    limit: float,
    windows: int,
) -> Path:
    """See TrainedGPT.live."""
    from gpt.view.page.live import Precision, beginning, build_live, surveys_of

    known = get_args(Precision)
    require(precision in known, "precision", f"{precision!r} is not one of {', '.join(known)}")
    if text is not None:
        text = beginning(model, text)
    models = [model]
    if steps is not None:
        models = [model.at(number) for number in step_numbers(run_of(model.stored), steps)]
    ids, name = (None, "") if model.has_encoder else models[-1].default_text()
    surveys = surveys_of(models[-1], ids, windows, name)
    page = build_live(models, surveys, text, ids, precision, int(min(limit * 1e6, 1e18)))
    return _write(Path(path), page.html.encode())


def save_figure(
    attention: AttentionMap, path: str | Path, layer: AnyLayer, head: AnyHead, stage: Stage
) -> Path:
    """See AttentionMap.figure."""
    from gpt.view.figure.figure import to_figure

    target = Path(path)
    form: Any = exports.FORMS.get(target.suffix.lower())
    if form not in get_args(exports.Figure):
        raise ConfigError("path", f"{target.name} does not end in .svg, .pdf or .png")
    drawn, _ = to_figure(selected(attention, layer, head, stage), form)
    return _write(target, drawn)


def _write(path: Path, data: bytes) -> Path:
    with files.storage_errors(f"write {path}"):
        files.output(path, data)
    return path
