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
    script: ModuleType, tmp_path: Path
) -> None:
    stored = code(nbformat.read(script.NOTEBOOK, as_version=4))
    new = code(script.executed(tmp_path))
    assert [cell.source for cell in new] == [cell.source for cell in stored]
    assert [cell.execution_count for cell in stored] == [*range(1, len(stored) + 1)]
    assert list(shown(new)) == list(shown(stored))
    heads = next(n for n, cell in enumerate(stored) if cell.source == "run.heads()")
    for cells in (stored, new):
        bar = cells[1].outputs[0].data["text/plain"]  # one line is left
        assert re.fullmatch(r"500/500 loss \d\.\d{3} val \d\.\d{3} (at step \d+ )?in \d+:\d\d", bar)
        # what the text around the cells says
        assert set(KINDS.findall(cells[heads].outputs[0].data["text/plain"])) == {
            "previous",
            "induction",
        }
        for cell in cells:
            assert all(len(str(output)) < LIMIT for output in cell.outputs)
