"""The lesson "learning": its numbers equal those of a second computation, in numpy or plain Python.

Exact slopes come from complex numbers: a function of real numbers has the slope Im f(x + ih) / h,
without a difference that could lose digits (Squire & Trapp 1998).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.lessons.catalogue import make_lesson, make_material
from gpt.lessons.lesson import Lesson, Step
from gpt.lessons.tutorials import learning
from gpt.training.optim import Optimizer

TINY = 1e-30
TWICE = ("the", "cat", "the", "dog")  # reads a word twice; "dog" is not read


class Played:
    """A lesson, and the weights, ids and target that it has computed with."""

    def __init__(self, words: tuple[str, ...] | None = None, **given: Any) -> None:
        asked: list[Any] = []
        real = learning.run_backward

        def record(*arguments: Any) -> Any:
            asked.extend(arguments)
            return real(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learning, "run_backward", record)
            self.lesson: Lesson = make_lesson("learning", make_material("learning", words, **given))
        weights, ids, self.target, _ = asked
        self.weights = {name: each.detach().numpy().copy() for name, each in weights.items()}
        self.ids = ids.numpy()

    def table(self, name: str) -> Any:
        tables = [each for step in self.lesson.steps for each in step.tables]
        return next(each.values for each in tables if each.name == name)

    def step(self, title: str) -> Step:
        return next(each for each in self.lesson.steps if each.title == title)


@cache
def played(words: tuple[str, ...] | None = None) -> Played:
    return Played(words)


def softmax(x: Any) -> Any:
    exponentials = np.exp(x - x.real.max())
    return exponentials / exponentials.sum()


def numbers_of(weights: dict[str, Any], ids: Any, target: int, **replaced: Any) -> dict[str, Any]:
    """The forward pass, word by word; numbers of `replaced` are taken instead of computed ones."""
    x = replaced.get("x", np.array([weights["embedding"][n] for n in ids]))
    queries, keys, values = (
        np.array([weights[name] @ row for row in x]) for name in ("W_query", "W_key", "W_value")
    )
    values = replaced.get("values", values)
    scores = np.array([(queries[-1] * key).sum() / np.sqrt(2) for key in keys])
    a = replaced.get("a", softmax(replaced.get("scores", scores)))
    context = replaced.get("context", sum(w * value for w, value in zip(a, values, strict=True)))
    logits = replaced.get("logits", weights["W_output"] @ context)
    loss = -np.log(softmax(logits)[target])
    return {
        **{"x": x, "values": values, "scores": scores, "a": a},
        **{"context": context, "logits": logits, "loss": loss},
    }


def exact_slopes(function: Any, at: Any) -> Any:
    """The slopes of a function by each of some numbers, in their shape."""
    found = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        moved = at.astype(complex)
        moved[place] += 1j * TINY
        found[place] = function(moved).imag / TINY
    return found


def slopes_by(name: str, own: Played) -> Any:
    """The exact gradient of a lesson's loss by some of its numbers, or by a matrix."""
    weights, ids, target = own.weights, own.ids, own.target
    if name in weights:
        return exact_slopes(
            lambda moved: numbers_of({**weights, name: moved}, ids, target)["loss"], weights[name]
        )
    at = numbers_of(weights, ids, target)[name]
    return exact_slopes(lambda moved: numbers_of(weights, ids, target, **{name: moved})["loss"], at)


def flat(named: dict[str, Any]) -> Any:
    return np.concatenate([named[name].ravel() for name in learning.WEIGHTS])


def loss_of(row: Any, own: Played) -> Any:
    """The loss of a lesson with other weights, which are given as one row."""
    weights, start = {}, 0
    for name in learning.WEIGHTS:
        matrix = own.weights[name]
        weights[name] = row[start : start + matrix.size].reshape(matrix.shape)
        start += matrix.size
    return numbers_of(weights, own.ids, own.target)["loss"]


def gradient_of(own: Played) -> Any:
    return flat({name: slopes_by(name, own) for name in learning.WEIGHTS})


def close(one: Any, other: Any, bound: float = 1e-12) -> None:
    np.testing.assert_allclose(one, other, rtol=0, atol=bound)


@pytest.mark.parametrize("words", [None, TWICE])
def test_predictions_and_loss_equal_numpy(words: tuple[str, ...] | None) -> None:
    own = played(words)
    seen = numbers_of(own.weights, own.ids, own.target)
    p = softmax(seen["logits"])
    close(own.table("predictions"), np.stack((seen["logits"], p, -np.log(p)), axis=1))
    assert f"The loss is {seen['loss']:.4f}." in own.lesson.steps[0].notice
    assert f"ln {len(p)} = {np.log(len(p)):.4f}." in own.lesson.steps[0].notice


def test_the_last_word_is_predicted_from_those_before_it() -> None:
    own = played(TWICE)
    assert (own.ids.tolist(), own.target) == ([0, 1, 0], 2)
    assert "reads “the cat the” and must predict “dog”" in own.lesson.steps[0].text
    single = played(("a",))
    assert (single.ids.tolist(), single.target) == ([0], 0)


@pytest.mark.parametrize("words", [None, TWICE, ("the", "cat", "the")])
def test_gradients_of_the_tables_are_exact_slopes(words: tuple[str, ...] | None) -> None:
    own = played(words)
    p, right, gradient = own.table("∂logits").T
    close(gradient, slopes_by("logits", own))
    close(gradient, p - right)
    assert right.tolist() == [float(n == own.target) for n in range(len(p))]
    close(own.table("context and its gradient")[1], slopes_by("context", own))
    close(own.table("∂values"), slopes_by("values", own))
    close(own.table("∂scores")[:, 1], slopes_by("a", own))
    close(own.table("∂scores")[:, 2], slopes_by("scores", own))
    for name in learning.WEIGHTS:
        close(own.table(f"∂{name}"), slopes_by(name, own))


def test_jacobian_is_that_of_softmax() -> None:
    own = played()
    scores = numbers_of(own.weights, own.ids, own.target)["scores"]
    rows = [exact_slopes(lambda s, n=n: softmax(s)[n], scores) for n in range(len(scores))]
    close(own.table("J"), rows)
    close(own.table("J") @ own.table("∂scores")[:, 1], own.table("∂scores")[:, 2])


def test_embedding_adds_up_places_of_a_word_and_leaves_out_unread_words() -> None:
    own = played(TWICE)
    places = slopes_by("x", own)
    the, cat, dog = own.table("∂embedding")
    close(the, places[0] + places[2])
    close(cat, places[1])
    assert dog.tolist() == [0, 0, 0]
    assert "“dog” is predicted, but not read" in own.step("To the embedding").notice
    assert played(("the", "cat", "the")).step("To the embedding").notice == ""


def test_finite_differences_equal_those_of_numpy() -> None:
    own, w, g = played(), flat(played().weights), gradient_of(played())
    sizes = [own.weights[name].size for name in learning.WEIGHTS]
    parts = np.split(g, np.cumsum(sizes)[:-1])
    largest = [part[np.abs(part).argmax()] for part in parts]
    shown = own.table("slopes, h = 1e-05")
    close(shown[:, 0], largest)
    for gradient, slope in shown:
        one = np.eye(len(w))[np.abs(g - gradient).argmin()]
        up, down = (loss_of(w + sign * 1e-5 * one, own) for sign in (1, -1))
        close(slope, (up - down) / 2e-5, 1e-9)


def test_a_middle_h_gives_most_digits() -> None:
    digits = dict(zip(learning.HS, played().table("right digits"), strict=True))
    assert max(digits, key=digits.__getitem__) == 1e-5
    assert digits[1e-5] > 9
    # Truncation loses two digits for each of h, rounding gains one: h² and 1 / h.
    close(digits[1e-3] - digits[1e-1], 4, 0.5)
    assert digits[1e-5] > digits[1e-7] > digits[1e-9]
    assert digits[1e-9] < 8


def test_step_of_sgd_falls_as_numpy_says() -> None:
    own = played()
    w, g, loss = flat(own.weights), gradient_of(own), loss_of(flat(own.weights), own)
    for share, row in zip((0.01, 2), own.table("falls"), strict=True):
        rate, predicted, real, quotient = row
        close(predicted, share * loss)
        close(rate, share * loss / (g * g).sum())
        close(real, loss - loss_of(w - rate * g, own), 1e-10)
        close(quotient, real / predicted)
    small, large = own.table("falls")[:, 3]
    assert abs(small - 1) < 0.01
    assert large < 0.5 + 1e-12, "no fall is larger than the loss"
    assert f"{(g * g).sum():.4f}" in own.step("One step of SGD").text


@settings(max_examples=25, deadline=None)
@given(count=st.integers(2, 6), width=st.integers(1, 4), seed=st.integers(0, 2**63 - 1))
def test_falls_are_at_most_the_loss_and_the_notice_fits(count: int, width: int, seed: int) -> None:
    rows = np.random.default_rng(seed).uniform(-1, 1, (count, width))
    own = Played(rows=rows.tolist(), seed=seed)
    assert not own.lesson.failed
    if len(own.lesson.steps) < 9:
        return
    (_, _, _, small), (_, predicted, real, large) = own.table("falls")
    loss = loss_of(flat(own.weights), own)
    close(predicted, 2 * loss, 1e-9)
    assert real <= loss + 1e-9
    close(large, real / predicted)
    fits = abs(small - 1) < 0.05
    assert ("predicts the fall of small steps" in own.step("One step of SGD").notice) is bool(fits)


def test_first_step_of_adamw_equals_plain_arithmetic() -> None:
    own, config = played(), TrainConfig()
    w, g = flat(own.weights), gradient_of(own)
    moves = own.table("W_output’s move/rate").ravel()
    expected = -g / (abs(g) + 1e-8) - config.weight_decay * w
    close(moves, expected[-len(moves) :], 1e-7)
    for gradient, mean, square, move in own.table("first step"):
        at = np.abs(g - gradient).argmin()
        close(mean, 0.1 * g[at])
        close(square, 0.01 * g[at] ** 2)
        close(move, expected[at], 1e-7)
    assert "rate 0.002, decay 0.1, β₁ 0.9 and β₂ 0.99" in own.step("One step of AdamW").text


@settings(max_examples=50, deadline=None)
@given(
    w=st.floats(-1e3, 1e3),
    steps=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6),
    rate=st.floats(1e-4, 1e-1),
    decay=st.floats(0, 1),
    betas=st.tuples(st.floats(0, 0.99), st.floats(0.5, 0.999)),
)
def test_adamw_equals_sums_of_all_gradients(
    w: float, steps: list[float], rate: float, decay: float, betas: tuple[float, float]
) -> None:
    """Moments are written as weighted means of all gradients so far, not step by step."""
    config = TrainConfig(learning_rate=rate, weight_decay=decay, beta1=betas[0], beta2=betas[1])
    zero = torch.zeros(1, dtype=torch.float64)
    ours = theirs = (zero + w, zero, zero)
    expected = w
    for t in range(1, len(steps) + 1):
        means = []
        for beta, power in zip(betas, (1, 2), strict=True):
            shares = [beta ** (t - n) for n in range(1, t + 1)]
            terms = [share * g**power for share, g in zip(shares, steps, strict=False)]
            means.append(sum(terms) / sum(shares))
        expected -= rate * (means[0] / (means[1] ** 0.5 + 1e-8) + decay * expected)
        ours = learning.step_adamw(*ours, zero + steps[t - 1], t, config)
        theirs = learning.step_torch(*theirs, zero + steps[t - 1], t, config)
    bound = 1e-9 * max(1, abs(w))
    close(ours[0].item(), expected, bound)
    close(theirs[0].item(), expected, bound)


def test_adamw_is_the_optimizer_that_trains() -> None:
    config = TrainConfig(min_lr=TrainConfig().learning_rate, warmup_steps=0)
    torch.manual_seed(1)
    module = torch.nn.Linear(3, 2, bias=False).double()
    optimizer = Optimizer(module, config)  # type: ignore[arg-type]
    state = (module.weight.detach().clone(), torch.zeros(2, 3).double(), torch.zeros(2, 3).double())
    for step in range(4):
        gradient = torch.randn(2, 3, dtype=torch.float64)
        module.weight.grad = gradient.clone()
        optimizer.step(step)
        state = learning.step_adamw(*state, gradient, step + 1, config)
        close(module.weight.detach().numpy(), state[0].numpy())
    moments = optimizer.state(module.weight)
    close(moments["exp_avg"].numpy(), state[1].numpy())
    close(moments["exp_avg_sq"].numpy(), state[2].numpy())


@settings(max_examples=40, deadline=None)
@given(
    words=st.integers(1, 4),
    width=st.integers(1, 4),
    size=st.integers(1, 3),
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
)
def test_forward_and_backward_equal_numpy_for_any_text(
    words: int, width: int, size: int, data: st.DataObject, seed: int
) -> None:
    ids = data.draw(st.lists(st.integers(0, words - 1), min_size=1, max_size=6))
    target = data.draw(st.integers(0, words - 1))
    rng = np.random.default_rng(seed)
    shapes = ((words, width), *[(size, width)] * 3, (words, size))
    weights = {n: rng.normal(size=s) for n, s in zip(learning.WEIGHTS, shapes, strict=True)}
    weights["W_query"] *= np.sqrt(2 / size)  # numbers_of divides by √2, the lesson's √D
    tensors = {name: torch.from_numpy(each) for name, each in weights.items()}
    tensors["W_query"] = tensors["W_query"] / (2 / size) ** 0.5
    seen = learning.run_forward(tensors, torch.tensor(ids), target)
    found = learning.run_backward(tensors, torch.tensor(ids), target, seen)
    close(seen["loss"], numbers_of(weights, ids, target)["loss"], 1e-10)
    for name in learning.WEIGHTS:
        exact = exact_slopes(
            lambda moved, name=name: numbers_of({**weights, name: moved}, ids, target)["loss"],
            weights[name],
        )
        exact *= np.sqrt(2 / size) if name == "W_query" else 1
        close(found[name], exact, 1e-10)


def test_split_is_the_inverse_of_join() -> None:
    shapes = ((4, 3), (2, 3), (2, 3), (2, 3), (4, 2))
    named = {n: torch.randn(s) for n, s in zip(learning.WEIGHTS, shapes, strict=True)}
    row = learning.join(named)
    again = learning.split(row, named)
    assert all(torch.equal(again[name], named[name]) for name in learning.WEIGHTS)
    places = learning.find_largest(named)
    for name, place in zip(learning.WEIGHTS, places, strict=True):
        assert row[place].abs() == named[name].abs().max()


@settings(max_examples=50, deadline=None)
@given(at=st.lists(st.floats(-2, 2), min_size=2, max_size=4), data=st.data())
def test_slopes_of_a_cubic_are_off_by_h_squared(at: list[float], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(at) - 1))
    row = torch.tensor(at, dtype=torch.float64)
    (slope,) = learning.measure_slopes(lambda x: (x**3).sum(), row, [place], 1e-3)
    close(slope, 3 * at[place] ** 2 + 1e-6, 1e-10)


#: Slips in gpt/lessons/tutorials/learning.py: what is there, and what is planted.
SLIPS = {
    "p without − 1[target]": ("    d_logits[target] -= 1\n", ""),
    "softmax without the other weights": ("a.diag() - a.outer(a)", "a.diag()"),
    "values in place of weights": ('seen["values"] @ d_context', 'seen["keys"] @ d_context'),
    "no √D in the query": ('seen["keys"].T @ d_scores / root', 'seen["keys"].T @ d_scores'),
    "no √D in the keys": ("d_scores.outer(query) / root", "d_scores.outer(query)"),
    "no query in the last row": ('    d_x[-1] += d_query @ weights["W_query"]\n', ""),
    "no values in the rows": (' + d_values @ weights["W_value"]', ""),
    "a repeated word is counted once": (".index_add(0, ids, d_x)", ".index_copy(0, ids, d_x)"),
    "the first row for the last": ('outer(seen["x"][-1])', 'outer(seen["x"][0])'),
    "scores without √D": (" / len(query) ** 0.5  # (T,)", "  # (T,)"),
    "a loss in bits": ("loss = logits.logsumexp(dim=0)", "loss = 1.4427 * logits.logsumexp(dim=0)"),
    "a difference to one side": ("at - step) for step", "at) for step"),
    "the mean is not corrected": ("m / (1 - config.beta1**step)", "m / (1 - config.beta1)"),
    "the square is not corrected": ("v / (1 - config.beta2**step)", "v / (1 - config.beta2)"),
    "no decay": (" + config.weight_decay * w\n", "\n"),
    "the decay of plain Adam": (
        "    m = config.beta1",
        "    g = g + config.weight_decay * w\n    m = config.beta1",
    ),
    "the betas exchanged": (
        "config.beta2 * v + (1 - config.beta2)",
        "config.beta1 * v + (1 - config.beta1)",
    ),
    "ε within the root": ("(square.sqrt() + EPS)", "(square + EPS).sqrt()"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_fails_a_check(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(learning.__file__).read_text(encoding="utf-8")
    right, wrong = SLIPS[name]
    assert source.count(right) == 1
    slipped: dict[str, Any] = {"__name__": learning.__name__}
    exec(compile(source.replace(right, wrong), name, "exec"), slipped)
    for function in ("run_forward", "run_backward", "measure_slopes", "step_adamw"):
        monkeypatch.setattr(learning, function, slipped[function])
    assert make_lesson("learning", make_material("learning", ["the", "the", "cat", "dog"])).failed


def test_a_gradient_off_by_a_hundred_millionth_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = learning.run_backward

    def slip(*arguments: Any) -> dict[str, torch.Tensor]:
        found = real(*arguments)
        return {**found, "W_query": found["W_query"] + 1e-8}

    monkeypatch.setattr(learning, "run_backward", slip)
    assert make_lesson("learning").failed == ["slopes = gradients"]


def test_without_a_gradient_the_lesson_ends() -> None:
    own = played(("a", "a"))
    assert len(own.lesson.steps) == 6
    assert own.lesson.steps[-1].notice == "All gradients are nearly 0 here, so the lesson ends."
    assert own.table("∂embedding").tolist() == [[0, 0, 0]]
    assert len(played(("a", "b")).lesson.steps) == 9


def test_a_loss_that_is_too_steep_has_no_check_of_slopes() -> None:
    rows = [[1.0, 900.0], [500.0, -400.0], [-800.0, 300.0]]
    steep = Played(rows=rows).step("A test with finite differences")
    assert (steep.checks, steep.notice) == (
        (),
        "Here the loss is too steep or too curved for such a test.",
    )
    usual = played().step("A test with finite differences")
    assert len(usual.checks) == 1
    assert usual.notice == ""


def test_another_seed_gives_other_matrices_and_equal_words_one_row() -> None:
    assert (Played(seed=5).weights["W_key"] != played().weights["W_key"]).any()
    close(Played(seed=5).weights["W_key"], Played(seed=5).weights["W_key"], 0)
    own = Played(("a", "b", "a"), rows=[[1.0], [2.0], [3.0]])
    assert own.table("inputs").tolist() == [[1], [2], [1]]
    state = torch.random.get_rng_state()
    make_lesson("learning")
    assert torch.equal(state, torch.random.get_rng_state())
