"""The page's model with an encoder computes what numpy's does: logits, stages, targets, proof."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from encoded import encoded_file, hooked_logits
from javascript import JavaScript, JavaScriptError

import gpt
from gpt.config import AttentionKind, ModelConfig, SampleConfig
from gpt.heads.attention_map import stages_of
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.pairs import sample_targets, surprisals_of_targets
from gpt.view.page.packing import select_allowed
from gpt.view.page.shipping import config_record, proof_record, rounded_tensors

KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)
SOURCE, READ = 9, 19  # characters; the page computes up to 16 of a target at once
FIRST_ID, LAST_ID = 1, 0
MARKS = {"first": FIRST_ID, "last": LAST_ID, "never": []}
GREEDY: dict[str, Any] = {"temperature": 0, "seed": 0}


def reader_of(**options: Any) -> Reader:
    """A model of random weights, whose heads differ."""
    shape: dict[str, Any] = {"vocab_size": 11, "n_layer": 2, "n_head": 3, "n_embd": 18}
    config = ModelConfig(**{**shape, "block_size": 24, "encoder_layers": 2, **options})
    random = np.random.default_rng(3)
    tensors = {
        name: random.normal(0, 1.5 / shape[-1] ** 0.5, shape).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    for name in tensors:
        tensors[name] += "norm" in name and name.endswith(".weight")
    return Reader(config, tensors)


def opened(script: JavaScript, reader: Reader) -> int:
    number: int = script("open", config_record(reader.config), dict(reader.tensors))
    return number


def ids_of(length: int, seed: int = 4) -> Any:
    return np.random.default_rng(seed).integers(11, size=length)


def apart(found: Array, expected: Array) -> float:
    assert found.size == expected.size
    return float(np.abs(found.reshape(expected.shape) - expected).max())


@pytest.mark.parametrize(
    ("position", "post_norm"), [("rotary", False), ("sinusoidal", True), ("learned", True)]
)
def test_stages_of_every_kind_equal_numpys(
    script: JavaScript, position: str, post_norm: bool
) -> None:
    reader = reader_of(position=position, post_norm=post_norm, activation="swiglu")
    source, read = ids_of(SOURCE), ids_of(READ, 5)
    parts = [read[:4].tolist(), read[4:].tolist()]
    found = script("everything", opened(script, reader), source.tolist(), parts)
    assert apart(found["memory"], reader.encode(source[None]).states[0]) < 1e-4
    for kind, layers in stages_of(reader, read, source).items():
        for ours, expected in zip(found[kind], layers, strict=True):
            for name in ("q", "k", "v", "resid_pre", "proj"):
                assert apart(ours[name], getattr(expected, name)) < 1e-4, (kind, name)
            assert ("resid_mid" in ours) == post_norm
            if post_norm:
                assert apart(ours["resid_mid"], expected.resid_mid) < 1e-4
            _, T, S = expected.weights.shape
            allowed = np.tri(T, S, dtype=bool) if kind == "decoder" else np.ones((T, S), bool)
            assert apart(ours["weights"], select_allowed(expected.weights, allowed)) < 1e-5


def patched_logits(reader: Reader, source: Any, read: Any, changes: dict[str, Any]) -> Array:
    """(T, V): numpy's logits with outputs of heads and rows of weights replaced in a hook."""

    def hook(kind: str, name: str, layer: int, array: Array) -> Array:
        array = array.copy()
        for each in changes[kind]["heads"]:
            if (name, layer) == ("context", each["layer"]):
                array[:, each["head"]] = 0 if each["value"] is None else each["value"]
        for each in changes[kind]["rows"]:
            if (name, layer) == ("weights", each["layer"]):
                row = each["weights"]
                array[:, each["head"], each["query"], : len(row)] = row
        return array

    return hooked_logits(reader, source, read, hook)


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_heads_and_weights_of_every_kind_give_numpys_logits(
    script: JavaScript, kind: AttentionKind
) -> None:
    reader = reader_of()
    source, read = ids_of(SOURCE), ids_of(READ, 5)
    model, random = opened(script, reader), np.random.default_rng(5)
    none: dict[str, Any] = {"heads": [], "rows": []}
    mean = random.normal(size=reader.config.head_size).astype(np.float32)
    row = random.dirichlet(np.ones(8 if kind == "decoder" else SOURCE)).astype(np.float32)
    before = script("everything", model, source.tolist(), [read.tolist()])["logits"]
    for change in (
        {"heads": [{"layer": 1, "head": 2, "value": None}], "rows": []},
        {"heads": [{"layer": 0, "head": 1, "value": mean}], "rows": []},
        {"heads": [], "rows": [{"layer": 1, "head": 0, "query": 7, "weights": row}]},
    ):
        changes = dict.fromkeys(KINDS, none) | {kind: change}
        parts = [read[:5].tolist(), read[5:].tolist()]
        found = script("everything", model, source.tolist(), parts, changes)["logits"]
        assert apart(found, patched_logits(reader, source, read, changes)) < 1e-4
        assert apart(found, before) > 1e-3


OPTIONS: list[dict[str, Any]] = [
    GREEDY,
    {"temperature": 1.0, "seed": 3},
    {"temperature": 1.7, "top_k": 5, "seed": 2**40},
    {"temperature": 2.0, "top_p": 0.8, "min_p": 0.01, "seed": 1},
    {"temperature": 1.3, "typical_p": 0.7, "seed": 8},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_target_is_that_of_sample(script: JavaScript, options: dict[str, Any]) -> None:
    reader = reader_of()
    config = SampleConfig(**{**options, "length": 24})
    sources = [ids_of(length, length) for length in (1, 3, 8, 24)]
    asks = [
        dict(source=each.tolist(), target=None, kind="cross", options=options, marks=MARKS)
        for each in sources
    ]
    found = script("answers", opened(script, reader), [*asks, *asks[:1]])
    written = sample_targets(reader, sources, FIRST_ID, LAST_ID, config)
    for answer, (expected,) in zip(found, [*written, written[0]], strict=True):
        assert answer["target"] == expected.ids.tolist()
        assert answer["ended"] == expected.ended
        assert answer["nats"].sum() == pytest.approx(expected.nats, abs=1e-3)
        assert answer["sums"] < 1e-6


def test_a_target_of_ones_own_has_numpys_surprisals_whatever_was_read_before(
    script: JavaScript,
) -> None:
    reader = reader_of()
    source = ids_of(SOURCE)
    targets = [[3, 4, 5], [3, 4, 5, 6, 7], [3, 4], [], [3, 4, 9, 9], None, [3, 4, 5]]
    asks = [
        dict(source=source.tolist(), target=each, kind=kind, options=GREEDY, marks=MARKS)
        for each, kind in zip(targets, (*KINDS, *KINDS, "cross"), strict=True)
    ]
    found = script("answers", opened(script, reader), asks)
    for answer, target in zip(found, targets, strict=True):
        if target is None:
            continue
        expected = surprisals_of_targets(
            reader, [(source, np.array(target, int))], FIRST_ID, LAST_ID
        )
        np.testing.assert_allclose(answer["nats"], expected, atol=1e-4)
        assert answer["logits"].size == (len(target) + 1) * 11


@pytest.mark.parametrize(
    ("options", "bits", "larger"),
    [
        ({}, 32, 1),
        ({"position": "learned", "post_norm": True, "norm": "layer"}, 16, 1),
        ({}, 16, 4),
    ],
)
def test_the_proof_holds_for_the_weights_of_the_file_and_for_no_others(
    script: JavaScript, tmp_path: Path, options: dict[str, Any], bits: Any, larger: int
) -> None:
    stored = gpt.load(encoded_file(tmp_path / "p.safetensors", **options)).stored
    sharp = {name: each * np.float32(larger) for name, each in stored.tensors.items()}
    stored = replace(stored, tensors=sharp)
    record, tensors = proof_record(stored, bits), rounded_tensors(stored.tensors, bits)
    config = config_record(stored.config)
    proven = script("prove", script("open", config, tensors), record)
    assert [each["name"].split()[0] for each in proven] == ["logits", "encoder", "decoder", "cross"]
    assert all(each["error"] <= each["bound"] for each in proven)
    assert all(each["bound"] == pytest.approx(1e-4) for each in proven[1:]) or larger > 1
    assert proven[1]["error"] > 0
    for name in ("blocks.1.cross.qkv.weight", "encoder.blocks.2.attention.qkv.weight"):
        other = dict(tensors) | {name: tensors[name] * np.float32(1.1)}
        worse = script("prove", script("open", config, other), record)
        assert not all(each["error"] <= each["bound"] for each in worse)
    del record["texts"][0]["weights"]["cross"]
    damaged = script("prove", script("open", config, tensors), record)
    assert damaged[3]["error"] is None  # NaN in JSON
    empty = script("prove", script("open", config, tensors), record | {"texts": []})
    assert [each["error"] for each in empty] == [None] * 4


def test_what_the_model_cannot_read_is_refused(script: JavaScript) -> None:
    reader = reader_of()
    model = opened(script, reader)
    for source, read, reason in (
        ([2] * 25, [1], "at most 24 characters"),
        ([11], [1], "does not know"),
        ([2], [1] * 25, "at most 24 characters"),
    ):
        with pytest.raises(JavaScriptError, match=reason):
            script("everything", model, source, [read])
    tensors = dict(reader.tensors)
    del tensors["encoder.blocks.1.attention.qkv.weight"]
    with pytest.raises(JavaScriptError, match=r"lacks its numbers blocks.1.attention.qkv.weight"):
        script("open", config_record(reader.config), tensors)
