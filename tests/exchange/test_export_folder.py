"""An export is written whole or not at all, and replaces nothing without `force`."""

from __future__ import annotations

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
    with pytest.raises(ConfigError, match=r"has files; name another folder \(`force` replaces"):
        export(model, folder)
    export(model, folder, force=True)
    assert contents(folder) == first | {folder / "LICENSE": b"mine"}


@pytest.mark.parametrize("name", ["README.md", "config.json"])
def test_force_replaces_no_folder_without_all_files_of_an_export(
    tmp_path: Path, model: TrainedGPT, name: str
) -> None:
    folder = tmp_path / "folder"
    export(model, folder)
    (folder / name).unlink()
    if name == "README.md":  # a folder of another program, with the same names
        (folder / name).write_text("---\ntags:\n- another-program\n---\n")
    before = contents(folder)
    with pytest.raises(ConfigError, match="has files; name another folder"):
        export(model, folder, force=True)
    assert contents(folder) == before


def test_export_never_overwrites_a_run_or_a_file(
    tmp_path: Path, model: TrainedGPT, fresh: Checkpoint
) -> None:
    run = fresh.path.parent
    before = contents(tmp_path)
    for place in (run, fresh.path):
        with pytest.raises(ConfigError, match="export: "):
            export(model, place, force=True)
    for place in (run / "metrics.jsonl", tmp_path / "no/folder"):
        with pytest.raises(StorageError, match=f"cannot write {place}: "):
            export(model, place, force=True)
    assert contents(tmp_path) == before
