"""Circuits equal what torch computes from the raw tensors, for every kind of model."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from variants import VARIANTS, name_of, random_weights, reader_of, torch_model

from gpt.config import ModelConfig
from gpt.errors import ConfigError
from gpt.heads.circuits import Circuit, circuit
from gpt.heads.contributions import Part, contributions

LETTERS = "abcdefghijk"
MEASURED = np.random.default_rng(3).integers(11, size=9)
each_variant = pytest.mark.parametrize("config", VARIANTS, ids=name_of)


@cache
def weights_of(config: ModelConfig) -> dict[str, Tensor]:
    return {name: each.double() for name, each in random_weights(config).items()}


def found(
    config: ModelConfig, of: Any, layer: int = 0, head: int = 0, distance: int = 1
) -> Circuit:
    reader = reader_of(config, random_weights(config))
    return circuit(reader, of, (layer, head, distance), LETTERS, np.arange(11), MEASURED)


def read_at(config: ModelConfig, layer: int, place: int) -> Tensor:
    """(V, C): what enters a layer's attention if the stream is the embedding."""
    weights, C = weights_of(config), config.n_embd
    x = weights["token_embedding.weight"]
    if config.position == "learned":
        x = x + weights["position.weight"][place]
    elif config.position == "sinusoidal":
        angles = [place / 10_000 ** ((c - c % 2) / C) for c in range(C)]
        waves = [np.cos(a) if c % 2 else np.sin(a) for c, a in enumerate(angles)]
        x = x + torch.tensor(np.array(waves))
    if config.norm == "layer":
        gain, bias = (weights.get(f"blocks.{layer}.norm1.{name}") for name in ("weight", "bias"))
        return torch.nn.functional.layer_norm(x, (C,), gain, bias, 1e-5)
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def projected(config: ModelConfig, x: Tensor, layer: int, head: int, part: int) -> Tensor:
    """(V, D): q, k or v of a head."""
    name, D = f"blocks.{layer}.attention.qkv", config.head_size
    rows = slice(part * config.n_embd + head * D, part * config.n_embd + (head + 1) * D)
    weights = weights_of(config)
    bias = weights.get(f"{name}.bias")
    out = x @ weights[f"{name}.weight"][rows].T
    return out if bias is None else out + bias[rows]


@each_variant
@pytest.mark.parametrize("distance", [0, 1, 4])
def test_qk_is_the_score_of_each_character_for_each(config: ModelConfig, distance: int) -> None:
    layer, head = config.n_layer - 1, config.n_head - 1
    key = (config.block_size - 1 - distance) // 2
    q = projected(config, read_at(config, layer, key + distance), layer, head, 0)
    k = projected(config, read_at(config, layer, key), layer, head, 1)
    if config.position == "rotary":  # one turn by the distance, as a complex number
        half = config.head_size // 2
        turn = torch.exp(1j * distance * 10_000.0 ** (-torch.arange(half).double() / half))
        pairs = [torch.view_as_complex(each.reshape(11, half, 2).contiguous()) for each in (q, k)]
        scores = ((pairs[0] * turn) @ pairs[1].conj().T).real
    else:
        scores = q @ k.T
    table = found(config, "qk", layer, head, distance)
    expected = (scores / config.head_size**0.5).numpy()
    np.testing.assert_allclose(table.values, expected, rtol=1e-6, atol=1e-6)
    assert [check.passed for check in table.checks] == [True]


@each_variant
def test_ov_is_what_attending_adds_to_each_logit(config: ModelConfig) -> None:
    """The last norm keeps the scale that torch has for the measured text."""
    layer, head, D = 0, config.n_head - 1, config.head_size
    key = (config.block_size - 1 - 1) // 2
    v = projected(config, read_at(config, layer, key), layer, head, 2)
    weights = weights_of(config)
    columns = weights[f"blocks.{layer}.attention.proj.weight"][:, head * D : (head + 1) * D]
    out = (v @ columns.T)[:, None]  # (V, 1, C) -> (V, T, C)
    model = torch_model(config, random_weights(config), "fused").double()
    entered = list[Tensor]()
    model.norm.register_forward_pre_hook(lambda _, x: entered.append(x[0][0].detach()))
    model(torch.tensor(MEASURED[None]))
    (was,) = entered
    if config.norm == "layer":
        was, out = (each - each.mean(-1, keepdim=True) for each in (was, out))
    out = out / (was.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    out = out * weights.get("norm.weight", torch.ones(()))
    output = weights["token_embedding.weight" if config.tied else "lm_head.weight"]
    expected = (out.mean(dim=1) @ output.T).detach().numpy()
    table = found(config, "ov", layer, head)
    np.testing.assert_allclose(table.values, expected, rtol=1e-6, atol=1e-6)
    assert [check.passed for check in table.checks] == [True]


def test_tables_give_the_scores_and_the_part_of_a_real_text() -> None:
    """In layer 0 with rotary positions: the scores that attn shows, and the head's direct part."""
    config = next(each for each in VARIANTS if each.position == "rotary")
    reader = reader_of(config, random_weights(config)).in_float64()
    ids = np.random.default_rng(5).integers(11, size=12)
    stages = reader.stages(ids)
    for distance in (1, 3):
        scaled = stages[0].scaled[0].diagonal(-distance)
        table = circuit(reader, "qk", (0, 0, distance), LETTERS, np.arange(11), ids)
        np.testing.assert_allclose(table.values[ids[distance:], ids[:-distance]], scaled, atol=1e-9)
    one = reader.stages(ids[:1])  # whose norm has one scale
    table = circuit(reader, "ov", (0, 0, 1), LETTERS, np.arange(11), ids[:1])
    parts = contributions(reader, one, np.arange(11)[None])
    part = parts.values[0, :, parts.parts.index(Part("head", 0, 0))]
    np.testing.assert_allclose(table.values[ids[0]], part, atol=1e-9)


def test_large_vocabularies_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = VARIANTS[0]
    whole = found(config, "ov").values
    monkeypatch.setattr("gpt.heads.circuits.AT_ONCE", 2 * len(MEASURED) * config.n_embd)
    np.testing.assert_allclose(found(config, "ov").values, whole, rtol=1e-12)


def test_what_does_not_exist_is_refused() -> None:
    for place, problem in (
        (("kq",), "of: 'kq' is not one of qk, ov"),
        (("qk", 2), r"layer: 2 is not in 0 … 1"),
        (("ov", 0, 2), r"head: 2 is not in 0 … 1"),
        (("qk", 0, 0, 12), r"distance: 12 is not in 0 … 11"),
    ):
        with pytest.raises(ConfigError, match=problem):
            found(VARIANTS[0], *place)
