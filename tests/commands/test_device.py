"""--device of `gptx attn`, `heads`, `eval` and `next`; torch on a CPU replaces the device."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from program import Gptx

from gpt.commands import shared
from gpt.model.device import DeviceGPT

#: Command -> the device's method that computes its numbers.
COMMANDS = {
    "attn the_cat": "block",
    "heads --windows 2": "block",
    "eval": "forward",
    "eval corpus.txt": "forward",
    "next the_cat": "forward",
}
#: The same, and the command whose device works as a decoder.
ALL = {**COMMANDS, "sample the_cat --seed 1 --length 5": "start"}
#: What the device computes of the probe, before the command.
OPENING = ["forward", "block", "block"]
NUMBER = re.compile(r"[\d.]+(e-\d+)?")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed with torch, on a machine with a driver; its names come in as it is."""
    found: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(DeviceGPT, name)

        def compute(self: DeviceGPT, *given: Any) -> Any:
            found.append(name)
            return real(self, *given)

        return compute

    start = DeviceGPT.__init__
    monkeypatch.setattr(DeviceGPT, "__init__", lambda self, model, _: start(self, model, "cpu"))
    for name in ("forward", "block"):
        monkeypatch.setattr(DeviceGPT, name, counted(name))
    monkeypatch.setattr("gpt.devices.cuda_devices", lambda: 1)
    monkeypatch.setattr("gpt.interface.trained.try_torch", lambda device: None)
    monkeypatch.setattr("gpt.training.checkpoint.GPT.to", lambda self, device: self)
    return found


def options(command: str) -> list[str]:
    return [each.replace("_", " ") for each in command.split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_computes_the_same(
    gptx: Gptx, calls: list[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    line = options(command)
    expected = gptx(*line, "--device", "cpu")
    assert gptx(*line) == expected
    assert calls == []  # the work does not repay the import of torch
    found = gptx(*line, "--device", "cuda")
    assert (found.code, found.err) == (0, expected.err)
    assert calls[: len(OPENING)] == OPENING
    assert COMMANDS[command] in calls[len(OPENING) :]
    assert NUMBER.sub("", found.out) == NUMBER.sub("", expected.out)
    calls.clear()
    monkeypatch.setattr(shared, "TORCH_PAYS", 0)
    found = gptx(*line)
    note = "device: cuda (--device cpu computes with numpy)\n"
    assert found.err.count(note) == 1
    assert found.err.replace(note, "") == expected.err
    assert COMMANDS[command] in calls[len(OPENING) :]


def fail(*given: Any) -> Any:
    raise RuntimeError("CUDA error: device-side assert triggered")


@pytest.mark.parametrize("command", ALL)
def test_the_cpu_replaces_a_device_that_fails_at_the_probe(
    gptx: Gptx,
    calls: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    command: str,
) -> None:
    line = options(command)
    monkeypatch.setattr(DeviceGPT, ALL[command], fail)
    assert gptx(*line, "--device", "cuda") == gptx(*line, "--device", "cpu")
    assert caplog.messages == [
        "note: the GPU failed (RuntimeError: CUDA error: device-side assert triggered); "
        "the CPU computes instead"
    ]


@pytest.mark.parametrize("command", ALL)
def test_a_device_that_fails_later_is_an_error_of_one_line(
    gptx: Gptx, calls: list[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    name, computed = ALL[command], list[int]()
    real, opening = getattr(DeviceGPT, name), [*OPENING, "start"].count(name)

    def compute(self: DeviceGPT, *given: Any) -> Any:
        computed.append(1)
        return real(self, *given) if len(computed) <= opening else fail()

    monkeypatch.setattr(DeviceGPT, name, compute)
    answer = gptx(*options(command), "--device", "cuda")
    reason = "RuntimeError: CUDA error: device-side assert triggered"
    assert (answer.code, answer.out.replace("the cat", "")) == (1, "")  # sample writes the prompt
    assert answer.err.endswith(f"the GPU failed ({reason}); use --device cpu\n")


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the driver's, which lists one GPU."""
    folder = tmp_path / "gpus"
    (folder / "0000:65:00.0").mkdir(parents=True)
    monkeypatch.setattr("gpt.devices.GPUS", folder)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


@pytest.mark.parametrize("command", [*ALL, "eval --against corpus-1:4"])
def test_auto_says_once_why_it_does_not_take_the_gpu(
    gptx: Gptx, listed: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    line = (
        "device: cpu (numpy is done before torch would be imported; --device cuda uses the GPU)\n"
    )
    named = gptx(*options(command), "--device", "cpu")
    found = gptx(*options(command))
    assert (found.code, found.out) == (0, named.out)
    assert found.err.count(line) == 1
    assert found.err.replace(line, "") == named.err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gptx(*options(command)).err == named.err
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    (listed / "0000:65:00.0").rmdir()
    assert gptx(*options(command)).err == named.err


@pytest.mark.parametrize("command", ALL)
def test_records_name_the_device_that_computed(
    gptx: Gptx, calls: list[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def device_of(*more: str) -> str:
        return json.loads(gptx(*options(command), "--json", *more).out)["device"]

    assert device_of() == device_of("--device", "cpu") == "cpu"
    assert device_of("--device", "cuda") == "cuda"
    monkeypatch.setattr(DeviceGPT, ALL[command], fail)
    assert device_of("--device", "cuda") == "cpu"


def test_both_models_of_a_comparison_are_computed_on_the_device(
    gptx: Gptx, calls: list[str]
) -> None:
    counts = []
    for command in ("eval --step 8", "eval --step 8 --against corpus-1:4"):
        calls.clear()
        answer = gptx(*options(command), "--device", "cuda")
        assert answer.code == 0, answer.err
        counts.append(len(calls))
    assert counts[0] > len(OPENING)
    assert 2 * counts[0] == counts[1]


def test_no_driver_is_asked_for_short_work_and_a_device_that_torch_cannot_use_is_refused(
    gptx: Gptx, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise AssertionError("asked the driver")

    monkeypatch.setattr("gpt.devices.cuda_devices", fail)
    monkeypatch.setattr("gpt.devices.has_mps", lambda: False)
    for command in COMMANDS:
        assert gptx(*options(command)).code == 0
        answer = gptx(*options(command), "--device", "mps")
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.endswith("--device: no Apple GPU found; use --device cpu\n")
