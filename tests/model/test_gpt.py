"""The model: readable = fused = numpy, one layout, causality, parameters, initialisation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.config import ModelConfig
from gpt.config import model as choices
from gpt.config.fields import only_fields
from gpt.config.presets import PRESETS, preset
from gpt.model import GPT, initialise
from gpt.model.attention import ATTENTION
from gpt.model.layers import ACTIVATIONS, NORMS
from gpt.model.positions import POSITIONS
from gpt.reading import layers as read_layers
from gpt.reading import positions as read_positions
from gpt.reading.gpt import Memory, Reader

KINDS = list(product(POSITIONS, NORMS, ACTIVATIONS))
# bias, tied, qkv_bias: all pairs of values of any two.
FLAGS = [
    (False, False, False),
    (False, True, True),
    (True, False, True),
    (True, True, False),
]
SHAPE: dict[str, Any] = {"vocab_size": 11, "block_size": 8, "n_layer": 2, "n_head": 2, "n_embd": 8}


@pytest.fixture
def float64() -> Iterator[None]:
    """Inside, torch creates float64 tensors, including tables of positions."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def shaped(position: str, norm: str, activation: str, flags: tuple[Any, ...]) -> ModelConfig:
    names = ("bias", "tied", "qkv_bias")
    kinds: dict[str, Any] = {"position": position, "norm": norm, "activation": activation}
    return ModelConfig(**SHAPE, **kinds, **dict(zip(names, flags, strict=True)))


def parameters_of(config: ModelConfig) -> dict[str, Tensor]:
    """Random numbers much larger than initial weights, so that every part affects the logits."""
    random = torch.Generator().manual_seed(7)
    return {name: torch.randn(shape, generator=random) for name, shape in config.shapes().items()}


def built(config: ModelConfig, attention: str, stored: dict[str, Tensor]) -> GPT:
    model = GPT(ModelConfig(**{**vars(config), "attention": attention}))
    model.load_parameters(stored)
    return model.eval()


def ids_for(config: ModelConfig, batch: int = 3) -> Tensor:
    random = torch.Generator().manual_seed(8)
    return torch.randint(config.vocab_size, (batch, config.block_size), generator=random)


def gradients(model: GPT, ids: Tensor) -> dict[str, Tensor]:
    """The gradients of the loss in the checkpoint's layout."""
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.data = parameter.grad
    return model.stored_parameters()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("position", "norm", "activation"), KINDS)
def test_readable_fused_and_numpy_agree_in_float64(
    position: str, norm: str, activation: str
) -> None:
    for flags in FLAGS:
        config = shaped(position, norm, activation, flags)
        stored, ids = parameters_of(config), ids_for(config)
        heads, fused = (built(config, attention, stored) for attention in ("heads", "fused"))
        read = Reader(config, {name: tensor.numpy() for name, tensor in stored.items()})
        expected = heads(ids)
        torch.testing.assert_close(fused(ids), expected, rtol=1e-10, atol=1e-10)
        numpy_logits = torch.from_numpy(read.logits(read.forward(ids.numpy())))
        torch.testing.assert_close(numpy_logits, expected, rtol=1e-10, atol=1e-10)
        of_heads, of_fused = gradients(heads, ids), gradients(fused, ids)
        assert of_heads.keys() == of_fused.keys() == config.shapes().keys()
        for name, gradient in of_heads.items():
            assert gradient.abs().max() > 0, name
            torch.testing.assert_close(of_fused[name], gradient, rtol=1e-10, atol=1e-10, msg=name)


S = 5
PAST = np.tri(8, dtype=np.bool_)
#: Kind of attention -> length of its memory (None: own keys), and which keys are allowed.
OTHERS: dict[str, tuple[int | None, Any]] = {
    "own keys, padded": (None, PAST & (np.arange(8) < 6)),
    "own keys, prefix": (None, PAST | (np.arange(8) < 3)),
    "memory": (S, None),
    "memory, padded": (S, np.arange(S)[None] < 3),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", OTHERS)
def test_other_keys_and_masks_agree_in_float64(kind: str, position: str, attention: str) -> None:
    (length, allowed), random = OTHERS[kind], np.random.default_rng(3)
    options = {"position": position, "qkv_bias": True, "encoder_layers": 0 if length is None else 1}
    config = ModelConfig(**SHAPE, **options)
    stored = parameters_of(config)
    model = built(config, attention, stored)
    read = Reader(config, {name: tensor.numpy() for name, tensor in stored.items()})
    x, memory = random.normal(size=(1, 8, 8)), random.normal(size=(1, S, 8))
    rotate = partial(model.position.rotate, at=slice(0, 8))
    torchs: dict[str, Any] = {"allowed": allowed}
    ours: dict[str, Any] = {"allowed": allowed}
    if length is not None:
        torchs = {"memory": memory, "seen": allowed}
        ours = {"memory": Memory(memory, None if allowed is None else allowed[None])}
    torchs = {name: v if v is None else torch.from_numpy(v) for name, v in torchs.items()}
    expected = model.blocks[1](torch.from_numpy(x), rotate, **torchs)
    found = torch.from_numpy(read.block(x, 1, **ours)["output"])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("position", "norm", "activation"), KINDS)
def test_readable_fused_and_numpy_agree_in_float32(
    position: str, norm: str, activation: str
) -> None:
    config = shaped(position, norm, activation, (True, False, True))
    stored, ids = parameters_of(config), ids_for(config)
    heads, fused = (built(config, attention, stored) for attention in ("heads", "fused"))
    read = Reader(config, {name: tensor.numpy() for name, tensor in stored.items()})
    numpy_logits = read.logits(read.forward(ids.numpy()))
    assert heads(ids).dtype == torch.float32
    assert numpy_logits.dtype == np.float32
    torch.testing.assert_close(fused(ids), heads(ids), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.from_numpy(numpy_logits), heads(ids), rtol=1e-4, atol=1e-4)
    of_heads, of_fused = gradients(heads, ids), gradients(fused, ids)
    for name, gradient in of_heads.items():
        torch.testing.assert_close(of_fused[name], gradient, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(("position", "norm", "activation"), KINDS[::3])
def test_both_attentions_share_one_checkpoint_layout(
    position: str, norm: str, activation: str, flags: tuple[Any, ...]
) -> None:
    config = shaped(position, norm, activation, flags)
    original = parameters_of(config)
    heads = built(config, "heads", original)
    fused = built(config, "fused", heads.stored_parameters())
    again = built(config, "heads", fused.stored_parameters())
    for model in (heads, fused, again):
        stored = model.stored_parameters()
        shapes = {name: tuple(tensor.shape) for name, tensor in stored.items()}
        assert list(shapes.items()) == list(config.shapes().items())
        assert all(torch.equal(stored[name], original[name]) for name in original)
        assert sum(p.numel() for p in model.parameters()) == config.parameters()
    state = [*fused.state_dict()]
    assert state == [*config.shapes(), *(["lm_head.weight"] if config.tied else [])]


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("changed", [0, 3, 7])
def test_character_does_not_change_earlier_logits(position: str, changed: int) -> None:
    config = shaped(position, "layer", "gelu", (True, True, True))
    stored, before = parameters_of(config), ids_for(config, batch=1)
    after = before.clone()
    after[0, changed] = (before[0, changed] + 1) % config.vocab_size
    for attention in ATTENTION:
        model = built(config, attention, stored)
        old, new = model(before)[0], model(after)[0]
        assert torch.equal(old[:changed], new[:changed])
        assert not torch.equal(old[changed], new[changed])
    read = Reader(config, {name: tensor.numpy() for name, tensor in stored.items()})
    texts = before.numpy(), after.numpy()
    streams = [read.forward(ids)[0] for ids in texts]
    assert np.array_equal(streams[0][:changed], streams[1][:changed])
    assert not np.array_equal(streams[0][changed], streams[1][changed])
    for old_stages, new_stages in zip(*(read.stages(ids[0]) for ids in texts), strict=True):
        assert np.array_equal(old_stages.weights[:, :changed], new_stages.weights[:, :changed])


@pytest.mark.parametrize(("device", "count"), [("cpu", 795_904), ("cuda", 10_646_784)])
def test_nanogpt_presets_have_nanogpts_parameter_counts(device: str, count: int) -> None:
    recipe = only_fields(ModelConfig, preset("classic", device))
    assert ModelConfig(vocab_size=65, **recipe).parameters(positions=False) == count


@pytest.mark.parametrize("n_embd", [8, 24, 104, 384])
def test_activations_have_similar_parameters_and_operations(n_embd: int) -> None:
    plain, *others = (
        ModelConfig(vocab_size=65, n_embd=n_embd, activation=name) for name in ACTIVATIONS
    )
    matrices = plain.n_layer * 12 * n_embd**2 + 65 * n_embd
    attention = 6 * plain.n_layer * n_embd * plain.block_size
    assert plain.training_flops == 6 * matrices + attention
    for config in others:
        assert config.hidden % 8 == 0
        more = 3 * 8 * n_embd * config.n_layer  # three matrices with at most 8 extra rows
        assert 0 <= config.parameters() - plain.parameters() <= more
        assert config.training_flops - plain.training_flops == 6 * (
            config.parameters() - plain.parameters()
        )


@pytest.mark.parametrize("name", PRESETS)
def test_a_new_model_predicts_the_uniform_distribution(name: str) -> None:
    config = ModelConfig(vocab_size=65, **only_fields(ModelConfig, preset(name, "cpu")))
    model, ids = GPT(config), ids_for(config, batch=4)
    initialise(model, 1337)
    with torch.no_grad():
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    assert abs(loss.item() - math.log(65)) < 0.1


def test_both_attentions_have_the_same_initial_weights() -> None:
    config = shaped("learned", "layer", "gelu", (True, False, True))
    models = {kind: GPT(ModelConfig(**{**vars(config), "attention": kind})) for kind in ATTENTION}

    def start(kind: str, seed: int) -> dict[str, Tensor]:
        initialise(models[kind], seed)
        return {name: tensor.clone() for name, tensor in models[kind].stored_parameters().items()}

    heads, fused, other = start("heads", 5), start("fused", 5), start("fused", 6)
    assert all(torch.equal(heads[name], fused[name]) for name in config.shapes())
    assert not torch.equal(fused["lm_head.weight"], other["lm_head.weight"])


def test_residual_projections_have_smaller_initial_weights() -> None:
    config = ModelConfig(vocab_size=65, n_layer=8)
    model = GPT(config)
    initialise(model, 1)
    for name, tensor in model.stored_parameters().items():
        residual = name.endswith(("proj.weight", "down.weight"))
        expected = 0.02 / 4 if residual else 0.02
        assert tensor.std().item() == pytest.approx(expected, rel=0.05), name


@pytest.mark.parametrize(
    ("choice", "built_in"),
    [
        (choices.Norm, (NORMS, read_layers.NORMS)),
        (choices.Activation, (ACTIVATIONS, read_layers.ACTIVATIONS)),
        (choices.Position, (POSITIONS, read_positions.POSITIONS)),
        (choices.Attention, (ATTENTION,)),
    ],
)
def test_every_value_of_an_option_has_an_implementation(
    choice: Any, built_in: tuple[dict[str, Any], ...]
) -> None:
    assert all(set(get_args(choice)) == set(table) for table in built_in)
