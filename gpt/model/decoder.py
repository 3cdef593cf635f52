"""The torch model as a decoder, for devices that numpy cannot use.

It raises whatever torch raises; the caller then continues with numpy (gpt/reading/fallback.py).
Arguments and results are numpy arrays, as in gpt/reading/decode.py; tests compare both. Tensor
names: B batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpt.model.gpt import GPT, Cache


class TorchDecoder:
    """Decodes B streams at once on a device. `start` fixes B."""

    def __init__(self, model: GPT, device: str) -> None:
        self.config, self._device = model.config, torch.device(device)
        self._model = _fused(model).to(device).eval()
        self._cache = Cache(self.config, 0, self._device)

    def start(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """Starts new texts: (B, n) ids -> (B, vocab_size) logits of the next character."""
        if len(ids) != self._cache.keys.shape[1]:
            self._cache = Cache(self.config, len(ids), self._device)
        self._cache.at = slice(0)
        return self._read(ids)

    def step(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of the next character."""
        return self._read(ids[:, None])

    @torch.inference_mode()
    def _read(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """(B, n) next ids -> (B, vocab_size) logits. Raises FloatingPointError if one of them is
        not finite.
        """
        end = self._cache.at.stop
        self._cache.at = slice(end, end + ids.shape[1])
        tokens = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        logits: npt.NDArray[np.float32] = self._model(tokens, self._cache)[:, 0].cpu().numpy()
        if not np.isfinite(logits).all():
            raise FloatingPointError("its logits are not finite")
        return logits


def _fused(model: GPT) -> GPT:
    """The model if its attention takes a cache, else a copy with the attention that does."""
    if model.config.attention == "fused":
        return model
    fused = GPT(replace(model.config, attention="fused"))
    fused.load_parameters(model.stored_parameters())
    return fused
