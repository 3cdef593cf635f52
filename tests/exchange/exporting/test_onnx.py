"""ONNX files: onnxruntime computes what numpy does, for every variant, with and without a past."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from random_models import CHARACTERS, random_model

import gpt
from gpt.config import ModelConfig
from gpt.config.fields import field_help
from gpt.config.model import Activation, Norm, Position
from gpt.errors import ConfigError, NumericsError, StorageError
from gpt.exchange.exporting import onnx_file
from gpt.exchange.exporting.export import export
from gpt.reading.layers import Array
from gpt.storage import files
from gpt.trained import TrainedGPT

SWITCHES = [
    name
    for name in ("bias", "qkv_bias", "tied", "qk_norm", "post_norm", "scaled_embedding")
    if name in field_help(ModelConfig)
]
SIZE = 16  # block_size


def variants() -> Iterator[Any]:
    """Every position with every norm and activation; every set of switches with a norm."""
    kinds = product(get_args(Position), get_args(Norm), get_args(Activation))
    for number, (position, norm, activation) in enumerate(kinds):
        options = {"position": position, "norm": norm, "activation": activation}
        options |= {name: bool(number >> place & 1) for place, name in enumerate(SWITCHES)}
        yield pytest.param(options, id=f"{position}-{norm}-{activation}")
    for number in range(2 ** len(SWITCHES)):
        options = {name: bool(number >> place & 1) for place, name in enumerate(SWITCHES)}
        norm = get_args(Norm)[number.bit_count() % 2]
        yield pytest.param(
            options | {"norm": norm}, id="-".join([norm, *(n for n in SWITCHES if options[n])])
        )


def session_of(data: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


def ids_of(batch: int = 3, length: int = SIZE) -> Any:
    return np.random.default_rng(1).integers(len(CHARACTERS), size=(batch, length))


def in_parts(session: Any, model: TrainedGPT, ids: Any, *ends: int) -> tuple[Array, list[Array]]:
    """The logits of all parts, which end at `ends`, and the last past."""
    past, found = None, []
    for part in np.split(ids, ends, axis=1):
        logits, *past = onnx_file.run(session, model.reader, part, past)
        found.append(logits)
    return np.concatenate(found, axis=1), past or []


@pytest.mark.parametrize("options", [*variants()])
def test_onnxruntime_computes_our_logits_at_once_and_in_cached_steps(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    model = random_model(tmp_path, n_head=3, n_embd=18, **options)
    session, ids = session_of(onnx_file.file_of(model, None)), ids_of()
    expected = model.reader.logits(model.reader.forward(ids))
    assert np.abs(expected).max() > 0.3
    for ends in ((), (5,), range(1, SIZE), (3, 4, 11)):
        found, past = in_parts(session, model, ids, *ends)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        assert [each.shape for each in past] == [(2, 3, 3, SIZE, 6)] * 2
    for batch, length in ((1, 1), (5, 2), (2, 9)):
        some = ids_of(batch, length)
        found, _ = in_parts(session, model, some)
        np.testing.assert_allclose(
            found, model.reader.logits(model.reader.forward(some)), rtol=0, atol=1e-5
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return random_model(tmp_path_factory.mktemp("model"))


def test_file_has_named_inputs_and_outputs_and_the_vocabulary(
    tmp_path: Path, model: TrainedGPT
) -> None:
    found = gpt.export(model, tmp_path / "a.onnx")
    assert (found.to, found.architecture, [*found.files]) == ("onnx", None, ["a.onnx"])
    assert found.size == (tmp_path / "a.onnx").stat().st_size
    session = session_of((tmp_path / "a.onnx").read_bytes())
    past = [2, "batch", 2, "past", 8]
    assert [(each.name, each.shape) for each in session.get_inputs()] == [
        ("ids", ["batch", "time"]),
        ("past_keys", past),
        ("past_values", past),
    ]
    assert [each.name for each in session.get_outputs()] == ["logits", "keys", "values"]
    about = session.get_modelmeta()
    assert json.loads(about.custom_metadata_map["vocabulary"]) == list(CHARACTERS.characters)
    facts = json.loads(about.custom_metadata_map["gptx"])
    assert facts["config"] == asdict(model.config)
    assert (facts["version"], facts["step"]) == (gpt.__version__, 1)
    assert facts["losses"]["nats"] == model.score(model.stored.excerpt).nats
    assert about.producer_name == "gptx"


@pytest.mark.parametrize("position", get_args(Position))
def test_a_text_longer_than_the_context_fails_except_with_alibi(
    tmp_path: Path, position: str
) -> None:
    model = random_model(tmp_path, position=position)
    session = session_of(onnx_file.file_of(model, None))
    if position == "alibi":
        longer = in_parts(session, model, ids_of(1, SIZE + 1))[0]
        assert np.isfinite(longer).all()
        return
    with pytest.raises(Exception, match="out of data bounds"):
        in_parts(session, model, ids_of(1, SIZE + 1))


def test_a_model_of_one_position_is_exported(tmp_path: Path) -> None:
    model = random_model(tmp_path, block_size=1)
    session = session_of(onnx_file.file_of(model, None))
    assert in_parts(session, model, ids_of(2, 1))[0].shape == (2, 1, len(CHARACTERS))


@pytest.mark.parametrize("name", ["blocks.1.attention.qkv", "cosines", "lm_head"])
def test_a_graph_that_computes_other_logits_is_refused(model: TrainedGPT, name: str) -> None:
    proto = onnx_file.model_proto(model)
    onnx_file.check(model.reader, proto, model.stored.probe.ids)
    (weight,) = (each for each in proto.graph.initializer if each.name == name)
    values = onnx.numpy_helper.to_array(weight).copy()
    values[:, 2] += 0.01
    weight.CopyFrom(onnx.numpy_helper.from_array(values, name))
    with pytest.raises(NumericsError, match="the export is wrong: its logits differ"):
        onnx_file.check(model.reader, proto, model.stored.probe.ids)


def test_existing_files_and_folders_are_not_replaced(tmp_path: Path, model: TrainedGPT) -> None:
    (tmp_path / "a.onnx").write_text("mine")
    with pytest.raises(ConfigError, match=r"a\.onnx exists already; name another file, or give"):
        export(model, tmp_path / "a.onnx")
    with pytest.raises(ConfigError, match=r"a\.onnx is no earlier export"):
        export(model, tmp_path / "a.onnx", force=True)
    assert (tmp_path / "a.onnx").read_text() == "mine"
    export(model, tmp_path / "b", to="onnx")
    (tmp_path / "a.onnx").write_bytes((tmp_path / "b").read_bytes()[:-1])
    export(model, tmp_path / "a.onnx", force=True)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ConfigError, match="is a folder; name a file, as in"):
        export(model, tmp_path, to="onnx", force=True)
    with pytest.raises(StorageError, match="its folder does not exist; make it first"):
        export(model, tmp_path / "no/a.onnx")
    with pytest.raises(ConfigError, match="'gguf' is not one of huggingface, onnx"):
        export(model, tmp_path / "c", to="gguf")  # type: ignore[arg-type]


def test_a_full_disk_leaves_no_file_and_the_old_one(
    tmp_path: Path, model: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = b"\x08\x08\x12\x04gptx\x1a\x01a"
    (tmp_path / "old.onnx").write_bytes(old)

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fails, raising=False)  # for the old file
    monkeypatch.setattr(files, "_write_all", fails)
    for name in ("old.onnx", "new.onnx"):
        with pytest.raises(StorageError, match="No space left on device"):
            export(model, tmp_path / name, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old.onnx"]
    assert (tmp_path / "old.onnx").read_bytes() == old


def test_error_without_the_package_onnx_says_what_to_install(
    tmp_path: Path, model: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match="which is not installed: pip install onnx"):
        export(model, tmp_path / "a.onnx")
    assert [*tmp_path.iterdir()] == []


def test_a_model_too_large_for_one_file_is_refused(
    tmp_path: Path, model: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "LARGEST", 10_000)
    with pytest.raises(ConfigError, match="bytes of weights are too many for one ONNX file"):
        export(model, tmp_path / "a.onnx")
