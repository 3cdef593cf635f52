"""How a step computes where there is a choice: which precision, which algorithms, compiled or not.

Evaluations, and the probe that numpy must reproduce, always have float32. Knows no step.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import cast

import torch
from torch import nn

from gpt.config import TrainConfig
from gpt.devices import report_failure


def settle(config: TrainConfig) -> None:
    """For the whole process: whether a GPU's algorithms must give the same bits each time.

    cuBLAS asks for its setting before it is first used.
    """
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if torch.are_deterministic_algorithms_enabled() != config.deterministic:
        torch.use_deterministic_algorithms(config.deterministic)  # this imports the compiler


@contextlib.contextmanager
def tensor_floats(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """While inside, a GPU may round what float32 products take in to 10 bits, if so configured."""
    before = torch.get_float32_matmul_precision()
    if config.precision == "tf32" and device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def low_precision(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a forward pass: products in bfloat16, if so configured."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")


def compiled(net: nn.Module, config: TrainConfig) -> nn.Module:
    """The net as torch.compile makes it, if so configured: it pays after minutes (benchmarks)."""
    return _Compiled(net) if config.compile else net


class _Compiled(nn.Module):
    """Calls the compiled net; if the compiler fails, prints one line and calls the net itself."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self._net, self._called = net, cast(nn.Module, torch.compile(net))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """As the net's."""
        try:
            return cast(torch.Tensor, self._called(inputs))
        except torch._dynamo.exc.TorchDynamoException as error:
            report_failure("--compile", error, "training goes on uncompiled")
            self._called = self._net
            return cast(torch.Tensor, self._net(inputs))
