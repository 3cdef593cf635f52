"""The page's GPT computes what numpy's does: stages, lens, and with replaced heads.

tests/test_parity.py compares the logits of every variant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from javascript import JavaScript, JavaScriptError

from gpt.config import ModelConfig
from gpt.heads.activations import ActivationPlan
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.view.page.packing import select_allowed
from gpt.view.page.shipping import config_record

T = 21  # more than the page computes at once


def reader_of(larger: float = 1.0, **options: Any) -> Reader:
    """A model of random weights, whose heads differ. larger: factor of all weights."""
    shape: dict[str, Any] = {"vocab_size": 11, "n_layer": 3, "n_head": 3, "n_embd": 18}
    config = ModelConfig(**{**shape, "block_size": 32, **options})
    random = np.random.default_rng(3)
    tensors = {
        name: random.normal(0, larger * 1.5 / shape[-1] ** 0.5, shape).astype(np.float32)
        for name, shape in config.shapes().items()
    }
    for name in tensors:
        tensors[name] += "norm" in name and name.endswith(".weight")
    return Reader(config, tensors)


def opened(script: JavaScript, reader: Reader) -> int:
    number: int = script("open", config_record(reader.config), dict(reader.tensors))
    return number


def ids_of(reader: Reader, length: int = T) -> Any:
    return np.random.default_rng(4).integers(reader.config.vocab_size, size=length)


def expected_logits(reader: Reader, ids: Any, patch: Any = None) -> Array:
    """(T, V) in float64."""
    exact = Reader(
        reader.config, {n: each.astype(np.float64) for n, each in reader.tensors.items()}
    )
    return ActivationPlan(exact, ids[None], "logits", patch=patch).read()["logits"][0]


def apart(found: Array, expected: Array) -> float:
    assert found.size == expected.size
    return float(np.abs(found.reshape(expected.shape) - expected).max())


def test_a_text_read_in_parts_and_edited_gives_the_logits_of_the_whole(
    script: JavaScript,
) -> None:
    reader = reader_of()
    ids = ids_of(reader)
    first, rest, other = ids[:5].tolist(), ids[5:].tolist(), ids[::-1][:9].tolist()
    model = opened(script, reader)
    whole = script("logits", model, [ids.tolist()], None)
    for parts in ([first, rest], [[each] for each in ids.tolist()], [first, other, -9, rest]):
        assert np.array_equal(script("logits", model, parts, None), whole)
    emptied = [first, -5, first, rest]
    assert np.array_equal(script("logits", model, emptied, None), whole)


@pytest.mark.parametrize("options", [{}, {"bias": True}])
def test_stages_and_lens_equal_numpys(script: JavaScript, options: dict[str, Any]) -> None:
    reader = reader_of(**options)
    ids, tolerance = ids_of(reader), 1e-4
    found = script("stages", opened(script, reader), ids.tolist(), None)
    stages = reader.stages(ids)
    for layer, expected in zip(found["layers"], stages, strict=True):
        for name in ("q", "k", "v", "resid_pre", "proj"):
            assert apart(layer[name], getattr(expected, name)) < tolerance, name
        lower = np.tri(len(expected.resid_pre), dtype=np.bool_)
        assert apart(layer["weights"], select_allowed(expected.weights, lower)) < 1e-5
    streams = np.stack([stages[0].resid_pre, *(each.resid_post for each in stages)])
    lens = reader.logits(reader.final_norm(streams))
    for found_at, expected_at in zip(found["lens"], lens, strict=True):
        assert apart(found_at, expected_at) < tolerance


def test_replaced_heads_and_weights_give_the_logits_of_a_patch(script: JavaScript) -> None:
    reader = reader_of()
    config, ids = reader.config, ids_of(reader)
    model, random = opened(script, reader), np.random.default_rng(5)
    mean = random.normal(size=config.head_size).astype(np.float32)
    row = random.dirichlet(np.ones(8)).astype(np.float32)

    def with_row(weights: Array) -> Array:
        changed = weights.copy()
        changed[..., 7, :8] = row
        return changed

    off = {"heads": [{"layer": 1, "head": 2, "value": None}], "rows": []}
    averaged = {"heads": [{"layer": 0, "head": 0, "value": mean}, *off["heads"]], "rows": []}
    moved = {"heads": [], "rows": [{"layer": 2, "head": 1, "query": 7, "weights": row}]}
    both = {"heads": off["heads"], "rows": moved["rows"]}
    patch_off, patch_moved = {("context", 1, 2): 0}, {("weights", 2, 1): with_row}
    before = script("logits", model, [ids.tolist()], None)
    for changes, patch in [
        (off, patch_off),
        (averaged, {("context", 0, 0): mean, **patch_off}),
        (moved, patch_moved),
        (both, {**patch_off, **patch_moved}),
    ]:
        found = script("logits", model, [ids[:6].tolist(), ids[6:].tolist()], changes)
        assert apart(found, expected_logits(reader, ids, patch)) < 1e-5
        assert apart(found, before) > 1e-3
    weights = script("stages", model, ids.tolist(), moved)["layers"][2]["weights"]
    assert np.array_equal(weights.reshape(3, -1)[1, 28:36], row)


def test_a_context_of_a_million_characters_takes_memory_for_the_text_only(
    script: JavaScript,
) -> None:
    for position in ("rotary", "sinusoidal"):
        model = opened(script, reader_of(block_size=2**20, position=position))
        assert 0 < script("room", model, [1, 2, 3]) < 50_000


def test_what_the_model_cannot_read_or_compute_is_refused(script: JavaScript) -> None:
    reader = reader_of()
    model = opened(script, reader)
    for parts, reason in (
        ([[0] * 33], "The model reads at most 32 characters at once."),
        ([[0] * 32, [0]], "The model reads at most 32 characters at once."),
        ([[11]], "The text has a character that the model does not know."),
        ([[-1]], "The text has a character that the model does not know."),
    ):
        with pytest.raises(JavaScriptError, match=reason):
            script("logits", model, parts, None)
    record, tensors = config_record(reader.config), dict(reader.tensors)
    unknown = 'cannot compute the model\'s activation function "toString"'
    with pytest.raises(JavaScriptError, match=unknown):
        script("open", record | {"activation": "toString"}, tensors)
    del tensors["blocks.1.attention.qkv.weight"]
    with pytest.raises(JavaScriptError, match=r"lacks its numbers blocks.1.attention.qkv.weight"):
        script("open", record, tensors)
