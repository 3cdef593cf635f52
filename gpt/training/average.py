"""The running average of a model's weights, which is evaluated and saved where it is asked for.

Averaging over the last steps takes out the noise of small batches (Polyak & Juditsky 1992).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from gpt.model import GPT
from gpt.training.distributed import here


class Average:
    """A second model whose weights follow the first one's at a distance.

    `spread`: what is done to it as it is to the first one, so that both lie alike on all ranks.
    """

    def __init__(
        self, model: GPT, decay: float, spread: Callable[[GPT], object] = lambda _: None
    ) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        spread(self.model)

    @torch.no_grad()
    def update(self, model: GPT, step: int) -> None:
        """After `step` steps: average ← decay · average + (1 − decay) · weights.

        The decay grows from 2/11 to its value, so that the start is soon forgotten.
        """
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        averages, weights = ([here(p) for p in m.parameters()] for m in (self.model, model))
        torch._foreach_lerp_(averages, weights, share)
