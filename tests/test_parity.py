"""Every form of the model computes what torch's readable heads compute in float64.

The forms: torch's readable heads, torch's fused attention without and with a cache, numpy's
reader, numpy's decoder, and the page's JavaScript. The models: variants.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from javascript import JavaScript
from torch import Tensor
from variants import (
    ALL,
    VARIANTS,
    all_rows,
    covering_rows,
    name_of,
    pairs_of,
    random_weights,
    reader_of,
    torch_model,
)

from gpt.config import ModelConfig
from gpt.config.model import Activation, Attention, Position
from gpt.model import GPT
from gpt.model.attention import ATTENTION
from gpt.model.gpt import DeviceGPT, KeyValueCache
from gpt.model.layers import ACTIVATIONS, POSITIONS
from gpt.page.live import config_record
from gpt.reading import decode
from gpt.reading import gpt as reading
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader

Array = npt.NDArray[np.floating[Any]]

#: Largest error of a number, as a share of the largest. VARIANTS have up to 1e-14 and 1.2e-5;
#: some of all combinations have sharper attention, which enlarges rounding.
BOUNDS = {torch.float64: 1e-11, torch.float32: 1e-3 if ALL else 1e-4}
T = 9
IDS = torch.randint(11, (3, T), generator=torch.Generator().manual_seed(9))
each_variant = pytest.mark.parametrize("config", VARIANTS, ids=name_of)


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    """Inside, torch creates tensors of this type, including tables of positions."""
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(torch.float32)


def models_of(config: ModelConfig, dtype: torch.dtype) -> tuple[GPT, GPT, Reader]:
    """Readable heads, fused attention and the reader, with the same weights."""
    weights = {name: each.to(dtype) for name, each in random_weights(config).items()}
    with default_type(dtype):
        heads, fused = (torch_model(config, weights, kind) for kind in ("heads", "fused"))
    return heads, fused, reader_of(config, weights)


@torch.no_grad()
def logits_of(model: GPT, ids: Tensor = IDS) -> Array:
    """(B, T, vocab_size) logits."""
    logits: Array = model(ids).numpy()
    return logits


@cache
def exact(config: ModelConfig) -> Array:
    """The logits of torch's readable heads in float64."""
    return logits_of(models_of(config, torch.float64)[0])


@torch.no_grad()
def continued(model: GPT, begin: int, dtype: torch.dtype) -> Array:
    """The logits after `begin` characters and more, one by one, with torch's cache."""
    with default_type(dtype):
        cache, found = KeyValueCache(model.config, len(IDS), torch.device("cpu")), []
    for start, stop in [(0, begin), *((at, at + 1) for at in range(begin, T))]:
        cache.at = slice(start, stop)
        found.append(model(IDS[:, cache.at], cache)[:, 0])
    return torch.stack(found, 1).numpy()


def decoded(decoder: CachedDecoder, begin: int) -> Array:
    """The same with numpy's decoder."""
    ids = IDS.numpy()
    logits = [decoder.start(ids[:, :begin])]
    return np.stack([*logits, *(decoder.step(ids[:, at]) for at in range(begin, T))], 1)


def apart(found: Array, expected: Array) -> float:
    """The largest difference, as a share of the largest number."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def forms_of(config: ModelConfig, dtype: torch.dtype) -> Iterator[tuple[str, Array]]:
    """The name of each form, and its logits of all positions or of the last ones."""
    heads, fused, reader = models_of(config, dtype)
    yield "heads", logits_of(heads)
    yield "fused", logits_of(fused)
    yield "reader", reader.logits(reader.forward(IDS.numpy()))
    decoder = CachedDecoder(reader)
    for begin in (5, 1):
        yield f"cache from {begin} on", continued(fused, begin, dtype)
        yield f"decoder from {begin} on", decoded(decoder, begin)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@each_variant
def test_every_form_computes_the_logits_of_torch_in_float64(
    config: ModelConfig, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "ROWS", 4)  # so that the decoder computes the texts in groups
    expected = exact(config)
    assert np.abs(expected).max() > 1
    for form, found in forms_of(config, dtype):
        assert found.dtype == str(dtype).removeprefix("torch."), form
        assert apart(found, expected[:, -found.shape[1] :]) < BOUNDS[dtype], form


@each_variant
def test_javascript_computes_the_logits_of_torch_in_float64(
    config: ModelConfig, script: JavaScript
) -> None:
    tensors = {name: each.numpy() for name, each in random_weights(config).items()}
    no_means = np.zeros(0, np.float32)
    model = script("open", config_record(config), tensors, no_means)
    found = script("logits", model, [IDS[0].tolist()])
    expected = exact(config)[0]
    assert apart(found.reshape(expected.shape), expected) < BOUNDS[torch.float32]


def gradients_of(model: GPT) -> dict[str, Tensor]:
    """The gradients of a loss, in the checkpoint's layout."""
    F.cross_entropy(model(IDS[:, :-1]).flatten(0, 1), IDS[:, 1:].flatten()).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.data = parameter.grad
    return model.stored_parameters()


@each_variant
def test_both_attentions_have_the_same_gradients(config: ModelConfig) -> None:
    heads, fused = (gradients_of(each) for each in models_of(config, torch.float64)[:2])
    assert heads.keys() == fused.keys() == config.shapes().keys()
    for name, gradient in heads.items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(fused[name], gradient, rtol=1e-10, atol=1e-12, msg=name)


@each_variant
def test_both_attentions_store_the_same_parameters(config: ModelConfig) -> None:
    original = random_weights(config)
    heads, fused, _ = models_of(config, torch.float32)
    again = torch_model(config, fused.stored_parameters(), "heads")
    for model in (heads, fused, again):
        stored = model.stored_parameters()
        assert {name: tuple(each.shape) for name, each in stored.items()} == config.shapes()
        assert all(torch.equal(stored[name], original[name]) for name in original)
        assert sum(each.numel() for each in model.parameters()) == config.parameters()


@each_variant
def test_a_character_changes_no_earlier_logit(config: ModelConfig) -> None:
    model, ids = models_of(config, torch.float64)[0], IDS.clone()
    ids[:, 5] = (ids[:, 5] + 1) % 11
    same = logits_of(model, ids) == exact(config)
    assert same[:, :5].all()
    assert not same[:, 5:].all(axis=-1).any()


@each_variant
def test_torchs_readable_heads_have_the_stages_of_the_reader(config: ModelConfig) -> None:
    _, fused, reader = models_of(config, torch.float32)
    device, x = DeviceGPT(fused, "cpu"), reader.embed(IDS.numpy())
    for layer in range(config.n_layer):
        expected, found = reader.block(x, layer), device.block(x, layer)
        assert found.keys() == expected.keys()
        for name, stage in expected.items():
            assert found[name].dtype == stage.dtype
            np.testing.assert_allclose(found[name], stage, rtol=1e-4, atol=1e-4, err_msg=name)
        x = expected["resid_post"]
    np.testing.assert_allclose(device.forward(IDS.numpy()), reader.final_norm(x), atol=1e-4)


def test_variants_have_every_two_values_of_two_options() -> None:
    seen = {pair for row in covering_rows() for pair in pairs_of(row)}
    assert seen == {pair for row in all_rows() for pair in pairs_of(row)}
    for choice, built_in in (
        (Activation, (ACTIVATIONS, reading.ACTIVATIONS)),
        (Position, (POSITIONS, reading.POSITIONS)),
        (Attention, (ATTENTION,)),
    ):
        assert all({*get_args(choice)} == {*table} for table in built_in)


def test_javascript_has_every_variant(script: JavaScript) -> None:
    values = script("variants")[:2]
    assert [{*each} for each in values] == [{*get_args(it)} for it in (Position, Activation)]
