"""torch behind the reader's interface writes what numpy writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpt.model.decoder import TorchDecoder
from gpt.reading.decoding import CachedDecoder
from gpt.reading.trained import TrainedGPT
from gpt.run import Checkpoint
from gpt.training.checkpoint import load_gpt


@pytest.fixture
def decoder(tiny: Checkpoint) -> TorchDecoder:
    return TorchDecoder(load_gpt(tiny.model(), "cpu"), "cpu")


@pytest.fixture
def trained(tiny: Checkpoint) -> TrainedGPT:
    return TrainedGPT(tiny.model())


def test_its_logits_are_numpys_at_every_step(decoder: TorchDecoder, trained: TrainedGPT) -> None:
    ids = np.random.default_rng(4).integers(len(trained.vocabulary), size=(3, 16))
    numpys = CachedDecoder(trained.reader)
    for start in (1, 15, 5):  # starting again forgets what came before
        logits = decoder.start(ids[:, :start])
        np.testing.assert_allclose(logits, numpys.start(ids[:, :start]), rtol=0, atol=1e-4)
        for position in range(start, 16):
            logits = decoder.step(ids[:, position])
            np.testing.assert_allclose(logits, numpys.step(ids[:, position]), rtol=0, atol=1e-4)
    assert logits.shape == (3, len(trained.vocabulary))
    assert logits.dtype == np.float32


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_its_text_is_numpys_past_the_context_too(
    tiny: Checkpoint, decoder: TorchDecoder, trained: TrainedGPT, temperature: float
) -> None:
    options = {"length": 40, "temperature": temperature, "seed": 3}
    assert TrainedGPT(tiny.model(), decoder).generate("the cat", **options) == trained.generate(
        "the cat", **options
    )


def test_it_decodes_without_dropout(tiny: Checkpoint, trained: TrainedGPT) -> None:
    stored, ids = tiny.model(), np.arange(4)[None]
    dropping = replace(stored, config=replace(stored.config, dropout=0.9))
    logits = TorchDecoder(load_gpt(dropping, "cpu").train(), "cpu").start(ids)
    np.testing.assert_allclose(logits, CachedDecoder(trained.reader).start(ids), rtol=0, atol=1e-4)
