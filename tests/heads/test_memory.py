"""Attention that does not fit the machine's memory is refused before it is computed, within a tenth
of the measured peak, and the advised number of characters fits.
"""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from encoded import encoded_file
from random_models import random_file

import gpt
from gpt import devices
from gpt.errors import OutOfMemory
from gpt.trained import TrainedGPT

Work = Callable[[int], object]
TEXT = "fade bead cab deaf a bed " * 40


def attention(model: TrainedGPT, count: int) -> object:
    return model.attention(f"{TEXT[:count]}\t{TEXT[:count]}" if model.has_encoder else TEXT[:count])


def heads(model: TrainedGPT, count: int) -> object:
    pair = f"{TEXT[:count]}\t{TEXT[:count]}\n"
    return model.heads(pair if model.has_encoder else TEXT[: count + 1])


def peak(work: Work, count: int) -> int:
    """Bytes that the work allocates at the same time."""
    tracemalloc.start()
    try:
        work(count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("work", [attention, heads])
@pytest.mark.parametrize(
    "options",
    [
        dict(n_layer=1, n_head=4),
        dict(n_layer=3, n_head=2),
        dict(n_layer=2, n_head=4, position="alibi"),
        dict(n_layer=2, n_head=4, encoder_layers=2),
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_attention_that_does_not_fit_is_refused_and_the_advice_fits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    work: Callable[[TrainedGPT, int], object],
) -> None:
    shape = {"n_embd": 16, "block_size": 1000}
    make = encoded_file if "encoder_layers" in options else random_file
    model = gpt.load(make(tmp_path / "model.safetensors", **shape | options))
    measured = peak(partial(work, model), 500)
    monkeypatch.setattr(devices, "SMALL", 1, raising=False)
    monkeypatch.setattr(devices, "available_memory", lambda: int(1.15 * measured), raising=False)
    work(model, 500)
    monkeypatch.setattr(devices, "available_memory", lambda: int(0.85 * measured), raising=False)
    with pytest.raises(OutOfMemory, match=r"at most \d+ characters") as refused:
        work(model, 500)
    (advised,) = re.findall(r"at most (\d+) characters", str(refused.value))
    assert 400 < int(advised) < 500
    work(model, int(advised))
