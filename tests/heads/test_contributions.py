"""What parts add to a logit, and the further stages of a layer, are the same in numpy and in the
page; torch's readable heads give the parts, and what a logit loses without each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from javascript import JavaScript
from torch import Tensor, nn
from variants import SWITCHES, VARIANTS, config_of, name_of, random_weights, reader_of, torch_model

from gpt.config import ModelConfig
from gpt.heads.contributions import Contributions, Part, contributions
from gpt.model import GPT
from gpt.reading.gpt import Hook, Reader, Stages, no_hook
from gpt.reading.layers import Array
from gpt.view.page.page import more_stages
from gpt.view.page.shipping import config_record

IDS = np.random.default_rng(9).integers(11, size=9)
ALL = np.tile(np.arange(11), (len(IDS), 1))  # (T, V)
FURTHER = ("resid_pre", "norm1", "norm2", "ffn_hidden", "ffn", "resid_post")
each_variant = pytest.mark.parametrize("config", VARIANTS, ids=name_of)


@pytest.fixture(scope="module")
def script() -> Iterator[JavaScript]:
    with JavaScript(Path(__file__).with_suffix(".js")) as running:
        yield running


@cache
def reader_for(config: ModelConfig, dtype: torch.dtype = torch.float32) -> Reader:
    return reader_of(config, {n: it.to(dtype) for n, it in random_weights(config).items()})


def found_by_numpy(reader: Reader, hook: Hook = no_hook) -> Contributions:
    """Those of all logits."""
    x, layers = reader.embed(IDS[None]), list[Stages]()
    for layer in range(reader.config.n_layer):
        found = reader.block(x, layer, hook)
        x = found["resid_post"]
        layers.append(Stages(**{name: stage[0] for name, stage in found.items()}))
    return contributions(reader, layers, ALL)


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


def same(found: Any, expected: Array) -> None:
    """Whether the page's numbers are numpy's, up to rounding of the largest."""
    assert found.size == expected.size
    np.testing.assert_allclose(
        found.reshape(expected.shape), expected, rtol=0, atol=1e-4 * np.abs(expected).max()
    )


def in_the_page(script: JavaScript, reader: Reader, changes: Any = None) -> Contributions:
    """What the page finds, and what it says of it."""
    read = config_record(reader.config), dict(reader.tensors), IDS.tolist()
    found = script("contributions", *read, list(range(11)), changes)
    values = np.array([[[p["value"] for p in it["parts"]] for it in row] for row in found])
    logits = np.array([[it["logit"] for it in row] for row in found])
    for position, row in enumerate(found):
        assert [(it["position"], it["id"]) for it in row] == [(position, n) for n in range(11)]
    parts = ({name: p[name] for name in Part._fields} for p in found[0][0]["parts"])
    of_heads = [[p["sources"] for p in each["parts"] if "sources" in p] for each in found[-1]]
    sources = tuple(np.array(of_head) for of_head in zip(*of_heads, strict=True))
    found_parts = tuple(Part(**each) for each in parts)
    others = {"parts": found_parts, "values": values, "logits": logits, "sources": sources}
    return replace(found_by_numpy(reader), **others)


@each_variant
def test_the_page_computes_the_contributions_of_numpy(
    config: ModelConfig, script: JavaScript
) -> None:
    reader = reader_for(config)
    found, expected = in_the_page(script, reader), found_by_numpy(reader)
    assert found.parts == expected.parts
    same(found.values, expected.values)
    same(found.values.sum(axis=-1), found.logits)
    sums = [part for part in expected.parts if part.kind in ("head", "ffn")]
    heads = [n for n, part in enumerate(sums) if part.kind == "head"]
    for of_page, n in zip(found.sources, heads, strict=True):
        of_numpy = expected.sources[n]
        same(of_page, of_numpy)
    assert expected.check.passed
    assert expected.check.error > 0


ROW = {name: values[0] for name, values in SWITCHES.items()}
PLAIN = config_of({**ROW, "bias": True})


def test_contributions_are_those_of_changed_heads(script: JavaScript) -> None:
    reader, random = reader_for(PLAIN), np.random.default_rng(5)
    mean = random.normal(size=PLAIN.head_size).astype(np.float32)
    row = random.dirichlet(np.ones(6)).astype(np.float32)
    heads = [{"layer": 0, "head": 1, "value": None}, {"layer": 1, "head": 0, "value": mean}]
    changed = {
        "heads": heads,
        "rows": [{"layer": 1, "head": 1, "query": 5, "weights": row}],
    }

    def hook(name: str, layer: int, array: Array) -> Array:
        array = array.copy()
        if name == "weights" and layer == 1:
            array[:, 1, 5, : len(row)] = row
        if name == "context":
            array[:, 1 - layer] = mean if layer else 0
        return array

    expected, before = found_by_numpy(reader, hook), found_by_numpy(reader)
    found = in_the_page(script, reader, changed)
    same(found.values, expected.values)
    same(found.logits, expected.logits)
    assert np.abs(found.values - before.values).max() > 1e-2
    off = found.parts.index(Part("head", 0, 1))
    assert np.abs(found.values[..., off]).max() == 0


def ask(**more: Any) -> dict[str, Any]:
    return {"ids": IDS.tolist(), **more}


@each_variant
def test_the_worker_gives_the_further_stages_of_numpy_when_it_is_asked(
    config: ModelConfig, script: JavaScript
) -> None:
    reader = reader_for(config)
    asks = [ask(inspect={"layer": 0, "stage": name}) for name in FURTHER]
    found = script("answers", config_record(config), dict(reader.tensors), asks)
    first, *_, last = reader.stages(IDS)
    stages = {"resid_pre": first.resid_pre, **more_stages(reader, first, 0)}
    for name, answer in zip(FURTHER, found, strict=True):
        read = answer["inspected"]
        if name in ("norm2", "ffn_hidden", "ffn") and not config.feed_forward:
            assert read is None
            assert name not in stages
            continue
        assert read["columns"] == stages[name].shape[1]
        same(read["values"], stages[name])
        assert answer["contributions"] is None
    end = ask(inspect={"layer": config.n_layer - 1, "stage": "resid_post"})
    (answer,) = script("answers", config_record(config), dict(reader.tensors), [end])
    same(answer["inspected"]["values"], last.resid_post)


def test_the_worker_answers_for_the_window_and_gives_nothing_that_there_is_not(
    script: JavaScript,
) -> None:
    reader = reader_for(PLAIN)
    logits = found_by_numpy(reader).logits
    asks = [
        ask(logit={"position": 3, "id": None}),
        ask(logit={"position": 8, "id": 4}),
        ask(logit={"position": 9, "id": 4}),
        ask(inspect={"layer": 2, "stage": "ffn"}),
        ask(),
    ]
    found = script("answers", config_record(PLAIN), dict(reader.tensors), asks)
    likeliest, given, *others = (each["contributions"] for each in found)
    assert (likeliest["position"], likeliest["id"]) == (3, logits[3].argmax())
    assert (given["position"], given["id"]) == (8, 4)
    assert given["logit"] == pytest.approx(logits[8, 4], abs=1e-4)
    assert others == [None] * 3
    assert [each["inspected"] for each in found] == [None] * 5


def test_of_a_long_text_the_position_is_one_of_the_window(script: JavaScript) -> None:
    reader = reader_for(PLAIN)
    ids = np.resize(IDS, 20)
    asked = {"ids": ids.tolist(), "logit": {"position": 2, "id": 7}}
    (answer,) = script("answers", config_record(PLAIN), dict(reader.tensors), [asked])
    window = ids[answer["begin"] :]
    assert len(window) <= 12
    expected = reader.logits(reader.forward(window[None]))[0, 2, 7]
    assert answer["contributions"]["logit"] == pytest.approx(expected, abs=1e-4)


def test_parts_of_a_difference_are_the_differences_of_parts(script: JavaScript) -> None:
    reader = reader_for(PLAIN)
    asked = [{"position": 3, "id": 5, "against": against} for against in (7, 5, None)]
    asks = [ask(logit=logit) for logit in asked]
    found = script("answers", config_record(PLAIN), dict(reader.tensors), asks)
    apart, same_id, alone = (each["contributions"] for each in found)
    expected = found_by_numpy(reader)
    values = expected.values[3, 5] - expected.values[3, 7]
    same(np.array([part["value"] for part in apart["parts"]]), values)
    assert apart["logit"] == pytest.approx(values.sum(), abs=1e-4)
    assert (apart["against"], same_id["against"]) == (7, None)
    assert same_id["logit"] == alone["logit"]


def test_the_check_finds_a_stage_that_the_others_do_not_give() -> None:
    reader = reader_for(PLAIN)
    layers = reader.stages(IDS)
    assert contributions(reader, layers, ALL).check.passed
    for name in ("context", "resid_mid", "resid_post"):
        moved = np.roll(getattr(layers[1], name), 1, axis=-1)
        other = replace(layers[1], **{name: moved})
        assert not contributions(reader, [layers[0], other], ALL).check.passed
