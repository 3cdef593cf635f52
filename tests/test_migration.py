"""A checkpoint of gptx 0.1 (tests/golden/schema-1) opens, says what it said, and trains on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import TEXT, corpus_of

from gpt import stored as stored_module
from gpt.migration import SCHEMA, migrate, migrate_model
from gpt.reading.trained import TrainedGPT
from gpt.run import Checkpoint, Run
from gpt.training.trainer import Evaluated, Trainer

GOLDEN = Path(__file__).parent / "golden" / "schema-1" / "step-00000006"
NEXT_LOSS = 2.112870711482776  # what gptx 0.1 reached at step 12, going on from there


def test_an_old_model_opens_and_its_probe_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(GOLDEN)
    assert checkpoint.manifest.schema == 1
    model = TrainedGPT(checkpoint.model())
    assert model.generate("the ", length=8, temperature=0.0) == "the c c c c "
    # Without the migration the probe would have refused it: the rows do matter.
    monkeypatch.setattr(stored_module, "migrate", lambda tensors, *_: tensors)
    with pytest.raises(Exception, match="logits"):
        TrainedGPT(checkpoint.model())


def test_an_old_run_trains_on_to_the_same_loss_and_is_saved_in_todays_form(tmp_path: Path) -> None:
    run = Run(tmp_path / "old")
    shutil.copytree(GOLDEN, run.path / GOLDEN.name)
    checkpoint, _ = run.last_valid()
    corpus = corpus_of(TEXT, tmp_path)
    trainer = Trainer.resume(run, corpus, checkpoint, checkpoint.manifest.train, "cpu")
    losses = [event.val_loss for event in trainer.events() if isinstance(event, Evaluated)]
    assert losses == pytest.approx([NEXT_LOSS], abs=1e-5)
    written = json.loads((run.path / "step-00000012" / "manifest.json").read_bytes())
    assert (
        written["schema"] == SCHEMA == Checkpoint.open(run.path / "step-00000012").manifest.schema
    )


def test_only_queries_and_keys_of_rotary_models_change_places() -> None:
    config = Checkpoint.open(GOLDEN).manifest.model  # two heads of size 4
    qkv = np.repeat(np.arange(24.0)[:, None], 8, axis=1)
    tensors = {"blocks.0.attention.qkv.weight": qkv, "other": qkv}
    moved = migrate(tensors, config, 1)
    rows = moved["blocks.0.attention.qkv.weight"][:, 0].tolist()
    assert rows[:8] == [0, 2, 1, 3, 4, 6, 5, 7]
    assert rows[8:16] == [8, 10, 9, 11, 12, 14, 13, 15]
    assert rows[16:] == list(range(16, 24))
    assert moved["other"] is qkv
    assert migrate(tensors, config, 2) is tensors


def test_dropout_used_to_mean_attention_weights_too() -> None:
    assert migrate_model({"dropout": 0.2, "bias": True}, 1) == {
        "dropout": 0.2,
        "attention_dropout": 0.2,
        "bias": True,
    }
    assert migrate_model({"dropout": 0.2}, 2) == {"dropout": 0.2}
