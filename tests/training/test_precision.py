"""How a step computes: a precision is set while a step computes, and reset afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import TEXT, TINY
from gpt.training.net import Net
from gpt.training.precision import compile_net, precision_context, set_determinism
from torch import nn

from gpt.config import ModelConfig, TrainConfig
from gpt.model import GPT, initialise
from gpt.training.optim import Optimizer
from gpt.training.step import train_step
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)


@pytest.fixture
def as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


def test_bfloat16_applies_to_matrix_products_only() -> None:
    left, right = torch.ones(2, 2), torch.ones(2, 2)
    for precision, expected in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        config = TrainConfig(precision=precision)  # type: ignore[arg-type]
        with precision_context(config, torch.device("cpu")):
            assert (left @ right).dtype == expected
            assert (left + right).dtype == torch.float32


def test_deterministic_algorithms_are_switched_on_and_off(
    as_before: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    set_determinism(TrainConfig(deterministic=True))
    assert torch.are_deterministic_algorithms_enabled()
    import os

    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    set_determinism(TrainConfig())
    assert not torch.are_deterministic_algorithms_enabled()


def test_compiled_step_gives_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def watched(net: nn.Module) -> nn.Module:
        net.register_forward_hook(lambda *_: calls.append(net))
        return net

    monkeypatch.setattr(torch, "compile", watched)

    def losses(**options: Any) -> list[float]:
        config = TrainConfig(batch_size=4, warmup_steps=0, **options)
        model = GPT(ModelConfig(vocab_size=len(VOCABULARY), **TINY))
        initialise(model, 1)
        net = Net(model, config)
        optimizer, ids = Optimizer(model, config), VOCABULARY.encode(TEXT)
        return [train_step(model, optimizer, ids, config, step, net=net)[0] for step in range(3)]

    plain = losses()
    assert not calls
    assert losses(compile=True) == plain
    assert len(calls) == 3
    assert compile_net(calls[0], TrainConfig()) is calls[0]


def test_a_net_that_cannot_be_compiled_computes_uncompiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def uncompilable(net: nn.Module) -> Any:
        def call(inputs: torch.Tensor) -> torch.Tensor:
            tries.append(inputs)
            raise torch._dynamo.exc.TorchDynamoException("no working compiler found\nat all")

        return call

    monkeypatch.setattr(torch, "compile", uncompilable)
    net, inputs = nn.Linear(3, 2), torch.ones(4, 3)
    called = compile_net(net, TrainConfig(compile=True))
    for _ in range(2):
        assert torch.equal(called(inputs), net(inputs))
    assert len(tries) == 1
    why = "TorchDynamoException: no working compiler found"
    assert caplog.messages == [f"note: torch.compile failed ({why}); training continues uncompiled"]


def test_other_errors_of_a_compiled_net_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(inputs: torch.Tensor) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "compile", lambda net: full)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        compile_net(nn.Linear(3, 2), TrainConfig(compile=True))(torch.ones(4, 3))
