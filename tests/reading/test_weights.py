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
from gpt.errors import ConfigError
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader
from gpt.reading.weights import Weights
from gpt.storage.run import Checkpoint

CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "relu2": lambda x: F.relu(x) ** 2,
    "swiglu": F.silu,
}
IDS, SOURCE = torch.tensor([3, 1, 4, 1, 5, 9, 2]), torch.tensor([2, 7, 1, 8])


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class FromNames:
    """A forward whose only numbers are weights by their names. folded: norms only divide."""

    def __init__(self, config: ModelConfig, weights: Weights, folded: bool) -> None:
        self.config, self.folded = config, folded
        self.w = {name: torch.from_numpy(weights[name].copy()).double() for name in weights}

    def norm(self, x: Tensor, name: str, layer: int | None = None) -> Tensor:
        if self.folded or self.config.norm == "rms":
            return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
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
        bias = self.layer("b_".join(name.rsplit("W_", 1)), layer)
        return torch.einsum("tc,hcd->htd", x, self.w[name][layer]) + (
            bias[:, None] if bias.ndim else 0
        )

    def attention(self, x: Tensor, prefix: str, layer: int, memory: Tensor | None = None) -> Tensor:
        seen = x if memory is None else memory
        q, k, v = (
            self.heads(it, f"{prefix}W_{n}", layer)
            for it, n in ((x, "Q"), (seen, "K"), (seen, "V"))
        )
        if memory is None:
            q, k = self.turned(q), self.turned(k)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if not prefix:
            scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
        out = torch.einsum("htd,hdc->tc", scores.softmax(-1) @ v, self.w[f"{prefix}W_O"][layer])
        return out + self.layer(f"{prefix}b_O", layer)

    def stream(self, ids: Tensor, prefix: str, layers: int, memory: Tensor | None = None) -> Tensor:
        x = self.w[prefix + "W_E"][ids]
        if self.config.scaled_embedding and not self.folded:
            x = x * self.config.n_embd**0.5
        x = x + self.w[prefix + "W_pos"][: len(ids)] if prefix + "W_pos" in self.w else x
        curve = CURVES[self.config.activation]
        for n in range(layers):
            x = x + self.attention(self.norm(x, f"{prefix}ln1", n), prefix, n)
            if memory is not None:
                x = x + self.attention(self.norm(x, "cross_ln", n), "cross_", n, memory)
            if not self.config.feed_forward:
                continue
            read = self.norm(x, f"{prefix}ln2", n)
            up = read @ self.layer(f"{prefix}W_in", n) + self.layer(f"{prefix}b_in", n)
            if self.config.activation == "swiglu":
                gate = read @ self.layer(f"{prefix}W_gate", n) + self.layer(f"{prefix}b_gate", n)
                hidden = curve(gate) * up
            else:
                hidden = curve(up)
            x = x + hidden @ self.layer(f"{prefix}W_out", n) + self.layer(f"{prefix}b_out", n)
        return self.norm(x, prefix + "ln_final")

    def logits(self) -> Tensor:
        memory = None
        if self.config.encoder_layers:
            memory = self.stream(SOURCE, "encoder_", self.config.encoder_layers)
        x = self.stream(IDS, "", self.config.n_layer, memory)
        return x @ self.w["W_U"] + self.w.get("b_U", torch.zeros(()))


def double(config: ModelConfig, weights: dict[str, Tensor]) -> tuple[Weights, Tensor]:
    """The weights in float64, and torch's logits."""
    wide = {name: each.double() for name, each in weights.items()}
    model = torch_model(config, wide, "heads")
    more = {"source": SOURCE[None]} if config.encoder_layers else {}
    with torch.no_grad():
        logits: Tensor = model(IDS[None], **more)[0]
    return Weights.of(Reader(config, {n: each.numpy() for n, each in wide.items()})), logits


BEFORE = [config for config in VARIANTS if not config.post_norm]


@pytest.mark.parametrize("config", BEFORE, ids=name_of)
def test_a_forward_from_named_and_from_folded_weights_gives_torchs_logits(
    config: ModelConfig,
) -> None:
    weights, logits = double(config, random_weights(config))
    for folded in (False, True):
        named = weights.folded() if folded else weights
        found = FromNames(config, named, folded).logits()
        torch.testing.assert_close(found, logits, rtol=0, atol=1e-10)
        norms = {name for name in named if "ln" in name}
        assert bool(norms) == (config.norm == "layer" and not folded)


def test_folded_layer_norm_is_centred_and_folding_again_changes_nothing() -> None:
    options = {"norm": "layer", "bias": True, "position": "learned", "scaled_embedding": True}
    config = ModelConfig(vocab_size=11, n_layer=2, n_head=2, n_embd=8, **options)
    folded = double(config, random_weights(config))[0].folded()
    for name in ("W_E", "W_pos", "W_O", "W_out", "b_O", "b_out"):
        assert np.abs(folded[name].mean(axis=-1)).max() < 1e-15, name
    for name in ("W_Q", "W_K", "W_V", "W_in", "W_U"):
        assert np.abs(folded[name].mean(axis=-2)).max() < 1e-15, name
    again = folded.folded()
    for name in folded:
        np.testing.assert_allclose(again[name], folded[name], rtol=0, atol=1e-15)


def test_a_layer_whose_shift_is_zero_has_a_folded_bias_like_the_others() -> None:
    config = ModelConfig(vocab_size=11, n_layer=2, n_head=2, n_embd=8, norm="layer", bias=True)
    stored = random_weights(config)
    stored["blocks.0.norm1.bias"] = torch.zeros(8)
    folded = double(config, stored)[0].folded()
    assert folded["b_Q"].shape == (2, 2, 4)
    assert not folded["b_Q", 0].any()
    assert folded["b_Q", 1].any()


def test_keys_choose_layer_and_head_and_arrays_are_read_only_views(tiny: Checkpoint) -> None:
    run = TrainedGPT(tiny.model())
    weights = run.weights
    C, H = run.config.n_embd, run.config.n_head
    assert weights["W_Q"].shape == (2, H, C, C // H) == weights.shapes["W_Q"]
    packed = run.stored.tensors["blocks.1.attention.qkv.weight"]  # (3C, C)
    np.testing.assert_array_equal(weights["W_K", 1, 1], packed[C : 2 * C].T[:, C // H :])
    assert np.shares_memory(weights["W_K", 1, 1], packed)
    np.testing.assert_array_equal(weights["W_V", None, 1], weights["W_V"][:, 1])
    assert weights["W_U"].shape == (C, len(run.vocabulary))
    for key in ("W_Q", ("W_Q", 1), ("W_O", 0, 1), "W_E"):
        assert weights[key].dtype == np.float32
        with pytest.raises(ValueError, match="read-only"):
            weights[key][...] = 0
    assert "W_Q (2, 2, 16, 8)" in repr(weights)
    assert dict(weights).keys() == weights.to_numpy().keys() == {*weights}
    html = weights._repr_html_()
    assert html is not None
    assert "2 × 2 × 16 × 8" in html
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(weights))["W_O"], weights["W_O"])


def test_wrong_keys_say_what_there_is(tiny: Checkpoint) -> None:
    weights = TrainedGPT(tiny.model()).weights
    for key, error, message in (
        ("W_X", ValueError, "'W_X' is not one of W_E"),
        (("W_E", 0), ValueError, "it has no layers"),
        (("W_in", 0, 1), ValueError, r"W_in has no heads; use \('W_in', layer\)"),
        (("W_Q", 0, 1, 2), ValueError, r"expected \('W_Q', layer, head\)"),
        (("W_Q", 2), IndexError, "layer 2 is not in 0 … 1"),
        (("W_Q", None, 2), IndexError, "head 2 is not in 0 … 1"),
        (("W_Q", 1.5), TypeError, "layer: expected a whole number"),
    ):
        with pytest.raises(error, match=message):
            weights[key]  # type: ignore[index]
    config = next(each for each in VARIANTS if each.post_norm)
    weights, _ = double(config, random_weights(config))
    with pytest.raises(ConfigError, match=r"post_norm.* nothing to fold"):
        weights.folded()
