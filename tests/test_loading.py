"""Loading and listing from Python: all kinds of paths open, and torch is not imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gpt
from gpt.errors import CheckpointError, ConfigError
from gpt.storage.run import MODEL, Checkpoint, Run


def test_load_accepts_a_checkpoints_folder_run_step_or_model_file(
    fresh: Checkpoint, tmp_path: Path
) -> None:
    shared = tmp_path / "shared.safetensors"
    shutil.copy(fresh.path / MODEL, shared)
    root, best = fresh.path.parents[1], Checkpoint.open(fresh.path).model().digest
    for place in (root, fresh.path.parent, fresh.path, fresh.path / MODEL, shared):
        for path in (place, str(place)):
            model = gpt.load(path)
            assert (model.stored.digest, model.stored.step) == (best, 12)
            assert model.probe_check.passed
    assert repr(model).startswith("<TrainedGPT shared.safetensors step 12: ")


def test_load_opens_any_kept_step(fresh: Checkpoint) -> None:
    root, run = fresh.path.parents[1], fresh.path.parent
    steps = {"6": 6, "12": 12, "last": 12, "best": fresh.manifest.best_step}
    steps |= {6: 6, np.int64(12): 12, np.uint8(6): 6}
    for place in (root, run):
        assert {step: gpt.load(place, step=step).stored.step for step in steps} == steps
    with pytest.raises(CheckpointError, match="tiny has no step 7; it keeps 6, 12"):
        gpt.load(run, step=7)
    with pytest.raises(ConfigError, match=f"^step: {fresh.path} has only one step"):
        gpt.load(fresh.path, step=12)
    for wrong in ("first", "", -1, 6.0):
        with pytest.raises(ConfigError, match=r"^step: "):
            gpt.load(run, step=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["missing", "empty", "empty/model.safetensors"])
def test_without_a_checkpoint_the_error_says_how_to_train(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    place = tmp_path / name
    with pytest.raises(CheckpointError, match=f"^no checkpoint in {place}; train one with: gptx"):
        gpt.load(place)


def test_a_damaged_place_is_refused_not_replaced_by_another(fresh: Checkpoint) -> None:
    (fresh.path / MODEL).write_bytes(b"damaged")
    for place in (fresh.path, fresh.path / MODEL):
        with pytest.raises(CheckpointError, match="not a gptx checkpoint"):
            gpt.load(place)
    with pytest.raises(CheckpointError, match="not a gptx checkpoint"):
        gpt.load(fresh.path.parent, step="last")


def test_loaded_run_knows_its_steps_losses_and_options(fresh: Checkpoint) -> None:
    model = gpt.load(fresh.path.parent)
    assert (model.path, model.steps) == (fresh.path.parent.resolve(), [6, 12])
    assert model.manifest.step == model.stored.step == 12
    assert model.training == fresh.manifest.train
    records = Run(model.path).records("metrics")
    assert len(records) == 2
    for name, values in (("step", model.curve.steps), ("val_loss", model.curve.val)):
        assert values.tolist() == [record[name] for record in records]
    assert model.curve.train.tolist() == [record["train_loss"] for record in records]
    earlier = model.at(6)
    assert (earlier.stored.step, earlier.manifest.step) == (6, 6)
    assert earlier.at("last").stored.digest == model.stored.digest


def test_model_file_without_its_run_says_that_it_has_no_steps(
    fresh: Checkpoint, tmp_path: Path
) -> None:
    model = gpt.load(shutil.copy(fresh.path / MODEL, tmp_path / "alone.safetensors"))
    calls: list[Callable[[], object]] = [lambda: model.steps, lambda: model.curve]
    calls += [lambda: model.manifest, lambda: model.training, lambda: model.at(6)]
    for call in calls:
        with pytest.raises(CheckpointError, match=r"alone.safetensors is a model file without its"):
            call()


def test_only_what_trains_imports_torch(tiny: Checkpoint) -> None:
    code = """if True:
        import gpt, sys
        def loaded(*names):
            return {name for name in sys.modules if name.startswith(names)}
        assert not loaded("numpy", "torch", "safetensors")
        model = gpt.load(sys.argv[1])
        model.sample("the ", length=40), model.attn("the cat")
        assert loaded("numpy") and not loaded("torch", "gpt.corpus.c")
        model.eval("the cat"), model.heads(windows=1)
        assert not loaded("torch")
        try:
            gpt.train("no.txt")
        except gpt.TextError:
            assert not loaded("torch", "tqdm")
        else:
            raise AssertionError("no error")
    """
    command = [sys.executable, "-W", "error", "-c", code, str(tiny.path)]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True, timeout=120)


def test_runs_are_found_by_name_and_place_and_open(
    fresh: Checkpoint, caplog: pytest.LogCaptureFixture
) -> None:
    root = fresh.path.parents[1]
    for name in ("newer", "damaged"):
        shutil.copytree(root / "tiny", root / name)
    (root / "damaged/step-00000012/manifest.json").write_text("{")
    runs = gpt.runs(root)
    assert {run.name for run in runs} == {"tiny", "newer"}
    assert "damaged" in caplog.text
    tiny = runs["tiny"]
    assert (tiny.loss, tiny.curve.steps.tolist()) == (fresh.manifest.best_loss, [6, 12])
    assert gpt.load(tiny.path, step=6).stored.step == 6
    assert runs[-1].name == [run.name for run in runs][-1]
    with pytest.raises(CheckpointError, match=r"no checkpoint in .*; train one with: gptx train"):
        gpt.runs(root / "empty")
