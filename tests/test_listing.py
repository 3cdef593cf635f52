"""The list of runs: by name, by place, opened, and without damaged ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

import gpt
from gpt.config import TrainConfig
from gpt.errors import CheckpointError
from gpt.storage.checkpoint import Checkpoint


def test_runs_are_indexed_by_name_and_place_and_open(fresh: Checkpoint) -> None:
    root = fresh.path.parents[1]
    copytree(root / "tiny", root / "newer")
    runs = gpt.runs(root)
    assert len(runs) == 2
    assert {run.name for run in runs} == {"tiny", "newer"}
    tiny = runs["tiny"]
    assert (tiny.name, tiny.step, tiny.steps()) == ("tiny", 12, [6, 12])
    assert tiny.loss == fresh.manifest.best_loss
    assert repr(tiny) == f"<run tiny: step 12 of 12, best {tiny.loss:.4f} nats>"
    half = replace(tiny.manifest, val_characters=10**6, train=TrainConfig(eval_part=1280))
    assert repr(replace(tiny, manifest=half)).endswith(" nats (on 1,280 of 1,000,000)>")
    assert tiny.curve.steps.tolist() == [6, 12]
    assert tiny.load(step=6).stored.step == 6
    assert tiny.load().path == tiny.path.resolve()
    assert runs[-1].name == [run.name for run in runs][-1]
    assert [run.name for run in runs[:1]] == [runs[0].name]
    with pytest.raises(KeyError, match=r"no run 'tyni'; there are: .*tiny"):
        runs["tyni"]
    with pytest.raises(IndexError):
        runs[2]


def test_damaged_run_is_left_out_with_a_warning(
    fresh: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    root = fresh.path.parents[1]
    copytree(root / "tiny", root / "damaged")
    (root / "damaged/step-00000012/manifest.json").write_text("{")
    assert [run.name for run in gpt.runs(root)] == ["tiny"]
    assert "damaged" in caplog.text


def test_empty_folder_says_how_to_train(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no run in .*; train one with: gpt\.train"):
        gpt.runs(tmp_path)
