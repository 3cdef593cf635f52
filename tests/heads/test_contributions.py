"""What parts add to a logit is their output through the last norm, whose scale is held."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from variants import SWITCHES, VARIANTS, config_of, name_of, random_weights, reader_of

from gpt.config import ModelConfig
from gpt.heads.contributions import Contributions, Part, contributions
from gpt.reading.gpt import Array, Reader

IDS = np.random.default_rng(9).integers(11, size=9)
ALL = np.tile(np.arange(11), (len(IDS), 1))  # (T, V)
each_variant = pytest.mark.parametrize("config", VARIANTS, ids=name_of)


@cache
def reader_for(config: ModelConfig, dtype: torch.dtype = torch.float32) -> Reader:
    return reader_of(config, {n: it.to(dtype) for n, it in random_weights(config).items()})


def found_by_numpy(reader: Reader) -> Contributions:
    """Those of all logits."""
    return contributions(reader, reader.stages(IDS), ALL)


def outputs(reader: Reader, layer: int) -> dict[Part, Array]:
    """What the parts of a layer write to the stream, (T, C) or (C,)."""
    stages, block = reader.stages(IDS)[layer], f"blocks.{layer}."
    parts = dict[Part, Array]()
    weight, bias = reader.weight_and_bias(f"{block}attention.proj")
    for head, columns in enumerate(np.split(weight, len(stages.context), axis=1)):
        parts[Part("head", layer, head)] = stages.context[head] @ columns.T
    if bias is not None:
        parts[Part("bias", layer)] = bias
    if reader.config.feed_forward:
        _, bias = reader.weight_and_bias(f"{block}feed_forward.down")
        out = stages.resid_post - stages.resid_mid
        parts[Part("ffn", layer)] = out if bias is None else out - bias
        if bias is not None:
            parts[Part("ffn_bias", layer)] = bias
    return parts


@each_variant
def test_a_part_adds_what_its_output_adds_through_the_held_norm(config: ModelConfig) -> None:
    reader = reader_for(config, torch.float64)
    found, layers = found_by_numpy(reader), reader.stages(IDS)
    last, unembed = layers[-1].resid_post, reader.weight_and_bias(reader.output)[0]
    scale = np.sqrt(last.var(axis=-1, keepdims=True) + 1e-5)
    parts = {Part("embedding"): layers[0].resid_pre}
    for layer in range(config.n_layer):
        parts |= outputs(reader, layer)
    assert {*found.parts} == {*parts, *[Part("bias")] * config.bias}
    for part, x in parts.items():
        centred = x - x.mean(axis=-1, keepdims=True)
        adds = (centred / scale * reader.tensors["norm.weight"]) @ unembed.T
        values = found.values[..., found.parts.index(part)]
        np.testing.assert_allclose(values, adds, atol=1e-9, err_msg=str(part))
    np.testing.assert_allclose(found.values.sum(axis=-1), found.logits, atol=1e-9)
    sums = [part for part in found.parts if part.kind in ("head", "ffn")]
    for part, sources in zip(sums, found.sources, strict=True):
        of_part = found.values[-1, :, found.parts.index(part)]
        np.testing.assert_allclose(sources.sum(axis=-1), of_part, atol=1e-12)
    assert found.check.passed


ROW = {name: values[0] for name, values in SWITCHES.items()}
PLAIN = config_of({**ROW, "bias": True})


def test_the_check_finds_a_stage_that_the_others_do_not_give() -> None:
    reader = reader_for(PLAIN)
    layers = reader.stages(IDS)
    assert contributions(reader, layers, ALL).check.passed
    for name in ("context", "resid_mid", "resid_post"):
        moved = np.roll(getattr(layers[1], name), 1, axis=-1)
        other = replace(layers[1], **{name: moved})
        assert not contributions(reader, [layers[0], other], ALL).check.passed
