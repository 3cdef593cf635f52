"""The running average of a model's weights, which is evaluated and saved where it is asked for.

Averaging over the last steps takes out the noise of small batches (Polyak & Juditsky 1992).
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from gpt.model import GPT


class Average:
    """A second model whose weights follow the first one's at a distance."""

    def __init__(self, model: GPT, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        self._averages: list[Tensor] = list(self.model.parameters())

    @torch.no_grad()
    def update(self, model: GPT, step: int) -> None:
        """After `step` steps: average ← decay · average + (1 − decay) · weights.

        The decay grows from 2/11 to its value, so that the start is soon forgotten.
        """
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        sources = [parameter.detach() for parameter in model.parameters()]
        torch._foreach_lerp_(self._averages, sources, share)
