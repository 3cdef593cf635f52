"""Compares the gaps that a student has filled with the right code, and names slips.

Each gap is checked alone: the rest of the model has the right code, that of attention.toml. A slip
is named only if its code gives the student's numbers in all cases.
"""

from __future__ import annotations

import tomllib
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.checks import Check
from gpt.config import SampleConfig
from gpt.lessons.exercises.report import STAGES, Stage
from gpt.lessons.ladder import causal
from gpt.lessons.tutorials.sampling import shape

NAME = "<exercise>"  # of the student's file in tracebacks
SHAPE = (11, 8, 2, 3, 12, 0.25)  # of the checked GPT: V, T at most, layers, heads, C, p
CASES = list(product((False, True), (4, 7)))  # training or not; T = D, and T ≠ D
EQUAL, NEAR = 1e-4, 0.03  # largest error of a number, and of an id's share of the draws
FAR = 1e9  # the error of NaN, or of another shape
CODE: dict[str, Any] = {"torch": torch, "F": F, "inf": torch.inf, "causal": causal, "shape": shape}
CODE |= {"SampleConfig": SampleConfig, "floats": partial(torch.randn, requires_grad=True)}


def stages(file: ModuleType) -> Iterator[Stage]:
    """The stages of a student's file, in order."""
    text = Path(__file__).with_name("attention.toml").read_text(encoding="utf-8")
    gaps = tomllib.loads(text)["gap"]
    for name in STAGES:
        try:
            parts = [Trial(file, gap, gaps).stage() for gap in gaps if gap["stage"] == name]
        except (Exception, SystemExit) as error:  # a class is missing or is not made
            parts = [Stage(name, "failed", "", problem_of(error))]
        first = next((each for each in parts if each.status != "passed"), parts[0])
        checks = tuple(check for each in parts for check in each.checks)
        yield Stage(name, first.status, first.slip, first.message, checks)


def loaded(source: str) -> ModuleType:
    """The student's file as a module. Raises what the file raises."""
    file = ModuleType(NAME)
    exec(compile(source, NAME, "exec", dont_inherit=True), vars(file))
    return file


def problem_of(error: BaseException) -> str:
    """An error of the student's code in one line, with the number of the line that raised it."""
    line = getattr(error, "lineno", None)
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == NAME else line
    text = (str(error).splitlines() or [""])[0][:200]
    return f"line {line}: " * bool(line) + f"{type(error).__name__}: {text}"


class Trial:
    """The student's code of a gap and the right code, with the same weights and arguments."""

    def __init__(self, file: ModuleType, gap: Any, gaps: list[Any]) -> None:
        torch.manual_seed(1)
        self.gap, self.place = gap, gap["place"]
        owner, _, name = self.place.rpartition(".")
        self.model = file.GPT(*SHAPE) if owner else nn.Module()
        for parameter in self.model.parameters():
            nn.init.normal_(parameter, std=0.5)
        for module, other in product(self.model.modules(), gaps):
            of, _, method = other["place"].rpartition(".")
            if of == type(module).__name__ and other is not gap:
                setattr(module, method, function_of(other, other["right"], module))
        owned = (each for each in self.model.modules() if type(each).__name__ == owner)
        self.target: Any = next(owned, None)
        self.own = getattr(self.target or file, name)
        self.right = function_of(gap, gap["right"], self.target)
        self.cases = [(mode, eval(gap["values"], CODE, {"T": T})) for mode, T in CASES]

    def stage(self) -> Stage:
        """What the student's code is, compared with the right code."""
        found, expected = map(self.results, (self.own, self.right))
        stage = partial(Stage, self.gap["stage"])
        raised = {str(each) for each in found if isinstance(each, NotImplementedError)}
        if {"", self.gap["stage"]} & raised or any(it is None or it is ... for it in found):
            return stage("missing", "", f"not yet written: {self.place}")
        halves = [max(map(self.apart, found[at], expected[at])) for at in (slice(2), slice(2, 4))]
        errors = {"values": halves[0], "values in training, with dropout": halves[1]}
        if self.target is not None and max(halves) < FAR:
            errors |= self.leaks()
        if max(errors.values()) <= EQUAL:
            difference = self.gradients(self.own) - self.gradients(self.right)
            errors["gradients"] = float(difference.abs().max())
        checks = tuple(Check(name, error, EQUAL, self.place) for name, error in errors.items())
        if max(errors.values()) <= EQUAL:
            return stage("passed", checks=checks)
        slip, advice = self.slip(found) or ("", self.difference(found, expected))
        return stage("failed", slip, f"{self.place}: {advice}", checks)

    def call(self, function: Callable[..., Any], training: bool, given: tuple[Any, ...]) -> Any:
        """The result of a function, which may write in its arguments, or the error it raises."""
        self.model.train(training)
        torch.manual_seed(1)  # dropout at the same place drops the same numbers
        try:
            return function(*(it.clone() if isinstance(it, Tensor) else it for it in given))
        except (Exception, SystemExit) as error:
            return error

    def results(self, function: Callable[..., Any]) -> list[Any]:
        """The results in all cases."""
        return [self.call(function, *case) for case in self.cases]

    def numbers(self, result: Tensor) -> Tensor:
        """The numbers to compare: of draws, the ids' shares."""
        if self.place == "draw":
            ids = torch.arange(self.cases[0][1][0].shape[1])
            result = (result == ids).double().mean(0) * EQUAL / NEAR
        return result.detach().double().nan_to_num(FAR, FAR, -FAR)

    def apart(self, found: Any, expected: Any) -> float:
        """The largest difference of two results, 0 of two errors."""
        if isinstance(found, BaseException) and isinstance(expected, BaseException):
            return 0.0
        if not isinstance(found, Tensor) or found.shape != getattr(expected, "shape", None):
            return FAR
        return float((self.numbers(found) - self.numbers(expected)).abs().max().clamp(max=FAR))

    def gradients(self, function: Callable[..., Any]) -> Tensor:
        """The gradients of the arguments and of all weights, one after the other."""
        leaves = [each for each in self.cases[0][1] if getattr(each, "requires_grad", False)]
        leaves += self.model.parameters()
        output = self.call(function, *self.cases[0])
        torch.manual_seed(1)
        total = (output * torch.randn(output.shape)).sum() + sum(0 * each.sum() for each in leaves)
        flat = [each.flatten() for each in torch.autograd.grad(total, leaves)]
        return torch.cat(flat).nan_to_num(FAR)

    def leaks(self) -> dict[str, float]:
        """How much the last character changes earlier outputs, and its gradient from them."""
        ids, rows = torch.randint(SHAPE[0], (2, 7)), torch.randn(2, 7, SHAPE[4], requires_grad=True)
        x = ids if self.target is self.model else rows
        other = torch.cat((x[:, :-1], x.flip(0)[:, -1:]), dim=1)  # that of the other text
        early, changed = (self.call(self.target, False, (it,))[:, :-1] for it in (x, other))
        errors = {"change by a later character": self.apart(early, changed)}
        if x is rows:
            total = (early * torch.randn(early.shape)).sum() + 0 * x.sum()
            gradient = torch.autograd.grad(total, x)[0][:, -1].nan_to_num(FAR)
            errors["gradient of a later character"] = float(gradient.abs().max())
        return errors

    def slip(self, found: list[Any]) -> tuple[str, str] | None:
        """The slip whose code gives the results found, and what to do; None if there is none."""
        for slip, advice, code in self.gap["slips"] * any(isinstance(it, Tensor) for it in found):
            computed = self.results(function_of(self.gap, code, self.target))
            if max(map(self.apart, found, computed)) <= EQUAL:
                return slip, advice
        return None

    def difference(self, found: list[Any], expected: list[Any]) -> str:
        """The first result that is wrong, and how."""
        for (training, _), one, right in zip(self.cases, found, expected, strict=True):
            if isinstance(one, BaseException):
                return problem_of(one)
            if not isinstance(one, Tensor) or one.shape != right.shape:
                kind = getattr(one, "shape", type(one).__name__)
                return f"expected the shape {tuple(right.shape)}, found {kind}"
            wrong = ((self.numbers(one) - self.numbers(right)).abs() > EQUAL).nonzero().tolist()
            if wrong and self.place == "draw":
                return "the ids are not drawn with their probabilities"
            if wrong:
                at, when = wrong[0], " in training, where dropout draws" * training
                number, other = (float(each.detach()[tuple(at)]) for each in (one, right))
                return f"first difference at {at}{when}: {number:.4f}, expected {other:.4f}"
        return "right values, wrong gradients: do not use detach, .data, item or no_grad here"


def function_of(gap: Any, code: str, target: Any) -> Callable[..., Any]:
    """Code of a gap as a function, or as a method of the target if there is one."""
    function: Callable[..., Any] = eval(f"lambda {gap['arguments']}: ({code})", CODE)
    return partial(function, target) if target else function
