"""The float64 recomputation has known values, and equals torch in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch

from gpt.config import ModelConfig
from gpt.config.model import Activation, Norm, Position
from gpt.heads.exact import Exact, Layer
from gpt.heads.exact_functions import turned, unit
from gpt.model import GPT
from gpt.model.attention import ATTENTION
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.stages import Memory, Stages
from gpt.training.checkpoint import exact_logits


def exact_of(**options: object) -> Exact:
    config = ModelConfig(vocab_size=2, block_size=2, n_layer=1, n_head=1, n_embd=2, **options)  # type: ignore[arg-type]
    tensors = {name: np.full(shape, 2.0, np.float32) for name, shape in config.shapes().items()}
    return Exact(Reader(config, tensors))


def test_norms_have_known_values() -> None:
    x = np.array([[3.0, -1.0]])
    np.testing.assert_allclose(unit(x), x / math.sqrt(5), rtol=1e-5)
    np.testing.assert_allclose(exact_of(norm="rms").norm(x, "norm")[0], x / math.sqrt(5), rtol=1e-5)
    with_bias = exact_of(norm="layer", bias=True)
    np.testing.assert_allclose(with_bias.norm(x, "norm")[0], [[4.0, 0.0]], atol=1e-4)
    np.testing.assert_allclose(exact_of(norm="layer").norm(x, "norm")[0], [[2.0, -2.0]], rtol=1e-4)
    assert with_bias.gains("norm") == "norm.weight and norm.bias"
    assert exact_of(norm="rms").gains("norm") == ""


def test_linear_layer_works_with_and_without_bias() -> None:
    x, none, name = np.array([[3.0, -1.0]]), np.zeros((1, 1)), "blocks.0.attention.proj"
    assert exact_of().linear(x, none, name)[0].tolist() == [[4.0, 4.0]]
    assert exact_of(bias=True).linear(x, none, name)[0].tolist() == [[6.0, 6.0]]


def test_rotation_angle_is_proportional_to_the_position() -> None:
    x = np.array([[1.0, 0.0, 1.0, 0.0]] * 4)
    first, second = (math.cos(3), math.sin(3)), (math.cos(3 / 100), math.sin(3 / 100))
    config = ModelConfig(vocab_size=2, n_embd=4, n_head=1, position="rotary")
    assert turned(config, x)[3].tolist() == pytest.approx([*first, *second])
    assert turned(config, x)[0].tolist() == x[0].tolist()


def both(dtype: npt.DTypeLike = np.float32, **options: Any) -> tuple[GPT, Reader]:
    """A model of random weights in torch and in numpy."""
    shape: dict[str, Any] = {"vocab_size": 9, "n_layer": 2, "n_head": 2, "n_embd": 8}
    config = ModelConfig(**{**shape, "block_size": 8, **options})
    tensors = tensors_of(config, dtype)
    model = GPT(config)
    model.load_parameters({name: torch.from_numpy(tensor) for name, tensor in tensors.items()})
    return model, Reader(config, tensors)


def tensors_of(config: ModelConfig, dtype: npt.DTypeLike) -> dict[str, Array]:
    random = np.random.default_rng(1)
    return {n: random.normal(size=s).astype(dtype) for n, s in config.shapes().items()}


@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("norm", get_args(Norm))
@pytest.mark.parametrize("position", get_args(Position))
def test_logits_equal_torchs_in_float64(position: str, norm: str, activation: str) -> None:
    options = {"position": position, "norm": norm, "activation": activation}
    for more in ({}, {"tied": True, "qk_norm": False}, {"bias": True, "qkv_bias": True}):
        model, reader = both(**options, **more)
        ids = np.random.default_rng(2).integers(9, size=(1, 8))
        expected = exact_logits(model, ids)[0]
        np.testing.assert_allclose(Exact(reader).logits(ids[0]), expected, rtol=0, atol=1e-12)


T, S = 8, 5
PAST = np.tri(T, dtype=np.bool_)
#: Kind of attention -> length of its memory (None: own keys), and which keys are allowed.
KINDS: dict[str, tuple[int | None, Any]] = {
    "own keys, causal": (None, None),
    "memory": (S, None),
    "memory, padded": (S, np.tile(np.arange(S) < 3, (T, 1))),
    "own keys, padded": (None, PAST & (np.arange(T) < 6)),
    "own keys, prefix": (None, PAST | (np.arange(T) < 3)),
}


@pytest.fixture
def float64() -> Iterator[None]:
    """Inside, torch creates float64 tensors, including tables of positions."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("position", get_args(Position))
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_attention_equals_torchs(kind: str, position: str, attention: str) -> None:
    random, (length, allowed) = np.random.default_rng(3), KINDS[kind]
    options = {"position": position, "attention": attention, "norm": "layer", "qkv_bias": True}
    model, reader = both(np.float64, **options, encoder_layers=0 if length is None else 1)
    x, states = random.normal(size=(T, 8)), random.normal(size=(length or T, 8))
    rotate, bias = (
        partial(model.position.rotate, at=slice(0, T)),
        model.position.bias(T, slice(0, T)),
    )
    memory: dict[str, Any] = {}
    seen: dict[str, Any] = {}
    if length is not None:
        row = None if allowed is None else allowed[:1]  # (1, S)
        memory = {"memory": Memory(states[None], None if row is None else row[None])}
        seen = {"memory": states[None], "seen": row}
    elif allowed is not None:
        memory = seen = {"allowed": allowed}
    read = reader.block(x[None], 1, **memory)
    exact = Layer(Exact(reader), 1, x, allowed=None if length else allowed).stages
    weights = read["weights"]
    if length is not None:
        exact = Layer(Exact(reader), 1, exact.output, memory=states, allowed=allowed).stages
        weights = read["cross_weights"]
    assert exact.weights.shape == (2, T, length or T)
    tensors = {name: None if v is None else torch.from_numpy(v) for name, v in seen.items()}
    with torch.no_grad():
        expected = model.blocks[1](torch.from_numpy(x[None]), rotate, bias, **tensors)[0].numpy()
    np.testing.assert_allclose(read["output"][0], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(exact.output, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(exact.weights, weights[0], rtol=0, atol=1e-12)


def test_layer_from_captured_stages_equals_the_layer_alone() -> None:
    _, reader = both(bias=True, norm="layer")
    exact, stream = Exact(reader), reader.stages(np.arange(8))[0].stream
    alone = Layer(exact, 0, stream)
    found = Layer(exact, 0, stream, alone.stages)
    for field in fields(Stages):
        assert np.array_equal(
            getattr(alone.stages, field.name), getattr(found.stages, field.name)
        ), field.name
