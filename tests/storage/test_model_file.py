"""Model files open only if they are complete, made by gptx, finite, and consistent with their
config.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from conftest import TEXT, TINY, train_tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.config import ModelConfig
from gpt.config.model import MOST_LAYERS
from gpt.errors import CheckpointError
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT, initialise
from gpt.storage import model_file as stored
from gpt.storage.model_file import HEADER_LIMIT, read_header, read_model
from gpt.storage.run import MODEL, STATE, Checkpoint
from gpt.training.checkpoint import PROBE_POSITIONS, model_bytes
from gpt.vocabulary import Vocabulary

Header = dict[str, Any]
Edit = Callable[[Header], object]
EMBEDDING = "token_embedding.weight"


def parts(data: bytes) -> tuple[Header, bytes]:
    """A safetensors file's header and the bytes of its tensors."""
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def joined(header: Header | bytes, body: bytes) -> bytes:
    """The file with any header and a correct digest."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + body
    digest = re.search(rb'digest\\": \\"([0-9a-f]{64})', text)
    return stored.fill_digest(data.replace(digest[1], stored.BLANK.encode())) if digest else data


def refused(folder: Path, data: bytes, message: str) -> None:
    """Asserts that a file of these bytes is refused, with a message that names the file."""
    path = folder / MODEL
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_model(path)
    assert caught.value.exit_code == 4
    assert str(path) in str(caught.value)


def test_model_file_alone_opens_with_all_its_contents(tiny: Checkpoint) -> None:
    found = read_model(tiny.path / MODEL)
    assert found.digest == tiny.model().digest == tiny.manifest.files[MODEL][1]
    assert found.config == tiny.manifest.model
    assert found.vocabulary.characters == tiny.manifest.vocabulary.characters
    assert {name: array.shape for name, array in found.tensors.items()} == found.config.shapes()
    assert (found.step, found.source) == (12, tiny.path / MODEL)
    assert found.probe.logits.shape == (found.probe.ids.size, len(found.vocabulary))


def test_probe_stores_several_characters_at_each_position() -> None:
    probe = stored.Probe(np.zeros((2, 3), np.int32), np.zeros((6, 2), np.float32))
    logits = np.arange(2 * 3 * 5).reshape(2, 3, 5)
    columns = [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 1]]
    assert (probe.of(logits) % 5).tolist() == columns
    assert (probe.of(logits) // 5).tolist() == [[n, n] for n in range(6)]


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A small checkpoint, whose every byte will be damaged."""
    shape = {"n_layer": 1, "n_head": 1, "n_embd": 2, "block_size": 4}
    return train_tiny(tmp_path_factory.mktemp("smallest"), {"steps": 1}, **shape)


@pytest.mark.parametrize("name", [MODEL, STATE])
def test_flipped_byte_or_cut_in_a_model_file_is_detected(smallest: Checkpoint, name: str) -> None:
    path = smallest.path / name
    whole = path.read_bytes()
    shapes = {key: tuple(tensor.get("shape", ())) for key, tensor in parts(whole)[0].items()}

    def found(damaged: bytes) -> bool:
        """Whether opening the file reports damage."""
        path.write_bytes(damaged)
        try:
            read_model(path) if name == MODEL else smallest.state(shapes)
        except CheckpointError as error:
            return str(path) in str(error)
        return False

    try:
        for place in range(len(whole)):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << place % 8
            assert found(flipped), place
            if place % 16 == 0:
                assert found(whole[:place]), place
                with pytest.raises(CheckpointError):
                    smallest.verify()
        assert found(whole + b"\0")
    finally:
        path.write_bytes(whole)
    smallest.verify()


def test_a_file_has_the_bytes_that_the_library_writes_and_takes_one_copy_of_its_tensors() -> None:
    random = np.random.default_rng(1)
    tensors: stored.Tensors = {"alone": np.ones((), "f4"), "empty": np.ones((0, 3), "f4")}
    for number, dtype in enumerate(["u1", "f8", "i4", "u2", "f4", "u4"] * 2):
        tensors[f"é{number}"] = (100 * random.random((number + 3, 2**14))).astype(dtype)
    tensors["turned"] = tensors["é4"].T
    about = {"schema": 1, "characters": '\x00\t\n\r\x1f"\\\x7f\x85/é東\u2028😀'}
    tracemalloc.start()
    try:
        found = stored.pack_tensors(tensors, about)
        most = tracemalloc.get_traced_memory()[1]
        whole = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        whole["alone"] = tensors["alone"]
        metadata = json.dumps({"digest": stored.BLANK, **about}, ensure_ascii=False)
        assert found == stored.fill_digest(safetensors.numpy.save(whole, {"gptx": metadata}))
    finally:
        tracemalloc.stop()
    assert most < 1.25 * len(found), most / len(found)  # "turned" is copied, too


def test_tensors_are_read_without_a_copy() -> None:
    random = np.random.default_rng(1)
    tensors = {
        name: random.normal(size=(9, 2**12)).astype(name[:2]) for name in ("f4", "f8", "f4b")
    }
    tensors |= {"empty": np.ones((0, 3), "f4")}
    shapes = {name: array.shape for name, array in tensors.items()}
    data = stored.pack_tensors(tensors, {})
    tracemalloc.start()
    try:
        found = stored.unpack(data, read_header(data, Path()), shapes, Path())
        assert tracemalloc.get_traced_memory()[1] < len(data) / 10
    finally:
        tracemalloc.stop()
    assert all(np.array_equal(found[name], array) for name, array in tensors.items())


def test_tensors_at_other_places_are_refused(smallest: Checkpoint, tmp_path: Path) -> None:
    header, body = parts((smallest.path / MODEL).read_bytes())
    refused(tmp_path, joined(header, body + b"\0"), "does not end with its last tensor")
    for offsets in (None, [0, 0], [1, 2], ["0", "4"], {}, [0.5, 2.0]):
        changed = json.loads(json.dumps(header))
        changed[EMBEDDING]["data_offsets"] = offsets
        refused(tmp_path, joined(changed, body), "has its tensors in the wrong places")


def test_digest_detects_a_changed_weight_that_the_probe_misses(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_text(TEXT)
    longer = {**TINY, "block_size": PROBE_POSITIONS + 1, "position": "learned"}
    model = GPT(ModelConfig(vocab_size=len(vocabulary), **longer))
    initialise(model, seed=1)
    whole = model_bytes(model, vocabulary, TEXT, step=1)
    header, body = parts(whole)
    place = header["position.weight"]["data_offsets"][1] - 1  # of the last position
    changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
    path = tmp_path / MODEL
    path.write_bytes(joined(header, changed))
    TrainedGPT(read_model(path))  # the probe does not detect it if the digest is corrected
    refused(tmp_path, whole[: -len(body)] + changed, "has changed since it was written")


def raw(text: str) -> Edit:
    """Replaces the header's description of the model by a text."""
    return lambda header: header.update(__metadata__={"gptx": text})


def about(**changes: Any) -> Edit:
    """Changes the header's description of the model; None removes it."""

    def edit(header: Header) -> None:
        told = {**json.loads(header["__metadata__"]["gptx"]), **changes}
        raw(json.dumps({name: value for name, value in told.items() if value is not None}))(header)

    return edit


def config(**changes: Any) -> Edit:
    """Changes the model's config."""

    def edit(header: Header) -> None:
        told = json.loads(header["__metadata__"]["gptx"])["config"]
        about(config={**told, **changes})(header)

    return edit


def tensor(name: str = EMBEDDING, **changes: Any) -> Edit:
    """Changes the header's entry of one tensor."""
    return lambda header: header[name].update(changes)


#: A fault -> the change that causes it in a good header, and the message.
EDITS: dict[str, tuple[Edit, str]] = {
    "no metadata": (lambda h: h.pop("__metadata__"), "not a gptx checkpoint"),
    "another program's": (lambda h: h.update(__metadata__={"format": "pt"}), "not a gptx"),
    "of an older release": (
        about(schema=5),
        "unknown schema 5; this gptx reads 1",
    ),
    "of no release": (
        about(schema=0),
        "unknown schema 0; this gptx reads 1",
    ),
    "no schema": (about(schema=None), "damaged"),
    "no digest": (about(digest=None), "damaged"),
    "a digest that is no text": (about(digest=64), "damaged"),
    "a digest that is short": (about(digest="0"), "has changed since"),
    "no step": (about(step="soon"), "damaged"),
    "step below 0": (about(step=-1), "step: -1 is not of the type int"),
    "step beyond the names of folders": (about(step=10**12), "step: 1000000000000 is over"),
    "step beyond 64 bits": (about(step=2**70), "step: 1180591620717411303424 is not"),
    "step that is true": (about(step=True), "step: True is not of the type int"),
    "excerpt that is a number": (about(excerpt=7), "excerpt: 7 is not of the type str"),
    "schema that is a text": (about(schema="5"), "schema: '5' is not of the type int"),
    "config that is a list": (about(config=[]), "damaged"),
    "no excerpt": (about(excerpt=None), "damaged"),
    "no config": (about(config=None), "damaged"),
    "no vocabulary": (about(vocabulary=None), "damaged"),
    "not JSON": (raw("{"), "damaged"),
    "not an object": (raw("[]"), "not a JSON object"),
    "with NaN": (raw('{"schema": 1, "step": NaN}'), "NaN is not JSON"),
    "key twice": (raw('{"schema": 1, "config": {"n_embd": 8, "n_embd": 9}}'), "duplicate keys"),
    "nested": (raw("[" * 99_999), "recursion"),
    "config with an unknown option": (config(n_experts=8), "config: unknown 'n_experts'"),
    "config out of range": (config(n_head=3), "damaged"),
    "vocabulary repeats": (about(vocabulary={"characters": "aabcdefghijklmn"}), "damaged"),
    "vocabulary too small": (about(vocabulary={"characters": "abc"}), "differ in size"),
    "tensor missing": (lambda h: h.pop(EMBEDDING), f"lacks '{EMBEDDING}'"),
    "tensor foreign": (lambda h: h.update({"\x1b[2J": h[EMBEDDING]}), r"unknown .*'\\x1b\[2J'"),
    "tensor misshapen": (tensor(shape=[16, 15]), f"{EMBEDDING} does not have the shape"),
    "tensor no object": (lambda h: h.update({EMBEDDING: []}), "does not have the shape"),
    "tensor of no type": (tensor(dtype="F8_E4M3"), f"{EMBEDDING} has another type than gptx"),
    "tensor outside": (tensor(data_offsets=[0, 2**60]), "damaged"),
    "tensor overflows": (tensor(data_offsets=[2**64, 2**65]), "damaged"),
    "tensors overlap": (tensor(data_offsets=[0, 960]), "damaged"),
    "layers more than bytes": (config(n_layer=400), "smaller than its model"),
    "layers more than any": (config(n_layer=10**9), r"n_layer: .* is not in \[1, 500\]"),
    "context beyond reason": (config(block_size=10**9), r"block_size: .* is not in \[1, 2\^20\]"),
    "width more than bytes": (config(n_embd=10**9), "smaller than its model"),
    "one layer too few": (config(n_layer=1), r"unknown tensor 'blocks\.1"),
    "probe too long": (config(block_size=15), "probe is longer than the context"),
    "probe of no shape": (tensor("probe.ids", shape=[]), "damaged"),
    "probe of one row": (tensor("probe.ids", shape=[16]), "damaged"),
    "probe of no rows": (tensor("probe.ids", shape=[0, 16]), "damaged"),
    "probe of too many logits": (tensor("probe.logits", shape=[16, 16]), "more logits than"),
    "probe of too few logits": (tensor("probe.logits", shape=[15, 15]), "not have the shape"),
    "probe of fractions": (tensor("probe.ids", dtype="F32"), "probe.ids has another type"),
    "embedding of whole numbers": (tensor(dtype="I32"), f"{EMBEDDING} has another type"),
}


@pytest.mark.parametrize("wrong", EDITS)
def test_header_that_contradicts_the_config_is_refused(
    tiny: Checkpoint, tmp_path: Path, wrong: str
) -> None:
    edit, message = EDITS[wrong]
    header, body = parts((tiny.path / MODEL).read_bytes())
    edit(header)
    refused(tmp_path, joined(header, body), message)


def test_huge_layer_count_is_refused_before_tensors_are_listed(
    tiny: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, body = parts((tiny.path / MODEL).read_bytes())
    config(n_layer=MOST_LAYERS)(header)
    monkeypatch.setattr(ModelConfig, "shapes", lambda _: pytest.fail("the layers were listed"))
    refused(tmp_path, joined(header, body), "smaller than its model")


def test_huge_tensor_count_is_refused_before_parsing(
    tiny: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, body = parts((tiny.path / MODEL).read_bytes())
    header |= {f"t{number}": header[EMBEDDING] for number in range(100_000)}
    monkeypatch.setattr(stored, "read_json_object", lambda *_: pytest.fail("it was parsed"))
    refused(tmp_path, joined(header, body), "lists more tensors than any model has")


def test_largest_model_stays_below_the_tensor_limit() -> None:
    largest = ModelConfig(vocab_size=2, n_layer=MOST_LAYERS, bias=True)
    assert 4 * len(largest.shapes()) < stored.MOST_TENSORS  # weight, step and two moments


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_any_number_that_is_not_finite_is_refused(
    tiny: Checkpoint, tmp_path: Path, number: float
) -> None:
    header, body = parts((tiny.path / MODEL).read_bytes())
    names = [name for name in header if header[name].get("dtype") == "F32"]
    assert {"probe.logits", EMBEDDING, "lm_head.weight"} < {*names}
    for name in names:
        start, end = header[name]["data_offsets"]
        for at in (start, end - 4):
            changed = body[:at] + struct.pack("<f", number) + body[at + 4 :]
            message = f"{name} holds numbers that are not finite"
            refused(tmp_path, joined(header, changed), message)


def test_state_of_another_type_is_refused(fresh: Checkpoint) -> None:
    whole = (fresh.path / STATE).read_bytes()
    header, body = parts(whole)
    name = next(iter(header.keys() - {"__metadata__"}))
    shapes = {each: tuple(it["shape"]) for each, it in header.items() if each != "__metadata__"}
    header[name]["dtype"] = "I32"
    data = joined(header, body)
    (fresh.path / STATE).write_bytes(data)
    forged = replace(
        fresh.manifest, files={**fresh.manifest.files, STATE: stored.fingerprint(data, fresh.path)}
    )
    with pytest.raises(CheckpointError, match="has another type than gptx writes"):
        Checkpoint(fresh.path, forged).state(shapes)


@pytest.mark.parametrize("number", [-1, 15])
def test_probe_with_unknown_characters_is_refused(
    tiny: Checkpoint, tmp_path: Path, number: int
) -> None:
    header, body = parts((tiny.path / MODEL).read_bytes())
    start = header["probe.ids"]["data_offsets"][0]
    body = body[:start] + struct.pack("<i", number) + body[start + 4 :]
    refused(tmp_path, joined(header, body), "probe has unknown ids")


def foreign_files(payload: Any) -> dict[str, bytes]:
    """Files that an unsafe loader would run: a pickle, torch's zip of one, a tar, a zip, a text."""
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
        "huge header": (HEADER_LIMIT + 1).to_bytes(8, "little") + b"{" + b" " * HEADER_LIMIT,
        "endless header": b"\xff" * 8 + b"{}",
    }


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("kind", foreign_files(None))
def test_foreign_file_is_refused_and_its_code_never_runs(tmp_path: Path, kind: str) -> None:
    trace = tmp_path / "trace"
    refused(tmp_path, foreign_files(Payload(trace))[kind], "^not a gptx checkpoint: ")
    assert not trace.exists()
    pickle.loads(foreign_files(Payload(trace))["pickle"])
    assert trace.exists()  # the pickle really would run code


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=40), st.integers(0, 60), st.binary(max_size=40))
def test_random_bytes_never_crash_header_parsing(head: bytes, length: int, body: bytes) -> None:
    for data in (head, length.to_bytes(8, "little") + b"{" + body):
        with suppress(CheckpointError):
            assert read_header(data, Path("x")) == json.loads(data[8 : 8 + length])
