"""Windows on a device: the same whether all ids are copied once or each step sends its windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gpt.config import TrainConfig
from gpt.corpus.batches import batch
from gpt.training import device_batches as feeding
from gpt.training.device_batches import copied, kept_near, windows

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["u1", "u2", "u4"])
@pytest.mark.parametrize("order", ["random", "epochs"])
def test_copied_ids_give_the_same_windows(
    monkeypatch: pytest.MonkeyPatch, kind: str, order: Any
) -> None:
    monkeypatch.setattr(feeding, "AT_ONCE", 7)
    most = min(np.iinfo(kind).max, 2**31 - 1)
    ids = np.random.default_rng(1).integers(most, size=100, endpoint=True).astype(kind)
    ids[:2] = most, 0
    ids.flags.writeable = False  # like memory-mapped ids
    config = TrainConfig(batch_size=9, window_order=order)
    for step in range(8):
        for part in (slice(None), slice(3, 7)):
            expected = batch(ids, config.seed, step, 9, 8, order, part)
            for fed in (ids, copied(ids, "cpu")):
                found = windows(fed, config, step, 8, part, CPU)
                for one, other in zip(found, expected, strict=True):
                    assert one.dtype == torch.int64
                    np.testing.assert_array_equal(one.numpy(), other)


def test_ids_stay_in_main_memory_unless_a_gpu_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    ids, copies = np.zeros(1000, np.uint8), []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 500)
    monkeypatch.setattr(feeding, "copied", lambda ids, device: copies.append(device) or "there")
    assert kept_near(ids, "cpu") is ids
    for free, expected in ((9_799, ids), (9_800, "there")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda n=free: (n, 10**9))
        assert kept_near(ids, "cuda") is expected
    assert copies == ["cuda"]


@pytest.mark.parametrize("where", ["memory_reserved", "mem_get_info", "copied"])
def test_windows_are_sent_if_copying_the_ids_to_the_gpu_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    def fail(*_: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    ids = np.zeros(1000, np.uint8)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
    monkeypatch.setattr(feeding if where == "copied" else torch.cuda, where, fail)
    assert kept_near(ids, "cuda") is ids
    (line,) = caplog.messages
    assert line.startswith("note: copying the corpus to the GPU failed (OutOfMemoryError: CUDA out")
    assert line.endswith("; each step sends its windows")
