"""What parts add to a logit, and the further stages of a layer, are the same in numpy and in the
page; torch's readable heads give the parts, and what a logit loses without each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from javascript import JavaScript
from torch import Tensor, nn
from variants import SWITCHES, VARIANTS, config_of, name_of, random_weights, reader_of, torch_model

from gpt.config import AttentionKind, ModelConfig
from gpt.heads.attention_map import AttentionMap, stages_of
from gpt.heads.contributions import Contributions, Part, contributions
from gpt.model import GPT
from gpt.reading.gpt import CROSS, Memory, Reader
from gpt.reading.layers import Array
from gpt.view.page.page import more_stages
from gpt.view.page.shipping import config_record

KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)
IDS, SOURCE = (np.random.default_rng(n).integers(11, size=n) for n in (9, 7))
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


def found_by_numpy(reader: Reader, **more: Any) -> Contributions:
    """Those of all logits. more: arguments of the reader's block."""
    if reader.encoder:
        more = {"memory": reader.encode(SOURCE[None]), **more}
    stages = reader.sublayers(IDS, **more)
    return contributions(reader, [*zip(*stages.values(), strict=True)], ALL)


class Removable:
    """The parts of torch's readable heads in float64, and the logits without one of them.

    Hooks keep each part, and what enters each norm, whose scale then stays as it is.
    """

    def __init__(self, model: GPT) -> None:
        self.model, self.entered = model, dict[nn.Module, Tensor]()
        self.heads = dict[Part, Callable[[], Tensor]]()
        self.parts = dict[Part, Tensor]()
        self.shifted = True
        crossed = model.encoder is not None
        model.blocks[0].register_forward_pre_hook(lambda _, x: self.keep(Part("embedding"), x[0]))
        for layer, block in enumerate(model.blocks):
            for kind, attention in self.attentions(block):
                columns = attention.proj.weight.chunk(len(attention.heads), dim=1)
                for head, module in enumerate(attention.heads):
                    part = Part("head", layer, head, kind if crossed else None)
                    module.register_forward_hook(self.output(part, columns[head]))
                    again = self.rerun(part, columns[head])
                    module.register_forward_hook(again, with_kwargs=True)
                if attention.proj.bias is not None:
                    part = Part("bias", layer, None, kind if crossed else None)
                    self.keep(part, attention.proj.bias[None].expand(1, len(IDS), -1))
            if block.feed_forward is not None:
                down = block.feed_forward.down
                down.register_forward_hook(self.output(Part("ffn", layer), bias=down.bias))
                if down.bias is not None:
                    bias = down.bias[None].expand(1, len(IDS), -1)
                    self.keep(Part("ffn_bias", layer), bias)
        for name, norm in model.named_modules():
            if "norm" in name.split(".")[-1] and not name.startswith("encoder."):
                norm.register_forward_pre_hook(self.enter)
        read = {"source": torch.tensor(SOURCE[None])} if crossed else {}
        self.logits = model(torch.tensor(IDS[None]), **read)[0].detach()

    @staticmethod
    def attentions(block: Any) -> list[tuple[str, Any]]:
        crossed = [("cross", block.cross)] if block.cross is not None else []
        return [("decoder", block.attention), *crossed]

    def keep(self, part: Part, value: Tensor) -> None:
        self.parts[part] = value[0].detach()

    def enter(self, norm: nn.Module, x: tuple[Tensor, ...]) -> None:
        self.entered[norm] = x[0][0].detach()

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
        block = self.model.blocks[part.layer or 0]
        attention: Any = block.cross if part.attention == "cross" else block.attention
        hook = attention.heads[part.head].value.register_forward_hook(
            lambda module, given, result: result.index_fill(1, torch.tensor([source]), 0)
        )
        whole, before = self.without(None), self.parts[part]
        self.parts[part] = self.heads[part]()
        hook.remove()
        lost: Array = (whole - self.without(None))[-1]
        self.parts[part] = before
        return lost

    def frozen(self, norm: Any, x: Tensor) -> Tensor:
        """The norm of (T, C) x, with the mean of x and the scale of what entered."""
        if isinstance(norm, nn.Identity):
            return x
        of_layer = self.model.config.norm == "layer"
        was = self.entered[norm]
        was = was - was.mean(-1, keepdim=True) if of_layer else was
        x = x - x.mean(-1, keepdim=True) if of_layer else x
        x = x / (was.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        gain, shift = getattr(norm, "weight", None), getattr(norm, "bias", None)
        x = x if gain is None else x * gain
        return x if shift is None or not self.shifted else x + shift

    def without(self, part: Part | None) -> Array:
        """(T, V)"""
        self.shifted = part != Part("bias")
        model = self.model
        parts = {key: it * (key != part) for key, it in self.parts.items()}
        x = parts[Part("embedding")]
        for layer, block in enumerate(model.blocks):
            after = block.norm1, block.cross_norm if model.encoder else None
            for (kind, _), norm in zip(self.attentions(block), after, strict=False):
                of = kind if model.encoder else None
                x = x + sum(
                    it
                    for p, it in parts.items()
                    if (p.layer, p.attention) == (layer, of) and p.kind in ("head", "bias")
                )
                x = self.frozen(norm, x) if model.config.post_norm else x
            if model.config.feed_forward:
                x = x + sum(parts.get(Part(kind, layer), 0) for kind in ("ffn", "ffn_bias"))
                x = self.frozen(block.norm2, x) if model.config.post_norm else x
        logits: Array = model.lm_head(self.frozen(model.norm, x)).detach().numpy()
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
    shifts = [Part("bias")] * (config.bias and config.norm == "layer")
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
    source = SOURCE.tolist() if reader.encoder else None
    read = config_record(reader.config), dict(reader.tensors), source, IDS.tolist()
    found = script("contributions", *read, list(range(11)), changes)
    values = np.array([[[p["value"] for p in it["parts"]] for it in row] for row in found])
    logits = np.array([[it["logit"] for it in row] for row in found])
    for position, row in enumerate(found):
        assert [(it["position"], it["id"]) for it in row] == [(position, n) for n in range(11)]
    parts = ({name: p[name] for name in Part._fields} for p in found[0][0]["parts"])
    check = found_by_numpy(reader).check
    of_heads = [[p["sources"] for p in each["parts"] if "sources" in p] for each in found[-1]]
    sources = tuple(np.array(of_head) for of_head in zip(*of_heads, strict=True))
    return Contributions(tuple(Part(**each) for each in parts), values, logits, check, sources)


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
PLAIN, NORMED, CROSSED = (
    config_of({**ROW, **options})
    for options in (
        {"norm": "layer", "bias": True},
        {"norm": "layer", "post_norm": True, "position": "learned"},
        {"encoder_layers": 2, "bias": True},
    )
)


@pytest.mark.parametrize(
    ("config", "kind"),
    [(PLAIN, "decoder"), (NORMED, "decoder"), *((CROSSED, kind) for kind in KINDS)],
    ids=str,
)
def test_contributions_are_those_of_changed_heads(
    config: ModelConfig, kind: str, script: JavaScript
) -> None:
    reader, random = reader_for(config), np.random.default_rng(5)
    mean = random.normal(size=config.head_size).astype(np.float32)
    row = random.dirichlet(np.ones(7 if kind != "decoder" else 6)).astype(np.float32)
    heads = [{"layer": 0, "head": 1, "value": None}, {"layer": 1, "head": 0, "value": mean}]
    changed = {
        "heads": heads,
        "rows": [{"layer": 1, "head": 1, "query": 5, "weights": row}],
    }
    none: dict[str, Any] = {"heads": [], "rows": []}
    prefix = CROSS if kind == "cross" else ""

    def hook(name: str, layer: int, array: Array) -> Array:
        array = array.copy()
        if name == prefix + "weights" and layer == 1:
            array[:, 1, 5, : len(row)] = row
        if name == prefix + "context":
            array[:, 1 - layer] = mean if layer else 0
        return array

    more: dict[str, Any] = {"hook": hook}
    if kind == "encoder":
        encoder = reader.encoder
        assert encoder is not None
        stream = encoder.blocks(encoder.embed(SOURCE[None]), range(2), hook)
        more = {"memory": Memory(encoder.final_norm(stream))}
    expected, before = found_by_numpy(reader, **more), found_by_numpy(reader)
    changes = {**dict.fromkeys(KINDS, none), kind: changed} if config.encoder else changed
    found = in_the_page(script, reader, changes)
    same(found.values, expected.values)
    same(found.logits, expected.logits)
    assert np.abs(found.values - before.values).max() > 1e-2
    if kind != "encoder":
        off = Part("head", 0, 1, kind if config.encoder else None)
        assert np.abs(found.values[..., found.parts.index(off)]).max() == 0


def asks_of(reader: Reader, kind: str, **more: Any) -> dict[str, Any]:
    if not reader.encoder:
        return {"ids": IDS.tolist(), **more}
    marks = {"first": int(IDS[0]), "last": 0, "never": []}
    target = {"source": SOURCE.tolist(), "target": IDS[1:].tolist()}
    return {**target, "kind": kind, "options": {"temperature": 0}, "marks": marks, **more}


def map_of(reader: Reader, kind: AttentionKind) -> AttentionMap:
    stages = stages_of(reader, IDS, SOURCE if reader.encoder else None)
    source = ("", SOURCE) if reader.encoder else None
    return AttentionMap("", IDS, stages[kind], (), None, kind, source)


@each_variant
def test_the_worker_gives_the_further_stages_of_numpy_when_it_is_asked(
    config: ModelConfig, script: JavaScript
) -> None:
    reader = reader_for(config)
    kinds: Sequence[AttentionKind] = KINDS if reader.encoder else ("decoder",)
    asked = [(kind, name) for kind in kinds for name in FURTHER]
    asks = [asks_of(reader, kind, inspect={"layer": 0, "stage": name}) for kind, name in asked]
    found = script("answers", config_record(config), dict(reader.tensors), asks)
    of_layer = {} if not reader.encoder else more_stages(reader, map_of(reader, "cross"), 0)
    for (kind, name), answer in zip(asked, found, strict=True):
        read, attention = answer["inspected"], map_of(reader, kind)
        stages = {"resid_pre": attention.layers[0].resid_pre, **of_layer}
        stages |= more_stages(reader, attention, 0)
        if name in ("norm2", "ffn_hidden", "ffn") and not config.feed_forward:
            assert read is None
            assert name not in stages
            continue
        assert read["columns"] == stages[name].shape[1]
        same(read["values"], stages[name])
        assert answer["contributions"] is None
    last = map_of(reader, "cross" if reader.encoder else "decoder").layers[-1].resid_post
    end = asks_of(reader, "cross", inspect={"layer": config.n_layer - 1, "stage": "resid_post"})
    (answer,) = script("answers", config_record(config), dict(reader.tensors), [end])
    same(answer["inspected"]["values"], last)


@pytest.mark.parametrize("config", [PLAIN, CROSSED], ids=["text", "pair"])
def test_the_worker_answers_for_the_window_and_gives_nothing_that_there_is_not(
    config: ModelConfig, script: JavaScript
) -> None:
    reader = reader_for(config)
    logits = found_by_numpy(reader).logits
    asks = [
        asks_of(reader, "cross", logit={"position": 3, "id": None}),
        asks_of(reader, "cross", logit={"position": 8, "id": 4}),
        asks_of(reader, "cross", logit={"position": 9, "id": 4}),
        asks_of(reader, "cross", inspect={"layer": 2, "stage": "ffn"}),
        asks_of(reader, "cross"),
    ]
    found = script("answers", config_record(config), dict(reader.tensors), asks)
    likeliest, given, *others = (each["contributions"] for each in found)
    assert (likeliest["position"], likeliest["id"]) == (3, logits[3].argmax())
    assert (given["position"], given["id"]) == (8, 4)
    assert given["logit"] == pytest.approx(logits[8, 4], abs=1e-4)
    assert others == [None] * 3
    assert [each["inspected"] for each in found] == [None] * 5


def test_of_a_long_text_the_position_is_one_of_the_window(script: JavaScript) -> None:
    reader = reader_for(PLAIN)
    ids = np.resize(IDS, 20)
    ask = {"ids": ids.tolist(), "logit": {"position": 2, "id": 7}}
    (answer,) = script("answers", config_record(PLAIN), dict(reader.tensors), [ask])
    window = ids[answer["begin"] :]
    assert len(window) <= 12
    expected = reader.logits(reader.forward(window[None]))[0, 2, 7]
    assert answer["contributions"]["logit"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("config", [PLAIN, CROSSED], ids=["text", "pair"])
def test_parts_of_a_difference_are_the_differences_of_parts(
    config: ModelConfig, script: JavaScript
) -> None:
    reader = reader_for(config)
    asked = [{"position": 3, "id": 5, "against": against} for against in (7, 5, None)]
    asks = [asks_of(reader, "cross", logit=logit) for logit in asked]
    found = script("answers", config_record(config), dict(reader.tensors), asks)
    apart, same_id, alone = (each["contributions"] for each in found)
    expected = found_by_numpy(reader)
    values = expected.values[3, 5] - expected.values[3, 7]
    same(np.array([part["value"] for part in apart["parts"]]), values)
    assert apart["logit"] == pytest.approx(values.sum(), abs=1e-4)
    assert (apart["against"], same_id["against"]) == (7, None)
    assert same_id["logit"] == alone["logit"]


def test_the_check_finds_a_stage_that_the_others_do_not_give() -> None:
    reader = reader_for(PLAIN)
    layers = [[each] for each in reader.stages(IDS)]
    assert contributions(reader, layers, ALL).check.passed
    for name in ("context", "resid_mid", "resid_post"):
        moved = np.roll(getattr(layers[1][0], name), 1, axis=-1)
        other = replace(layers[1][0], **{name: moved})
        assert not contributions(reader, [layers[0], [other]], ALL).check.passed
