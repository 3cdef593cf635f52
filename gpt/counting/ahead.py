"""Counts in threads what a training needs: meanwhile, torch is imported and the model is made.

numpy sorts without the interpreter's lock.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from gpt.counting.baseline import count_baseline
from gpt.counting.expert import Expert
from gpt.counting.held_out import HeldOut
from gpt.counting.tables import count
from gpt.vocabulary import Ids

#: An expert of the whole text, which predicts, and one of less text, to which the gate is fitted,
#: and which predicts only the held-out pieces (gpt/counting/held_out.py).
Experts: TypeAlias = tuple[Future[Expert], Future[Expert]]
#: A training text of at most so many characters is counted in two threads at once, so that the
#: first step comes sooner; a longer one in one, for the memory.
SHORT = 1_500_000


class CountedAhead:
    """The counts of both splits, which begin now. orders: of the experts; 0: none."""

    def __init__(self, train: Ids, val: Ids, vocab_size: int, orders: int) -> None:
        threads = ThreadPoolExecutor(2 if len(train) <= SHORT else 1)
        self.baseline = threads.submit(count_baseline, train, val, vocab_size)
        self.experts = _submit(threads, train, vocab_size, orders) if orders else None
        threads.shutdown(wait=False)


def count_experts(train: Ids, vocab_size: int, orders: int) -> Experts:
    """Begins to count the experts of a training split."""
    thread = ThreadPoolExecutor(1)
    experts = _submit(thread, train, vocab_size, orders)
    thread.shutdown(wait=False)
    return experts


def _submit(threads: ThreadPoolExecutor, train: Ids, vocab_size: int, orders: int) -> Experts:
    held = HeldOut.of(len(train), vocab_size)

    def expert(text: Ids) -> Expert:
        return Expert(count(text, vocab_size, orders), vocab_size)

    def apart() -> Expert:
        return expert(held.apart(train)).pruned(train, held.starts, held.length)

    return threads.submit(lambda: expert(held.counted(train))), threads.submit(apart)
