"""nanoGPT's checkpoints: the same logits; one line for anything else; no code in them runs."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT
from foreign import CHARACTERS, checkpoint_of, logits_of, meta_of, saved, state_of, write_nanogpt

import gpt
from gpt.config import RunConfig
from gpt.corpus.corpus import splits_of_run
from gpt.corpus.sources import Texts
from gpt.errors import ConfigError, ForeignModelError, TextError
from gpt.exchange.from_nanogpt import META_BYTES, PlainUnpickler, import_nanogpt, unpickle_plain
from gpt.interface.trained import TrainedGPT, read_checkpoint
from gpt.interface.training import resume_run
from gpt.storage.run import Run

ADVICE = ("weights_only", "add_safe_globals", "pickle.load")  # words of torch's own errors


def imported(path: Path, folder: Path, **options: Any) -> TrainedGPT:
    """The model of a checkpoint, opened from its new run."""
    return gpt.load(import_nanogpt(path, folder / "checkpoints", **options).path.parent)


def refusal(path: Path, meta: Path | None = None) -> str:
    """The error of an import: one line, and nothing is saved."""
    with pytest.raises(ForeignModelError) as raised:
        import_nanogpt(path, path.parent / "checkpoints", meta=meta)
    message = str(raised.value)
    assert message.startswith(("not a nanoGPT checkpoint: ", "cannot read "))
    assert "\n" not in message
    assert len(message) < 600
    assert not any(word in message for word in ADVICE)
    assert raised.value.exit_code == 3
    assert not (path.parent / "checkpoints").exists()
    return message


def whole(**changed: Any) -> dict[str, Any]:
    """What train.py saves, with changed entries."""
    return checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)) | changed


@pytest.mark.parametrize(
    ("bias", "tied", "prefix"), [(True, True, ""), (True, False, "_orig_mod."), (False, True, "")]
)
def test_imported_model_computes_nanogpts_logits(
    tmp_path: Path, bias: bool, tied: bool, prefix: str
) -> None:
    state = state_of(len(CHARACTERS), bias, tied)
    named = {prefix + name: tensor for name, tensor in state.items()}
    named[f"{prefix}transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12).tril()  # the mask
    model = imported(saved(tmp_path, checkpoint_of(named, len(CHARACTERS), bias)), tmp_path)
    ids = torch.randint(len(CHARACTERS), (3, 12), generator=torch.Generator().manual_seed(1))
    expected = logits_of(state, ids).numpy()
    logits = model.reader.logits(model.reader.forward(ids.numpy()))
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5)
    config = model.config
    assert (config.bias, config.qkv_bias, config.tied) == (bias, bias, tied)
    assert (config.activation, config.dropout, config.attention_dropout) == ("gelu_erf", 0.2, 0.2)
    weights = model.stored.tensors["position.weight"]
    assert weights.tobytes() == state["transformer.wpe.weight"].numpy().tobytes()


def test_ids_in_another_order_than_code_points_keep_their_rows(tmp_path: Path) -> None:
    characters = ["z", "a", "\n", "é", "😀", " "]
    model = imported(write_nanogpt(tmp_path / "files", characters, tied=False), tmp_path)
    assert model.vocabulary.characters == "".join(sorted(characters))
    text = "za é\nz😀"
    ids = torch.tensor([[characters.index(character) for character in text]])
    expected = logits_of(state_of(len(characters), tied=False), ids)[0].numpy()
    logits = model.reader.logits(model.reader.forward(model.vocabulary.encode(text)[None]))[0]
    order = [characters.index(character) for character in model.vocabulary.characters]
    np.testing.assert_allclose(logits, expected[:, order], rtol=0, atol=2e-5)


def test_meta_is_found_beside_the_checkpoint_and_in_the_folder_of_the_data_set(
    tmp_path: Path,
) -> None:
    path = write_nanogpt(tmp_path / "files")
    model = imported(path, tmp_path)
    assert model.name.startswith("letters-")
    meta = (tmp_path / "files/data/letters/meta.pkl").rename(tmp_path / "meta.pkl")
    assert "files/data/letters/meta.pkl: it is missing; --meta gives the path" in refusal(path)
    assert imported(path, tmp_path, meta=meta).vocabulary == model.vocabulary
    meta.rename(path.parent / "meta.pkl")
    assert imported(path, tmp_path).vocabulary == model.vocabulary


def test_run_without_its_text_says_what_is_missing(tmp_path: Path) -> None:
    run = imported(write_nanogpt(tmp_path / "files"), tmp_path)
    assert run.manifest.imported == "nanoGPT, ckpt.pt: iteration 300"
    assert (run.stored.step, run.steps) == (300, [300])
    assert run.excerpt_name == "1,000 characters that the model has written"
    assert run.heads().windows > 1
    opened = read_checkpoint(run.path)
    with pytest.raises(TextError, match=r"was imported without its text \(gptx import"):
        splits_of_run(opened.name, opened.manifest_or_none, tmp_path / "data")
    with (
        pytest.raises(ConfigError, match=r"imported without .* begin a new run .* --init-from RUN"),
        resume_run(Run(run.path), RunConfig(data=tmp_path), {}, Texts()),
    ):
        pass


def test_run_with_its_text_is_validated_on_nanogpts_split(tmp_path: Path) -> None:
    characters = sorted(set(TEXT))
    path = write_nanogpt(tmp_path / "files", characters)
    source, data = tmp_path / "text.txt", tmp_path / "data"
    source.write_text(TEXT)
    run = imported(path, tmp_path, corpus=source, data=data, run="named")
    validation = TEXT[int(len(TEXT) * 0.9) :]
    assert run.name == "named"
    assert run.stored.excerpt == validation[:1000]
    _, ids = splits_of_run(run.name, run.manifest_or_none, data)
    assert run.vocabulary.decode(ids) == validation
    assert run.manifest.val_characters == len(validation) - 1
    blocks = (len(ids) - 1) // 12 * 12
    expected_ids = torch.from_numpy(ids.astype(np.int64))
    logits = logits_of(state_of(len(characters)), expected_ids[:blocks].view(-1, 12))
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), expected_ids[1 : blocks + 1])
    score = run.eval(validation[: blocks + 1])
    assert score.nats == pytest.approx(expected.item(), abs=1e-5)
    with pytest.raises(ConfigError, match="exists already"):
        imported(path, tmp_path, corpus=source, data=data, run="named")
    source.write_text(TEXT + "ß")
    with pytest.raises(TextError, match="does not know"):
        imported(path, tmp_path, corpus=source, data=data)


class Payload:
    """Runs a command when a pickle of it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.parametrize("place", ["whole", "model"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_code_in_a_checkpoint_never_runs(
    tmp_path: Path, place: str, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload: Any = Payload(f"touch {tmp_path / 'ran'}")
    content = payload if place == "whole" else whole(**{place: payload})
    path = saved(tmp_path, {})
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # torch's own switch
    for write in (
        lambda: torch.save(content, path, pickle_protocol=protocol),
        lambda: torch.save(content, path, pickle, protocol, _use_new_zipfile_serialization=False),
        lambda: path.write_bytes(pickle.dumps(content, protocol)),
    ):
        write()
        assert "torch.save has not written it, it is damaged, or it has more" in refusal(path)
    assert not (tmp_path / "ran").exists()
    pickle.loads(path.read_bytes())
    assert (tmp_path / "ran").exists()  # so the payload works where pickles are run


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_code_in_meta_never_runs(tmp_path: Path, protocol: int) -> None:
    path = saved(tmp_path, whole())
    payload = Payload(f"touch {tmp_path / 'ran'}")
    for hostile in (payload, {**meta_of(CHARACTERS), "itos": payload}):
        data = pickle.dumps(hostile, protocol)
        (tmp_path / "meta.pkl").write_bytes(data)
        assert "meta.pkl (it is damaged, or not just dicts, texts and numbers)" in refusal(path)
        with pytest.raises(pickle.UnpicklingError, match=r"it would call (posix|nt)\.system"):
            PlainUnpickler(BytesIO(data)).load()
    assert not (tmp_path / "ran").exists()


def shared_tuples(levels: int) -> bytes:
    """Instructions for a tuple that has the one before it twice, and so on, as a key of a dict."""
    twice = b"".join(b"q%ch%c\x86" % (level, level) for level in range(levels))
    return b"\x80\x02})" + twice + b"K\x01s."


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",
        b"\x96\x00\x00\x00\x00\x02\x00\x00\x00.",  # 8 GiB
        b"}r\xff\xff\xff\x7f.",  # place 2^31 of a table
        shared_tuples(60),  # 2^60 hashes
    ],
    ids=lambda data: repr(data[:40]),
)
def test_instructions_for_other_values_are_refused_before_they_run(data: bytes) -> None:
    with pytest.raises(ValueError, match="it is damaged, or not just dicts"):
        unpickle_plain(data)


def test_meta_that_is_cut_or_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="it is damaged"):
        unpickle_plain(pickle.dumps(meta_of(list("abc")))[:-1])
    with pytest.raises(ValueError, match="it has more than 1,048,576 bytes"):
        unpickle_plain(b"." * (META_BYTES + 1))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda meta: "text", "it has no dict 'stoi'"),
        (lambda meta: {**meta, "itos": 5}, "it has no dict 'itos'"),
        (lambda meta: {"stoi": {"a": 0, "b": 2}, "itos": {0: "a", 2: "b"}}, "characters 0, 1, 2"),
        (lambda meta: {**meta, "stoi": {**meta["stoi"], "a": {}}}, "the same characters"),
        (lambda meta: {**meta, "itos": {**meta["itos"], 1: "the"}}, "'the' is not a character"),
        (lambda meta: {**meta, "itos": {**meta["itos"], 1: "\ud800"}}, "is not a character"),
        (lambda meta: meta_of(CHARACTERS[:-1]), "no transformer.wte.weight of the shape (15, 8)"),
    ],
)
def test_meta_without_the_models_characters_is_refused(
    tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    path = saved(tmp_path, whole())
    data = pickle._dumps(change(meta_of(CHARACTERS)), 2)  # type: ignore[attr-defined]
    (tmp_path / "meta.pkl").write_bytes(data)
    assert says in refusal(path)
    assert "it is missing" in refusal(path, tmp_path / "nowhere.pkl")


def test_truncated_and_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, whole())
    data = path.read_bytes()
    for length in (0, 1, 15, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        assert "torch.save has not written it, it is damaged" in refusal(path)
    weights = state_of(len(CHARACTERS))["transformer.wte.weight"].numpy().tobytes()
    for place in (data.index(weights), data.index(b"model_args"), data.index(b"FloatStorage")):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert "torch.save has not written it, it is damaged" in refusal(path)
    with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(path, "w", 8) as packed:
        for name in archive.namelist():
            packed.writestr(name, archive.read(name))  # compressed: it could be of any size
    assert "torch.save has not written it" in refusal(path)


WEIGHT = "transformer.h.1.mlp.c_fc.weight"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({WEIGHT: torch.zeros(32, 9)}, f"no {WEIGHT} of the shape (32, 8) with finite"),
        ({WEIGHT: torch.full((32, 8), torch.nan)}, f"no {WEIGHT} of the shape (32, 8) with finite"),
        ({WEIGHT: torch.zeros(1).expand(10**12)}, "claim more numbers than the file has"),
        ({WEIGHT: torch.zeros(32, 8).double()}, "is not the name of a float32 tensor"),
        ({WEIGHT: torch.zeros(32, 8, device="meta")}, "is not the name of a float32 tensor"),
        ({WEIGHT: "text"}, "is not the name of a float32 tensor"),
        (
            {"transformer.h.9.ln_1.weight": torch.zeros(8)},
            "which a model with these options does not have",
        ),
    ],
)
def test_weights_of_another_model_are_refused(
    tmp_path: Path, change: dict[Any, Any], says: str
) -> None:
    state = {**state_of(len(CHARACTERS)), **change}
    assert says in refusal(saved(tmp_path, whole(model=state)))
    state.pop(WEIGHT)
    assert refusal(saved(tmp_path, whole(model=state)))


def test_a_file_without_what_train_py_saves_is_refused(tmp_path: Path) -> None:
    nested: Any = 1
    for _ in range(99):
        nested = [nested, nested]  # a value of 2^99 parts
    sizes = whole()["model_args"]
    assert "n_layer: " in refusal(saved(tmp_path, whole(model_args=sizes | {"n_layer": nested})))
    assert "it has no dict 'model_args'" in refusal(saved(tmp_path, whole(model_args=5)))
    assert "it has more than a dict of tensors" in refusal(saved(tmp_path, [1, 2]))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "folder", tmp_path / "pipe"):
        assert refusal(path) == f"cannot read {path}: it is not a regular file"
