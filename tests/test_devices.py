"""Devices: "auto", errors for missing ones, thread settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpt import devices
from gpt.errors import ConfigError


@pytest.mark.parametrize(("count", "chosen"), [(0, "cpu"), (2, "cuda")])
def test_auto_device_follows_the_driver(
    monkeypatch: pytest.MonkeyPatch, count: int, chosen: str
) -> None:
    monkeypatch.setattr(devices, "cuda_device_count", lambda: count)
    assert devices.resolve_device("auto") == chosen
    assert devices.resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("device", ["cuda", "mps", "x"])
def test_missing_device_is_refused(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(devices, "cuda_device_count", lambda: 0)
    monkeypatch.setattr(devices, "has_mps", lambda: False)
    with pytest.raises(ConfigError, match=r"^device: .*(use `device='cpu'`|one of auto, cpu)"):
        devices.resolve_device(device)


@pytest.mark.parametrize(
    ("own", "files", "cpus"),
    [
        ("0::/", {"cpu.max": "max 100000\n"}, 6),
        ("0::/", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/a/b", {"a/b/cpu.max": "200000 100000", "a/cpu.max": "300000 100000"}, 2),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 6),
        (
            "5:memory:/x\n4:cpu,cpuacct:/a\n0::/",
            {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
            1,
        ),
        (
            "4:cpu:/docker/of-the-host",
            {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("0::/", {"cpu.max": "damaged"}, 6),
    ],
)
def test_threads_follow_the_quota_of_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str], cpus: int
) -> None:
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(devices, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(devices, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(6), raising=False)
    assert devices.available_cpus() == cpus


def test_memory_follows_the_limit_of_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("memory.max", "5000"),
        ("memory.stat", "anon 1000\nfile 9\n"),
        ("a/memory.max", "9000"),
        ("a/memory.stat", "anon 2000\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text("0::/a/b\n")
    monkeypatch.setattr(devices, "GROUPS", tmp_path)
    monkeypatch.setattr(devices, "OWN_GROUPS", tmp_path / "own")
    assert {*devices._left_in_groups()} == {4000, 7000}


@pytest.mark.parametrize(
    ("own", "cores", "threads"),
    [
        ({}, 3, "1"),
        ({"OMP_NUM_THREADS": "2"}, 2, None),
        ({"OPENBLAS_NUM_THREADS": "4", "OMP_NUM_THREADS": "2"}, 4, "4"),
        ({"OMP_NUM_THREADS": "64"}, 6, None),
        ({"OMP_NUM_THREADS": "many"}, 3, None),
    ],
)
def test_a_product_uses_one_thread_unless_the_user_set_it(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], cores: int, threads: str | None
) -> None:
    monkeypatch.setattr(os, "environ", dict(own))
    monkeypatch.setattr(devices, "_own_cores", lambda: 6)
    monkeypatch.setattr(devices, "available_cpus", lambda: 3)
    devices.cores.cache_clear()
    try:
        devices.limit_blas_threads()
        assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
        assert devices.cores() == cores
    finally:
        devices.cores.cache_clear()


def test_available_memory_is_the_least_that_any_limit_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = devices.available_memory()
    assert free is not None
    assert 0 < free <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(devices, "_left_in_groups", lambda: iter([7, 10**9]))
    assert devices.available_memory() == 7
