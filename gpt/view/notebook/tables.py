"""Results as tables of rows, the same as the command line's JSON, for pandas.DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt.config import Stage
from gpt.heads.attention_map import AnyHead, AnyLayer, AttentionMap
from gpt.storage.comparison import Comparison, Curve, RunTable, TrainingCurve
from gpt.view.files.exports import table_of
from gpt.view.notebook.saving import selected
from gpt.view.records import to_frame
from gpt.view.terminal.training import result

Columns = dict[str, Any]  # name -> values, one for each row


def to_pandas(found: object) -> Any:
    """A pandas.DataFrame. Raises ImportError if pandas is not installed."""
    if hasattr(found, "records") and not isinstance(found, Comparison):
        return to_frame(found.records())
    columns = next(COLUMNS[kind] for kind in type(found).__mro__ if kind in COLUMNS)
    return _pandas().DataFrame(columns(found))


def attention_to_pandas(found: AttentionMap, layer: AnyLayer, head: AnyHead, stage: Stage) -> Any:
    """See AttentionMap.to_pandas."""
    names, rows = table_of([selected(found, layer, head, stage)])
    return _pandas().DataFrame(list(rows), columns=names)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError(
            "to_pandas needs pandas, which is not installed: pip install pandas; to_numpy() gives "
            "the same numbers as arrays"
        ) from None
    return pandas


def _runs(found: RunTable) -> list[dict[str, Any]]:
    return [result(run.name, manifest, "") for run, manifest in found.rows]


def _curve(found: Curve) -> Columns:
    columns: Columns = {"step": found.steps, "train": found.train, "val": found.val}
    more = {"gpt": found.gpt, "val_characters": found.characters}
    return columns | {name: each for name, each in more.items() if each is not None}


def _training_curve(found: TrainingCurve) -> Columns:
    columns: Columns = {"step": found.steps, "loss": found.loss}
    columns |= {"gradient_norm": found.gradient_norm, "learning_rate": found.learning_rate}
    return columns | {"characters_per_second": found.speed}


#: Type -> its columns, or a list of its rows.
COLUMNS: dict[type, Callable[[Any], Any]] = {
    RunTable: _runs,
    Curve: _curve,
    TrainingCurve: _training_curve,
    Comparison: lambda found: found.records(),
}
