"""The torch decoder and numpy's compute the same logits, so they generate the same text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT, On

from gpt.interface.trained import TrainedGPT
from gpt.model.gpt import DeviceGPT
from gpt.reading.decode import CachedDecoder
from gpt.storage.run import Checkpoint
from gpt.training.trainer import load_gpt


@pytest.fixture
def decoder(tiny: Checkpoint) -> DeviceGPT:
    return DeviceGPT(load_gpt(tiny.model(), "cpu"), "cpu")


def test_logits_equal_numpys_at_every_step(decoder: DeviceGPT, trained: TrainedGPT) -> None:
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
    "drawn", [{"temperature": 0.0}, {"temperature": 1.0}, {"top_p": 0.9, "min_p": 0.1}], ids=str
)
def test_text_equals_numpys_also_beyond_the_context(
    tiny: Checkpoint, on: On, decoder: DeviceGPT, trained: TrainedGPT, drawn: dict[str, float]
) -> None:
    options: dict[str, Any] = {"length": 40, "seed": 3, **drawn}
    model = on(trained, lambda: decoder)
    assert model.sample("the cat", **options) == trained.sample("the cat", **options)


def test_every_result_on_a_device_equals_numpys(
    tiny: Checkpoint, on: On, trained: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    computed = []

    class Counting(DeviceGPT):
        def forward(self, ids: Any) -> Any:
            computed.append("forward")
            return super().forward(ids)

        def block(self, x: Any, layer: int) -> Any:
            computed.append("block")
            return super().block(x, layer)

    model = on(trained, lambda: Counting(load_gpt(tiny.model(), "cpu"), "cpu"))
    model.check_probe()
    computed.clear()
    found, expected = (each.attn("the cat sat") for each in (model, trained))
    assert set(computed) == {"forward", "block"}  # of the probe, of the text
    assert all(check.passed for check in found.checked())
    assert [check.name for check in found.checks] == [check.name for check in expected.checks]
    assert 0 < found.rounding["weights"] < 1e-5
    for mine, its in zip(found.layers, expected.layers, strict=True):
        for name, stage in vars(its).items():
            np.testing.assert_allclose(getattr(mine, name), stage, rtol=0, atol=1e-4)
    computed.clear()
    assert model.eval(TEXT[:90]).nats == pytest.approx(trained.eval(TEXT[:90]).nats, abs=1e-5)
    assert model.next("the").expected == pytest.approx(trained.next("the").expected, abs=1e-5)
    assert set(computed) == {"forward"}
    surveys = [each.heads(TEXT[:90], ablate="mean") for each in (model, trained)]
    for mine, its in zip(*(survey.measures for survey in surveys), strict=True):
        np.testing.assert_allclose(mine.values, its.values, rtol=0, atol=1e-4)
    assert (set(computed), caplog.messages) == ({"forward", "block"}, [])


def test_a_device_whose_numbers_are_not_finite_computes_nothing(
    tiny: Checkpoint, on: On, trained: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    net = load_gpt(tiny.model(), "cpu")
    with torch.no_grad():
        net.lm_head.weight[2] = float("inf")
    assert on(trained, lambda: DeviceGPT(net, "cpu")).attn("the cat") is not None
    (line,) = caplog.messages
    assert "numbers are not finite" in line


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_writes_the_same_text(
    tiny: Checkpoint, on: On, trained: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = DeviceGPT(load_gpt(tiny.model(), "cuda"), "cuda")
    for options in ({"temperature": 0.0}, {"top_p": 0.9}, {"top_p": 0.9, "seed": 2}):
        expected = trained.sample("the cat", length=40, **{"seed": 1, **options})
        model = on(trained, lambda: decoder)
        assert model.sample("the cat", length=40, **{"seed": 1, **options}) == expected
    assert caplog.messages == []
