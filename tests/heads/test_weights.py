"""Weights by name: a forward in torch from them alone, by other code, gives the model's logits."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from variants import VARIANTS, name_of, random_weights, torch_model

from gpt.config import ModelConfig
from gpt.heads.activations import Weights
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader
from gpt.storage.run import Checkpoint

CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x) ** 2,
}
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2])


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class FromNames:
    """A forward whose only numbers are weights by their names."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.w = {name: torch.from_numpy(weights[name].copy()).double() for name in weights}

    def norm(self, x: Tensor, name: str, layer: int | None = None) -> Tensor:
        found = (self.w.get(f"{name}_{each}") for each in "wb")
        gain, shift = (each if each is None or layer is None else each[layer] for each in found)
        return F.layer_norm(x, x.shape[-1:], gain, shift)

    def layer(self, name: str, layer: int) -> Tensor:
        """A weight of a layer; a bias that the model does not have is 0."""
        return self.w[name][layer] if name in self.w else torch.zeros(())

    def turned(self, x: Tensor) -> Tensor:
        """(H, T, D): coordinates 2d and 2d + 1 turn by the angle position / 10000^(2d/D)."""
        if self.config.position != "rotary":
            return x
        angles = torch.arange(x.shape[1])[:, None] / 10_000 ** (
            torch.arange(0, x.shape[2], 2) / x.shape[2]
        )
        one, two, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()
        return torch.stack([one * cos - two * sin, one * sin + two * cos], -1).flatten(-2)

    def heads(self, x: Tensor, name: str, layer: int) -> Tensor:
        """(T, C) -> (H, T, D): queries, keys or values without positions. name: Q, K or V."""
        bias = self.layer(f"b_{name}", layer)
        found = torch.einsum("tc,hcd->htd", x, self.w[f"W_{name}"][layer])
        return found + bias[:, None] if bias.ndim else found

    def attention(self, x: Tensor, layer: int) -> Tensor:
        q, k, v = (self.heads(x, name, layer) for name in "QKV")
        scores = self.turned(q) @ self.turned(k).mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
        out = torch.einsum("htd,hdc->tc", scores.softmax(-1) @ v, self.w["W_O"][layer])
        return out + self.layer("b_O", layer)

    def logits(self) -> Tensor:
        x = self.w["W_E"][IDS]
        x = x + self.w["W_pos"][: len(IDS)] if "W_pos" in self.w else x
        curve = CURVES[self.config.activation]
        for n in range(self.config.n_layer):
            x = x + self.attention(self.norm(x, "ln1", n), n)
            if not self.config.feed_forward:
                continue
            read = self.norm(x, "ln2", n)
            up = read @ self.layer("W_in", n) + self.layer("b_in", n)
            x = x + curve(up) @ self.layer("W_out", n) + self.layer("b_out", n)
        return self.norm(x, "ln_final") @ self.w["W_U"]


@pytest.mark.parametrize("config", VARIANTS, ids=name_of)
def test_a_forward_from_named_weights_gives_torchs_logits(config: ModelConfig) -> None:
    wide = {name: weight.double() for name, weight in random_weights(config).items()}
    with torch.no_grad():
        logits = torch_model(config, wide, "heads")(IDS[None])[0]
    weights = Weights.of_reader(
        Reader(config, {name: weight.numpy() for name, weight in wide.items()})
    )
    found = FromNames(config, weights).logits()
    torch.testing.assert_close(found, logits, rtol=0, atol=1e-10)


def test_keys_choose_layer_and_head_and_arrays_are_read_only_views(tiny: Checkpoint) -> None:
    run = TrainedGPT(tiny.model())
    weights = run.weights
    C, H = run.config.n_embd, run.config.n_head
    assert weights["W_Q"].shape == (2, H, C, C // H)
    packed = run.stored.tensors["blocks.1.attention.qkv.weight"]  # (3C, C)
    np.testing.assert_array_equal(weights["W_K", 1, 1], packed[C : 2 * C].T[:, C // H :])
    assert np.shares_memory(weights["W_K", 1, 1], packed)
    np.testing.assert_array_equal(weights["W_V", None, 1], weights["W_V"][:, 1])
    assert weights["W_U"].shape == (C, len(run.vocabulary))
    for key in ("W_Q", ("W_Q", 1), ("W_O", 0, 1), "W_E"):
        assert weights[key].dtype == np.float32
        with pytest.raises(ValueError, match="read-only"):
            weights[key][...] = 0
    assert dict(weights).keys() == weights.to_numpy().keys() == {*weights}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(weights))["W_O"], weights["W_O"])


def test_wrong_keys_say_what_there_is(tiny: Checkpoint) -> None:
    weights = TrainedGPT(tiny.model()).weights
    for key, error, message in (
        ("W_X", ValueError, "'W_X' is not one of W_E"),
        (("W_E", 0), ValueError, "W_E has neither layers nor heads"),
        (("W_in", 0, 1), ValueError, "W_in has only layers"),
        (("W_Q", 0, 1, 2), ValueError, "W_Q has only layers and heads"),
        (("W_Q", 2), IndexError, "layer 2 is not in 0 … 1"),
    ):
        with pytest.raises(error, match=message):
            weights[key]  # type: ignore[index]
