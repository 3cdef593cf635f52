"""The windows that an evaluation reads: all of a split, or a part that is spread evenly over it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import TEXT, TINY
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from gpt.config import ModelConfig
from gpt.model import GPT, initialise
from gpt.storage.checkpoint_files import characters_to_evaluate
from gpt.training.step import evaluate, window_starts
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)
IDS = VOCABULARY.encode(TEXT)[:700]


@pytest.fixture(scope="module")
def model() -> GPT:
    """An untrained model with a context of 16."""
    made = GPT(ModelConfig(vocab_size=len(VOCABULARY), **TINY))
    initialise(made, seed=1)
    return made


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(1, 70), st.integers(0, 6000))
def test_a_part_consists_of_windows_of_the_whole(total: int, block: int, most: int) -> None:
    spans = window_starts(total, block, most)
    assert sum(len(starts) * length for starts, length in spans) == (
        characters_to_evaluate(total, block, most)
    )
    covered = [start + at for starts, size in spans for start in starts for at in range(size)]
    assert covered == sorted(set(covered))
    assert covered[-1] < total
    if 0 < most < total:
        (starts, length), *others = spans
        assert not others
        assert not (starts % block).any()
        gaps = np.diff([-length, *starts, total]) / block
        assert gaps.max() <= 2 * (gaps[1:-1].min() if len(starts) > 1 else gaps.max()) + 2
    else:
        assert covered == [*range(total)]


@torch.no_grad()
@pytest.mark.parametrize("most", [0, 100, 7])
def test_evaluation_loss_is_the_mean_over_windows(model: GPT, most: int) -> None:
    total = 0.0
    for starts, length in window_starts(len(IDS) - 1, 16, most):
        for start in starts:
            window = torch.from_numpy(IDS[start : start + length + 1].astype(np.int64))
            total += float(cross_entropy(model(window[None, :-1])[0], window[1:], reduction="sum"))
    mean = total / characters_to_evaluate(len(IDS) - 1, 16, most)
    assert evaluate(model, IDS, "cpu", most).nats == pytest.approx(mean, rel=1e-6)
