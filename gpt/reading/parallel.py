"""Distributes work over cores: each takes whole texts, or a share of the streams to the end.

So cores need no synchronisation after every product: every product uses one thread of BLAS, as
several lose much while another program uses a core (devices.one_thread_a_product).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from gpt.devices import cores
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.vocabulary import Ids

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import LibController

SHARE = 8  # fewest streams for which another core saves time

Item = TypeVar("Item")
Done = TypeVar("Done")


class ParallelDecoder:
    """Decoders that run in parallel. `start` fixes B and the number of decoders."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self.config = reader, reader.config
        self._decoders = [CachedDecoder(reader)]
        self._shares = 1

    def twin(self) -> ParallelDecoder:
        """Another decoder with the same weights and separate streams."""
        other = ParallelDecoder(self._reader)
        other._decoders = [self._decoders[0].twin()]
        return other

    def start(self, ids: Ids) -> Array:
        """Starts new texts: (B, n) ids -> (B, vocab_size) logits of the next character."""
        self._shares = min(len(ids) // SHARE, self._cores) if len(ids) >= 2 * SHARE else 1
        while len(self._decoders) < self._shares:
            self._decoders.append(self._decoders[0].twin())
        return self._each(lambda decoder, ids: decoder.start(ids), ids)

    def step(self, ids: Ids) -> Array:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of the next character."""
        return self._each(lambda decoder, ids: decoder.step(ids), ids)

    def _each(self, work: Callable[[CachedDecoder, Ids], Array], ids: Ids) -> Array:
        with one_blas_thread():
            if self._shares == 1:
                return work(self._decoders[0], ids)
            shares = np.array_split(ids, self._shares)
            return np.concatenate(list(self._pool.map(work, self._decoders, shares)))

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return _pool_of(self._cores)

    @cached_property
    def _cores(self) -> int:
        return cores()


def on_cores(work: Callable[[Item], Done], items: Sequence[Item]) -> list[Done]:
    """The result of `work` for each item, in order; each core takes one item after the other."""
    threads = min(len(items), cores())
    with one_blas_thread():
        if threads <= 1:
            return [work(item) for item in items]
        with _pool_of(threads) as pool:
            return list(pool.map(work, items))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside, every product uses one thread."""
    counts = [(library, library.get_num_threads()) for library in _blas()]
    changed = [(library, threads) for library, threads in counts if threads != 1]
    try:
        for library, _ in changed:
            library.set_num_threads(1)
        yield
    finally:
        for library, threads in changed:
            library.set_num_threads(threads)


def _pool_of(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(threads, "gptx-decoder")


@cache
def _blas() -> list[LibController]:
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController().select(user_api="blas")
    return list(controller.lib_controllers)
