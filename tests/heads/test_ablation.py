"""Ablation of heads with known effects, compared with a forward of changed weights."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hand_built import EVEN, INDUCTION, PREVIOUS, SIZE, hand_built

from gpt.heads import ablation
from gpt.heads.ablation import Ablation, Texts, ablate
from gpt.heads.measures import Measure
from gpt.interface.trained import TrainedGPT
from gpt.reading import decode
from gpt.reading import score as scoring
from gpt.reading.gpt import Reader


def ablated(reader: Reader, windows: np.ndarray, how: Ablation) -> Measure:  # type: ignore[type-arg]
    done: list[float] = []
    measure = ablate(reader, Texts.of_windows(windows), how, done=done.append)
    heads = reader.config.n_layer * reader.config.n_head
    assert done == [(head + 1) / heads for head in range(heads)]
    return measure


@pytest.fixture(scope="module")
def repeated() -> np.ndarray:  # type: ignore[type-arg]
    """(8, 17) texts of 8 distinct characters, each written twice."""
    random = np.random.default_rng(2)
    return np.stack([np.tile(random.permutation(SIZE)[:8], 3)[: SIZE + 1] for _ in range(8)])


@pytest.mark.parametrize("how", get_args(Ablation))
def test_only_the_heads_that_complete_repetitions_change_the_loss(
    repeated: np.ndarray,  # type: ignore[type-arg]
    how: Ablation,
) -> None:
    found = ablated(hand_built(), repeated, how)
    assert found.values[INDUCTION] > 0.5
    assert found.values[PREVIOUS] > 0.5
    others = np.delete(found.values.ravel(), [0, 4])
    assert np.array_equal(others, np.zeros(6))  # rows of W_O are zero: no difference at all
    assert found.values[EVEN] == found.errors[EVEN] == 0
    assert (found.errors[INDUCTION] > 0, found.windows, found.uniform) == (True, 8, 0.0)
    texts = Texts.of_windows(repeated)
    again, other = (ablate(hand_built(), texts, how, seed=seed) for seed in (0, 1))
    assert np.array_equal(again.values, found.values)
    assert np.array_equal(other.values, found.values) == (how != "resample")


def test_windows_read_at_once_and_cores_change_nothing(
    trained: TrainedGPT, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = trained.vocabulary.encode(trained.stored.excerpt)
    windows = np.stack([ids[n : n + 17] for n in range(0, 85, 17)])
    whole = ablated(trained.reader, windows, "mean")
    monkeypatch.setattr(scoring, "NUMBERS_AT_ONCE", 16 * 64 * 2)
    assert scoring.windows_at_once(trained.config) == 2
    parts = ablated(trained.reader, windows, "mean")
    np.testing.assert_allclose(parts.values, whole.values, rtol=0, atol=1e-6)
    monkeypatch.undo()
    for module in (ablation, decode):
        monkeypatch.setattr(module, "cores", lambda: 3)
    parts = ablated(trained.reader, windows, "mean")
    np.testing.assert_allclose(parts.values, whole.values, rtol=0, atol=1e-6)
    np.testing.assert_allclose(parts.errors, whole.errors, rtol=0, atol=1e-6)
