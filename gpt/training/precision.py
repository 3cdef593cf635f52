"""How a training step computes: its precision, deterministic algorithms, compiled or not.

Evaluations always use float32, and probes float64.
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
    """Sets for the whole process whether a GPU must give the same bits each time.

    cuBLAS reads its setting when it is first used.
    """
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if torch.are_deterministic_algorithms_enabled() != config.deterministic:
        torch.use_deterministic_algorithms(config.deterministic)  # this imports the compiler


@contextlib.contextmanager
def tensor_floats(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Inside, with precision tf32, a GPU rounds the factors of float32 products to 10 bits."""
    before = torch.get_float32_matmul_precision()
    if config.precision == "tf32" and device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def low_precision(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a forward pass: matrix products in bfloat16, with precision bfloat16."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")


def compiled(net: nn.Module, config: TrainConfig) -> nn.Module:
    """The net, with --compile compiled: worth it after minutes (benchmarks/LOG.md)."""
    return _Compiled(net) if config.compile else net


class _Compiled(nn.Module):
    """Calls the compiled net; if the compiler fails, prints one line and calls the net itself."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self._net, self._called = net, cast(nn.Module, torch.compile(net))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The net's output."""
        try:
            return cast(torch.Tensor, self._called(inputs))
        except torch._dynamo.exc.TorchDynamoException as error:
            report_failure("--compile", error, "training goes on uncompiled")
            self._called = self._net
            return cast(torch.Tensor, self._net(inputs))
