"""The torch model as a decoder, for devices that numpy does not reach.

A cache of fixed size, a step that a CUDA graph repeats, and drawing on the device, so that many
characters need one copy to the host. It raises whatever torch raises; the caller then continues
with numpy (gpt/reading/fallback.py).

numpy in, numpy out, like the reader's decoder, and held to it by tests. The forward is the model's
own, with a cache. Tensor names: B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpt.config import SampleConfig
from gpt.model.gpt import GPT, Cache
from gpt.model.sampler import draw

AHEAD = 64  # most characters drawn before they are copied to the host


class TorchDecoder:
    """Decodes B streams at once on the model's device. `start` fixes B."""

    def __init__(self, model: GPT, device: str) -> None:
        self.config = model.config
        self._model = _fused(model).to(device).eval()
        self._device = torch.device(device)
        self._length = 0
        self._state: _State | None = None
        self._steps: Callable[[], None] = self._step
        self._draws: dict[SampleConfig, Callable[[], None]] = {}

    @property
    def most_ahead(self) -> int:
        """How many characters `ahead` can draw at once; 0 where the device lacks float64."""
        return 0 if self._device.type == "mps" else AHEAD

    @torch.inference_mode()
    def start(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """(B, n) ids -> (B, vocab_size) logits of what follows; forgets what came before."""
        if self._state is None or self._state.batch != len(ids):
            self._state = _State(self, len(ids))
            self._draws = {}
            self._steps = self._repeated(self._step)  # before the cache holds anything
        self._length = ids.shape[1]
        at = torch.arange(self._length, device=self._device)
        tokens = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        self._state.logits.copy_(self._model(tokens, self._state.cache.move(at))[:, 0])
        self._state.at.fill_(self._length)
        return self._read()

    @torch.inference_mode()
    def step(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of what follows."""
        self._take(ids, 1)
        self._steps()
        return self._read()

    @torch.inference_mode()
    def ahead(
        self,
        ids: npt.NDArray[np.integer[Any]],
        uniforms: npt.NDArray[np.floating[Any]],
        config: SampleConfig,
    ) -> npt.NDArray[np.int64]:
        """(B,) ids and (n, B) uniforms, n ≤ most_ahead -> (n, B) ids, one after the other.

        As n times `step` and the sampler's `draw`, in one go.
        """
        count = len(uniforms)
        state = self._take(ids, count)
        state.uniforms[:count].copy_(torch.from_numpy(uniforms))
        state.count.zero_()
        filters = replace(config, length=0, n=1, seed=0)  # whatever else it says
        if filters not in self._draws:
            self._draws[filters] = self._repeated(lambda: self._draw(filters))
            state.count.zero_()
            state.ids.copy_(torch.from_numpy(ids.astype(np.int64)))
        for _ in range(count):
            self._steps()
            self._draws[filters]()
        self._read()
        return state.drawn[:count].cpu().numpy()

    def _take(self, ids: npt.NDArray[np.integer[Any]], count: int) -> _State:
        """The next characters of all streams. Raises IndexError where the window has no room."""
        if self._state is None or self._length + count > self.config.block_size:
            raise IndexError(f"no room for {count} more after {self._length} characters")
        self._length += count
        self._state.ids.copy_(torch.from_numpy(ids.astype(np.int64)))
        return self._state

    def _step(self) -> None:
        """The state's next ids -> its logits; what a CUDA graph repeats."""
        assert self._state is not None
        state = self._state
        state.logits.copy_(self._model(state.ids[:, None], state.cache.move(state.at))[:, 0])
        state.at.add_(1)

    def _draw(self, config: SampleConfig) -> None:
        """The state's logits -> its next ids, and a row of what was drawn."""
        assert self._state is not None
        state = self._state
        chosen = draw(state.logits, state.uniforms.index_select(0, state.count)[0], config)
        state.ids.copy_(chosen)
        state.drawn.index_copy_(0, state.count, chosen[None])
        state.count.add_(1)

    def _read(self) -> npt.NDArray[np.float32]:
        """The state's logits. Raises FloatingPointError if one is not finite."""
        assert self._state is not None
        logits: npt.NDArray[np.float32] = self._state.logits.cpu().numpy().copy()
        if not np.isfinite(logits).all():
            raise FloatingPointError("its logits are not finite")
        return logits

    def _repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """The work as a CUDA graph where there is CUDA: its kernels without launching each."""
        if self._device.type != "cuda":
            return work
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # whatever is only allocated or chosen once
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


class _State:
    """What a step reads and writes, at addresses that stay: a graph knows nothing else."""

    def __init__(self, decoder: TorchDecoder, batch: int) -> None:
        config, device = decoder.config, decoder._device
        self.batch = batch
        self.cache = Cache(config, batch, device)
        self.ids = torch.zeros(batch, dtype=torch.int64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)  # where they go
        self.logits = torch.zeros(batch, config.vocab_size, device=device)
        self.count = torch.zeros(1, dtype=torch.int64, device=device)  # drawn so far
        self.drawn = torch.zeros(AHEAD, batch, dtype=torch.int64, device=device)
        kind = torch.float32 if device.type == "mps" else torch.float64
        self.uniforms = torch.zeros(AHEAD, batch, dtype=kind, device=device)
