"""Counting that begins before torch is imported gives what counting later gives."""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from gpt.counting import tables
from gpt.counting.ahead import ORDINARY, CountedAhead, count_experts
from gpt.counting.baseline import count_baseline
from gpt.counting.expert import Expert
from gpt.counting.held_out import HeldOut
from gpt.counting.mixture import COUNTING_ALONE, Mixture, log_softmax
from gpt.counting.tables import count, release_memory

IDS = np.random.default_rng(1).integers(0, 5, 3000).astype(np.uint8)


@pytest.mark.parametrize(("orders", "most"), [(4, 2**22), (8, 2**22), (10, 2**22), (8, 700)])
def test_counts_begun_before_are_those_of_a_training(
    orders: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_GRAMS", most)
    ahead = CountedAhead(IDS[:2700], IDS[2700:], 5, orders)
    assert ahead.baseline.result() == count_baseline(IDS[:2700], IDS[2700:], 5)
    begun, later = ahead.experts, count_experts(IDS[:2700], 5, orders)
    assert begun is not None
    for one, other in zip(begun, later, strict=True):
        found, expected = one.result().trie.packed(), other.result().trie.packed()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    whole, apart = (each.result().trie.counts.sum() for each in begun)
    assert apart < whole
    for thread in threading.enumerate():
        if thread.name.startswith("counting"):
            thread.join()
    assert sys.getswitchinterval() == ORDINARY


@pytest.mark.parametrize("size", [60, 5000])
def test_experts_of_random_text_take_less_than_160_bytes_a_character_and_keep_60(size: int) -> None:
    ids = np.random.default_rng(1).integers(0, size, 2**17).astype(np.min_scalar_type(size - 1))
    held = HeldOut.of(len(ids), size)
    tracemalloc.start()
    try:
        experts = [each.result() for each in count_experts(ids, size, 8)]
        for expert in experts:
            expert.trie.histories_at(ids, held.starts, held.length)
        kept, most = (each / len(ids) for each in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
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
