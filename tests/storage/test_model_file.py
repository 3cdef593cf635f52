"""Model files open only if their config, vocabulary, probe and tensors fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from conftest import TEXT, TINY

from gpt.config import ModelConfig
from gpt.errors import CheckpointError
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT, initialise
from gpt.storage.checkpoint_files import pack, read_model
from gpt.storage.run import MODEL, Checkpoint
from gpt.training.trainer import PROBE_POSITIONS, model_bytes
from gpt.vocabulary import Vocabulary

EMBEDDING = "token_embedding.weight"


def changed(data: bytes, tensors: dict[str, Any], about: dict[str, Any]) -> bytes:
    """The file with other tensors and another description; None removes one."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    told = json.loads(header["__metadata__"]["gptx"])
    del told["digest"]
    arrays = safetensors.numpy.load(data)
    for values, changes in ((arrays, tensors), (told, about)):
        values.update(changes)
        for name in [name for name, value in values.items() if value is None]:
            del values[name]
    return pack(arrays, told)


def test_digest_detects_a_changed_weight_that_the_probe_misses(tmp_path: Path) -> None:
    vocabulary, path = Vocabulary.from_text(TEXT), tmp_path / MODEL
    longer = {**TINY, "block_size": PROBE_POSITIONS + 1, "position": "learned"}
    model = GPT(ModelConfig(vocab_size=len(vocabulary), **longer))
    initialise(model, seed=1)
    whole = model_bytes(model, vocabulary, TEXT, step=1)
    weight = safetensors.numpy.load(whole)["position.weight"].copy()
    before = weight[-1].tobytes()
    weight[-1, 0] += 1
    path.write_bytes(changed(whole, {"position.weight": weight}, {}))
    TrainedGPT(
        read_model(path)
    ).check_probe()  # the probe does not detect it if the digest is corrected
    assert whole.count(before) == 1
    path.write_bytes(whole.replace(before, weight[-1].tobytes()))
    with pytest.raises(CheckpointError, match="has changed since it was written"):
        read_model(path)


CONFIG = {"vocab_size": 15, **TINY}
ONES = np.ones((15, 16), np.float32)
NAN, INFINITE = ONES.copy(), ONES.copy()
NAN[-1, -1], INFINITE[0, 0] = np.nan, -np.inf
#: A contradiction -> other tensors, another description, and the message.
CONTRADICTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no config": ({}, {"config": None}, "`config`"),
    "a config out of range": ({}, {"config": {**CONFIG, "n_head": 3}}, "n_embd: "),
    "a width beyond memory": ({}, {"config": {**CONFIG, "n_embd": 2**40}}, "the shape"),
    "a layer too few": ({}, {"config": {**CONFIG, "n_layer": 1}}, r"unknown tensor 'blocks\.1"),
    "a repeated character": ({}, {"vocabulary": {"characters": "aabcdefghijklmn"}}, "distinct"),
    "a vocabulary too small": ({}, {"vocabulary": {"characters": "abc"}}, "differ in size"),
    "a tensor missing": ({EMBEDDING: None}, {}, f"lacks '{EMBEDDING}'"),
    "a tensor too many": ({"\x1b[2J": ONES}, {}, r"unknown tensor '\\x1b\[2J'"),
    "another shape": ({EMBEDDING: ONES.T}, {}, f"{EMBEDDING} is not float32 of the shape"),
    "NaN": ({EMBEDDING: NAN}, {}, f"'{EMBEDDING}' holds numbers that are not finite"),
    "infinity": ({"probe.logits": INFINITE}, {}, "'probe.logits' holds numbers that are"),
    "no probe": ({"probe.ids": None}, {}, r"lacks 'probe\.ids'"),
    "no counts": ({}, {"config": {**CONFIG, "counting": 3}}, r"lacks 'counting\.symbols'"),
}


@pytest.mark.parametrize("wrong", CONTRADICTIONS)
def test_a_file_that_contradicts_itself_is_refused(
    tiny: Checkpoint, tmp_path: Path, wrong: str
) -> None:
    tensors, about, message = CONTRADICTIONS[wrong]
    path = tmp_path / MODEL
    path.write_bytes(changed((tiny.path / MODEL).read_bytes(), tensors, about))
    with pytest.raises(CheckpointError, match=message) as caught:
        read_model(path)
    assert caught.value.exit_code == 4
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
