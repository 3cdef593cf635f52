"""What a training counts before its first step: in a thread or later the same; its memory."""

from __future__ import annotations

import ctypes
import mmap
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gpt.counting.held_out import PIECES, HeldOut

from gpt.counting import tables
from gpt.counting.baseline import count_ahead, count_baseline, count_experts
from gpt.counting.mixture import COUNTING_ALONE, Expert, Mixture, log_softmax
from gpt.counting.tables import count, release_memory

IDS = np.random.default_rng(1).integers(0, 5, 3000).astype(np.uint8)


@pytest.mark.parametrize(("orders", "most"), [(4, 2**22), (8, 2**22), (10, 2**22), (8, 700)])
def test_counts_begun_before_are_those_of_a_training(
    orders: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_GRAMS", most)
    baseline, begun = count_ahead(IDS[:2700], IDS[2700:], 5, orders).result()
    assert baseline == count_baseline(IDS[:2700], IDS[2700:], 5)
    later = count_experts(IDS[:2700], 5, orders)
    assert begun is not None
    counted, expected = begun.whole.trie.packed(), later.whole.trie.packed()
    assert all(np.array_equal(counted[name], expected[name]) for name in expected)
    assert np.array_equal(begun.held, later.held)


def test_the_held_out_text_is_predicted_by_counts_of_the_other_text() -> None:
    experts, held = count_experts(IDS, 5, 4), HeldOut.of(len(IDS), 5)
    apart = Expert(count(held.apart(IDS), 5, 4), 5)
    histories = apart.trie.histories_at(IDS, held.starts, held.length)
    assert experts.held.shape == (PIECES * held.length, 5)
    assert experts.held == pytest.approx(np.log(apart.predict(histories)), rel=1e-6)
    assert experts.held != pytest.approx(np.log(experts.whole.predict(histories)), rel=1e-3)


def test_without_orders_only_the_baseline_is_counted() -> None:
    baseline, experts = count_ahead(IDS[:2700], IDS[2700:], 5, 0).result()
    assert experts is None
    assert baseline == count_baseline(IDS[:2700], IDS[2700:], 5)


@pytest.mark.parametrize("size", [60, 5000])
def test_experts_of_random_text_take_less_than_160_bytes_a_character_and_keep_60(size: int) -> None:
    ids = np.random.default_rng(1).integers(0, size, 2**17).astype(np.min_scalar_type(size - 1))
    tracemalloc.start()
    try:
        experts = count_experts(ids, size, 8)
        kept, most = (each / len(ids) for each in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    held = experts.held.nbytes / len(ids)
    kept, most = kept - held, most - held
    assert (kept < 60, most < 160) == (True, True), (kept, most)


def test_the_loss_of_many_characters_takes_less_than_one_array_of_their_probabilities() -> None:
    size, characters = 2000, 1024
    ids = np.random.default_rng(1).integers(0, size, 2**14)
    mixture = Mixture(Expert(count(ids, size, 3), size), COUNTING_ALONE)
    logits = np.random.default_rng(2).normal(size=(characters, size)).astype(np.float32)
    histories = mixture.expert.trie.histories_at(ids, np.array([1]), characters)
    came = ids[1 : characters + 1]
    whole = log_softmax(mixture.scores(logits, histories))[np.arange(characters), came]
    tracemalloc.start()
    try:
        assert mixture.losses(logits, histories, came).sum() == -whole.sum()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < characters * size * 8, most


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc"
)
def test_release_returns_the_memory_of_freed_arrays() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    arrays = [np.ones(8000) for _ in range(500)]  # 64 kB each
    del arrays[:-1]  # the last one lies after the others, so that glibc keeps their memory
    before = resident()
    release_memory()
    assert before - resident() > 400 * 8000 * 8 // mmap.PAGESIZE
