"""The torch model as a decoder, for devices that numpy cannot use.

The cache has a fixed size, a CUDA graph repeats a step, and characters are drawn on the device:
many of them are copied to the host at once. It raises whatever torch raises; the caller then
continues with numpy (gpt/reading/fallback.py).

Arguments and results are numpy arrays, as in gpt/reading/decode.py; tests compare both. Tensor
names: B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpt.config import SampleConfig
from gpt.counting.mixture import Streams
from gpt.model.counting import TorchMixture
from gpt.model.gpt import GPT, Cache
from gpt.model.sampler import draw

AHEAD = 64  # most characters drawn before they are copied to the host


class TorchDecoder:
    """Decodes B streams at once on the model's device. `start` fixes B."""

    def __init__(self, model: GPT, device: str) -> None:
        self.config = model.config
        self._model = _fused(model).to(device).eval()
        self._device = torch.device(device)
        self._batch = self._length = 0
        self._draws: dict[tuple[SampleConfig, TorchMixture | None], Callable[[], None]] = {}
        self._mixture: TorchMixture | None = None

    @property
    def most_ahead(self) -> int:
        """How many characters `ahead` can draw at once; 0 where the device lacks float64."""
        return 0 if self._device.type == "mps" else AHEAD

    @torch.inference_mode()
    def start(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """Starts new texts: (B, n) ids -> (B, vocab_size) logits of the next character."""
        if len(ids) != self._batch:
            self._allocate(len(ids))
        self._length = ids.shape[1]
        self._cache.at = torch.arange(self._length, device=self._device)
        tokens = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        self._logits.copy_(self._model(tokens, self._cache)[:, 0])
        self._at.fill_(self._length)
        return self._read()

    @torch.inference_mode()
    def step(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of the next character."""
        self._take(ids, 1)
        self._steps()
        return self._read()

    @torch.inference_mode()
    def ahead(
        self,
        ids: npt.NDArray[np.integer[Any]],
        uniforms: npt.NDArray[np.floating[Any]],
        config: SampleConfig,
        counting: Streams | None = None,
    ) -> npt.NDArray[np.int64]:
        """(B,) ids and (n, B) uniforms, n ≤ most_ahead -> (n, B) ids, one after the other.

        Equals n times `step` and the sampler's `next_ids`.
        """
        count, mixture = len(uniforms), self._mixture_of(counting)
        filters = replace(config, length=0, n=1, seed=0)  # the options of `draw`
        if (filters, mixture) not in self._draws:
            self._count.zero_()
            work = partial(self._draw, filters, mixture)
            self._draws[filters, mixture] = self._repeated(work)  # may change what the work reads
        self._take(ids, count)
        self._uniforms[:count].copy_(torch.from_numpy(uniforms))
        self._count.zero_()
        if counting is not None:
            self._histories.copy_(torch.from_numpy(counting.histories))
        for _ in range(count):
            self._steps()
            self._draws[filters, mixture]()
        self._read()
        return self._drawn[:count].cpu().numpy()

    def _allocate(self, batch: int) -> None:
        """Allocates what a step reads and writes, at fixed addresses, as a CUDA graph needs."""
        config, device = self.config, self._device
        self._cache = Cache(config, batch, device)
        self._ids = torch.zeros(batch, dtype=torch.int64, device=device)
        self._at = torch.zeros(1, dtype=torch.int64, device=device)  # characters read
        self._logits = torch.zeros(batch, config.vocab_size, device=device)
        self._count = torch.zeros(1, dtype=torch.int64, device=device)  # number of characters drawn
        self._drawn = torch.zeros(AHEAD, batch, dtype=torch.int64, device=device)
        kind = torch.float32 if device.type == "mps" else torch.float64
        self._uniforms = torch.zeros(AHEAD, batch, dtype=kind, device=device)
        self._histories = torch.zeros(0, batch, dtype=torch.int64, device=device)
        self._draws.clear()
        self._steps = self._repeated(self._step)  # before the cache holds anything
        self._batch = batch

    def _mixture_of(self, counting: Streams | None) -> TorchMixture | None:
        """The streams' expert and gate on the device, with room for their histories."""
        if counting is None:
            return None
        if self._mixture is None or self._mixture.source is not counting.mixture:
            self._mixture = TorchMixture(counting.mixture, self._device)
        if self._histories.shape != counting.histories.shape:
            self._histories = torch.zeros(
                counting.histories.shape, dtype=torch.int64, device=self._device
            )
        return self._mixture

    def _take(self, ids: npt.NDArray[np.integer[Any]], count: int) -> None:
        """Adds each stream's next character. Raises IndexError where the window has no room."""
        if self._length + count > self.config.block_size:
            raise IndexError(f"no room for {count} more after {self._length} characters")
        self._length += count
        self._ids.copy_(torch.from_numpy(ids.astype(np.int64)))

    def _step(self) -> None:
        """The next ids -> their logits; a CUDA graph repeats this."""
        self._cache.at = self._at
        self._logits.copy_(self._model(self._ids[:, None], self._cache)[:, 0])
        self._at.add_(1)

    def _draw(self, config: SampleConfig, mixture: TorchMixture | None) -> None:
        """The logits -> the next ids, stored in a row of the drawn ids."""
        uniforms, logits = self._uniforms.index_select(0, self._count)[0], self._logits
        if mixture is not None:
            alone = config.only == "counting"
            logits = mixture.scores(logits, self._histories, alone)
        self._ids.copy_(draw(logits, uniforms, config))
        if mixture is not None:
            self._histories.copy_(mixture.advanced(self._histories, self._ids))
        self._drawn.index_copy_(0, self._count, self._ids[None])
        self._count.add_(1)

    def _read(self) -> npt.NDArray[np.float32]:
        """The logits. Raises FloatingPointError if one is not finite."""
        logits: npt.NDArray[np.float32] = self._logits.cpu().numpy().copy()
        if not np.isfinite(logits).all():
            raise FloatingPointError("its logits are not finite")
        return logits

    def _repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work, as a CUDA graph on CUDA, which launches all kernels at once."""
        if self._device.type != "cuda":
            return work
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # what is allocated or chosen only once
            work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


def _fused(model: GPT) -> GPT:
    """The model if its attention takes a cache, else a copy with the attention that does."""
    if model.config.attention == "fused":
        return model
    fused = GPT(replace(model.config, attention="fused"))
    fused.load_parameters(model.stored_parameters())
    return fused
