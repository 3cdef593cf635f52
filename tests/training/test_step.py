"""One training step: updates, non-finite losses, measurement, memory."""

from __future__ import annotations

import copy
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import TEXT, TINY
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gpt.config import ModelConfig, TrainConfig
from gpt.config.fields import only_fields
from gpt.config.presets import preset
from gpt.errors import OutOfMemory
from gpt.model import GPT, initialise
from gpt.training.fit import LOGITS, Recipe, fit_memory
from gpt.training.optim import Optimizer
from gpt.training.step import (
    batch_rows,
    check_memory,
    memory_errors,
    train_step,
    try_step,
)
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
        self.optimizer = Optimizer(self.model, self.config)

    def step(self, number: int) -> tuple[float, float]:
        return train_step(self.model, self.optimizer, IDS, self.config, number)

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


def test_bfloat16_trains_float32_weights() -> None:
    student = Student(precision="bfloat16")
    losses = [student.step(number)[0] for number in range(30)]
    assert all(map(math.isfinite, losses))
    assert losses[-1] < 0.7 * losses[0]
    assert losses != [Student().step(0)[0], *losses[1:]]  # the products are not float32's
    assert {weight.dtype for weight in student.weights()} == {torch.float32}


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


def test_gradient_is_clipped_to_the_maximum_norm() -> None:
    for grad_clip, norm in ((1e-3, 1e-3), (0.0, None), (1e9, None)):
        student = Student(grad_clip=grad_clip)
        student.step(0)
        gradients = [parameter.grad for parameter in student.model.parameters()]
        total = torch.stack([g.norm() for g in gradients if g is not None]).norm().item()
        assert total == pytest.approx(norm, rel=1e-3) if norm else total > 1e-2


class Largest(TorchDispatchMode):
    """Records the number of elements of the largest tensor that torch makes."""

    numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        made = func(*args, **(kwargs or {}))
        tensors = [each for each in pytree.tree_leaves(made) if isinstance(each, Tensor)]
        self.numbers = max(self.numbers, *(each.numel() for each in tensors), 0)
        return made


def test_a_step_with_a_large_vocabulary_never_has_all_logits_and_learns_the_same() -> None:
    ids = np.random.default_rng(1).integers(0, 10_000, 5_000).astype(np.uint16)
    values = preset("default", "cpu") | {"n_embd": 16, "block_size": 100, "n_layer": 1}
    recipe = Recipe(
        ModelConfig(vocab_size=10_000, **only_fields(ModelConfig, values)),
        TrainConfig(**only_fields(TrainConfig, values)),
        fixed=frozenset(),
        fitted=True,
        train_characters=5_000,
        val_characters=5_000,
        longest_context=5_000,
    )
    config = fit_memory(recipe, "cpu").train
    model = GPT(recipe.model).double()
    initialise(model, seed=1)
    whole = copy.deepcopy(model)
    with Largest() as largest:
        loss, _ = train_step(model, Optimizer(model, config), ids, config, 0)
    assert largest.numbers <= LOGITS < config.batch_size * 100 * 10_000
    rows = slice(0, config.batch_size)
    inputs, targets = map(torch.from_numpy, batch_rows(ids, config, 0, 100, rows))
    expected = F.cross_entropy(whole(inputs).flatten(0, 1), targets.flatten())
    expected.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    torch.nn.utils.clip_grad_norm_(whole.parameters(), config.grad_clip)
    for found, one in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(found.grad, one.grad, rtol=1e-9, atol=1e-15)


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
        memory_errors(model, TrainConfig(batch_size=batch_size)),
    ):
        raise error
    assert caught.value.exit_code == 8


@pytest.mark.parametrize("error", [RuntimeError("shapes do not fit"), ValueError("out of memory")])
def test_other_errors_do_not_become_out_of_memory(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), memory_errors(MODEL, TRAIN):
        raise error


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


def test_memory_of_layers_without_feed_forward_is_that_of_attention() -> None:
    shape: dict[str, Any] = {
        "vocab_size": 2,
        "block_size": 100,
        "n_layer": 50,
        "n_head": 1,
        "n_embd": 100,
    }
    train = TrainConfig(batch_size=1000)
    for feed_forward, kept in ((True, 8 + 4 + 4), (False, 6)):  # numbers for one of n_embd
        model = ModelConfig(**shape, feed_forward=feed_forward)
        fixed = 16 * model.parameters() + 8 * 101 * 1000
        need = fixed + 1000 * 4 * (50 * 100 * kept + 3 * 2) * 100
        check_memory(model, train, need)
        with pytest.raises(OutOfMemory):
            check_memory(model, train, need - 1)


def test_a_batch_whose_characters_do_not_fit_is_refused() -> None:
    many = TrainConfig(batch_size=10**9, micro_batch_size=1)
    with pytest.raises(OutOfMemory, match="try `batch_size=") as refused:
        check_memory(MODEL, many, 10**9)
    advised = int(re.findall(r"`batch_size=(\d+)`", str(refused.value))[0])
    check_memory(MODEL, replace(many, batch_size=advised), 10**9)


def test_the_trial_step_of_a_device_has_the_presets_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[ModelConfig, TrainConfig, float]] = []

    def watched(model: Any, optimizer: Any, ids: Any, config: TrainConfig, step: int) -> Any:
        loss, norm = train_step(model, optimizer, ids, config, step)
        seen.append((model.config, config, norm))
        return loss, norm

    monkeypatch.setattr("gpt.training.step.train_step", watched)
    try_step("cpu")
    ((model, config, norm),) = seen
    assert 0 < norm < math.inf
    assert (model.uses_dropout, config.precision) == (True, "bfloat16")
    with pytest.raises((RuntimeError, AssertionError)):
        try_step("mps" if torch.cuda.is_available() else "cuda")


def test_a_vocabulary_too_large_for_this_machine_is_refused_with_what_makes_it_smaller() -> None:
    large = ModelConfig(vocab_size=1_100_000, n_layer=1, n_head=1, n_embd=256, block_size=8)
    with pytest.raises(OutOfMemory, match=r"smaller model: .*fewer different characters$"):
        check_memory(large, TrainConfig(), 2**30)
    wide = ModelConfig(vocab_size=100, n_layer=99, n_head=1, n_embd=2048, block_size=8)
    with pytest.raises(OutOfMemory, match=r"`n_embd`, `n_layer`$"):
        check_memory(wide, TrainConfig(), 2**30)
