"""Executes docs/notebook.ipynb in a temporary folder and stores its outputs: `make notebook`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).with_suffix(".ipynb")
TIMEOUT = 600  # seconds for a cell


def executed(folder: str | Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a new run in `folder`. Raises CellExecutionError."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [*_merged(cell.outputs)]
    return notebook


def _merged(outputs: list[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """The outputs with one text for each stream."""
    for _, group in groupby(outputs, key=lambda each: each.get("name", id(each))):
        first, *more = group
        if first.output_type == "stream":
            first.text = "".join(each.text for each in (first, *more))
        yield first


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(folder)
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
