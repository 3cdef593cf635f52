"""Checkpoints of every schema (tests/golden) open, compute the same and can be continued."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from conftest import TEXT, corpus_of, resume

import gpt
from gpt.commands.common.shared import tell_if_unvouched
from gpt.corpus.text import algorithm_of
from gpt.errors import CheckpointError
from gpt.loading import Saved
from gpt.storage import model_file as stored_module
from gpt.storage.checkpoint import MODEL, Checkpoint
from gpt.storage.json_values import sealed as seal_json
from gpt.storage.manifest import Manifest
from gpt.storage.migration import SCHEMA, migrate, migrate_model
from gpt.storage.model_file import BLANK
from gpt.storage.model_file import sealed as seal_model
from gpt.storage.run import Run
from gpt.trained import TrainedGPT
from gpt.training.events import Evaluated

GOLDEN = Path(__file__).parent / "golden"
#: Schema -> text of its model.
KNOWN = {1: "the c c c c ", 4: "the         "}
#: Schema -> loss at step 12 when its release continued the run.
CONTINUED = {1: 2.112870711482776, 4: 1.8929169751210495}


def golden(schema: int) -> Path:
    return GOLDEN / f"schema-{schema}" / "step-00000006"


@pytest.mark.parametrize("schema", KNOWN)
def test_model_of_any_release_opens_with_the_same_logits(schema: int) -> None:
    checkpoint = Checkpoint.open(golden(schema))
    checkpoint.verify()
    assert checkpoint.manifest.schema == schema
    model = TrainedGPT(checkpoint.model())
    assert model.generate("the ", length=8, temperature=0.0) == KNOWN[schema]


def test_older_model_file_alone_opens_with_a_note_that_it_has_no_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for schema in KNOWN:
        alone = tmp_path / f"{schema}.safetensors"
        shutil.copy(golden(schema) / MODEL, alone)
        model = gpt.load(alone)
        assert model.generate("the ", length=8, temperature=0.0) == KNOWN[schema]
        assert not model.stored.vouched
        assert repr(model).endswith("15 characters, without a digest>")
        assert Saved("alone", model.stored, None).origin["vouched"] is False
        tell_if_unvouched(model.stored)
        told = capsys.readouterr().err
        assert f"note: {alone} was written by an older gptx and has no digest" in " ".join(
            told.split()
        )
        in_its_run = Checkpoint.open(golden(schema)).model()
        assert in_its_run.vouched
        assert Saved("run", in_its_run, None).origin["vouched"] is True
        tell_if_unvouched(in_its_run)
        assert capsys.readouterr().err == ""


def test_wrong_digest_in_an_older_model_is_refused(tmp_path: Path) -> None:
    data = (golden(4) / MODEL).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end].replace(
        b'\\"step\\"', b'\\"digest\\": \\"' + b"0" * 64 + b'\\", \\"step\\"'
    )
    alone = tmp_path / "m.safetensors"
    alone.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
    with pytest.raises(CheckpointError, match="do not match its digest"):
        gpt.load(alone)


def test_probe_refuses_an_older_model_without_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(golden(1))
    monkeypatch.setattr(stored_module, "migrate", lambda tensors, *_: tensors)
    with pytest.raises(Exception, match="logits"):
        TrainedGPT(checkpoint.model())


@pytest.mark.parametrize("schema", CONTINUED)
def test_run_of_any_release_continues_to_the_same_loss_in_todays_schema(
    tmp_path: Path, schema: int
) -> None:
    run = Run(tmp_path / "old")
    shutil.copytree(golden(schema), run.path / golden(schema).name)
    checkpoint, _ = run.last_valid()
    corpus = corpus_of(TEXT, tmp_path, algorithm_of(checkpoint.manifest.corpus.digest))
    trainer = resume(run, corpus, checkpoint)
    losses = [event.val_loss for event in trainer.events() if isinstance(event, Evaluated)]
    assert losses == pytest.approx([CONTINUED[schema]], abs=1e-5)
    written = json.loads((run.path / "step-00000012" / "manifest.json").read_bytes())
    assert (
        written["schema"] == SCHEMA == Checkpoint.open(run.path / "step-00000012").manifest.schema
    )


def test_options_for_training_n_gram_embeddings_are_left_out(
    tiny: Checkpoint, tmp_path: Path
) -> None:
    """Files of schema 5 that were written before these options were removed."""
    values = asdict(tiny.manifest)
    values["model"]["ngram_dropout"], values["train"]["ngram_lr"] = 0.1, 0.05
    manifest = seal_json(json.dumps(values, indent=1).encode())
    assert Manifest.from_json(manifest, tmp_path) == tiny.manifest
    data = (tiny.path / MODEL).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    about = json.loads(header["__metadata__"]["gptx"]) | {"digest": BLANK}
    about["config"]["ngram_dropout"] = 0.1
    header["__metadata__"]["gptx"] = json.dumps(about)
    text = json.dumps(header).encode()
    path = tmp_path / MODEL
    path.write_bytes(seal_model(len(text).to_bytes(8, "little") + text + data[end:]))
    assert gpt.load(path).config == tiny.manifest.model


def test_migration_reorders_only_rotary_queries_and_keys() -> None:
    config = Checkpoint.open(golden(1)).manifest.model  # two heads of size 4
    qkv = np.repeat(np.arange(24.0)[:, None], 8, axis=1)
    tensors = {"blocks.0.attention.qkv.weight": qkv, "other": qkv}
    moved = migrate(tensors, config, 1)
    rows = moved["blocks.0.attention.qkv.weight"][:, 0].tolist()
    assert rows[:8] == [0, 2, 1, 3, 4, 6, 5, 7]
    assert rows[8:16] == [8, 10, 9, 11, 12, 14, 13, 15]
    assert rows[16:] == list(range(16, 24))
    assert moved["other"] is qkv
    assert migrate(tensors, config, 2) is tensors


def test_migration_applies_old_dropout_to_attention_weights_too() -> None:
    assert migrate_model({"dropout": 0.2, "bias": True}, 1) == {
        "dropout": 0.2,
        "attention_dropout": 0.2,
        "bias": True,
    }
    assert migrate_model({"dropout": 0.2}, 2) == {"dropout": 0.2}
