"""Settings of a training step's computation: precision, deterministic algorithms,
compilation.

Evaluations always use float32, and probes float64.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from gpt.config import TrainConfig
from gpt.devices import report_failure


def set_determinism(config: TrainConfig) -> None:
    """Sets, for the whole process, whether a GPU must give the same bits each time.

    cuBLAS reads its environment variable when it is first used.
    """
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if torch.are_deterministic_algorithms_enabled() != config.deterministic:
        torch.use_deterministic_algorithms(config.deterministic)  # this imports the compiler


def has_fast_bfloat16() -> bool:
    """Whether this CPU has AMX (Intel, since 2023): fast matrix products in bfloat16."""
    return bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())


def precision_context(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context of a forward pass, with matrix products in the precision of the options."""
    return torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16")


def compile_net(net: nn.Module, config: TrainConfig) -> Callable[..., Tensor]:
    """The net; compiled if --compile is set, which pays off after minutes
    (benchmarks/LOG.md).

    If the compiler fails, this prints one line and the net is not compiled.
    """
    if not config.compile:
        return net
    called: Callable[..., Tensor] = torch.compile(net)

    def call(*ids: Tensor, **more: Tensor) -> Tensor:
        nonlocal called
        try:
            return called(*ids, **more)
        except torch._dynamo.exc.TorchDynamoException as error:
            report_failure("torch.compile", error, "training continues uncompiled")
            called = net
            return cast(Tensor, net(*ids, **more))

    return call
