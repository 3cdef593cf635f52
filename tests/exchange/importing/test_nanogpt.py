"""nanoGPT's checkpoints: the same logits, and one line for what is none; no code in them runs."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT
from foreign import CHARACTERS, checkpoint_of, logits_of, saved, state_of, write_nanogpt

import gpt
from gpt.config import RunConfig
from gpt.corpus.corpus import splits_of_run
from gpt.errors import ConfigError, ForeignModelError, NumericsError, TextError
from gpt.exchange.importing.nanogpt import find_training_text, read_nanogpt, save_run
from gpt.interface.preparing import Texts, resume_run
from gpt.interface.trained import TrainedGPT, read_checkpoint
from gpt.storage.manifest import exposure_to_split
from gpt.storage.run import Run


def imported(path: Path, tmp_path: Path, meta: Path | None = None) -> TrainedGPT:
    """The model of a checkpoint, opened from its new run."""
    model, _ = read_nanogpt(path, meta)
    return gpt.load(save_run(model, tmp_path / "checkpoints", None, None).path.parent)


@pytest.mark.parametrize(
    ("bias", "tied", "prefix"),
    [
        (True, True, ""),
        (True, False, "_orig_mod."),
        (False, True, "_orig_mod."),
        (False, False, ""),
    ],
)
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
    score = model.eval(row).score
    assert score.nats == pytest.approx(float(nats[0].mean()), abs=1e-5)
    assert model.sample(text[:5], length=8).startswith(text[:5])


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


def test_state_of_a_module_is_read_without_the_masks_of_older_torch_releases(
    tmp_path: Path,
) -> None:
    state = state_of(len(CHARACTERS))
    plain, _ = read_nanogpt(saved(tmp_path, checkpoint_of(state, len(CHARACTERS))))
    module = torch.nn.ParameterDict({name.replace(".", "/"): it for name, it in state.items()})
    found = module.state_dict()
    for name in [*found]:
        found[name.replace("/", ".")] = found.pop(name)
    assert found._metadata  # type: ignore[attr-defined]
    found["transformer.h.0.attn.bias"] = torch.ones(1, 1, 12, 12).tril()
    model, _ = read_nanogpt(saved(tmp_path, checkpoint_of(found, len(CHARACTERS))))
    assert model.config == plain.config
    assert list(model.tensors) == list(model.config.shapes())
    assert all(torch.equal(model.tensors[name], it) for name, it in plain.tensors.items())


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_meta_is_found_in_the_folder_of_the_data_set(
    tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_nanogpt(tmp_path / "files", protocol=protocol)
    assert read_nanogpt(path)[1].resolve() == tmp_path / "files" / "data" / "letters" / "meta.pkl"
    shutil.move(tmp_path / "files" / "data", tmp_path / "data")
    with pytest.raises(ForeignModelError, match="looked for"):
        read_nanogpt(path)
    monkeypatch.chdir(tmp_path)
    assert read_nanogpt(path)[1] == Path("data/letters/meta.pkl")
    shutil.copy("data/letters/meta.pkl", path.parent)
    assert read_nanogpt(path)[1] == path.parent / "meta.pkl"
    assert read_nanogpt(path, Path("data/letters/meta.pkl"))[1] == Path("data/letters/meta.pkl")


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
    opened = read_checkpoint(run.path)
    with pytest.raises(TextError, match=r"was imported without its text \(gptx import"):
        splits_of_run(opened.name, opened.recorded, tmp_path / "data")
    assert "may have seen this text" in str(
        exposure_to_split("named", opened.recorded, opened.manifest)
    )
    with (
        pytest.raises(ConfigError, match=r"imported without .* begin a new run .* --init-from RUN"),
        resume_run(Run(run.path), RunConfig(data=tmp_path), {}, Texts()),
    ):
        pass


def test_run_with_its_text_is_validated_on_nanogpts_split(tmp_path: Path) -> None:
    characters = sorted(set(TEXT))
    path = write_nanogpt(tmp_path / "files", characters)
    source = tmp_path / "text.txt"
    source.write_text(TEXT)
    model, _ = read_nanogpt(path)
    corpus = find_training_text(model, str(source), tmp_path / "data", guessed=True)
    checkpoint = save_run(model, tmp_path / "checkpoints", "named", corpus)
    validation = TEXT[int(len(TEXT) * 0.9) :]
    run = gpt.load(checkpoint.path.parent)
    assert checkpoint.path.parent.name == "named"
    assert run.stored.excerpt == validation[:1000]
    _, ids = splits_of_run(run.name, run.recorded, tmp_path / "data")
    assert run.vocabulary.decode(ids) == validation
    assert run.manifest.val_characters == len(validation) - 1
    state = state_of(len(characters))
    ids = torch.from_numpy(ids.astype(np.int64))
    whole = (len(ids) - 1) // 12 * 12
    logits = logits_of(state, ids[:whole].view(-1, 12)).flatten(0, 1)
    expected = torch.nn.functional.cross_entropy(logits, ids[1 : whole + 1])
    score = run.eval(validation[: whole + 1]).score
    assert score.nats == pytest.approx(expected.item(), abs=1e-5)
    with pytest.raises(ConfigError, match="exists already"):
        save_run(model, tmp_path / "checkpoints", "named", corpus)


def test_text_of_another_model_is_not_taken_for_its_own(tmp_path: Path) -> None:
    path = write_nanogpt(tmp_path / "files", sorted(set(TEXT) | {"é"}))
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "other.txt").write_text(TEXT + "ß")
    model, _ = read_nanogpt(path)
    with pytest.raises(TextError, match="lacks characters that the model knows"):
        find_training_text(model, str(tmp_path / "text.txt"), tmp_path / "data", guessed=True)
    assert find_training_text(model, str(tmp_path / "text.txt"), tmp_path / "data", guessed=False)
    with pytest.raises(TextError, match="does not know"):
        find_training_text(model, str(tmp_path / "other.txt"), tmp_path / "data", guessed=False)


def test_model_that_numpy_cannot_reproduce_is_not_saved(tmp_path: Path) -> None:
    model, _ = read_nanogpt(write_nanogpt(tmp_path / "files"))
    huge = {name: tensor * 1e30 for name, tensor in model.tensors.items()}
    with (
        pytest.raises(NumericsError, match="numpy computes other logits"),
        np.errstate(all="ignore"),
    ):
        save_run(replace(model, tensors=huge), tmp_path / "checkpoints", "wrong", None)
    assert not (tmp_path / "checkpoints" / "wrong").exists()
