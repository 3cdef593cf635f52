"""The torch model on a device that numpy cannot use: logits with a cache, and every stage, as numpy
arrays. gpt/reading/probe.py holds it against the probe.
Tensor names: B batch, T time, C n_embd.
"""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpt.config.model import HEAD_STAGES, Attention
from gpt.model.gpt import GPT, Cache
from gpt.vocabulary import Ids

Array = npt.NDArray[np.float32]


class DeviceGPT:
    """A GPT on a device. It decodes B streams at once; `start` fixes B."""

    def __init__(self, model: GPT, device: str) -> None:
        self.config, self._model, self._device = model.config, model, torch.device(device)
        self._forms: dict[Attention, GPT] = {}
        self._cache = Cache(self.config, 0, self._device)

    def make_twin(self) -> DeviceGPT:
        """The same weights with streams of their own."""
        twin = copy(self)
        twin._cache = Cache(self.config, 0, self._device)
        return twin

    def start(self, ids: Ids) -> Array:
        """Starts new texts: (B, n) ids -> (B, vocab_size) logits of each text's next character."""
        if len(ids) != self._cache.keys.shape[1]:
            self._cache = Cache(self.config, len(ids), self._device)
        self._cache.at = slice(0)
        return self._continue(ids)

    def step(self, ids: Ids) -> Array:
        """Adds one id to each text: (B,) ids -> (B, vocab_size) logits of the next character."""
        return self._continue(ids[:, None])

    @torch.inference_mode()
    def forward(self, ids: Ids) -> Array:
        """(B, T) ids -> (B, T, C) the stream after the last norm."""
        return _finite(self._as("fused").stream(self._tokens(ids)))

    @torch.inference_mode()
    def block(self, x: Array, layer: int) -> dict[str, Array]:
        """(B, T, C) -> the stages of one layer by the names of gpt/config/model.py, each (B, …)."""
        stages = defaultdict[str, list[Tensor]](list)

        def keep(**parts: Tensor) -> None:
            for name, stage in parts.items():
                stages[name].append(stage)

        model = self._as("heads")
        rotate = partial(model.position.rotate, at=slice(x.shape[1]))
        model.blocks[layer](torch.tensor(x, device=self._device), rotate, keep=keep)
        _finite(stages["resid_post"][0])
        return {
            name: (torch.stack(parts, dim=1) if name in HEAD_STAGES else parts[0]).cpu().numpy()
            for name, parts in stages.items()
        }

    @torch.inference_mode()
    def _continue(self, ids: Ids) -> Array:
        """(B, n) next ids -> (B, vocab_size) logits."""
        end = self._cache.at.stop
        self._cache.at = slice(end, end + ids.shape[1])
        return _finite(self._as("fused")(self._tokens(ids), self._cache)[:, 0])

    def _tokens(self, ids: Ids) -> Tensor:
        return torch.tensor(ids.astype(np.int64), device=self._device)

    def _as(self, attention: Attention) -> GPT:
        """The model with this form of attention, on the device."""
        if attention not in self._forms:
            model = self._model
            if model.config.attention != attention:
                model = GPT(replace(model.config, attention=attention))
                model.load_parameters(self._model.stored_parameters())
            self._forms[attention] = model.to(self._device).eval()
        return self._forms[attention]


def _finite(result: Tensor) -> Array:
    """The result in numpy. Raises FloatingPointError if a number is not finite."""
    array: Array = result.cpu().numpy()
    if not np.isfinite(array).all():
        raise FloatingPointError("its numbers are not finite")
    return array
