"""A changed bit, a cut and a file of another program are refused, in each file of a checkpoint."""

from __future__ import annotations

import io
import pickle
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from conftest import train_tiny

from gpt.errors import CheckpointError
from gpt.storage.checkpoint_files import decode_json, read_model
from gpt.storage.run import MANIFEST, MODEL, STATE, Checkpoint

SHAPE = {"n_layer": 1, "n_head": 1, "n_embd": 2, "block_size": 4}


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A small checkpoint, whose every byte will be damaged."""
    return train_tiny(tmp_path_factory.mktemp("smallest"), {"steps": 1}, **SHAPE)


@pytest.mark.parametrize("name", [MODEL, STATE, MANIFEST])
def test_a_flipped_bit_of_any_byte_and_a_cut_are_damage(smallest: Checkpoint, name: str) -> None:
    path, draw = smallest.path / name, random.Random(1)
    whole = path.read_bytes()

    def check(data: bytes) -> None:
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=f"(damaged|checkpoint): {path}") as caught:
            Checkpoint.open(smallest.path).verify()
        assert caught.value.exit_code == 4
        if name == MODEL:
            with pytest.raises(CheckpointError, match=str(path)):
                read_model(path)  # alone, without its manifest

    try:
        for place in range(len(whole)):
            bit = 1 << draw.randrange(8)
            check(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        for place in draw.sample(range(len(whole)), 60):
            check(whole[:place])
        check(whole + b"\0")
    finally:
        path.write_bytes(whole)
    smallest.verify()


def test_files_of_two_checkpoints_are_not_mixed(fresh: Checkpoint) -> None:
    for name in (MODEL, STATE):
        whole = (fresh.path / name).read_bytes()
        shutil.copy(fresh.path.parent / "step-00000006" / name, fresh.path / name)
        with pytest.raises(CheckpointError, match=f"{name} is not the file that its manifest"):
            fresh.verify()
        (fresh.path / name).write_bytes(whole)
    renamed = fresh.path.rename(fresh.path.with_name("step-00000099"))
    with pytest.raises(CheckpointError, match="is of step 12"):
        Checkpoint.open(renamed)


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


def test_a_foreign_file_is_refused_and_its_code_never_runs(
    tmp_path: Path, fresh: Checkpoint
) -> None:
    trace, path, packed, saved = tmp_path / "trace", tmp_path / MODEL, io.BytesIO(), io.BytesIO()
    payload = Payload(trace)
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("data.pkl", pickle.dumps(payload))
    torch.save(payload, saved)
    for data in (
        *(pickle.dumps(payload), saved.getvalue(), packed.getvalue(), b"", b"\xff" * 8 + b"{}"),
        *(safetensors.numpy.save({"a": np.ones(3)}), (fresh.path / MANIFEST).read_bytes()),
    ):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=f"not a gptx checkpoint: {path}$"):
            read_model(path)
    assert not trace.exists()
    pickle.loads(pickle.dumps(payload))
    assert trace.exists()  # the pickle really would run code


def test_files_of_another_schema_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^x has the unknown schema 5; this gptx reads 1$"):
        decode_json(b'{"schema": 5}', dict[str, int], Path("x"))
