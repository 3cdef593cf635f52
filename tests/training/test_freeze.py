"""Parts that do not train keep their bits; wrong ones are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT, train_tiny
from program import Gptx

import gpt
from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.errors import ConfigError
from gpt.model import GPT
from gpt.storage.run import Run
from gpt.training.optim import freeze


@pytest.mark.parametrize(
    ("parts", "options"),
    [
        ("embeddings", {}),
        ("embeddings", {"tied": True, "average": 0.9}),
        ("layers:0-1", {"attention": "heads", "weight_decay": 0.5}),
        ("layers:1, embeddings", {"position": "learned", "dropout": 0.1, "embedding_lr": 1e-2}),
    ],
)
def test_frozen_parts_keep_their_bits_and_the_others_train(
    tmp_path: Path, parts: str, options: dict[str, Any]
) -> None:
    model, train = (only_fields(config, options) for config in (ModelConfig, TrainConfig))
    train = {"steps": 12, "batch_size": 4, "eval_interval": 6, "keep_all": True, **train}
    run = Run(train_tiny(tmp_path, {**train, "freeze": parts}, **model).path.parent)
    first, last = (run.at(step).model().tensors for step in ("0", "12"))
    held = "embedding.weight", "position.weight"
    for name, before in first.items():
        frozen = name.endswith(held) if "embeddings" in parts else False
        frozen = frozen or ("layers:0-1" in parts and name.startswith("blocks."))
        frozen = frozen or ("layers:1" in parts and name.startswith("blocks.1."))
        assert (before.tobytes() == last[name].tobytes()) == frozen, name


def test_frozen_parameters_have_no_gradient() -> None:
    model = GPT(ModelConfig(vocab_size=9, n_layer=2, n_embd=16, n_head=2, block_size=8, tied=True))
    freeze(model, "embeddings,layers:1")
    kept = {name for name, each in model.named_parameters() if not each.requires_grad}
    assert kept == {"token_embedding.weight", *(n for n in kept if n.startswith("blocks.1."))}
    freeze(model, "")
    assert all(each.requires_grad for each in model.parameters())


@pytest.mark.parametrize(
    ("freeze", "says"),
    [
        ("heads", "'heads' is not one of embeddings, layers:N, layers:FROM-TO, or several"),
        ("layers:1-0", "'layers:1-0' is not one of"),
        ("layers", "'layers' is not one of"),
        ("embeddings,", "'' is not one of"),
        ("layers:2", "there is no layer 2; the model has layers 0 to 1"),
        ("embeddings,layers:0-1", "leaves nothing to train; freeze less"),
    ],
)
def test_wrong_parts_to_freeze_are_named(tmp_path: Path, freeze: str, says: str) -> None:
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "tied": True, "norm": "rms", "block_size": 8}
    with pytest.raises(ConfigError, match=r"^freeze: ") as caught:
        gpt.train(text=TEXT, freeze=freeze, checkpoints=tmp_path, data=tmp_path, **shape)
    assert says in str(caught.value)


def test_resumed_run_keeps_its_frozen_parts(gptx: Gptx, home: Path) -> None:
    short = ("--steps", "4", "--n-embd", "16", "--n-layer", "1", "--counting", "0")
    assert gptx("train", "corpus.txt", "--run", "held", "--freeze", "layers:0", *short).code == 0
    more = gptx("train", "--resume", "--run", "held", "--steps", "8")
    assert more.code == 0, more.err
    run = Run(home / "checkpoints/held")
    first, last = (run.at(step).model().tensors for step in (run.steps()[0], "last"))
    assert all((first[n] == last[n]).all() for n in first if n.startswith("blocks.0"))
    refused = gptx("train", "--resume", "--run", "held", "--freeze", "embeddings")
    assert (refused.code, "--freeze: this run has layers:0" in refused.err) == (2, True)
