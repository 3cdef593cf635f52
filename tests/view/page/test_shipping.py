"""A model in a page has the numbers of its model file, and the page can prove it."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from javascript import JavaScript, JavaScriptError

from gpt.config import ModelConfig
from gpt.heads.survey import mean_contexts
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader
from gpt.storage.model_file import Probe, StoredModel, pick_probe_logits
from gpt.storage.run import Checkpoint
from gpt.view.page.packing import Bits
from gpt.view.page.shipping import (
    MOST,
    means_record,
    model_record,
    proof_record,
    rounded_tensors,
)
from gpt.vocabulary import Vocabulary

#: Models with random weights; larger: factor of all weights, sharper: of queries and keys.
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "classic": {
        **{"position": "learned", "activation": "gelu"},
        **{"bias": True, "tied": True},
    },
    "nanoGPT's": {
        **{"position": "learned", "activation": "gelu_erf"},
        **{"bias": True, "qkv_bias": True, "tied": True},
    },
    "large": {"activation": "relu2", "larger": 2.0},
    "sharp": {"sharper": 4.0},
}


def stored_of(larger: float = 1.0, sharper: float = 1.0, **options: Any) -> StoredModel:
    """A model of random weights, whose probe is short."""
    shape: dict[str, Any] = {"vocab_size": 40, "n_layer": 3, "n_head": 4, "n_embd": 32}
    config = ModelConfig(**{**shape, "block_size": 32, **options})
    random, tensors = np.random.default_rng(1), {}
    for name, size in config.shapes().items():
        weight = random.normal(0, larger / size[-1] ** 0.5, size).astype(np.float32)
        weight[: 2 * config.n_embd] *= sharper if name.endswith("qkv.weight") else 1
        tensors[name] = weight + np.float32("norm" in name and name.endswith(".weight"))
    characters = "".join(chr(0x3B1 + n) for n in range(config.vocab_size))
    reader, ids = Reader(config, tensors), np.arange(min(10, config.block_size))[None]
    logits = pick_probe_logits(reader.logits(reader.forward(ids)), 4)
    probe = Probe(ids, logits)
    source = Path("step-00000001/model.safetensors")
    return StoredModel(config, Vocabulary(characters), tensors, probe, "", 1, "ab", source)


def last_logits(stored: StoredModel, tensors: Any, texts: Any) -> Any:
    """(N, V) in float64."""
    exact = {name: array.astype(np.float64) for name, array in tensors.items()}
    reader = Reader(stored.config, exact)
    return reader.logits(reader.forward(texts))[:, -1]


@pytest.mark.parametrize("bits", [16, 32])
def test_tensors_arrive_as_they_were_rounded(script: JavaScript, bits: Bits) -> None:
    stored = stored_of(bias=True)
    tensors, record = dict(stored.tensors), model_record(stored, bits)
    tensors["norm.bias"] = np.resize(np.float32([1e-7, -3e-8, 0, 65504, 1e-4]), 32)
    record = model_record(replace(stored, tensors=tensors), bits)
    found, expected = script("tensors", record), rounded_tensors(tensors, bits)
    assert record["bits"] == bits
    assert list(found) == list(tensors)
    for name, array in expected.items():
        assert array.dtype == np.float32
        assert np.array_equal(found[name], array.ravel()), name
        assert bits == 16 or np.array_equal(array, tensors[name])
    assert (np.abs(expected["norm.bias"] - tensors["norm.bias"]).max() == 0) == (bits == 32)


def test_numbers_too_large_for_float16_are_stored_as_float32(script: JavaScript) -> None:
    stored = stored_of()
    large = {**stored.tensors, "lm_head.weight": stored.tensors["lm_head.weight"] * np.float32(1e6)}
    stored = replace(stored, tensors=large)
    record, proof = model_record(stored, 16), proof_record(stored, 16)
    assert record["bits"] == 32
    assert np.array_equal(
        script("tensors", record)["lm_head.weight"], large["lm_head.weight"].ravel()
    )
    assert proof["rounding"] is None
    assert script("prove", record, proof) <= proof["tolerance"]


def test_damage_is_refused_with_the_reason(script: JavaScript) -> None:
    record = model_record(stored_of(n_layer=1), 16)
    data = base64.b64decode(record["base64"])
    random = np.random.default_rng(2)
    for place in [12, len(data) - 1, *random.integers(10, len(data), 20)]:
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        damaged = record | {"base64": base64.b64encode(changed).decode()}
        with pytest.raises(JavaScriptError, match="damaged: its bytes do not match their checksum"):
            script("tensors", damaged)
    manifest, text = record["manifest"], record["base64"]
    for change, reason in (
        *(({"base64": part}, "damaged") for part in ("", "<", text[:-8], text[: len(data) // 2])),
        ({"manifest": manifest[1:]}, "damaged: it has too few or too many numbers"),
        ({"manifest": [*manifest, manifest[0]]}, "damaged: it has too few or too many numbers"),
    ):
        with pytest.raises(JavaScriptError, match=reason):
            script("tensors", record | change)


def proof_logits(proof: dict[str, Any]) -> Any:
    """All logits that the page compares."""
    return np.frombuffer(base64.b64decode("".join(it["logits"] for it in proof["texts"])), "<f4")


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_proves_its_logits_and_keeps_the_stated_bounds(
    script: JavaScript, kind: str, bits: Bits
) -> None:
    stored = stored_of(**KINDS[kind])
    record, proof = model_record(stored, bits), proof_record(stored, bits)
    assert script("prove", record, proof) <= proof["tolerance"]
    assert proof["tolerance"] >= 1e-4 * np.abs(proof_logits(proof)).max()
    texts = np.random.default_rng(3).integers(40, size=(200, 32))
    found = np.stack(script("logits", record, texts.tolist()))
    weights = rounded_tensors(stored.tensors, bits)
    error = np.abs(found - last_logits(stored, weights, texts)).max()
    assert error <= proof["tolerance"]
    exact = last_logits(stored, stored.tensors, texts)
    if bits == 32:
        assert proof["rounding"] is None
    else:
        assert 1e-4 < np.abs(found - exact).max() < proof["rounding"]


def test_a_changed_weight_or_a_missing_proof_fails(script: JavaScript) -> None:
    stored = stored_of()
    proof = proof_record(stored, 32)
    for name in ("blocks.0.attention.qkv.weight", "blocks.2.feed_forward.up.weight"):
        changed = stored.tensors[name].copy()
        changed[np.unravel_index(np.abs(changed).argmax(), changed.shape)] *= 1.1
        other = replace(stored, tensors={**stored.tensors, name: changed})
        assert script("prove", model_record(other, 32), proof) > 10 * proof["tolerance"], name
    silent = [each | {"logits": ""} for each in proof["texts"]]
    for texts in ([], silent):
        assert script("prove", model_record(stored, 32), proof | {"texts": texts}) is None  # NaN


@pytest.mark.parametrize(
    ("size", "block", "every"), [(40, 32, True), (3000, 64, False), (2, 1, True)]
)
def test_the_proof_has_every_character_of_a_vocabulary_that_is_not_huge(
    size: int, block: int, every: bool
) -> None:
    proof = proof_record(stored_of(vocab_size=size, block_size=block, n_layer=1), 32)
    ids = [id for text in proof["texts"] for id in text["ids"]]
    assert all(0 <= id < size for id in ids)
    assert (set(ids) == set(range(size))) == every
    assert len(proof["texts"]) <= 1 + MOST
    assert len(ids) <= 10 + MOST * block


def test_mean_outputs_are_those_of_mean_ablation(tiny: Checkpoint) -> None:
    model = TrainedGPT(tiny.model())
    record = means_record(model)
    assert record is not None
    assert record["text"] == model.excerpt_name
    found = np.frombuffer(base64.b64decode(record["base64"]), "<f4").reshape(2, 2, 8)
    ids = model.vocabulary.encode("the cat sat on the mat. " * 3)
    windows = np.stack([ids[:17], ids[20:37], ids[33:50]])
    contexts = model.activations([model.vocabulary.decode(row[:-1]) for row in windows], "context")
    expected = contexts["context"].mean(axis=(0, 3))
    means = mean_contexts(model.reader, windows)
    np.testing.assert_allclose(means, expected, atol=1e-6)
    other = means_record(model, ids, "a text", windows=3)
    assert other is not None
    assert other["text"] == "a text"
    assert other["base64"] != record["base64"]
    assert np.abs(found).max() > 0
    assert means_record(model, ids[:2], "short") is None
