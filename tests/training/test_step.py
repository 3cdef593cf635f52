"""One training step: updates, non-finite losses, measurement, memory."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import TEXT, TINY
from torch import Tensor

from gpt.config import ModelConfig, TrainConfig
from gpt.errors import ConfigError, OutOfMemory
from gpt.model import GPT, initialise
from gpt.training.step import Learner, check_memory, torch_errors
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text(TEXT)
IDS = VOCABULARY.encode(TEXT)
MODEL = ModelConfig(vocab_size=len(VOCABULARY), **TINY)
TRAIN = TrainConfig(batch_size=4, warmup_steps=0, learning_rate=1e-2)


class Student:
    """A tiny model with its optimizer; two of one kind are equal."""

    def __init__(self, shape: dict[str, Any] | None = None, **train: Any) -> None:
        self.config = TrainConfig(**{**vars(TRAIN), **train})
        self.model = GPT(ModelConfig(**{**vars(MODEL), **(shape or {})}))
        initialise(self.model, seed=1)
        self.learner = Learner(self.model, IDS, self.config)

    def step(self, number: int) -> tuple[float, float]:
        return self.learner.step(number)

    def weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    """Whether all are equal, bit for bit; a NaN equals itself."""
    pairs = zip(first, second, strict=True)
    return all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs)


@pytest.mark.parametrize(("attention", "precision"), [("fused", "float32"), ("heads", "bfloat16")])
def test_a_step_does_not_depend_on_earlier_random_numbers(attention: str, precision: str) -> None:
    results = []
    for seed in (1, 2):
        student = Student({"attention": attention, "dropout": 0.3}, precision=precision)
        torch.manual_seed(seed)
        losses = [student.step(number) for number in range(3)]
        results.append((losses, student.weights()))
    assert results[0][0] == results[1][0]
    assert equal(results[0][1], results[1][1])
    assert all(norm > 0 for _, norm in results[0][0])


def test_dropout_differs_for_each_step_and_seed() -> None:
    def drawn(dropout: float) -> set[float]:
        """The next random number after each step of two seeds."""
        found = set()
        for seed in (1, 2):
            student = Student({"dropout": dropout}, seed=seed)
            for number in range(3):
                torch.manual_seed(0)
                student.step(number)
                found.add(torch.rand(()).item())
        return found

    assert (len(drawn(0.5)), len(drawn(0.0))) == (6, 1)


def test_non_finite_loss_makes_no_update() -> None:
    student = Student()
    student.step(0)
    student.model.lm_head.weight.data[0, 0] = math.inf
    before = student.weights()
    loss, norm = student.step(1)
    assert not math.isfinite(loss)
    assert not math.isfinite(norm)
    assert equal(student.weights(), before)


def test_a_gradient_that_is_not_finite_also_skips_the_step() -> None:
    student = Student()
    before = student.weights()
    student.model.lm_head.weight.register_hook(lambda gradient: gradient * math.inf)
    loss, norm = student.step(0)
    assert math.isfinite(loss)
    assert not math.isfinite(norm)
    assert equal(student.weights(), before)


@pytest.mark.parametrize(
    ("error", "batch_size", "block_size", "remedy"),
    [
        (
            RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
            32,
            64,
            "`batch_size=16`",
        ),
        (torch.cuda.OutOfMemoryError("CUDA out of memory."), 3, 64, "`batch_size=1`"),
        (RuntimeError("MPS backend out of memory"), 1, 64, "`block_size=32`"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), 2, 64, "=1`"),
        (MemoryError(), 1, 1, "`block_size=1`"),
    ],
)
def test_an_error_of_missing_memory_says_what_to_try(
    error: Exception, batch_size: int, block_size: int, remedy: str
) -> None:
    model = ModelConfig(vocab_size=2, block_size=block_size)
    message = f"^out of memory; try .*{remedy}$"
    with (
        pytest.raises(OutOfMemory, match=message) as caught,
        torch_errors(model, TrainConfig(batch_size=batch_size)),
    ):
        raise error
    assert caught.value.exit_code == 8


def test_memory_is_estimated_for_one_micro_batch() -> None:
    many = TrainConfig(batch_size=10**6)
    with pytest.raises(OutOfMemory) as refused:
        check_memory(MODEL, many, 10**9)
    advised = int(
        re.findall(r"`micro_batch_size=(\d+)`, which gives the same result", str(refused.value))[0]
    )
    check_memory(MODEL, replace(many, micro_batch_size=advised), 10**9)
    check_memory(MODEL, many, 10**9, ranks=10**6 // advised)
    with pytest.raises(OutOfMemory):
        check_memory(MODEL, replace(many, micro_batch_size=10 * advised), 10**9)


def test_deterministic_algorithms_are_switched_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    model = GPT(MODEL)
    Learner(model, IDS, replace(TRAIN, deterministic=True))
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    Learner(model, IDS, TRAIN)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_compiled_net_learns_the_same_and_says_if_it_cannot_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(TRAIN, compile=True)
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda net: compiled.append(net) or net)
    plain, other = Student(), Student()
    loss = Learner(other.model, IDS, config).step(0)
    assert (loss, len(compiled)) == (plain.step(0), 1)
    with (
        pytest.raises(ConfigError, match=r"^compile: fails here \(TorchDynamoException: no"),
        torch_errors(MODEL, config),
    ):
        raise torch._dynamo.exc.TorchDynamoException("no compiler found")
