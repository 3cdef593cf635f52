"""Ablation of heads with known effects, compared with a forward of changed weights."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import get_args

import numpy as np
import pytest
from hand_built import EVEN, INDUCTION, PREVIOUS, SIZE, hand_built

from gpt.errors import ConfigError
from gpt.heads import ablation
from gpt.heads.ablation import Ablation, Texts, ablate, mean_contexts, measure_effects, shapley
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


def of_all_orders(trained: TrainedGPT, windows: np.ndarray, output: object) -> np.ndarray:  # type: ignore[type-arg]
    """(N, 4) each head's mean rise over the 4! orders in which a forward replaces the outputs."""
    heads, losses = [(0, 0), (0, 1), (1, 0), (1, 1)], {}
    for without in (each for n in range(5) for each in combinations(heads, n)):
        patch = {("context", *head): output(head) for head in without}  # type: ignore[operator]
        logits = trained.logits(windows[:, :-1], patch=patch).astype(np.float64)
        chances = np.take_along_axis(logits, windows[:, 1:, None].astype(int), axis=-1)[..., 0]
        losses[without] = (np.logaddexp.reduce(logits, axis=-1) - chances).mean(axis=-1)
    orders, found = [*permutations(heads)], np.zeros((len(windows), 4))
    for order in orders:
        for place, head in enumerate(order):
            before, after = (tuple(sorted(order[: place + n])) for n in (0, 1))
            found[:, heads.index(head)] += (losses[after] - losses[before]) / len(orders)
    return found


@pytest.mark.parametrize("how", ["mean", "zero"])
def test_a_shapley_value_is_the_mean_rise_over_all_orders_of_removal(
    trained: TrainedGPT, how: Ablation
) -> None:
    ids = trained.vocabulary.encode(trained.stored.excerpt)
    windows = np.stack([ids[n : n + 17] for n in range(0, 85, 17)])
    texts, shares = Texts.of_windows(windows), list[float]()
    means = mean_contexts(trained.reader, texts)
    expected = of_all_orders(trained, windows, lambda at: means[at] if how == "mean" else 0)
    alone, found = measure_effects(trained.reader, texts, how, done=shares.append)
    assert (alone.name, found.name, found.windows) == ("ablation", "shapley", 5)
    np.testing.assert_allclose(found.values.ravel(), expected.mean(axis=0), atol=1e-6)
    errors = expected.std(axis=0, ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(found.errors.ravel(), errors, atol=1e-6)
    assert np.abs(found.values - alone.values).max() > 1e-4
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)


def test_shapley_values_of_many_heads_are_refused_and_much_work_takes_fewer_texts(
    repeated: np.ndarray,  # type: ignore[type-arg]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, texts = hand_built(), Texts.of_windows(repeated)
    assert reader.config.n_layer * reader.config.n_head == 8
    monkeypatch.setattr(ablation, "SHAPLEY_WORK", 1.0)
    found = shapley(reader, texts, "zero")
    assert found.windows == 2
    few = ablate(reader, texts.part(slice(0, None, 4)), "zero")
    others = np.delete(found.values.ravel(), [0, 4])
    assert np.array_equal(others, np.zeros(6))
    # without the head that copies, the previous one has no effect: the loss without both is known
    copies, looks_back = few.values[INDUCTION], few.values[PREVIOUS]
    assert found.values[INDUCTION] == pytest.approx((2 * copies - looks_back) / 2)
    assert found.values[PREVIOUS] == pytest.approx(looks_back / 2)
    monkeypatch.setattr(ablation, "MOST_SHAPLEY", 7)
    with pytest.raises(ConfigError, match="2\\^8 subsets of 8 heads are too many"):
        shapley(reader, texts, "zero")
    assert [each.name for each in measure_effects(reader, texts, "zero")] == ["ablation"]
