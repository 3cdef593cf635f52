"""The torch model behind the reader's interface, for devices that numpy does not reach.

numpy ids in, numpy logits out. It recomputes the whole window for every character, which on a GPU
is nearly free at these sizes and keeps one forward for everything.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpt.model.gpt import GPT


class TorchDecoder:
    """Decodes B streams at once on the model's device."""

    def __init__(self, model: GPT, device: str) -> None:
        self.config = model.config
        self._model = model.to(device).eval()
        self._device = device
        self._window = torch.empty(0)

    def start(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """(B, n) ids -> (B, vocab_size) logits of what follows; forgets what came before."""
        self._window = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        return self._logits()

    def step(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float32]:
        """(B,) ids, one more for each stream -> (B, vocab_size) logits of what follows."""
        new = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        self._window = torch.cat((self._window, new[:, None]), dim=1)
        return self._logits()

    def _logits(self) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            logits: npt.NDArray[np.float32] = self._model(self._window)[:, -1].float().cpu().numpy()
        return logits
