"""Replaced stages: equal values change nothing, torch agrees, ablation and path patching follow."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
import torch
from random_models import random_reader
from torch import Tensor, nn

from gpt.config import Ablation
from gpt.config.model import HEAD_STAGES, Position
from gpt.heads.activations import ActivationPlan, Patch, stage_shapes
from gpt.heads.attention_map import Key
from gpt.heads.survey import ablate, draw_other_windows
from gpt.interface.trained import TrainedGPT
from gpt.model import GPT
from gpt.reading import score as scoring
from gpt.reading.gpt import Array, Reader
from gpt.reading.score import surprisals

T = 8
Patched = dict[Key, Patch]
STAGES = [name for name in stage_shapes(random_reader().config, 1) if name != "head_output"]
PLACES: list[Key] = [*STAGES, ("logits", None, None, 1), ("resid_mid", None, None, 0)]
for _layer in range(2):
    PLACES += [(name, _layer) for name in STAGES[:-2]]
    PLACES += [(name, _layer, None, 1) for name in STAGES[:-2]]
    for _name in HEAD_STAGES:
        if _name != "head_output":
            PLACES += [(_name, _layer, _layer), (_name, _layer, _layer, 1), (_name, None, _layer)]


def ids_of(batch: int = 4, seed: int = 2) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(9, size=(batch, T))


def logits(reader: Reader, ids: Array, patch: Patched | None = None) -> Array:
    return ActivationPlan(reader, ids, "logits", patch=patch).read()["logits"]


@pytest.mark.parametrize("position", get_args(Position))
def test_equal_values_change_no_logit(position: str) -> None:
    reader = random_reader(np.float32, position=position)
    ids = ids_of()
    acts = ActivationPlan(reader, ids).read()
    for place in PLACES:
        same: list[Patch] = [acts[place], lambda x: x, lambda x: x.copy(), lambda x: x.tolist()]
        for values in same:
            assert np.array_equal(logits(reader, ids, {place: values}), acts["logits"]), place
    everything: Patched = {place: acts[place] for place in PLACES}
    assert np.array_equal(logits(reader, ids, everything), acts["logits"])


def changed(x: Any) -> Any:
    """A new value for numpy's and torch's arrays."""
    return 0.5 - 2 * x


def hooked(model: GPT, place: Key) -> Any:
    """Registers torch's hook that does to a module's input or output what `changed` does."""
    if isinstance(place, str):
        module = model.norm if place == "final_norm" else model.lm_head
        return module.register_forward_hook(lambda *call: changed(call[-1]))
    name, layer, *head = place
    block: Any = model.blocks[layer]
    if head:
        one = block.attention.heads[head[0]]
        module = one if name == "context" else one.value
        return module.register_forward_hook(lambda *call: changed(call[-1]))
    inputs: dict[str, nn.Module] = {
        **{"resid_pre": block, "ffn_hidden": block.feed_forward.down},
        **{"concat": block.attention.proj},
    }
    if name in inputs:
        return inputs[name].register_forward_pre_hook(
            lambda _, given: (changed(given[0]), *given[1:])
        )
    outputs = {"proj": block.attention, "ffn_out": block.feed_forward, "resid_post": block}
    return outputs[name].register_forward_hook(lambda *call: changed(call[-1]))


@pytest.mark.parametrize("position", get_args(Position))
@pytest.mark.parametrize("bias", [False, True])
def test_patched_logits_equal_torchs_with_a_forward_hook(position: str, bias: bool) -> None:
    reader, ids = random_reader(position=position, qkv_bias=bias, attention="heads"), ids_of()
    torch.set_default_dtype(torch.float64)
    try:
        model = GPT(reader.config).eval()
        stored = {name: torch.from_numpy(tensor.copy()) for name, tensor in reader.tensors.items()}
        model.load_parameters(stored)
        places: list[Key] = ["final_norm", "logits"]
        for layer in range(2):
            whole = ("resid_pre", "concat", "proj", "ffn_hidden", "ffn_out", "resid_post")
            places += [(name, layer) for name in whole]
            places += [(name, layer, head) for name in ("v", "context") for head in range(2)]
        unpatched = logits(reader, ids)
        for place in places:
            hook = hooked(model, place)
            with torch.no_grad():
                expected: Tensor = model(torch.from_numpy(ids))
            hook.remove()
            found = logits(reader, ids, {place: changed})
            np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-10)
            assert np.abs(found - unpatched).max() > 1e-3, place
    finally:
        torch.set_default_dtype(torch.float32)


def loss(reader: Reader, windows: Array, patch: Patched | None = None) -> Array:
    """(N,) mean loss of each window."""
    nats = surprisals(logits(reader, windows[:, :-1], patch), windows[:, 1:])
    return nats.mean(axis=-1, dtype=np.float64)  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", get_args(Ablation))
def test_patching_a_heads_context_equals_its_ablation(trained: TrainedGPT, how: Ablation) -> None:
    ids = trained.vocabulary.encode(trained.stored.excerpt)
    windows = np.stack([ids[n : n + 17] for n in range(0, 85, 17)])
    reader = trained.reader
    found = ablate(reader, windows, how)
    context = ActivationPlan(reader, windows[:, :-1], "context").read()["context"]
    others = draw_other_windows(5)
    for layer, head in product(range(2), range(2)):
        own = context[:, layer, head]  # (N, T, D)
        values = {"mean": own.mean(axis=(0, 1)), "zero": 0, "resample": own[others]}
        rises = loss(reader, windows, {("context", layer, head): values[how]})
        rise = (rises - loss(reader, windows)).mean()
        assert rise != 0
        assert found.values[layer, head] == pytest.approx(rise, rel=1e-4, abs=1e-7)


def test_a_function_gets_all_texts_and_an_array_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, ids = random_reader(), ids_of()
    context = ActivationPlan(reader, ids, "context", 0).read()["context", 0]
    expected = logits(reader, ids, {("context", 0): context[::-1]})
    monkeypatch.setattr(scoring, "NUMBERS_AT_ONCE", T * 32)
    assert scoring.windows_at_once(reader.config) == 1
    for values in (context[::-1], lambda x: x[::-1]):
        patched = logits(reader, ids, {("context", 0): values})
        np.testing.assert_allclose(patched, expected, rtol=0, atol=1e-12)


def test_what_a_key_with_more_numbers_names_is_replaced_later() -> None:
    reader, ids = random_reader(), ids_of()
    patch: Patched = {("context", 1, 0, -1): 4.0, ("context", 1, 0): 3.0, ("context", 1): 2.0}
    acts = ActivationPlan(reader, ids, "context", patch=patch | {"context": 1.0}).read()
    assert (acts["context", 0] == 1).all()
    assert (acts["context", 1, 1] == 2).all()
    assert (acts["context", 1, 0][:, :-1] == 3).all()
    assert (acts["context", 1, 0, T - 1] == 4).all()


@pytest.mark.parametrize("position", [5, -3])
@pytest.mark.parametrize("name", STAGES[1:-2])
def test_a_patch_of_positions_leaves_the_other_rows_and_earlier_logits(
    name: Any, position: int
) -> None:
    reader, ids = random_reader(), ids_of()
    heads = [1, None] if name in HEAD_STAGES else [None]
    clean = ActivationPlan(reader, ids).read()
    for head, values in product(heads, (0.5, lambda x: np.full_like(x, 0.5))):
        acts = ActivationPlan(reader, ids, patch={(name, 0, head, position): values}).read()
        assert (acts[name, 0, head, position] == 0.5).all()
        expected = clean[name, 0].copy()
        rows = expected if head is None else expected[:, head]
        rows[..., position, :] = 0.5
        np.testing.assert_array_equal(acts[name, 0], expected)
        np.testing.assert_array_equal(acts["logits"][:, :5], clean["logits"][:, :5])
        assert np.abs(acts["logits"] - clean["logits"]).max() > 1e-3


def test_positions_of_texts_of_different_lengths_count_from_the_begin(trained: TrainedGPT) -> None:
    texts = ["the cat", "no"]
    acts = trained.activations(texts, ["q", "logits"])
    assert np.array_equal(acts["q", 0, 1, 1], acts["q"][:, 0, 1, 1])
    for call in (
        lambda: acts["q", 0, 1, -1],
        lambda: trained.logits(texts, patch={("q", 0, 1, -1): 0}),
    ):
        with pytest.raises(IndexError, match=r"position -1 is not in 0 … 6"):
            call()
    same = trained.activations(["the cat", "no rat!"], "q")
    assert np.array_equal(same["q", 0, 1, -1], same["q"][:, 0, 1, 6])


WRONG: list[tuple[Any, type[Exception], str]] = [
    ({("mlp", 0): 0}, ValueError, "^'mlp' is not one of resid_pre, q, k, v"),
    ({("q", 0, 1, 2, 3): 0}, ValueError, r"at most \(stage, layer, head, position\)$"),
    ({("proj", 0, 1): 0}, ValueError, r"has no heads; use \('proj', layer, None, position\)$"),
    ({("logits", 1): 0}, ValueError, r"no layers; use \('logits', None, None, position\)$"),
    ({("q", 0, 1): np.ones((3, 8, 8))}, ValueError, r"requested shape \(1,3,8\)"),
    ({("q", 0, "max"): 0}, TypeError, "head: expected a whole number, not str"),
    (
        {("head_output", 0, 1): 0},
        ValueError,
        r"cannot be replaced; replace \('context', layer",
    ),
    ({("q", 2): 0}, IndexError, r"layer 2 is not one of 0, 1"),
    ({("q", 0, 0, -4): 0}, IndexError, r"position -4 is not in -3 … 2"),
    ({("q", 0): "zero"}, TypeError, "Cannot cast"),
    ({("q", 0): lambda x: x[:, :, :2]}, ValueError, "could not broadcast"),
]


@pytest.mark.parametrize(("patch", "error", "problem"), WRONG)
def test_error_of_a_patch_names_what_exists(
    trained: TrainedGPT, patch: Any, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        trained.logits("the", patch=patch)


def test_torch_has_the_same_logits_and_gives_gradients(trained: TrainedGPT) -> None:
    text = "the cat sat"
    model = trained.torch()
    assert not model.training
    ids = torch.tensor(trained.vocabulary.encode(text), dtype=torch.int64)[None]
    found = model(ids)
    np.testing.assert_allclose(found.detach().numpy(), trained.logits(text), rtol=0, atol=1e-5)
    torch.nn.functional.cross_entropy(found[0, :-1], ids[0, 1:]).backward()
    gradient = model.blocks[0].attention.qkv.weight.grad
    assert gradient is not None
    assert gradient.shape == (48, 16)
    assert gradient.abs().max() > 0
    with torch.no_grad():
        model.lm_head.weight.zero_()
    assert np.abs(trained.logits(text)).max() > 0  # a copy
