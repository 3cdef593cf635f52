"""nanoGPT's checkpoints: the same logits, and one line for what is none; no code in them runs."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT
from foreign import CHARACTERS, checkpoint_of, logits_of, meta_of, state_of, write_nanogpt

import gpt
from gpt.errors import ConfigError, ForeignModelError, NumericsError, TextError
from gpt.exchange.importing import corpus_of, save
from gpt.exchange.nanogpt import read_meta, read_nanogpt
from gpt.loading import read
from gpt.preparing import Order, resumed
from gpt.storage.run import Run
from gpt.trained import TrainedGPT


def imported(path: Path, tmp_path: Path, meta: Path | None = None) -> TrainedGPT:
    """The model of a checkpoint, opened from its new run."""
    model, _ = read_nanogpt(path, meta)
    return gpt.load(save(model, tmp_path / "checkpoints", None, None).path.parent)


def saved(tmp_path: Path, content: Any) -> Path:
    """A file of torch.save beside a valid meta.pkl."""
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(meta_of(CHARACTERS)))
    torch.save(content, tmp_path / "ckpt.pt")
    return tmp_path / "ckpt.pt"


def refusal(path: Path, meta: Path | None = None) -> str:
    """The error, which names the file and has one line."""
    with pytest.raises(ForeignModelError) as raised:
        read_nanogpt(path, meta)
    message = str(raised.value)
    assert message.startswith("not a nanoGPT checkpoint: ") or message.startswith("cannot read ")
    assert "\n" not in message
    assert raised.value.exit_code == 3
    return message


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
def test_imported_model_computes_nanogpts_logits(
    tmp_path: Path, bias: bool, tied: bool, prefix: str
) -> None:
    state = state_of(len(CHARACTERS), bias, tied)
    content = checkpoint_of({prefix + n: it for n, it in state.items()}, len(CHARACTERS), bias)
    model = imported(saved(tmp_path, content), tmp_path)
    ids = torch.randint(len(CHARACTERS), (3, 12), generator=torch.Generator().manual_seed(1))
    expected = logits_of(state, ids).numpy()
    found = model.reader.logits(model.reader.forward(ids.numpy()))
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    shape = {"bias": bias, "qkv_bias": bias, "tied": tied, "activation": "gelu_erf"}
    assert {name: getattr(model.config, name) for name in shape} == shape
    assert (model.config.dropout, model.config.attention_dropout) == (0.2, 0.2)
    text = "the cat sat on the mat"
    nats = -torch.log_softmax(logits_of(state, ids), -1)[:, :-1].gather(-1, ids[:, 1:, None])
    row = model.vocabulary.decode(ids[0].numpy())
    score = model.score(row)
    assert score.nats == pytest.approx(float(nats[0].mean()), abs=1e-5)
    assert model.generate(text[:5], length=8).startswith(text[:5])


def test_ids_in_another_order_than_code_points_keep_their_rows(tmp_path: Path) -> None:
    characters = ["z", "a", "\n", "é", "😀", " "]
    write_nanogpt(tmp_path / "files", characters, tied=False)
    path = tmp_path / "files" / "out" / "ckpt.pt"
    model = imported(path, tmp_path)
    assert model.vocabulary.characters == "".join(sorted(characters))
    text = "za é\nz😀"
    ids = torch.tensor([[characters.index(each) for each in text]])
    expected = logits_of(state_of(len(characters), tied=False), ids)[0].numpy()
    own = model.vocabulary.encode(text)[None]
    found = model.reader.logits(model.reader.forward(own))[0]
    order = [characters.index(each) for each in model.vocabulary.characters]
    np.testing.assert_allclose(found, expected[:, order], rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_of_other_types_become_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {name: tensor.to(dtype) for name, tensor in state_of(len(CHARACTERS)).items()}
    model = imported(saved(tmp_path, checkpoint_of(state, len(CHARACTERS))), tmp_path)
    ids = torch.arange(8)[None]
    found = model.reader.logits(model.reader.forward(ids.numpy()))
    np.testing.assert_allclose(found, logits_of(state, ids).numpy(), rtol=0, atol=2e-5)
    assert found.dtype == np.float32


def test_masks_of_older_torch_releases_are_no_parameters(tmp_path: Path) -> None:
    state = state_of(len(CHARACTERS))
    state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12).tril()
    model, _ = read_nanogpt(saved(tmp_path, checkpoint_of(state, len(CHARACTERS))))
    assert list(model.tensors) == list(model.config.shapes())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_meta_is_found_in_the_folder_of_the_data_set(
    tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_nanogpt(tmp_path / "files", protocol=protocol)
    assert read_nanogpt(path)[1].resolve() == tmp_path / "files" / "data" / "letters" / "meta.pkl"
    shutil.move(tmp_path / "files" / "data", tmp_path / "data")
    assert "looked for" in refusal(path)
    monkeypatch.chdir(tmp_path)
    assert read_nanogpt(path)[1] == Path("data/letters/meta.pkl")
    shutil.copy("data/letters/meta.pkl", path.parent)
    assert read_nanogpt(path)[1] == path.parent / "meta.pkl"
    assert read_nanogpt(path, Path("data/letters/meta.pkl"))[1] == Path("data/letters/meta.pkl")


def test_checkpoint_without_meta_is_named_as_gpt2s_tokens(tmp_path: Path) -> None:
    path = write_nanogpt(tmp_path / "files")
    shutil.rmtree(tmp_path / "files" / "data")
    message = refusal(path)
    assert "gptx is character-level and found no meta.pkl" in message
    assert "--meta" in message
    assert "GPT-2's tokens" in message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda meta: [meta], "it has more than dicts, texts and whole numbers: EMPTY_LIST"),
        (lambda meta: {**meta, "itos": {}}, "it has no dict 'itos'"),
        (lambda meta: "text", "it has no dict 'itos'"),
        (lambda meta: {**meta, "itos": {0: "a", 2: "b"}}, "are not 0, 1, 2"),
        (lambda meta: {**meta, "itos": {0: "a", 1: "the"}}, "'the' is not a character; gptx is"),
        (lambda meta: {**meta, "itos": {0: "a", 1: 7}}, "7 is not a character"),
        (lambda meta: {**meta, "itos": {0: "a", 1: "a"}}, "two ids have the same character"),
        (lambda meta: {**meta, "stoi": {}}, "'stoi' and 'itos' differ"),
        (lambda meta: meta_of(CHARACTERS[:-1]), "tokens, and"),
    ],
)
def test_meta_without_characters_is_refused(
    tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(change(meta_of(CHARACTERS))))
    assert says in refusal(path)
    assert "cannot read" in refusal(path, tmp_path / "nowhere.pkl")
    assert "cannot read" in refusal(path, tmp_path)


class Payload:
    """Runs a command when a pickle of it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("place", ["whole", "config", "model", "key"])
def test_code_in_a_checkpoint_never_runs(tmp_path: Path, place: str, protocol: int) -> None:
    payload = Payload(f"touch {tmp_path / 'ran'}")
    content: Any = checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS))
    content = payload if place == "whole" else {**content, place: payload}
    path = saved(tmp_path, content)
    torch.save(content, path, pickle_protocol=protocol)
    assert re.search(r"would call (posix|nt)\.system|more than tensors", refusal(path))
    torch.save(content, path, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    assert "before release 1.6" in refusal(path)
    path.write_bytes(pickle.dumps(content, protocol))
    assert "torch.save has not written it" in refusal(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_in_meta_never_runs(tmp_path: Path, protocol: int) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    hostile: Any = {**meta_of(CHARACTERS), "itos": Payload(f"touch {tmp_path / 'ran'}")}
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(hostile, protocol))
    message = refusal(path)
    assert "meta.pkl (it has more than dicts, texts and whole numbers: " in message
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ForeignModelError):
        read_meta(tmp_path / "meta.pkl")


def test_truncated_and_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    whole = path.read_bytes()
    for length in (0, 1, 15, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refusal(path)
    random = np.random.default_rng(1)
    pickled = whole.index(b"data.pkl") + 64
    for _ in range(60):  # damage in the pickle; numbers of tensors may be any
        changed = bytearray(whole)
        for place in random.integers(pickled, pickled + 2000, size=4):
            changed[place] = random.integers(256)
        path.write_bytes(bytes(changed))
        with suppress(ForeignModelError):
            read_nanogpt(path)
    path.write_bytes(b"a text, and no checkpoint\n" * 9)
    assert "torch.save has not written it" in refusal(path)


def test_compressed_archives_and_those_without_a_pickle_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)))
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data + bytes(10**7) * name.endswith("/0"))
    assert "it is compressed" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ckpt/data.txt", b"a")
    assert "torch.save has not written it" in refusal(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ckpt/data.pkl", bytes(17 * 2**20))
    assert "torch.save has not written it" in refusal(path)


def test_state_dict_alone_and_other_contents_are_named(tmp_path: Path) -> None:
    state = state_of(len(CHARACTERS))
    assert "it is a state dict alone; train.py saves a dict" in refusal(saved(tmp_path, state))
    assert "it is something else" in refusal(saved(tmp_path, {"a": 1}))
    for content in (state["lm_head.weight"], [1, 2], "text", 5):
        assert "it has no dict" in refusal(saved(tmp_path, content))
    assert "cannot read" in refusal(tmp_path / "nowhere.pt")
    assert "cannot read" in refusal(tmp_path)


WEIGHT = "transformer.h.1.mlp.c_fc.weight"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({WEIGHT: None}, "lacks blocks.1.feed_forward.up.weight"),
        ({WEIGHT: torch.zeros(32, 9)}, "has the shape (32, 9), not (32, 8)"),
        ({WEIGHT: torch.zeros(256)}, "has the shape (256,), not (32, 8)"),
        ({WEIGHT: torch.full((32, 8), torch.nan)}, "has numbers that are not finite"),
        ({WEIGHT: torch.full((32, 8), -torch.inf)}, "has numbers that are not finite"),
        ({WEIGHT: torch.zeros(32, 8, dtype=torch.int64)}, "is not a tensor of real numbers"),
        ({WEIGHT: torch.zeros(32, 8, dtype=torch.complex64)}, "is not a tensor of real numbers"),
        ({WEIGHT: torch.zeros(1, 1).expand(32, 8)}, "is not a tensor of real numbers"),
        ({WEIGHT: torch.zeros(32, 8).to_sparse()}, "is not a tensor of real numbers"),
        ({WEIGHT: "text"}, "is not a tensor of real numbers"),
        ({"transformer.h.9.ln_1.weight": torch.zeros(8)}, "it has blocks.9.norm1.weight, which"),
        ({"transformer.router.weight": torch.zeros(8)}, "which is no parameter of GPT-2"),
        ({"transformer.wte.weight": torch.zeros(3, 8)}, "has the shape (3, 8)"),
        ({5: torch.zeros(8)}, "its weights are not a dict of tensors"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_weights_of_another_model_are_refused(
    tmp_path: Path, change: dict[Any, Any], says: str
) -> None:
    state = {**state_of(len(CHARACTERS)), **change}
    state = {name: tensor for name, tensor in state.items() if tensor is not None}
    assert says in refusal(saved(tmp_path, checkpoint_of(state, len(CHARACTERS))))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"n_layer": 10**9}, "n_layer"),
        ({"n_layer": 0}, "n_layer"),
        ({"n_layer": 3}, "lacks blocks.2.norm1.weight"),
        ({"n_embd": 2 * 10**6}, "has the shape"),
        ({"n_embd": 9}, "n_embd: 9 does not divide into n_head=2 heads"),
        ({"n_head": True}, "no whole number n_head"),
        ({"block_size": "12"}, "no whole number block_size"),
        ({"vocab_size": 50304}, "it has 50,304 tokens, and"),
        ({"dropout": "half"}, "dropout"),
        ({"dropout": 1.0}, "dropout"),
    ],
    ids=str,
)
def test_sizes_that_do_not_fit_are_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    content = checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS))
    content["model_args"].update(change)
    assert says in refusal(saved(tmp_path, content))


def test_one_storage_for_many_tensors_is_refused(tmp_path: Path) -> None:
    numbers = torch.zeros(200, 200)
    state: dict[str, Any] = {f"transformer.h.{n}.ln_1.weight": numbers for n in range(50)}
    path = saved(tmp_path, checkpoint_of(state, len(CHARACTERS)))
    assert "claim more numbers than the file has" in refusal(path)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({}, "nanoGPT, ckpt.pt: iteration 300, lowest validation loss there 1.2500"),
        ({"best_val_loss": torch.tensor(1e9), "iter_num": 0}, "nanoGPT, ckpt.pt: iteration 0"),
        ({"best_val_loss": "low", "iter_num": -3}, "nanoGPT, ckpt.pt: iteration 0"),
        ({"best_val_loss": torch.zeros(2), "iter_num": 7}, "nanoGPT, ckpt.pt: iteration 7"),
        ({"config": {"dataset": "../../etc"}, "iter_num": 2**70}, None),
    ],
)
def test_what_is_known_of_the_training_is_kept(
    tmp_path: Path, about: dict[str, Any], says: str | None
) -> None:
    content = checkpoint_of(state_of(len(CHARACTERS)), len(CHARACTERS)) | about
    model, _ = read_nanogpt(saved(tmp_path, content))
    assert says is None or model.origin == says
    assert model.stem == ("letters" if "config" not in about else tmp_path.name)


def test_run_without_its_text_says_what_is_missing(tmp_path: Path) -> None:
    path = write_nanogpt(tmp_path / "files")
    run = imported(path, tmp_path)
    assert run.manifest.imported.startswith("nanoGPT, ckpt.pt: iteration 300")
    assert (run.stored.step, run.steps) == (300, [300])
    assert run.excerpt_name == "1,000 characters that the model has written"
    assert run.heads().windows > 1
    opened = read(run.path)
    with pytest.raises(TextError, match=r"was imported without its text \(gptx import"):
        opened.splits(tmp_path / "data")
    assert "may have seen this text" in str(opened.exposure_to_split(opened))
    with (
        pytest.raises(ConfigError, match=r"imported without .* begin a new run .* --from RUN"),
        resumed(Order(checkpoints=run.path.parent, data=tmp_path), Run(run.path)),
    ):
        pass


def test_run_with_its_text_is_validated_on_nanogpts_split(tmp_path: Path) -> None:
    characters = sorted(set(TEXT))
    path = write_nanogpt(tmp_path / "files", characters)
    source = tmp_path / "text.txt"
    source.write_text(TEXT)
    model, _ = read_nanogpt(path)
    corpus = corpus_of(model, str(source), tmp_path / "data", guessed=True)
    checkpoint = save(model, tmp_path / "checkpoints", "named", corpus)
    validation = TEXT[int(len(TEXT) * 0.9) :]
    run = gpt.load(checkpoint.path.parent)
    assert checkpoint.path.parent.name == "named"
    assert run.stored.excerpt == validation[:1000]
    _, ids = read(run.path).splits(tmp_path / "data")
    assert run.vocabulary.decode(ids) == validation
    assert run.manifest.val_characters == len(validation) - 1
    state = state_of(len(characters))
    ids = torch.from_numpy(ids.astype(np.int64))
    whole = (len(ids) - 1) // 12 * 12
    logits = logits_of(state, ids[:whole].view(-1, 12)).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(logits, ids[1 : whole + 1])
    score = run.score(validation[: whole + 1])
    assert score.nats == pytest.approx(expected.item(), abs=1e-5)
    with pytest.raises(ConfigError, match="exists already"):
        save(model, tmp_path / "checkpoints", "named", corpus)


def test_text_of_another_model_is_not_taken_for_its_own(tmp_path: Path) -> None:
    path = write_nanogpt(tmp_path / "files", sorted(set(TEXT) | {"é"}))
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "other.txt").write_text(TEXT + "ß")
    model, _ = read_nanogpt(path)
    with pytest.raises(TextError, match="lacks characters that the model knows"):
        corpus_of(model, str(tmp_path / "text.txt"), tmp_path / "data", guessed=True)
    assert corpus_of(model, str(tmp_path / "text.txt"), tmp_path / "data", guessed=False)
    with pytest.raises(TextError, match="does not know"):
        corpus_of(model, str(tmp_path / "other.txt"), tmp_path / "data", guessed=False)


def test_model_that_numpy_cannot_reproduce_is_not_saved(tmp_path: Path) -> None:
    model, _ = read_nanogpt(write_nanogpt(tmp_path / "files"))
    huge = {name: tensor * 1e30 for name, tensor in model.tensors.items()}
    with (
        pytest.raises(NumericsError, match="numpy computes other logits"),
        np.errstate(all="ignore"),
    ):
        save(replace(model, tensors=huge), tmp_path / "checkpoints", "wrong", None)
    assert not (tmp_path / "checkpoints" / "wrong").exists()
