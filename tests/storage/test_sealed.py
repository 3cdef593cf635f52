"""A changed bit, a cut and a file of another program are refused, in each file of a checkpoint."""

from __future__ import annotations

import io
import pickle
import random
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from conftest import train_tiny

from gpt.errors import CheckpointError
from gpt.storage.model_file import read_model
from gpt.storage.run import MANIFEST, MODEL, STATE, Checkpoint
from gpt.storage.sealed import SCHEMA, decode

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
        with pytest.raises(CheckpointError) as caught:
            Checkpoint.open(smallest.path).verify()
        assert caught.value.exit_code == 4
        assert f"damaged: {path}" in str(caught.value) or f"checkpoint: {path}" in str(caught.value)
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


def foreign_files(payload: Any) -> dict[str, bytes]:
    """Files that an unsafe loader would run: a pickle, torch's zip of one, a tar, a zip, a text;
    and what no reader of safetensors may believe.
    """
    tar, packed, saved = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model"))
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("data.pkl", pickle.dumps(payload))
    torch.save(payload, saved)
    return {
        "pickle": pickle.dumps(payload),
        "old pickle": pickle.dumps(payload, protocol=0),
        "torch": saved.getvalue(),
        "zip": packed.getvalue(),
        "tar": tar.getvalue(),
        "json": b'{"format": "gptx"}',
        "empty": b"",
        "endless header": b"\xff" * 8 + b"{}",
        "nested header": (10**5).to_bytes(8, "little") + b"[" * 10**5,
        "safetensors": safetensors.numpy.save({"a": np.ones(3)}),
        "of another program": safetensors.numpy.save({"a": np.ones(3)}, {"format": "pt"}),
    }


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("kind", foreign_files(None))
def test_foreign_file_is_refused_and_its_code_never_runs(tmp_path: Path, kind: str) -> None:
    trace, path = tmp_path / "trace", tmp_path / MODEL
    path.write_bytes(foreign_files(Payload(trace))[kind])
    with pytest.raises(CheckpointError, match=f"not a gptx checkpoint: {path}$"):
        read_model(path)
    assert not trace.exists()
    pickle.loads(foreign_files(Payload(trace))["pickle"])
    assert trace.exists()  # the pickle really would run code


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"1", b'{"a": 1', b'{"a": NaN}', b"[" * 10**5, b'{"a":' * 10**5, b'{"a": "\xff"}'],
    ids=lambda text: repr(text[:20]),
)
def test_a_text_that_is_no_json_object_is_damage(text: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^damaged: x\.json \(.{5,300}\)$"):
        decode(text, dict[str, int], Path("x.json"))


def test_the_schema_is_that_of_the_release() -> None:
    assert SCHEMA == 1
