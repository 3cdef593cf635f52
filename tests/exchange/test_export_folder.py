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
from gpt.exchange.to_transformers import export
from gpt.interface.trained import TrainedGPT
from gpt.storage.run import Checkpoint

NAMES = ["README.md", "config.json", "generation_config.json", "model.safetensors"]
NAMES += ["tokenizer.json", "tokenizer_config.json"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return random_model(tmp_path_factory.mktemp("model"))


def test_export_writes_six_files_into_a_new_or_an_empty_folder(
    tmp_path: Path, model: TrainedGPT
) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("new", "empty"):
        exported = gpt.export(model, str(tmp_path / place))
        assert names(tmp_path / place) == NAMES
        sizes = {path.name: path.stat().st_size for path in (tmp_path / place).iterdir()}
        assert exported.files == sizes
        assert (exported.path, exported.note) == (tmp_path / place, "")
    same = [(tmp_path / place / "model.safetensors").read_bytes() for place in ("new", "empty")]
    assert same[0] == same[1]
    assert names(tmp_path) == ["empty", "new"]


def test_export_replaces_an_earlier_one_only_with_force_and_keeps_other_files(
    tmp_path: Path, model: TrainedGPT
) -> None:
    folder = tmp_path / "folder"
    export(model, folder)
    first = contents(folder)
    (folder / "LICENSE").write_text("mine")
    (folder / "README.md").write_text("---\ntags:\n- gptx\n---\nedited")
    with pytest.raises(ConfigError, match=r"has files; name another folder, or .* `force`"):
        export(model, folder)
    export(model, folder, force=True)
    assert contents(folder) == first | {folder / "LICENSE": b"mine"}


@pytest.mark.parametrize("name", NAMES)
def test_force_replaces_no_folder_without_all_files_of_an_export(
    tmp_path: Path, model: TrainedGPT, name: str
) -> None:
    folder = tmp_path / "folder"
    export(model, folder)
    (folder / name).unlink()
    before = contents(folder)
    with pytest.raises(ConfigError, match=r"is no earlier export, which has README\.md, config"):
        export(model, folder, force=True)
    assert contents(folder) == before
    (folder / name).write_text("---\ntags:\n- another-program\n---\n")
    if name == "README.md":  # a folder of another program, with the same names
        with pytest.raises(ConfigError, match="is no earlier export"):
            export(model, folder, force=True)


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


def test_replacing_an_export_leaves_the_file_that_a_link_in_it_names(
    tmp_path: Path, model: TrainedGPT, fresh: Checkpoint
) -> None:
    folder, weights = tmp_path / "folder", fresh.path / "model.safetensors"
    before = weights.read_bytes()
    for link in (os.link, os.symlink):
        if not folder.exists():
            export(model, folder)
        (folder / "model.safetensors").unlink()
        link(weights, folder / "model.safetensors")
        export(model, folder, force=True)
        assert weights.read_bytes() == before
        assert (folder / "model.safetensors").read_bytes() != before


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


def test_a_full_disk_leaves_nothing_of_a_failed_export(
    tmp_path: Path, model: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = os.write

    def fails(descriptor: int, data: memoryview) -> int:
        if b"WordLevel" in bytes(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(descriptor, data)

    monkeypatch.setattr(os, "write", fails)
    with pytest.raises(StorageError, match=r"cannot write .*folder: No space left on device"):
        export(model, tmp_path / "folder")
    assert names(tmp_path) == []
