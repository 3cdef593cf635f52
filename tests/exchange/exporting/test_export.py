"""An export is written whole or not at all, and replaces nothing without `force`."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from random_models import random_model

import gpt
from gpt.errors import ConfigError, StorageError
from gpt.exchange.exporting.export import WEIGHTS_BEGIN, export
from gpt.interface.trained import TrainedGPT
from gpt.storage import files
from gpt.storage.run import MODEL, Checkpoint

NAMES = ["README.md", "config.json", "generation_config.json", "model.safetensors"]
NAMES += ["tokenizer.json", "tokenizer_config.json"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return random_model(tmp_path_factory.mktemp("model"))


def test_export_writes_six_files_into_a_new_or_an_empty_folder(
    tmp_path: Path, model: TrainedGPT
) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("new", "empty"):
        found = gpt.export(model, str(tmp_path / place))
        assert names(tmp_path / place) == NAMES
        sizes = {path.name: path.stat().st_size for path in (tmp_path / place).iterdir()}
        assert found.files == sizes
        assert found.size == sum(sizes.values())
        assert (found.path, found.note) == (tmp_path / place, "")
    same = [(tmp_path / place / "model.safetensors").read_bytes() for place in ("new", "empty")]
    assert same[0] == same[1]
    assert names(tmp_path) == ["empty", "new"]


def test_export_replaces_files_only_with_force_and_keeps_others(
    tmp_path: Path, model: TrainedGPT
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    (folder / "LICENSE").write_text("mine")
    with pytest.raises(ConfigError, match=r"has files; name another folder, or .* `force`"):
        export(model, folder)
    assert names(folder) == ["LICENSE", "README.md"]
    for left in (["LICENSE", "README.md"], ["LICENSE"]):
        with pytest.raises(ConfigError, match=r"is no earlier export, it has no README\.md with"):
            export(model, folder, force=True)
        assert names(folder) == left
        (folder / "README.md").unlink(missing_ok=True)
    (folder / "LICENSE").unlink()
    export(model, folder)
    (folder / "LICENSE").write_text("mine")
    first = (folder / "README.md").read_text("utf-8")
    (folder / "README.md").write_text(first.replace("# license: of", "license: mit  #"), "utf-8")
    export(model, folder, force=True)
    assert (folder / "README.md").read_text("utf-8") == first
    assert names(folder) == sorted(["LICENSE", *NAMES])
    assert (folder / "LICENSE").read_text() == "mine"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_export_never_writes_into_a_run_or_a_checkpoint(
    tmp_path: Path, model: TrainedGPT, fresh: Checkpoint
) -> None:
    run, step, copy = fresh.path.parent, fresh.path, tmp_path / "copy"
    shutil.copytree(step, copy)
    (tmp_path / "begun").mkdir()
    for name in (".lock", "config.toml"):
        (tmp_path / "begun" / name).touch()
    (tmp_path / "link").symlink_to(step)
    (tmp_path / "file").symlink_to(step / "model.safetensors")
    os.link(step / "model.safetensors", tmp_path / "same")
    export(model, tmp_path / "export")
    shutil.copy(tmp_path / "export/README.md", copy)
    before = contents(tmp_path)
    for place in (
        *(tmp_path, run, step, tmp_path / "link", copy, tmp_path / "begun", tmp_path / "begun/new"),
        *(run / "new", step / "new", run / "step-00000099", tmp_path / "link/new"),
        *(path for path in before if run in path.parents or copy in path.parents),
        *(tmp_path / "file", tmp_path / "same", tmp_path / "link/../config.toml"),
    ):
        with pytest.raises(ConfigError, match="export: "):
            export(model, place, force=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("how", ["copied", "linked", "symlinked", "pipe"])
def test_a_card_of_an_export_beside_other_weights_is_no_export(
    tmp_path: Path, model: TrainedGPT, fresh: Checkpoint, how: str
) -> None:
    folder, weights = tmp_path / "folder", fresh.path / "model.safetensors"
    export(model, folder)
    (folder / "model.safetensors").unlink()
    make = {"copied": shutil.copy, "linked": os.link, "symlinked": os.symlink}
    make.get(how, lambda _, path: os.mkfifo(path))(weights, folder / "model.safetensors")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"has no model\.safetensors of one"):
        export(model, folder, force=True)
    assert contents(tmp_path) == before


def test_export_to_a_file_a_project_or_an_impossible_folder_is_refused(
    tmp_path: Path, model: TrainedGPT
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="file is a file; name a folder"):
        export(model, tmp_path / "file", force=True)
    for place, problem in (
        (tmp_path / "no" / "folder", "its folder does not exist; make it first"),
        (tmp_path / "file" / "folder", "Not a directory"),
        ("a\0b", "NUL character"),
    ):
        with pytest.raises(StorageError, match=problem):
            export(model, place)
    (tmp_path / "README.md").mkdir()
    for project in (tmp_path, ""):  # "": this checkout, which has a README.md of its own
        with pytest.raises(ConfigError, match="is no earlier export"):
            export(model, project, force=True)
    assert names(tmp_path) == ["README.md", "file"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_leaves_nothing_of_a_failed_export(
    tmp_path: Path, model: TrainedGPT, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    folder, written = tmp_path / "folder", files.write
    if exists:
        folder.mkdir()
        (folder / "config.json").write_text("mine")
        (folder / "README.md").write_text("---\ntags:\n- gptx\n---\n")
        (folder / MODEL).write_bytes(bytes(8) + WEIGHTS_BEGIN)

    def fails(path: Path, data: bytes) -> None:
        written(path, data)
        if b"vocab" in data[:2000] and b"WordLevel" in data:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write", fails)
    with pytest.raises(StorageError, match=r"cannot write .*folder: No space left on device"):
        export(model, folder, force=True)
    if exists:
        assert names(folder) == ["README.md", "config.json", MODEL]
        assert (folder / "config.json").read_text() == "mine"
    assert names(tmp_path) == ["folder"] * exists


def test_a_model_of_another_shape_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this one has `position=none`"):
        export(random_model(tmp_path, position="none"), tmp_path / "folder")
    assert names(tmp_path) == ["random.safetensors"]
