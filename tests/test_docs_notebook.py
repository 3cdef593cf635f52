"""docs/notebook.ipynb runs, and its stored outputs are of the same kinds as those of a new run."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

DOCS = Path(__file__).parents[1] / "docs"
LIMIT = 300_000  # bytes of an output
KINDS = re.compile(r"\d+ (previous|induction)")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_notebook", DOCS / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cells: list[Any]) -> Iterator[list[tuple[str, list[str]]]]:
    """The kinds of output of each cell: streams, results, and their media types."""
    for cell in cells:
        yield [
            (output.get("name", output.output_type), sorted(output.get("data", {})))
            for output in cell.outputs
        ]


def test_the_notebook_runs_and_its_stored_outputs_are_of_the_same_kinds(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs with fewer steps; its text is about the stored outputs."""
    stored = code(nbformat.read(script.NOTEBOOK, as_version=4))
    short = tmp_path / "short.ipynb"
    text = script.NOTEBOOK.read_text(encoding="utf-8")
    short.write_text(text.replace("steps=500", "steps=50"), encoding="utf-8")
    monkeypatch.setattr(script, "NOTEBOOK", short)
    new = code(script.executed(tmp_path))
    assert [cell.execution_count for cell in stored] == [*range(1, len(stored) + 1)]
    assert list(shown(new)) == list(shown(stored))
    heads = next(n for n, cell in enumerate(stored) if cell.source == "run.heads()")
    kinds = set(KINDS.findall(stored[heads].outputs[0].data["text/plain"]))
    assert kinds == {"previous", "induction"}  # what the text around the cells says
    for cells, steps in ((stored, 500), (new, 50)):
        bar = cells[1].outputs[0].data["text/plain"]  # one line is left
        ended = rf"{steps}/{steps} loss \d\.\d{{3}} val \d\.\d{{3}} (at step \d+ )?in \d+:\d\d"
        assert re.fullmatch(ended, bar)
        for cell in cells:
            assert all(len(str(output)) < LIMIT for output in cell.outputs)
