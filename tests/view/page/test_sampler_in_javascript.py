"""Sampling in the page: random numbers, filters, window and the text itself are those of Python."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from javascript import JavaScript

from gpt.config import ModelConfig, SampleConfig
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.reading.layers import Array
from gpt.reading.sampler import (
    FILTERS,
    draw,
    probabilities,
    sample_ids,
    start_character,
    uniforms,
    window_start,
)
from gpt.vocabulary import Ids, Vocabulary

SIZE = 23
PROMPT = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4])
#: Options other than the default: each filter, all together, and extreme temperatures.
OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 3},
    {"temperature": 2.5, "seed": 2**53 - 1},
    {"temperature": 1e-4},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_k": 4, "seed": 2},
    {"temperature": 1.0, "top_k": 400},
    {"temperature": 1.3, "top_p": 0.7},
    {"temperature": 1.0, "top_p": 1.0},
    {"temperature": 1.0, "min_p": 0.1, "seed": 3},
    {"temperature": 1.0, "min_p": 0.0},
    {"temperature": 1.0, "min_p": 1.0},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.05, "seed": 5},
    {"temperature": 3.0, "top_p": 0.5},
]


class Toy:
    """A decoder whose logits depend on the last three ids and on how many it has read."""

    def __init__(self, block_size: int) -> None:
        self.config = ModelConfig(vocab_size=SIZE, block_size=block_size)
        self.starts = 0

    def start(self, ids: Ids) -> Array:
        self.starts += 1
        return self._logits(ids)

    def step(self, ids: Ids) -> Array:
        return self._logits(np.append(self._ids, ids[:, None], axis=1))

    def _logits(self, ids: Ids) -> Array:
        self._ids, known = ids, np.arange(SIZE)
        before = np.concatenate((np.zeros((len(ids), 2), np.int64), ids), axis=1)[:, -3:]
        state = before @ [3, 5, 7] + 11 * ids.shape[1]
        logits = (state[:, None] * (known + 3) + known * known) % 61 / 8
        return logits.astype(np.float32)  # type: ignore[no-any-return]


@pytest.mark.parametrize("options", OPTIONS)
def test_page_writes_what_sample_writes(script: JavaScript, options: dict[str, Any]) -> None:
    for block_size, length, read in ((16, 300, 24), (1, 20, 24), (7, 90, 1)):
        config, prompt = SampleConfig(length=length, **{"seed": 1, **options}), PROMPT[:read]
        toy = Toy(block_size)
        expected = sample_ids(toy, prompt, config)
        asked = length, block_size, prompt.astype(np.int32), asdict(config)
        found = script("written", *asked, SIZE)
        assert found["ids"] == [int(row[0]) for row in expected]
        assert found["starts"] == toy.starts


def test_random_numbers_sums_and_draws_are_numpys(script: JavaScript) -> None:
    random = np.random.default_rng(1)
    seeds = random.integers(2**53, size=20).tolist()
    for seed in (0, 1, 42, 2**32 - 1, 2**32, 2**53 - 1, *seeds):
        assert script("uniforms", seed, 2000).tolist() == list(islice(uniforms(seed, 0), 2000))
    for size in [*range(1, 40), 127, 128, 129, 137, 255, 256, 257, 1000, 5003]:
        values = random.exponential(size=size)
        assert script("pairwiseSum", values) == values.sum()
    chances = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for uniform in (0.0, 0.2, 0.25, 0.5, 0.75, 1 - 2**-53):
        assert script("draw", chances, uniform) == draw(chances[None], np.array([uniform]))[0]


def removed_by(scores: Array, config: SampleConfig) -> list[int]:
    """For each character, the index of the option that removed it, or −1 (see NextCharacter)."""
    removed = np.full(scores.shape[1], -1)
    for number in range(len(DISTRIBUTION_OPTIONS)):
        later: dict[str, Any] = dict.fromkeys(DISTRIBUTION_OPTIONS[number + 1 :])
        chances = probabilities(scores, replace(config, **later))[0]
        removed[(chances == 0) & (removed < 0)] = number
    return removed.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("options", OPTIONS)
def test_filters_keep_what_python_keeps(script: JavaScript, options: dict[str, Any]) -> None:
    assert script("shaping") == {"filters": list(FILTERS), "shaping": list(DISTRIBUTION_OPTIONS)}
    config, random = SampleConfig(**options), np.random.default_rng(6)
    for size in (1, 2, 9, 65, 300):
        ties = random.integers(6, size=(2, size)) / 2  # many characters are equally likely
        for scores in (*ties, random.normal(size=size) * 4, np.zeros(size)):
            found = script("filtered", scores, asdict(config))
            expected = probabilities(scores[None], config)[0]
            np.testing.assert_allclose(found["chances"], expected, rtol=1e-12, atol=0)
            assert found["removed"] == removed_by(scores[None], config)
            unfiltered = replace(config, **dict.fromkeys(FILTERS))  # type: ignore[arg-type]
            before = probabilities(scores[None], unfiltered)[0]
            np.testing.assert_allclose(found["before"], before, rtol=1e-12, atol=0)


def test_windows_and_empty_prompts_are_those_of_python(script: JavaScript) -> None:
    cases = [(length, size) for length in range(70) for size in (1, 2, 5, 16)]
    assert script("windowStarts", cases) == [window_start(*case) for case in cases]
    for characters in ("\n ab", "ab", "\t\nc"):
        expected = characters.index(start_character(Vocabulary(characters)))
        assert script("beforeAll", list(characters)) == expected
