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
from program import Gptx
from random_models import random_file

import gpt
from gpt import devices
from gpt.errors import OutOfMemory
from gpt.interface.trained import TrainedGPT

Work = Callable[[int], object]
TEXT = "fade bead cab deaf a bed " * 40


def attention(model: TrainedGPT, count: int) -> object:
    return model.attn(TEXT[:count])


def heads(model: TrainedGPT, count: int) -> object:
    return model.heads(TEXT[: count + 1])


def peak(work: Work, count: int) -> int:
    """Bytes that the work allocates at the same time."""
    tracemalloc.start()
    try:
        work(count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("options", "work"),
    [
        (dict(n_layer=1, n_head=4), attention),
        (dict(n_layer=3, n_head=2), heads),
    ],
)
def test_attention_that_does_not_fit_is_refused_and_the_advice_fits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    work: Callable[[TrainedGPT, int], object],
) -> None:
    shape = {"n_embd": 16, "block_size": 1000}
    model = gpt.load(random_file(tmp_path / "model.safetensors", **shape | options))
    measured = peak(partial(work, model), 500)
    monkeypatch.setattr(devices, "SMALL_MEMORY", 1, raising=False)
    monkeypatch.setattr(devices, "available_memory", lambda: int(1.15 * measured), raising=False)
    work(model, 500)
    monkeypatch.setattr(devices, "available_memory", lambda: int(0.85 * measured), raising=False)
    with pytest.raises(OutOfMemory, match=r"at most \d+ characters") as refused:
        work(model, 500)
    (advised,) = re.findall(r"at most (\d+) characters", str(refused.value))
    assert 400 < int(advised) < 500
    work(model, int(advised))


@pytest.mark.parametrize("line", [("attn", "the cat sat on"), ("heads",), ("attn", "-o", "a.npz")])
def test_commands_refuse_attention_that_does_not_fit_with_exit_8(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    monkeypatch.setattr(devices, "SMALL_MEMORY", 1, raising=False)
    monkeypatch.setattr(devices, "available_memory", lambda: 10_000, raising=False)
    answer = gptx(*line)
    assert (answer.code, answer.err.count("\n")) == (8, 1), answer.err
    assert re.search(r"out of memory: .* are free; give .*at most \d+ characters", answer.err)
