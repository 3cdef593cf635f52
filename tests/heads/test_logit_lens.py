"""The logit lens: its last depth is the model, its others what the layers so far would say."""

from __future__ import annotations

import numpy as np

from gpt.heads.logit_lens import look
from gpt.reading.layers import softmax
from gpt.storage.checkpoint import Checkpoint
from gpt.trained import TrainedGPT


def test_the_last_depth_is_the_models_own_prediction(tiny: Checkpoint) -> None:
    trained = TrainedGPT(tiny.model())
    attention = trained.attention("the cat sat")
    lens = look(trained.reader, attention, most=5)
    logits = trained.reader.logits(trained.reader.forward(attention.ids[None]))[0]
    chances = softmax(logits)
    assert lens.ids.shape == lens.probabilities.shape == (3, 11, 5)
    assert np.array_equal(lens.ids[-1], np.argsort(-chances, axis=-1, kind="stable")[:, :5])
    np.testing.assert_allclose(lens.probabilities[-1], -np.sort(-chances)[:, :5], atol=1e-6)


def test_other_depths_are_the_stream_so_far_through_the_output(tiny: Checkpoint) -> None:
    trained = TrainedGPT(tiny.model())
    tensors, ids = trained.stored.tensors, trained.vocabulary.encode("a cat")
    lens = look(trained.reader, trained.attention("a cat"), most=3)
    for position, token in enumerate(ids):
        embedded = tensors["token_embedding.weight"][token].astype(np.float64)
        normed = embedded / np.sqrt(np.mean(embedded**2) + 1e-5)
        logits = tensors["lm_head.weight"].astype(np.float64) @ normed
        chances = np.exp(logits) / np.exp(logits).sum()
        assert lens.ids[0, position].tolist() == np.argsort(-chances)[:3].tolist()
        np.testing.assert_allclose(lens.probabilities[0, position], -np.sort(-chances)[:3], 1e-5)


def test_no_more_characters_than_there_are(tiny: Checkpoint) -> None:
    trained = TrainedGPT(tiny.model())
    lens = look(trained.reader, trained.attention("t"), most=1000)
    assert lens.ids.shape == (3, 1, len(trained.vocabulary))
    np.testing.assert_allclose(lens.probabilities.sum(axis=-1), 1, rtol=0, atol=1e-6)
