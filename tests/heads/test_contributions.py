"""What parts add to a logit is what torch's logits lose without each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from variants import SWITCHES, VARIANTS, config_of, name_of, random_weights, reader_of, torch_model

from gpt.config import ModelConfig
from gpt.heads.contributions import Contributions, Part, contributions
from gpt.model import GPT
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array

IDS = np.random.default_rng(9).integers(11, size=9)
ALL = np.tile(np.arange(11), (len(IDS), 1))  # (T, V)
each_variant = pytest.mark.parametrize("config", VARIANTS, ids=name_of)


@cache
def reader_for(config: ModelConfig, dtype: torch.dtype = torch.float32) -> Reader:
    return reader_of(config, {n: it.to(dtype) for n, it in random_weights(config).items()})


def found_by_numpy(reader: Reader) -> Contributions:
    """Those of all logits."""
    return contributions(reader, reader.stages(IDS), ALL)


class Removable:
    """The parts of torch's readable heads in float64, and the logits without one of them.

    Hooks keep each part, and what enters the last norm, whose scale then stays as it is.
    """

    def __init__(self, model: GPT) -> None:
        self.model = model
        self.heads = dict[Part, Callable[[], Tensor]]()
        self.parts = dict[Part, Tensor]()
        self.shifted = True
        model.blocks[0].register_forward_pre_hook(lambda _, x: self.keep(Part("embedding"), x[0]))
        for layer, block in enumerate(model.blocks):
            attention: Any = block.attention
            columns = attention.proj.weight.chunk(len(attention.heads), dim=1)
            for head, module in enumerate(attention.heads):
                part = Part("head", layer, head)
                module.register_forward_hook(self.output(part, columns[head]))
                again = self.rerun(part, columns[head])
                module.register_forward_hook(again, with_kwargs=True)
            if attention.proj.bias is not None:
                bias = attention.proj.bias[None].expand(1, len(IDS), -1)
                self.keep(Part("bias", layer), bias)
            if block.feed_forward is not None:
                down = block.feed_forward.down
                down.register_forward_hook(self.output(Part("ffn", layer), bias=down.bias))
                if down.bias is not None:
                    bias = down.bias[None].expand(1, len(IDS), -1)
                    self.keep(Part("ffn_bias", layer), bias)
        model.norm.register_forward_pre_hook(self.enter)
        self.logits = model(torch.tensor(IDS[None]))[0].detach()

    def keep(self, part: Part, value: Tensor) -> None:
        self.parts[part] = value[0].detach()

    def enter(self, norm: nn.Module, x: tuple[Tensor, ...]) -> None:
        self.entered = x[0][0].detach()

    def output(
        self, part: Part, columns: Tensor | None = None, bias: Tensor | None = None
    ) -> Callable[..., None]:
        """A hook that keeps a result, multiplied by a matrix if there is one, without a bias."""
        return lambda module, given, result: self.keep(
            part,
            (result if columns is None else result @ columns.T) - (0 if bias is None else bias),
        )

    def rerun(self, part: Part, columns: Tensor) -> Callable[..., None]:
        """A hook that keeps how to compute a head's part once more."""

        def keep(module: nn.Module, given: Any, keywords: Any, result: Tensor) -> None:
            if part not in self.heads:
                self.heads[part] = lambda: (module(*given, **keywords) @ columns.T)[0].detach()

        return keep

    def lost(self, part: Part, source: int) -> Array:
        """(V,) what the last logits lose without one of the characters that a head attends to,
        while its weights stay as they are.
        """
        attention: Any = self.model.blocks[part.layer or 0].attention
        hook = attention.heads[part.head].value.register_forward_hook(
            lambda module, given, result: result.index_fill(1, torch.tensor([source]), 0)
        )
        whole, before = self.without(None), self.parts[part]
        self.parts[part] = self.heads[part]()
        hook.remove()
        lost: Array = (whole - self.without(None))[-1]
        self.parts[part] = before
        return lost

    def frozen(self, x: Tensor) -> Tensor:
        """The last norm of (T, C) x, with the mean of x and the scale of what entered."""
        norm: Any = self.model.norm
        was = self.entered - self.entered.mean(-1, keepdim=True)
        x = x - x.mean(-1, keepdim=True)
        x = x / (was.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
        return x if norm.bias is None or not self.shifted else x + norm.bias

    def without(self, part: Part | None) -> Array:
        """(T, V)"""
        self.shifted = part != Part("bias")
        x = sum(it * (key != part) for key, it in self.parts.items())
        logits: Array = self.model.lm_head(self.frozen(x)).detach().numpy()
        return logits


@each_variant
def test_a_part_adds_what_the_logits_of_torch_lose_without_it(config: ModelConfig) -> None:
    weights = {name: each.double() for name, each in random_weights(config).items()}
    torch.set_default_dtype(torch.float64)
    try:
        torchs = Removable(torch_model(config, weights, "heads"))
    finally:
        torch.set_default_dtype(torch.float32)
    found = found_by_numpy(reader_for(config, torch.float64))
    whole = torchs.without(None)
    np.testing.assert_allclose(whole, torchs.logits, atol=1e-10)
    np.testing.assert_allclose(found.logits, whole, atol=1e-10)
    shifts = [Part("bias")] * config.bias
    assert {*found.parts} == {*torchs.parts, *shifts}
    assert len({*found.parts}) == len(found.parts) == found.values.shape[-1]
    for n, part in enumerate(found.parts):
        lost = whole - torchs.without(part)
        np.testing.assert_allclose(found.values[..., n], lost, atol=1e-9, err_msg=str(part))
        assert np.abs(lost).max() > 1e-5
    sums = [part for part in found.parts if part.kind in ("head", "ffn")]
    for part, sources in zip(sums, found.sources, strict=True):
        for source in (0, sources.shape[1] - 1) if part.kind == "head" else ():
            np.testing.assert_allclose(
                sources[:, source], torchs.lost(part, source), atol=1e-9, err_msg=str(part)
            )
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
