"""Counts in a thread what a training needs: meanwhile, torch is imported and the model is made.

numpy sorts without the interpreter's lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

from gpt.counting.baseline import ORDERS, count_baseline
from gpt.counting.expert import Expert
from gpt.counting.held_out import HeldOut
from gpt.counting.tables import KeptLevels, Trie, count, count_levels
from gpt.vocabulary import Ids

#: An expert of the whole text, which predicts, and one of less text, to which the gate is fitted,
#: and which predicts only the held-out pieces (gpt/counting/held_out.py).
Experts: TypeAlias = tuple[Future[Expert], Future[Expert]]
#: Most seconds that the counting thread waits for the interpreter's lock after each operation on
#: arrays; with Python's own 5 ms, it waits longer than it counts.
SWITCHING, ORDINARY = 2e-4, sys.getswitchinterval()


class CountedAhead:
    """The counts of both splits, which begin now. orders: of the experts; 0: none.

    The baseline and the expert of the whole text need the same n-grams, which are counted once.
    """

    def __init__(self, train: Ids, val: Ids, vocab_size: int, orders: int) -> None:
        kept = KeptLevels(orders)
        levels = kept.passing(count_levels(train, vocab_size, max(orders, ORDERS)))

        def whole() -> Trie:
            self.baseline.result()
            for _ in levels:  # those of more orders than the baseline has
                pass
            return kept.trie()

        thread = ThreadPoolExecutor(1, "counting")
        sys.setswitchinterval(min(SWITCHING, ORDINARY))
        self.baseline = thread.submit(
            count_baseline, train, val, vocab_size, levels=levels if orders else None
        )
        self.experts = _submit(thread, train, vocab_size, orders, whole) if orders else None
        thread.submit(sys.setswitchinterval, ORDINARY)
        thread.shutdown(wait=False)


def count_experts(train: Ids, vocab_size: int, orders: int) -> Experts:
    """Begins to count the experts of a training split."""
    thread = ThreadPoolExecutor(1)
    experts = _submit(thread, train, vocab_size, orders, partial(count, train, vocab_size, orders))
    thread.shutdown(wait=False)
    return experts


def _submit(
    thread: ThreadPoolExecutor,
    train: Ids,
    vocab_size: int,
    orders: int,
    whole: Callable[[], Trie],
) -> Experts:
    """whole: the function that counts the whole text."""
    held = HeldOut.of(len(train), vocab_size)

    def apart() -> Expert:
        expert = Expert(count(held.apart(train), vocab_size, orders), vocab_size)
        return expert.pruned(train, held.starts, held.length)

    return thread.submit(lambda: Expert(whole(), vocab_size)), thread.submit(apart)
