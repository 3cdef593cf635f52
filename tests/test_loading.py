"""Loading and listing from Python: all kinds of paths open, and torch is not imported."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gpt
from gpt.errors import CheckpointError, ConfigError, TextError
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
            assert model.proof.passed


def test_load_opens_any_kept_step(fresh: Checkpoint) -> None:
    root, run = fresh.path.parents[1], fresh.path.parent
    steps = {"6": 6, "12": 12, "last": 12, "best": fresh.manifest.best_step}
    steps |= {6: 6, np.int64(12): 12, np.uint8(6): 6}
    for place in (root, run):
        assert {step: gpt.load(place, step=step).stored.step for step in steps} == steps
    with pytest.raises(CheckpointError, match="tiny has no step 7; it keeps 6, 12"):
        gpt.load(run, step="7")
    with pytest.raises(CheckpointError, match="tiny has no step 7; it keeps 6, 12"):
        gpt.load(run, step=7)
    for wrong in ("first", "", -1, 6.0):
        with pytest.raises(ConfigError, match=r"^step: "):
            gpt.load(run, step=wrong)  # type: ignore[arg-type]


def test_step_is_refused_where_there_is_only_one(fresh: Checkpoint) -> None:
    for place in (fresh.path, fresh.path / MODEL):
        for step in ("last", "12", 12):
            with pytest.raises(ConfigError, match=f"^step: {place} has one step only"):
                gpt.load(place, step=step)


def test_loaded_model_file_has_its_own_name(fresh: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    shared = shutil.copy(fresh.path / MODEL, tmp_path / "deep/er/shared.safetensors")
    assert repr(gpt.load(shared)).startswith("<TrainedGPT shared.safetensors step 12: ")
    assert repr(gpt.load(fresh.path / MODEL)).startswith("<TrainedGPT tiny step 12: ")


def test_load_defaults_to_the_checkpoints_folder(
    fresh: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fresh.path.parents[2])
    assert gpt.load().stored.step == 12


@pytest.mark.parametrize("name", ["missing", "empty", "empty/model.safetensors"])
def test_without_a_checkpoint_the_error_says_how_to_train(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    place = tmp_path / name
    with pytest.raises(CheckpointError, match=f"^no checkpoint in {place}; train one with: gptx"):
        gpt.load(place)


def test_a_misspelt_path_of_a_run_names_the_most_similar_one(fresh: Checkpoint) -> None:
    run = fresh.path.parent
    with pytest.raises(CheckpointError, match=rf"no run '{run.name}x' .* mean {run.name}\?"):
        gpt.load(f"{run}x")


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
    assert copy.copy(earlier).steps == [6, 12]
    with pytest.raises(CheckpointError, match="tiny has no step 7; it keeps 6, 12"):
        model.at(7)


def test_model_file_without_its_run_says_that_it_has_no_steps(
    fresh: Checkpoint, tmp_path: Path
) -> None:
    model = gpt.load(shutil.copy(fresh.path / MODEL, tmp_path / "alone.safetensors"))
    calls: list[Callable[[], object]] = [lambda: model.steps, lambda: model.curve]
    calls += [lambda: model.manifest, lambda: model.training, lambda: model.at(6)]
    for call in calls:
        with pytest.raises(CheckpointError, match=r"alone.safetensors is a model file without its"):
            call()
    assert not hasattr(model, "steps")


def test_generated_text_depends_only_on_the_seed(tiny: Checkpoint) -> None:
    models = [gpt.load(tiny.path) for _ in range(2)]
    texts = [model.sample("the ", length=60, seed=1) for model in models for _ in range(2)]
    assert len(set(texts)) == 1
    assert texts[0].startswith("the ")
    assert len(texts[0]) == 64
    assert models[0].sample("the ", length=60, seed=2) != texts[0]
    with pytest.raises(TextError, match=r"^'Q' \(U\+0051 .* at position 1 "):
        models[0].sample("tQe")


def test_package_exports_exactly_its_public_names() -> None:
    assert all(getattr(gpt, name) is not None for name in gpt.__all__)
    assert dir(gpt) == sorted(gpt.__all__)
    assert {"load", "train", "train_events", "resume", "runs"} <= {*dir(gpt)}
    with pytest.raises(AttributeError, match="module 'gpt' has no attribute 'trian'"):
        _ = gpt.trian


def test_help_of_the_package_describes_every_public_name() -> None:
    page = gpt.__doc__ or ""
    for name in {*gpt.__all__} - {"__version__"}:
        assert re.search(rf"\b{name}\b", page.split("Functions:")[1]), name
    for method in re.findall(r"run\.(\w+)", page):
        assert hasattr(gpt.TrainedGPT, method) or method == "config", method


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


def test_runs_are_indexed_by_name_and_place_and_open(fresh: Checkpoint) -> None:
    root = fresh.path.parents[1]
    shutil.copytree(root / "tiny", root / "newer")
    runs = gpt.runs(root)
    assert len(runs) == 2
    assert {run.name for run in runs} == {"tiny", "newer"}
    tiny = runs["tiny"]
    assert (tiny.name, tiny.step, tiny.steps()) == ("tiny", 12, [6, 12])
    assert tiny.loss == fresh.manifest.best_loss
    assert repr(tiny) == f"<run tiny: step 12, loss {tiny.loss:.4f}>"
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
    shutil.copytree(root / "tiny", root / "damaged")
    (root / "damaged/step-00000012/manifest.json").write_text("{")
    assert [run.name for run in gpt.runs(root)] == ["tiny"]
    assert "damaged" in caplog.text


def test_empty_folder_says_how_to_train(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no run in .*; train one with: gpt\.train"):
        gpt.runs(tmp_path)
