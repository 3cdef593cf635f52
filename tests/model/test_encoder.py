"""Models with an encoder, and those that normalise after a sublayer: every form gives one result.

readable heads = fused = numpy = cached = float64; padding changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
import torch
from encoded import reader_of

from gpt.config import ModelConfig
from gpt.config.model import Norm, Position
from gpt.errors import ConfigError
from gpt.heads.attention_map import stages_of
from gpt.heads.proof import IN_FLOAT64, recomputed
from gpt.model import GPT, initialise
from gpt.model.gpt import Block
from gpt.reading import decode
from gpt.reading.decode import CachedDecoder
from gpt.training.checkpoint import exact_logits

SHAPE: dict[str, Any] = dict(vocab_size=11, block_size=12, n_layer=2, n_head=2, n_embd=8, bias=True)
IDS, SOURCE = (
    torch.randint(11, (3, n), generator=torch.Generator().manual_seed(n)) for n in (5, 7)
)
SEEN = torch.arange(7) < torch.tensor([7, 4, 2])[:, None]
VARIANTS = [
    {"position": position, "norm": norm, "post_norm": post, "encoder_layers": layers}
    | {"shared_embedding": layers == 2, "scaled_embedding": post != (layers == 2)}
    | {"tied": norm == "rms", "qkv_bias": post}
    for position, norm, post, layers in product(
        get_args(Position), get_args(Norm), (False, True), (0, 1, 2)
    )
]


def model_of(**options: Any) -> GPT:
    """A model with random weights, larger than those that training starts from."""
    model = GPT(ModelConfig(**SHAPE | options))
    initialise(model, seed=1)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def logits_of(model: GPT, *rows: int) -> Any:
    """(B, T, vocab_size) logits of these rows of IDS, with their sources if it has an encoder."""
    read: Any = {"source": SOURCE[[*rows]], "seen": SEEN[[*rows]]} if model.encoder else {}
    with torch.no_grad():
        return model(IDS[[*rows]], **read).numpy()


def test_a_block_has_as_many_parameters_as_the_papers() -> None:
    shape = ModelConfig(
        vocab_size=2, n_embd=512, n_head=8, bias=True, norm="layer", activation="relu"
    )
    assert sum(each.numel() for each in Block(shape).parameters()) == 3_150_848


@pytest.mark.parametrize("options", VARIANTS)
def test_all_forms_of_a_model_compute_the_same(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "ROWS", 4)  # two of the three texts at once, then one
    model = model_of(**options)
    expected, reader = logits_of(model, 0, 1, 2), reader_of(model)
    heads = GPT(replace(model.config, attention="heads")).eval()
    heads.load_parameters(model.stored_parameters())
    np.testing.assert_allclose(logits_of(heads, 0, 1, 2), expected, rtol=0, atol=2e-5)
    ids, source, seen = IDS.numpy(), SOURCE.numpy(), SEEN.numpy()
    memory = reader.encode(source, seen) if reader.encoder else None
    found = reader.logits(reader.forward(ids, memory))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    decoder = CachedDecoder(reader)
    cached = [decoder.start(ids[:, :2], memory), *(decoder.step(ids[:, n]) for n in range(2, 5))]
    np.testing.assert_allclose(np.stack(cached, 1), expected[:, 1:], rtol=0, atol=2e-5)
    whole = exact_logits(model, ids[:1], source[:1] if reader.encoder else None)
    exact = reader.in_float64()
    memory = exact.encode(source[:1]) if exact.encoder else None
    found = exact.logits(exact.forward(ids[:1], memory))
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", [it for it in VARIANTS if it["encoder_layers"]])
def test_padding_changes_no_logit(options: dict[str, Any]) -> None:
    model = model_of(**options).double()  # in float32, products of other shapes round otherwise
    expected, changed = logits_of(model, 0, 1, 2), SOURCE.clone()
    changed[~SEEN] = (changed[~SEEN] + 3) % 11
    with torch.no_grad():
        other = model(IDS, source=changed, seen=SEEN).numpy()
        alone = model(IDS[2:], source=SOURCE[2:, :2]).numpy()
    assert np.array_equal(other, expected)
    np.testing.assert_allclose(alone, expected[2:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [it for it in VARIANTS if it["encoder_layers"]])
def test_float64_holds_every_stage_of_self_and_cross_attention(options: dict[str, Any]) -> None:
    reader, source = reader_of(model_of(**options)), SOURCE[1, :4].numpy()
    stages = stages_of(reader, IDS[1].numpy(), source)
    assert [layers[0].weights.shape for layers in stages.values()] == [
        (2, 4, 4),
        (2, 5, 5),
        (2, 5, 4),
    ]
    checks = [*recomputed(reader, IDS[1].numpy(), stages, source)]
    assert {"memory", "output", "logits"} < {check.name for check in checks}
    assert [check.name for check in checks if not check.passed or check.group != IN_FLOAT64] == []


def test_a_stream_can_go_on_several_times() -> None:
    reader = reader_of(model_of(encoder_layers=1))
    memory, kept = reader.encode(SOURCE.numpy(), SEEN.numpy()), np.array([2, 0, 0, 1])
    decoder, again = CachedDecoder(reader), CachedDecoder(reader)
    decoder.start(IDS[:, :2].numpy(), memory)
    decoder.keep(kept)
    found = decoder.step(IDS[kept, 3].numpy())
    again.start(IDS[:, :2].numpy(), memory)
    expected = again.step(IDS[:, 3].numpy())[kept]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"encoder_layers": -1}, "encoder_layers"),
        ({"encoder_layers": 1, "counting": 2}, "counting"),
        ({"shared_embedding": True}, "shared_embedding"),
    ],
)
def test_options_that_contradict_an_encoder_are_refused(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        ModelConfig(**SHAPE | options)
    assert raised.value.field == named
