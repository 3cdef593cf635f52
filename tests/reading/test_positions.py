"""Tables of positions grow with the text; the numbers do not change."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from conftest import train_tiny
from random_models import random_reader

from gpt import devices
from gpt.config import SampleConfig
from gpt.config.model import Position
from gpt.errors import OutOfMemory
from gpt.interface.trained import TrainedGPT
from gpt.reading import decode as decoding
from gpt.reading import gpt as reading
from gpt.reading.decode import CachedDecoder
from gpt.reading.sampler import sample_ids


@pytest.mark.parametrize("position", get_args(Position))
def test_growing_tables_and_caches_do_not_change_a_sample(
    monkeypatch: pytest.MonkeyPatch, position: str
) -> None:
    """The sample passes the context of 50 characters, so its window moves, too."""
    ids = np.random.default_rng(2).integers(9, size=(2, 50))
    draw = SampleConfig(length=120, n=3, seed=1)
    whole = random_reader(block_size=50, position=position)
    states = [whole.forward(ids[:, :end]) for end in (1, 2, 3, 20, 50)]
    samples = list(sample_ids(CachedDecoder(whole), ids[0, :3], draw))
    monkeypatch.setattr(reading, "FIRST_ROWS", 1)
    monkeypatch.setattr(decoding, "FIRST_CAPACITY", 1)
    small = random_reader(block_size=50, position=position)
    grown = [small.forward(ids[:, :end]) for end in (1, 2, 3, 20, 50)]
    assert all(np.array_equal(*pair) for pair in zip(states, grown, strict=True))
    assert np.array_equal(list(sample_ids(CachedDecoder(small), ids[0, :3], draw)), samples)


@pytest.mark.parametrize("position", sorted({*get_args(Position)} - {"learned"}))
def test_a_context_of_a_million_characters_takes_memory_for_the_text_only(
    tmp_path: Path, position: str
) -> None:
    stored = train_tiny(tmp_path, {"steps": 1, "eval_interval": 1}, position=position).model()
    stored = replace(stored, config=replace(stored.config, block_size=2**20))
    tracemalloc.start()
    try:
        model = TrainedGPT(stored)
        model.sample("the cat", length=600)
        model.attn("the cat sat")
        model.eval("the cat sat on the mat")
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_text_whose_attention_does_not_fit_in_memory_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "available_memory", lambda: 2**20)
    monkeypatch.setattr(devices, "SMALL_MEMORY", 1)
    long = random_reader(block_size=400)
    long.forward(np.zeros((1, 100), np.int64))  # 2 heads × 100² × 8 bytes × 5 = 800 kB
    with pytest.raises(OutOfMemory, match=r"over 400 characters .* give at most 10\d characters"):
        long.forward(np.zeros((1, 400), np.int64))
