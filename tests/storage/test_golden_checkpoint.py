"""A stored checkpoint of this schema opens, computes the same, continues, and is what gptx writes.

A change that makes this test fail changes the format: it raises SCHEMA (gpt/storage/json_values.py)
and writes the checkpoint again, with its text and its loss:

    PYTHONPATH=tests:. python tests/storage/test_golden_checkpoint.py
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from conftest import TEXT, corpus_of, resume, train_tiny

from gpt.interface.trained import TrainedGPT
from gpt.storage.model_file import read_header
from gpt.storage.run import MANIFEST, MODEL, STATE, Checkpoint, Run, step_folder

GOLDEN = Path(__file__).parent / "golden" / step_folder(6)
WRITTEN = "the cat sat "
CONTINUED = [0.33563588309000025, 2.4941061332250722]


def trained(folder: Path) -> Run:
    """A run with the steps 6 and 12."""
    return Run(train_tiny(folder, counting=3).path.parent)


def texts_of(run: Run) -> str:
    """What the model of step 6 writes."""
    return TrainedGPT(run.model("6")).sample("the ", length=8, temperature=0.0)


def layout(step: Path) -> list[object]:
    """The names of everything in the three files of a step, the types and shapes of tensors.

    The stored step is from before symbols had several characters: its vocabulary was a text.
    """
    manifest = (step / MANIFEST).read_text("utf-8").replace('"characters": "', '"vocabulary": "')
    found: list[object] = [sorted(json.loads(manifest))]
    for name in (MODEL, STATE):
        header = read_header((step / name).read_bytes(), step)
        about = header.pop("__metadata__")["gptx"]
        found.append(sorted(json.loads(about.replace('"characters": "', '"vocabulary": "'))))
        found += [(key, it["dtype"], it["shape"]) for key, it in sorted(header.items())]
    return found


def continued(run: Run, folder: Path) -> list[float]:
    """Losses at step 12 of the run, continued from step 6: with counting, and of the GPT alone."""
    checkpoint, _ = run.last_valid()
    events = list(resume(run, corpus_of(TEXT, folder), checkpoint).events())
    assert len(events) > 6
    (record,) = [each for each in run.records("metrics") if "val_loss" in each]
    return [record["val_loss"], record["gpt_loss"]]


def golden_in(folder: Path) -> Run:
    """A run that has the stored step alone."""
    shutil.copytree(GOLDEN, folder / "golden" / GOLDEN.name)
    return Run(folder / "golden")


def test_stored_checkpoint_opens_writes_and_continues_as_when_it_was_saved(tmp_path: Path) -> None:
    run = golden_in(tmp_path)
    Checkpoint.open(run.path / GOLDEN.name).verify()
    assert texts_of(run) == WRITTEN
    assert continued(run, tmp_path) == pytest.approx(CONTINUED, abs=1e-5)


def test_a_new_checkpoint_has_the_layout_of_the_stored_one(tmp_path: Path) -> None:
    assert layout(trained(tmp_path).path / GOLDEN.name) == layout(GOLDEN)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        step = trained(Path(made)).path / GOLDEN.name
        shutil.rmtree(GOLDEN, ignore_errors=True)
        shutil.copytree(step, GOLDEN)
        run = golden_in(Path(made))
        print(f"WRITTEN = {texts_of(run)!r}")
        print(f"CONTINUED = {continued(run, Path(made))!r}")
