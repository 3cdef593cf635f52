"""The next character: its probabilities, which filter removed which one."""

from __future__ import annotations

import numpy as np
import pytest

from gpt.config import SampleConfig
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.heads.next_character import NextCharacter
from gpt.interface.trained import TrainedGPT
from gpt.reading.layers import softmax
from gpt.reading.sampler import probabilities


def logits_of(trained: TrainedGPT, text: str) -> np.ndarray:  # type: ignore[type-arg]
    ids = trained.vocabulary.encode(text)
    return trained.reader.logits(trained.reader.forward(ids[None])[:, -1]).astype(np.float64)


def test_expected_probabilities_are_the_models_softmax(trained: TrainedGPT) -> None:
    found = trained.next("the c", temperature=0.3)
    np.testing.assert_allclose(found.expected, softmax(logits_of(trained, "the c"))[0], atol=1e-6)


def removed_by(found: NextCharacter, name: str) -> set[int]:
    return set(np.flatnonzero(found.removed == DISTRIBUTION_OPTIONS.index(name)).tolist())


def test_each_removed_character_has_the_name_of_its_filter(trained: TrainedGPT) -> None:
    options = {"temperature": 2.0, "top_k": 9, "top_p": 0.8, "min_p": 0.95}
    found = trained.next("the c", **options)
    drawn = probabilities(logits_of(trained, "the c"), SampleConfig(**options))[0]
    np.testing.assert_allclose(found.filtered, drawn, atol=1e-6)
    assert found.changed
    order = np.argsort(-found.expected, kind="stable")
    assert removed_by(found, "top_k") == set(order[9:].tolist())
    kept = set(np.flatnonzero(found.removed < 0).tolist())
    assert kept == set(np.flatnonzero(drawn > 0).tolist())
    by_mass, by_share = removed_by(found, "top_p"), removed_by(found, "min_p")
    assert by_mass
    assert by_share
    assert kept | by_mass | by_share == set(order[:9].tolist())


def test_temperature_0_removes_all_but_the_likeliest(trained: TrainedGPT) -> None:
    found = trained.next("the c", temperature=0.0, top_k=3)
    assert len(removed_by(found, "temperature")) == len(trained.vocabulary) - 1
    assert found.filtered.max() == 1
    assert found.entropies[1] == 0


def test_filters_that_remove_nothing_change_nothing(trained: TrainedGPT) -> None:
    none, all_mass = {"temperature": 1.0}, {"top_p": 1.0, "min_p": 1e-300}
    assert not trained.next("the c", **none).changed
    assert not trained.next("the c", **none, top_k=1000, **all_mass).changed
    assert trained.next("the c", **none, top_k=1).changed
    assert trained.next("the c").changed  # sampling's own temperature is 0.8


def test_entropy_is_in_bits() -> None:
    even = np.full(8, 1 / 8)
    assert NextCharacter(even, even, np.full(8, -1), "abcdefgh").entropies == pytest.approx(
        (3.0, 3.0)
    )


def test_a_long_text_is_read_in_the_window_of_sampling(trained: TrainedGPT) -> None:
    text = "the cat sat on the mat. "  # block_size is 16, the window begins at 8
    found, alone = trained.next(text), trained.next(text[8:])
    assert np.array_equal(found.expected, alone.expected)
    assert np.array_equal(trained.next("").expected, trained.next("\n").expected)
