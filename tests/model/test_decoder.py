"""The torch decoder and the numpy decoder generate the same text."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any, get_args

import numpy as np
import pytest
import torch

from gpt.config import ModelConfig, SampleConfig
from gpt.config.model import Activation, Norm, Position
from gpt.config.sample import SHAPING
from gpt.model import GPT
from gpt.model import sampler as drawing
from gpt.model.decoder import TorchDecoder
from gpt.reading.decode import CachedDecoder
from gpt.reading.sampler import FILTERS as numpys_filters
from gpt.reading.sampler import draw, probabilities
from gpt.storage.checkpoint import Checkpoint
from gpt.trained import TrainedGPT
from gpt.training.checkpoint import load_gpt


@pytest.fixture
def decoder(tiny: Checkpoint) -> TorchDecoder:
    return TorchDecoder(load_gpt(tiny.model(), "cpu"), "cpu")


@pytest.fixture
def trained(tiny: Checkpoint) -> TrainedGPT:
    return TrainedGPT(tiny.model())


def test_logits_equal_numpys_at_every_step(decoder: TorchDecoder, trained: TrainedGPT) -> None:
    ids = np.random.default_rng(4).integers(len(trained.vocabulary), size=(3, 16))
    numpys = CachedDecoder(trained.reader)
    for start in (1, 15, 5):  # `start` begins a new text
        logits = decoder.start(ids[:, :start])
        np.testing.assert_allclose(logits, numpys.start(ids[:, :start]), rtol=0, atol=1e-4)
        for position in range(start, 16):
            logits = decoder.step(ids[:, position])
            np.testing.assert_allclose(logits, numpys.step(ids[:, position]), rtol=0, atol=1e-4)
    assert logits.shape == (3, len(trained.vocabulary))
    assert logits.dtype == np.float32


@pytest.mark.parametrize(
    "drawn", [{"temperature": 0.0}, {"temperature": 1.0}, {"top_p": 0.9, "typical_p": 0.5}], ids=str
)
def test_text_equals_numpys_also_beyond_the_context(
    tiny: Checkpoint, decoder: TorchDecoder, trained: TrainedGPT, drawn: dict[str, float]
) -> None:
    options: dict[str, Any] = {"length": 40, "seed": 3, **drawn}
    model = TrainedGPT(tiny.model(), lambda stored: decoder)
    assert model.generate("the cat", **options) == trained.generate("the cat", **options)


def test_decoder_uses_no_dropout(tiny: Checkpoint, trained: TrainedGPT) -> None:
    stored, ids = tiny.model(), np.arange(4)[None]
    dropping = replace(stored, config=replace(stored.config, dropout=0.9))
    logits = TorchDecoder(load_gpt(dropping, "cpu").train(), "cpu").start(ids)
    np.testing.assert_allclose(logits, CachedDecoder(trained.reader).start(ids), rtol=0, atol=1e-4)


@pytest.mark.parametrize("norm", get_args(Norm))
@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("position", get_args(Position))
def test_the_cache_changes_no_logits_of_any_kind_of_model(
    position: str, activation: str, norm: str
) -> None:
    shape = {"vocab_size": 9, "n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 8}
    for attention in ("fused", "heads"):
        options = {
            "position": position,
            "activation": activation,
            "norm": norm,
            "attention": attention,
            "qkv_bias": norm == "layer",
        }
        model, random = GPT(ModelConfig(**shape, **options)), torch.Generator().manual_seed(4)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, generator=random)
        ids = np.random.default_rng(1).integers(9, size=(3, 8))
        with torch.no_grad():
            whole = model.eval()(torch.from_numpy(ids)).numpy()
        decoder = TorchDecoder(model, "cpu")
        for begin in (5, 1):
            logits = decoder.start(ids[:, :begin])
            for at in range(begin, 8):
                np.testing.assert_allclose(logits, whole[:, at - 1], rtol=0, atol=2e-4)
                logits = decoder.step(ids[:, at])
            np.testing.assert_allclose(logits, whole[:, 7], rtol=0, atol=2e-4)
        with pytest.raises(IndexError, match="no room for 1 more after 8"):
            decoder.step(ids[:, 0])


VALUES: dict[str, Any] = {"top_k": 4, "top_p": 0.8, "min_p": 0.05, "typical_p": 0.7}
OPTIONS = [
    {"temperature": temperature, **{name: VALUES[name] for name in names}}
    for count in range(len(VALUES) + 1)
    for names in combinations(VALUES, count)
    for temperature in (0.0, 0.5, 1.3)
]


@pytest.mark.parametrize("name", [name for name in SHAPING if name != "temperature"])
def test_torch_and_numpy_have_the_same_filters(name: str) -> None:
    assert name in numpys_filters, f"{name} is missing in FILTERS of gpt/reading/sampler.py"
    assert name in drawing.FILTERS, f"{name} is missing in FILTERS of gpt/model/sampler.py"
    assert name in VALUES, f"{name} is not compared between numpy and torch"


def test_torch_and_numpy_apply_filters_in_the_same_order() -> None:
    assert list(drawing.FILTERS) == list(numpys_filters)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_torch_draws_the_same_characters_as_numpy(options: dict[str, Any]) -> None:
    random, config = np.random.default_rng(3), SampleConfig(**options)
    logits = np.round(3 * random.normal(size=(500, 12))) / 2  # with ties
    uniforms = random.random(500)
    expected = draw(probabilities(logits, config), uniforms)
    found = drawing.draw(torch.from_numpy(logits), torch.from_numpy(uniforms), config)
    assert np.array_equal(found.numpy(), expected)


def test_a_nucleus_of_exactly_mass_p_is_full() -> None:
    even, uniforms = torch.zeros(4, 4), torch.tensor([0.0, 0.49, 0.51, 0.99], dtype=torch.float64)
    config = SampleConfig(temperature=1.0, top_p=0.5)
    assert drawing.draw(even, uniforms, config).tolist() == [0, 0, 1, 1]


def test_drawing_ahead_equals_drawing_one_by_one(
    decoder: TorchDecoder, trained: TrainedGPT
) -> None:
    uniforms, ids = np.random.default_rng(5).random((9, 3)), np.array([[1, 2], [3, 4], [5, 6]])
    for options in ({}, {"top_k": 3, "temperature": 1.2}, {}):  # settings change between calls
        config = SampleConfig(**options)
        decoder.start(ids)
        found = decoder.ahead(np.array([1, 2, 3]), uniforms, config)
        numpys, last = CachedDecoder(trained.reader), np.array([1, 2, 3])
        numpys.start(ids)
        for row, chances in zip(found, uniforms, strict=True):
            last = draw(probabilities(numpys.step(last), config), chances)
            assert np.array_equal(row, last)
    with pytest.raises(IndexError, match="no room for 6 more after 11"):
        decoder.ahead(last, uniforms[:6], SampleConfig())


@pytest.mark.parametrize("which", [0, 1], ids=["of a step", "of a draw"])
def test_a_failed_capture_prints_one_line_and_numpy_writes(
    tiny: Checkpoint,
    trained: TrainedGPT,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    which: int,
) -> None:
    captured: list[Any] = []

    def capture(decoder: TorchDecoder, work: Any) -> Any:
        if len(captured) == which:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\n…")
        captured.append(work)
        return work

    monkeypatch.setattr(TorchDecoder, "_repeated", capture)
    model = TrainedGPT(
        tiny.model(), lambda stored: TorchDecoder(load_gpt(tiny.model(), "cpu"), "cpu")
    )
    assert model.generate("the cat", length=40) == trained.generate("the cat", length=40)
    (line,) = caplog.messages
    assert "the GPU failed (RuntimeError: CUDA error: operation not permitted" in line
    assert len(captured) == which


@pytest.mark.parametrize("change", ["rounded", "not finite"])
def test_a_device_with_wrong_logits_writes_nothing(
    tiny: Checkpoint, trained: TrainedGPT, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    net = load_gpt(tiny.model(), "cpu")
    with torch.no_grad():
        if change == "rounded":
            for parameter in net.parameters():
                parameter.copy_(parameter.bfloat16())
        else:
            net.lm_head.weight[2] = float("inf")
    model = TrainedGPT(tiny.model(), lambda stored: TorchDecoder(net, "cpu"))
    assert model.generate("the cat", length=40) == trained.generate("the cat", length=40)
    (line,) = caplog.messages
    assert ("logits differ" if change == "rounded" else "logits are not finite") in line


def test_non_finite_logits_raise_an_error_while_drawing(decoder: TorchDecoder) -> None:
    decoder.start(np.array([[1, 2]]))
    with torch.no_grad():
        decoder._model.token_embedding.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="its logits are not finite"):
        decoder.ahead(np.array([1]), np.full((3, 1), 0.5), SampleConfig())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_writes_the_same_text(
    tiny: Checkpoint, trained: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = TorchDecoder(load_gpt(tiny.model(), "cuda"), "cuda")
    for options in ({"temperature": 0.0}, {"top_p": 0.9}, {"top_p": 0.9, "seed": 2}):
        expected = trained.generate("the cat", length=40, **options)
        model = TrainedGPT(tiny.model(), lambda stored: decoder)
        assert model.generate("the cat", length=40, **options) == expected
    assert caplog.messages == []
