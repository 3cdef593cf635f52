"""A healthy model opens even with sharp attention or large logits; a damaged one does not."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpt.config import ModelConfig
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT
from gpt.reading.gpt import Reader
from gpt.reading.probe import TOLERANCE, check_probe, check_tensors, probe_error
from gpt.show.result import Check
from gpt.storage.checkpoint_files import Tensors, read_model
from gpt.training.trainer import make_probe, model_bytes
from gpt.vocabulary import Vocabulary

LETTERS = Vocabulary("abcdefghijklmnopqrstuvwxyz")
TEXT = "the quick brown fox jumps over the lazy dog".replace(" ", "")
SIZES: dict[str, dict[str, Any]] = {
    "1 x 16": {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16},
    "2 x 64": {"n_layer": 2, "n_head": 4, "n_embd": 64, "block_size": 32},
    "6 x 384": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 32},
}
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "classic": {"position": "learned", "activation": "gelu", "tied": True},
    "nanoGPT's": {
        **{"position": "learned", "activation": "gelu_erf"},
        **{"tied": True, "bias": True, "qkv_bias": True},
    },
}


@cache
def weights(size: str, kind: str, sharper: float, larger: float, rounded: bool) -> GPT:
    """A model of random weights; queries and keys `sharper`, logits `larger` times, in bfloat16."""
    config = ModelConfig(vocab_size=len(LETTERS), **SIZES[size], **KINDS[kind])
    random = torch.Generator().manual_seed(5)
    stored = {}
    for name, shape in config.shapes().items():
        fan_in = shape[1] if "blocks" in name and len(shape) == 2 else 1
        weight = torch.randn(shape, generator=random) * (0.2 if len(shape) == 1 else fan_in**-0.5)
        if name.endswith("norm1.weight") or name.endswith("norm2.weight"):
            weight += 1
        if name.endswith("qkv.weight"):
            weight[: 2 * config.n_embd] *= sharper
        if name == ("token_embedding.weight" if config.tied else "lm_head.weight"):
            weight *= larger
        stored[name] = weight.bfloat16().float() if rounded else weight
    model = GPT(config)
    model.load_parameters(stored)
    return model


def tensors_of(model: GPT) -> Tensors:
    return {name: tensor.numpy() for name, tensor in model.stored_parameters().items()}


FACTORS = [(1.0, 1.0, False), (1.5, 30.0, False), (10.0, 1.0, True), (10.0, 30.0, False)]
CASES = [(size, kind, *each) for size in ("1 x 16", "2 x 64") for kind in KINDS for each in FACTORS]


@pytest.mark.parametrize(("size", "kind", "sharper", "larger", "rounded"), CASES)
def test_healthy_model_is_saved_opened_and_passes_its_checks(
    tmp_path: Path, size: str, kind: str, sharper: float, larger: float, rounded: bool
) -> None:
    model = weights(size, kind, sharper, larger, rounded)
    path = tmp_path / "model.safetensors"
    path.write_bytes(model_bytes(model, LETTERS, TEXT, 1, check_tensors))
    trained = TrainedGPT(read_model(path))
    assert trained.probe_check.passed
    assert trained.float32_check.passed
    checks = *trained.attn(TEXT[:12]).list_checks(), *trained.why(TEXT[:12]).checks
    assert [check.name for check in checks if not check.passed] == []


def test_float32_would_refuse_a_healthy_model() -> None:
    model = weights("6 x 384", "classic", 10.0, 1.0, False)
    reader, probe = Reader(model.config, tensors_of(model)), make_probe(model, LETTERS.encode(TEXT))
    check, largest = check_probe(reader, probe), np.abs(probe.logits).max()
    assert check.passed
    assert check.bound == TOLERANCE * largest
    assert check.error < 1e-7 * largest
    assert probe_error(reader, probe) > 1e-3 * largest


@pytest.mark.parametrize("size", ["2 x 64", "6 x 384"])
def test_one_changed_weight_is_detected_even_with_sharp_attention(size: str) -> None:
    model = weights(size, "classic", 10.0, 1.0, False)
    probe = make_probe(model, LETTERS.encode(TEXT))
    for name, tensor in tensors_of(model).items():
        if size == "6 x 384" and "blocks.3.attention" not in name:
            continue
        changed = tensor.copy()
        place = np.unravel_index(np.abs(changed).argmax(), changed.shape)
        changed[place] *= 1.1
        check = check_tensors(model.config, {**tensors_of(model), name: changed}, probe)
        assert not check.passed, name


def test_infinite_bound_proves_nothing_and_an_error_without_one_has_to_be_finite() -> None:
    assert not Check("x", math.inf, math.inf).passed
    assert not Check("x", 0.0, math.inf).passed
    assert not Check("x", math.nan, 1.0).passed
    assert Check("x", 1.0, 1.0).passed
    assert [Check("x", error).passed for error in (9.0, math.inf, math.nan)] == [True, False, False]
