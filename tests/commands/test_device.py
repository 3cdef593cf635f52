"""--device of `gptx attn`, `heads`, `eval` and `next`; torch on a CPU replaces the device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from program import Gptx

from gpt.commands import options as shared_options
from gpt.model.gpt import DeviceGPT

#: Command -> the device's method that computes its numbers.
COMMANDS = {
    "attn the_cat": "block",
    "heads --windows 2": "block",
    "eval": "forward",
    "eval corpus.txt": "forward",
    "next the_cat": "forward",
}
#: The same, and the command whose device works as a decoder.
ALL = {**COMMANDS, "sample the_cat --length 5 --seed 1": "start"}
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
    monkeypatch.setattr("gpt.devices.cuda_device_count", lambda: 1)
    monkeypatch.setattr("gpt.interface.trained.try_torch", lambda device: None)
    monkeypatch.setattr("gpt.training.trainer.GPT.to", lambda self, device: self)
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
    monkeypatch.setattr(shared_options, "TORCH_PAYS", 0)
    found = gptx(*line)
    note = "device: cuda (--device cpu computes with numpy)\n"
    assert found.err.count(note) == 1
    assert found.err.replace(note, "") == expected.err
    assert COMMANDS[command] in calls[len(OPENING) :]


def fail(*given: Any) -> Any:
    raise RuntimeError("CUDA error: device-side assert triggered")


@pytest.mark.parametrize("command", ALL)
def test_the_cpu_replaces_a_device_that_fails_at_the_probe(
    gptx: Gptx, calls: list[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    line = options(command)
    monkeypatch.setattr(DeviceGPT, ALL[command], fail)
    answer, expected = gptx(*line, "--device", "cuda"), gptx(*line, "--device", "cpu")
    assert (answer.code, answer.out) == (expected.code, expected.out)
    problem = "RuntimeError: CUDA error: device-side assert triggered"
    note = f"note: the GPU failed ({problem}); the CPU computes instead\n"
    assert answer.err.replace(note, "", 1) == expected.err != answer.err


@pytest.mark.parametrize("command", ["next the_cat", "sample the_cat --length 5 --seed 1"])
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
    assert (answer.code, answer.out.replace("the cat\n", "")) == (1, "")  # sample writes the prompt
    assert answer.err.endswith(f"the GPU failed ({reason}); use --device cpu\n")
