"""Compares what a student has filled into the gaps with the right code, and names slips.

Each gap is checked by itself: the rest of the model has the right code, from attention.toml. A slip
is named only if its code gives the student's numbers in all cases.
"""

from __future__ import annotations

import tomllib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt.checks import Check
from gpt.lessons.exercises.report import STAGES, Stage
from gpt.lessons.ladder import causal

NAME = "<exercise>"  # the name of the student's file in tracebacks
SHAPE = (11, 8, 2, 3, 12, 0.25)  # of the GPT to check: V, largest T, layers, heads, C, p
MODES = "", " in training, where dropout is active"
CASES = list(product(MODES, (4, 7)))  # the mode; T = D, and T ≠ D
WRONG_GRADIENTS = "right values, wrong gradients: do not use detach, .data, item or no_grad here"
EQUAL, NEAR = 1e-4, 0.03  # largest error of a number, and of an id's share in the draws
FAR = 1e9  # the error for NaN, and for another shape
CODE: dict[str, Any] = {"torch": torch, "F": F, "inf": torch.inf, "causal": causal}
CODE["floats"] = floats = partial(torch.randn, requires_grad=True)


def stages(file: ModuleType) -> Iterator[Stage]:
    """The stages of a student's file, in order."""
    text = Path(__file__).with_name("attention.toml").read_text(encoding="utf-8")
    gaps = tomllib.loads(text)["gap"]
    for name in STAGES:
        try:
            parts = [Trial(file, gap, gaps).stage() for gap in gaps if gap["stage"] == name]
        except (Exception, SystemExit) as error:  # a class is missing or is not made
            parts = [Stage(name, "failed", "", problem_of(error))]
        first = min(parts, key=lambda each: each.status == "passed")  # first stage not right
        yield replace(first, checks=tuple(check for each in parts for check in each.checks))


def load_file(source: str) -> ModuleType:
    """The student's file as a module. Raises what the file raises."""
    file = ModuleType(NAME)
    exec(compile(source, NAME, "exec", dont_inherit=True), vars(file))
    return file


def problem_of(error: BaseException) -> str:
    """An error of the student's code as one line, with the number of the line that raised it."""
    line = getattr(error, "lineno", None)
    for frame in traceback.extract_tb(error.__traceback__):
        line = frame.lineno if frame.filename == NAME else line
    text = (str(error).splitlines() or [""])[0][:200]
    return f"line {line}: " * bool(line) + f"{type(error).__name__}: {text}"


class Trial:
    """The student's code for a gap and the right code, with the same weights and arguments."""

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
        """Compares the student's code with the right code."""
        found, expected = map(self.results, (self.own, self.right))
        stage = partial(Stage, self.gap["stage"])
        raised = {str(each) for each in found if isinstance(each, NotImplementedError)}
        if {"", self.gap["stage"]} & raised or any(it is None or it is ... for it in found):
            return stage("missing", "", f"not yet written: {self.place}")
        pairs = [*map(self.compared, found, expected, (mode for mode, _ in self.cases))]
        values, dropped = max(pairs[:2])[0], max(pairs[2:])[0]
        errors = {"values": values, "values in training, with dropout": dropped}
        if self.target is not None and max(values, dropped) < FAR:
            errors |= self.measure_leaks()
        if max(errors.values()) <= EQUAL:
            difference = self.gradients(self.own) - self.gradients(self.right)
            errors["gradients"] = float(difference.abs().max())
        checks = tuple(Check(name, error, EQUAL, self.place) for name, error in errors.items())
        if max(errors.values()) <= EQUAL:
            return stage("passed", checks=checks)
        wrong = (words for error, words in pairs if error > EQUAL)
        slip, advice = self.slip(found) or ("", next(wrong, WRONG_GRADIENTS))
        return stage("failed", slip, f"{self.place}: {advice}", checks)

    def call(self, function: Callable[..., Any], mode: str, given: tuple[Any, ...]) -> Any:
        """The result of a function, or the error that it raises; it may change its arguments."""
        self.model.train(mode != MODES[0])
        torch.manual_seed(1)  # makes dropout drop the same numbers each time
        try:
            return function(*(it.clone() if isinstance(it, Tensor) else it for it in given))
        except (Exception, SystemExit) as error:
            return error

    def results(self, function: Callable[..., Any]) -> list[Any]:
        """The results of a function for every mode and length in CASES."""
        return [self.call(function, *case) for case in self.cases]

    def numbers(self, result: Tensor) -> Tensor:
        """The numbers to compare; for draws, the shares of the ids."""
        if self.place == "draw":
            ids = torch.arange(self.cases[0][1][0].shape[1])
            result = (result == ids).double().mean(0) * EQUAL / NEAR
        return result.detach().double().nan_to_num(FAR, FAR, -FAR)

    def compared(self, found: Any, expected: Any, mode: str = "") -> tuple[float, str]:
        """The largest difference of two results, 0 for two errors; the first one as text."""
        if isinstance(found, BaseException):
            return FAR * (not isinstance(expected, BaseException)), problem_of(found)
        shape = getattr(expected, "shape", None)
        if not isinstance(found, Tensor) or found.shape != shape:
            kind = getattr(found, "shape", type(found).__name__)
            return FAR, f"expected the shape {tuple(shape or ())}, found {kind}"
        apart = (self.numbers(found) - self.numbers(expected)).abs().clamp(max=FAR)
        words, wrong = "the ids are not drawn with their probabilities", apart > EQUAL
        for at in wrong.nonzero().tolist()[: self.place != "draw"]:
            one, other = found[tuple(at)], expected[tuple(at)]
            words = f"first difference at {at}{mode}: {one:.4f}, expected {other:.4f}"
        return float(apart.max()), words

    def gradients(self, function: Callable[..., Any]) -> Tensor:
        """The gradients of the arguments and of all weights, one after the other."""
        leaves = [each for each in self.cases[0][1] if getattr(each, "requires_grad", False)]
        leaves += self.model.parameters()
        return slopes(self.call(function, *self.cases[0]), leaves)

    def measure_leaks(self) -> dict[str, float]:
        """How much the last character changes earlier outputs, and its gradient from them."""
        x = torch.randint(11, (2, 7)) if self.target is self.model else floats(2, 7, 12)
        other = torch.cat((x[:, :-1], x.flip(0)[:, -1:]), dim=1)  # that of the other text
        early, changed = (self.call(self.target, MODES[0], (it,))[:, :-1] for it in (x, other))
        errors = {"change by a later character": self.compared(early, changed)[0]}
        if x.requires_grad:
            gradient = slopes(early, [x]).view_as(x)[:, -1]
            errors["gradient of a later character"] = float(gradient.abs().max())
        return errors

    def slip(self, found: list[Any]) -> tuple[str, str] | None:
        """The slip whose code gives these results, and what to do about it, if there is one."""
        for slip, advice, code in self.gap["slips"] * any(isinstance(it, Tensor) for it in found):
            computed = self.results(function_of(self.gap, code, self.target))
            if max(map(self.compared, found, computed))[0] <= EQUAL:
                return slip, advice
        return None


def slopes(output: Tensor, leaves: list[Tensor]) -> Tensor:
    """The gradients of a sum of the outputs with random factors, joined in order."""
    torch.manual_seed(1)
    total = (output * torch.randn(output.shape)).sum() + sum(0 * each.sum() for each in leaves)
    flat = [each.flatten() for each in torch.autograd.grad(total, leaves)]
    return torch.cat(flat).nan_to_num(FAR)


def function_of(gap: Any, code: str, target: Any) -> Callable[..., Any]:
    """The code of a gap as a function, or as a method of the target if there is one."""
    function: Callable[..., Any] = eval(f"lambda {gap['arguments']}: ({code})", CODE)
    return partial(function, target) if target else function
