"""Runs that start from another run's weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from program import Gptx
from ranked import on_ranks

import gpt
from gpt.config import ModelConfig, RunConfig
from gpt.corpus.sources import Texts
from gpt.errors import CheckpointError, ConfigError, TextError
from gpt.interface.trained import find_model
from gpt.interface.training import begin_run
from gpt.model import GPT, copy_weights, initialise
from gpt.storage.run import MODEL, STATE, Checkpoint, Run

HUNGARIAN = "Árvíztűrő tükörfúrógép, the cat 日本語 🙂🚀\n" * 30
SHORT: dict[str, Any] = {"steps": 8, "eval_interval": 4, "batch_size": 4, "warmup_steps": 2}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below, with its modification time."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def child_of(parent: Any, folder: Path, text: str = HUNGARIAN, **options: Any) -> gpt.TrainedGPT:
    """A short run on a text, from a parent's weights."""
    where = {"checkpoints": folder / "children", "data": folder / "data", "progress": False}
    return gpt.train(text=text, init_from=parent, **{**SHORT, "counting": 0, **where, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"position": "learned", "tied": True, "bias": True},
        {"feed_forward": False, "position": "none", "attention": "heads"},
    ],
)
@pytest.mark.parametrize("added", [0, 300])
def test_known_characters_keep_their_logits_and_new_ones_get_little_probability(
    options: dict[str, Any], added: int
) -> None:
    shape: dict[str, Any] = {"block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 16, **options}
    old, new = (GPT(ModelConfig(vocab_size=size, **shape)).eval() for size in (11, 11 + added))
    initialise(old, 1)
    generator = torch.Generator().manual_seed(2)
    for parameter in old.parameters():
        parameter.data += 0.5 * torch.randn(parameter.shape, generator=generator)
    copy_weights(new, {name: each.numpy() for name, each in old.stored_parameters().items()})
    ids = torch.randint(11, (5, 8), generator=generator)
    with torch.no_grad():
        before, after = old(ids), new(ids)
    assert (after[..., :11] - before).abs().max() <= 1e-6
    # By Jensen's inequality, a new character gets at most the mean probability of the known ones.
    shares = after.softmax(-1)[..., 11:] / after.softmax(-1)[..., :11].sum(-1, keepdim=True)
    assert added == 0 or shares.max() <= 1 / 11 + 1e-6


def test_run_from_another_has_its_layout_and_vocabulary_and_leaves_it_untouched(
    tiny: Checkpoint, tmp_path: Path
) -> None:
    home = tiny.path.parents[2]
    before = contents(home)
    parent = gpt.load(tiny.path.parent)
    child = child_of(parent, tmp_path, dropout=0.1, run="child")
    assert contents(home) == before
    known, manifest = parent.vocabulary.characters, child.manifest
    assert child.vocabulary.characters == known + "".join(sorted(set(HUNGARIAN) - set(known)))
    same = {"n_layer", "n_head", "n_embd", "block_size", "bias", "position"}
    assert all(getattr(child.config, name) == getattr(parent.config, name) for name in same)
    assert child.config.dropout == 0.1
    assert (manifest.step, manifest.corpus.characters) == (8, len(HUNGARIAN))
    recorded = child.manifest.parent
    assert recorded is not None
    assert (recorded.run, recorded.step) == ("tiny", parent.stored.step)
    assert recorded.digest == parent.stored.digest
    assert known + recorded.added == child.vocabulary.characters
    assert [text.digest for text in recorded.texts] == [parent.manifest.corpus.digest]
    assert parent.manifest.parent is None
    start = gpt.load(child.path, step="last").manifest
    assert start.parent == recorded


def test_first_checkpoint_has_the_parents_weights(tiny: Checkpoint, tmp_path: Path) -> None:
    parent = tiny.model()
    options = RunConfig(checkpoints=tmp_path, data=tmp_path / "data", init_from=str(tiny.path))
    texts = Texts([str(tmp_path / "new.txt")])
    (tmp_path / "new.txt").write_text(HUNGARIAN)
    with begin_run(options, {**SHORT, "counting": 0}, texts) as start:
        next(start.make_trainer().events())
    started = Run(tmp_path / "new-1").at("0").model()
    for name, tensor in parent.tensors.items():
        assert (started.tensors[name][: len(tensor)] == tensor).all()
    rows = started.tensors["token_embedding.weight"][len(parent.vocabulary) :]
    mean = parent.tensors["token_embedding.weight"].mean(0)
    assert np.abs(rows - mean).max() < 1e-6


@pytest.mark.parametrize("options", [{}, {"counting": 4, "dropout": 0.1}])
def test_stopped_child_resumes_bit_for_bit(
    tiny: Checkpoint, tmp_path: Path, options: dict[str, Any]
) -> None:
    text = HUNGARIAN + "ßßß the mat"
    whole = child_of(tiny.path, tmp_path / "whole", text, steps=12, **options)
    part = child_of(tiny.path, tmp_path / "part", text, steps=12, patience=1, **options)
    path = shutil.copytree(part.path, tmp_path / "again" / "text-1")
    for step in Run(path).step_paths()[2:]:
        shutil.rmtree(step)
    (tmp_path / "text.txt").write_bytes(text.encode())
    shutil.rmtree(tmp_path / "part" / "data")  # the text is encoded again with the same vocabulary
    where = {"data": tmp_path / "part" / "data", "progress": False, "steps": 12, "patience": 0}
    more = gpt.resume(path, tmp_path / "text.txt", **where)
    ends = [Run(each.path).last() for each in (whole, more)]
    assert ends[0].manifest.vocabulary == ends[1].manifest.vocabulary
    for name in (MODEL, STATE):
        assert len({(end.path / name).read_bytes() for end in ends}) == 1


def test_layout_options_that_conflict_are_refused_and_free_ones_are_not(
    tiny: Checkpoint, tmp_path: Path
) -> None:
    conflicts: dict[str, Any] = {"n_embd": 32, "position": "learned", "tied": True, "block_size": 8}
    conflicts |= {"feed_forward": False}
    for name, value in conflicts.items():
        with pytest.raises(ConfigError, match=rf"^{name}: tiny, whose .* has .*, not {value}"):
            child_of(tiny.path, tmp_path, **{name: value})
    with pytest.raises(ConfigError, match=r"^init_from: 3: Expected str"):
        child_of(3, tmp_path)
    assert not (tmp_path / "children").exists()
    assert child_of(tiny.path, tmp_path, n_embd=16, attention="heads").config.attention == "heads"


def test_models_that_cannot_be_a_parent_are_refused(tiny: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^no checkpoint in "):
        child_of(tmp_path / "nothing", tmp_path)
    with pytest.raises(TextError, match=r"split has .* characters, needs 17"):
        child_of(tiny.path, tmp_path, "the cat sat" * 9)
    assert not (tmp_path / "children").exists()


def test_card_runs_and_config_name_the_parent(gptx: Gptx, home: Path) -> None:
    (home / "hu.txt").write_bytes(HUNGARIAN.encode())
    done = gptx("train", "hu.txt", "--init-from", "corpus-1", "--steps", "4", "--all")
    assert done.code == 0, done.err
    shown = "from corpus-1 step 8; 20 new characters: 'f' 'g' 'k' 'p' "
    assert shown in " ".join(done.err.split())
    exactly = 'from = "checkpoints/corpus-1/step-00000008"'  # its best step may change
    assert exactly in (home / "checkpoints/hu-1/config.toml").read_text("utf-8")
    assert shown in " ".join(gptx("runs", "hu-1").out.split())
    record = json.loads(gptx("runs", "hu-1", "--json").out)["parent"]
    assert record["digest"] == find_model(home / "checkpoints", "corpus-1").stored.digest
    assert gptx("train", "--config", "checkpoints/hu-1/config.toml").code == 0
    models = [gpt.load(home / "checkpoints" / name).stored for name in ("hu-1", "hu-2")]
    assert models[0].digest == models[1].digest


def start_on(folder: Path, parent: Path) -> Any:
    """The weights of one of several ranks before the first step, and who its parent is."""
    options = RunConfig(checkpoints=folder / "runs", data=folder / "data", init_from=str(parent))
    texts = Texts([str(folder / "new.txt")])
    with begin_run(options, {**SHORT, "counting": 0}, texts) as start:
        trainer = start.make_trainer()
        weights = [each.detach().numpy().tobytes() for each in trainer.model.parameters()]
        return weights, start.plan.manifest.parent, start.plan.manifest.vocabulary


def test_all_ranks_start_from_the_model_that_the_first_has_found(
    tiny: Checkpoint, tmp_path: Path
) -> None:
    (tmp_path / "new.txt").write_text(HUNGARIAN)
    first, second = on_ranks(2, start_on, tmp_path, tiny.path.parent)
    assert first == second
    assert first[1].digest == tiny.model().digest
    assert len(first[2]) > len(tiny.manifest.vocabulary)
