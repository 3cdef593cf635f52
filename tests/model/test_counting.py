"""Counting in torch predicts, draws and continues as counting in numpy does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TEXT

from gpt.config import SampleConfig
from gpt.counting.expert import Expert
from gpt.counting.gate import FEATURES, Gate, log_softmax
from gpt.counting.mixture import Mixture, Streams
from gpt.counting.tables import count
from gpt.model.counting import TorchMixture
from gpt.model.decoder import TorchDecoder
from gpt.reading.decode import CachedDecoder
from gpt.reading.sampler import next_ids
from gpt.storage.checkpoint import Checkpoint
from gpt.trained import TrainedGPT
from gpt.training.checkpoint import load_gpt
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)
IDS = VOCABULARY.encode(TEXT)
SIZE = len(VOCABULARY)
GATE = np.random.default_rng(2).normal(0.1, 0.1, (2, len(FEATURES)))


def mixture(orders: int = 6, gate: Any = GATE) -> Mixture:
    return Mixture(Expert(count(IDS[:-300], SIZE, orders), SIZE), Gate(gate))


@pytest.fixture
def counted(tiny: Checkpoint) -> TrainedGPT:
    """The tiny model with a counting expert beside it; its context is 16 characters."""
    stored = tiny.model()
    config = replace(stored.config, counting=6)
    return TrainedGPT(replace(stored, config=config, counting=mixture().packed()))


@pytest.fixture
def decoder(tiny: Checkpoint) -> TorchDecoder:
    return TorchDecoder(load_gpt(tiny.model(), "cpu"), "cpu")


@pytest.mark.parametrize("orders", [1, 2, 6, 8])
@pytest.mark.parametrize("gate", [GATE, 0 * GATE, 9 * np.eye(2, len(FEATURES)), -GATE], ids=str)
def test_scores_equal_those_of_numpy(orders: int, gate: Any) -> None:
    expected = mixture(orders, gate)
    found = TorchMixture(expected, torch.device("cpu"))
    histories = expected.expert.trie.histories(IDS[-300:])  # (N, 301), some not in the text
    logits = np.random.default_rng(1).normal(0, 3, (301, SIZE)).astype("f4")
    given = [torch.from_numpy(each) for each in (logits, histories)]
    both = found.scores(*given).numpy()
    together = expected.predict(logits, histories)
    assert np.abs(log_softmax(both) - together.both).max() < 1e-12
    alone = found.scores(*given, alone=True).numpy()
    assert np.abs(alone - together.counting).max() < 1e-12
    assert both.dtype == alone.dtype == np.float64


@pytest.mark.parametrize("orders", [1, 2, 6])
def test_histories_advance_as_those_of_numpy(orders: int) -> None:
    trie = mixture(orders).expert.trie
    found = TorchMixture(mixture(orders), torch.device("cpu"))
    histories = trie.histories(IDS[-300:])
    for ids in np.random.default_rng(1).integers(SIZE, size=(5, 301)):
        after = found.advanced(torch.from_numpy(histories), torch.from_numpy(ids))
        assert np.array_equal(after.numpy(), trie.advanced(histories, ids))


@pytest.mark.parametrize("only", [None, "gpt", "counting"])
@pytest.mark.parametrize("options", [{"temperature": 1.2}, {"temperature": 0.0}, {"top_p": 0.9}])
def test_text_equals_numpys_also_beyond_the_context(
    tiny: Checkpoint,
    decoder: TorchDecoder,
    counted: TrainedGPT,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, float],
    only: str | None,
) -> None:
    drawn: list[int] = []
    real = TorchDecoder.ahead

    def ahead(self: TorchDecoder, *asked: Any) -> Any:
        found = real(self, *asked)
        drawn.append(len(found))
        return found

    monkeypatch.setattr(TorchDecoder, "ahead", ahead)
    model = TrainedGPT(counted.stored, lambda stored: decoder)
    for n in (1, 3):
        asked: dict[str, Any] = {"length": 60, "seed": 3, "n": n, "only": only, **options}
        assert model.generate("the cat", **asked) == counted.generate("the cat", **asked)
    assert sum(drawn) > 90  # of 2 × 60
    assert caplog.messages == []


def test_drawing_ahead_does_not_depend_on_earlier_texts_and_options(
    decoder: TorchDecoder, counted: TrainedGPT
) -> None:
    uniforms = np.random.default_rng(5).random((9, 3))
    ids = np.array([[1, 2], [3, 4], [5, 6]])
    both = Streams(mixture(), IDS[:20], 3)
    counting = Streams(both.mixture, IDS[50:60], 3, alone=True)
    asked: list[tuple[Streams | None, Any]] = [(both, None), (None, "gpt"), (counting, "counting")]
    for streams, only in 2 * asked:
        config = SampleConfig(only=only)
        before = None if streams is None else streams.histories.copy()
        decoder.start(ids)
        found = decoder.ahead(np.array([1, 2, 3]), uniforms, config, streams)
        if streams is not None:
            assert np.array_equal(streams.histories, before)
        numpys, last = CachedDecoder(counted.reader), np.array([1, 2, 3])
        numpys.start(ids)
        following = streams and streams.first(3)
        for row, chances in zip(found, uniforms, strict=True):
            last = next_ids(numpys.step(last), chances, config, following)
            assert np.array_equal(row, last)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_writes_the_same_text(
    tiny: Checkpoint, counted: TrainedGPT, caplog: pytest.LogCaptureFixture
) -> None:
    decoder = TorchDecoder(load_gpt(tiny.model(), "cuda"), "cuda")
    for options in ({"temperature": 0.0}, {"top_p": 0.9}, {"only": "counting"}, {"n": 3}):
        expected = counted.generate("the cat", length=60, **options)
        model = TrainedGPT(counted.stored, lambda stored: decoder)
        assert model.generate("the cat", length=60, **options) == expected
    assert caplog.messages == []
