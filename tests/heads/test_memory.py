"""Attention that does not fit the machine's memory is refused before it is computed, within a tenth
of the measured peak, and the advised number of characters fits.
"""

from __future__ import annotations

import re
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from program import Gptx
from random_models import random_file

import gpt
from gpt import devices
from gpt.errors import OutOfMemory

TEXT = "fade bead cab deaf a bed " * 40


def test_attention_that_does_not_fit_is_refused_and_the_advice_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"n_embd": 16, "block_size": 1000, "n_layer": 1, "n_head": 4}
    model = gpt.load(random_file(tmp_path / "model.safetensors", **shape))
    work = partial(model.attn, TEXT[:500])
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    monkeypatch.setattr(devices, "SMALL_MEMORY", 1)
    monkeypatch.setattr(devices, "available_memory", lambda: int(1.15 * peak))
    work()
    monkeypatch.setattr(devices, "available_memory", lambda: int(0.85 * peak))
    with pytest.raises(OutOfMemory, match=r"at most \d+ characters") as refused:
        work()
    (advised,) = re.findall(r"at most (\d+) characters", str(refused.value))
    assert 400 < int(advised) < 500
    model.attn(TEXT[: int(advised)])


@pytest.mark.parametrize("line", [("attn", "the cat sat on"), ("heads",)])
def test_commands_refuse_attention_that_does_not_fit_with_exit_8(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    monkeypatch.setattr(devices, "SMALL_MEMORY", 1)
    monkeypatch.setattr(devices, "available_memory", lambda: 10_000)
    answer = gptx(*line)
    assert (answer.code, answer.err.count("\n")) == (8, 1), answer.err
    assert re.search(r"out of memory: .* are free; give .*at most \d+ characters", answer.err)
