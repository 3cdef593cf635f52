"""The lesson "positions": its numbers, recomputed in numpy and plain Python; slips fail a check."""

from __future__ import annotations

import cmath
import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.overrides import TorchFunctionMode

from gpt.config import ModelConfig
from gpt.lessons.catalogue import JOURNEY, make_lesson, make_material
from gpt.lessons.lesson import Lesson
from gpt.lessons.tutorials import positions
from gpt.model import GPT
from gpt.model.initial import initialise

WORDS = tuple(JOURNEY)
T = len(WORDS)
KINDS = ("none", "learned", "sinusoidal", "rotary")
SPEEDS = (1.0, 0.01)  # 10000^0, 10000^(−2/4)
Array = np.ndarray[Any, Any]


@cache
def played() -> Lesson:
    return make_lesson("positions")


def numbers(table: str, told: Lesson | None = None) -> Array:
    tables = [each for step in (told or played()).steps for each in step.tables]
    return next(each.values for each in tables if each.name == table)


@cache
def drawn() -> tuple[Array, ...]:
    """The random numbers of the lesson: words, W_query, W_key, W_value, learned positions."""
    text = positions.Text(WORDS, positions.SEED)
    head, learned = text.head, text.kinds["learned"].get_parameter("weight")
    matrices = (head.query.weight, head.key.weight, head.value.weight, learned)
    return text.x.numpy(), *(each.detach().numpy() for each in matrices)


def wave(place: int) -> list[float]:
    return [wave(place * speed) for speed in SPEEDS for wave in (math.sin, math.cos)]


def turned(row: Array, place: int) -> Array:
    """A row of four numbers as two complex numbers, turned."""
    points = [complex(*row[n : n + 2]) * cmath.exp(1j * place * SPEEDS[n // 2]) for n in (0, 2)]
    return np.array([part for point in points for part in (point.real, point.imag)])


def attend(kind: str, order: list[int], first: int = 0) -> tuple[Array, Array]:
    """Scores and contexts of the words in an order, with the first one at a place."""
    x, w_query, w_key, w_value, learned = drawn()
    places = range(first, first + len(order))
    added = {"learned": learned[first:], "sinusoidal": np.array([wave(at) for at in places])}
    rows = x[order] + (added[kind][: len(order)] if kind in added else 0)
    queries, keys = rows @ w_query.T, rows @ w_key.T
    if kind == "rotary":
        queries, keys = (
            np.array([turned(row, at) for row, at in zip(each, places, strict=True)])
            for each in (queries, keys)
        )
    scores = queries @ keys.T
    weights = np.exp(scores / 2)
    return scores, weights / weights.sum(axis=1, keepdims=True) @ rows @ w_value.T


def test_contexts_are_those_of_numpy_in_both_orders() -> None:
    _, contexts = attend("none", [*range(T)])
    np.testing.assert_allclose(numbers("contexts"), contexts, atol=1e-12)
    np.testing.assert_allclose(numbers("contexts, moved"), np.roll(contexts, 1, 0), atol=1e-12)
    assert np.ptp(contexts, axis=0).min() > 0.1, "the words have different contexts"


@given(st.permutations(range(T)))
@settings(max_examples=20, deadline=None)
def test_only_without_positions_does_any_order_give_the_same_contexts(order: list[int]) -> None:
    text = positions.Text(WORDS, positions.SEED)
    for kind in KINDS:
        change = (
            text.attend(kind, text.x[order])["context"]
            - text.attend(kind, text.x)["context"][order]
        )
        changes = float(change.abs().max()) > 1e-6
        assert changes == (kind != "none" and order != [*range(T)]), kind


@given(st.permutations(range(T - 1)))
@settings(max_examples=10, deadline=None)
def test_with_a_mask_the_order_before_the_last_word_has_no_effect(order: list[int]) -> None:
    text = positions.Text(WORDS, positions.SEED)
    rows = torch.stack((text.x, text.x[[*order, T - 1]]))
    one, other = text.head(rows, lambda queries, keys: (queries, keys))[:, -1].detach()
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_changes_of_the_contexts_are_those_of_numpy() -> None:
    moved = [T - 1, *range(T - 1)]
    for row, kind in enumerate(KINDS):
        change = attend(kind, moved)[1] - attend(kind, [*range(T)])[1][moved]
        by_word = np.abs(change).max(axis=1)[[*range(1, T), 0]]
        np.testing.assert_allclose(numbers("change of each context")[row], by_word, atol=1e-6)


def test_a_word_has_another_row_at_each_place() -> None:
    told = make_lesson("positions", make_material("positions", words=["the", "cat", "the"]))
    text = positions.Text(("the", "cat", "the"), positions.SEED)
    x, learned = text.x.numpy(), numbers("learned positions", told)
    np.testing.assert_array_equal(x[0], x[2])
    the = numbers("“the” at each place", told)
    for place in range(3):
        np.testing.assert_allclose(the[place], x[0] + learned[place], atol=1e-12)
    assert np.abs(the[0] - the[2]).max() > 1e-3
    contexts = numbers("contexts", told)
    np.testing.assert_array_equal(contexts[0], contexts[2])


def test_sinusoidal_rows_and_their_products() -> None:
    rows = numbers("sinusoidal positions")
    np.testing.assert_allclose(rows, [wave(place) for place in range(T)], atol=1e-12)
    products = numbers("products of position rows")
    for s in range(T):
        for t in range(T):
            expected = math.cos(s - t) + math.cos(0.01 * (s - t))
            assert products[s, t] == pytest.approx(expected, abs=1e-12)


def test_turned_queries_are_complex_products() -> None:
    queries, after = numbers("queries"), numbers("turned queries")
    x, w_query, *_ = drawn()
    np.testing.assert_allclose(queries, x @ w_query.T, atol=1e-12)
    for place in range(T):
        assert numbers("angles")[place].tolist() == pytest.approx([place, 0.01 * place])
        np.testing.assert_allclose(after[place], turned(queries[place], place), atol=1e-12)


@given(
    st.lists(st.floats(-9, 9), min_size=8, max_size=8),
    st.integers(0, 200),
    st.integers(0, 200),
    st.integers(0, 200),
)
def test_turn_keeps_lengths_and_scores_of_a_distance(
    both: list[float], s: int, t: int, shift: int
) -> None:
    def turn(row: Array, place: int) -> Array:
        angles = torch.tensor([[place * speed for speed in SPEEDS]], dtype=torch.float64)
        return positions.rotate_pairs(torch.from_numpy(row[None]), angles).numpy()[0]

    query, key = np.array(both[:4]), np.array(both[4:])
    np.testing.assert_allclose(turn(query, s), turned(query, s), atol=1e-9)
    assert math.hypot(*turn(query, s)) == pytest.approx(math.hypot(*query), abs=1e-9)
    score = turn(query, s) @ turn(key, t)
    assert turn(query, s + shift) @ turn(key, t + shift) == pytest.approx(score, abs=1e-9)
    assert score == pytest.approx(query @ turn(key, t - s), abs=1e-9)


def test_scores_by_place_are_equal_on_each_diagonal() -> None:
    x, w_query, w_key, *_ = drawn()
    query, key = w_query @ x[1], w_key @ x[0]
    scores = numbers("one query, one key")
    np.testing.assert_allclose(scores[1:, 1:], scores[:-1, :-1], atol=1e-12)
    for s in range(T):
        for t in range(T):
            assert scores[s, t] == pytest.approx(turned(query, s) @ turned(key, t), abs=1e-12)
    assert np.ptp(scores[:, 0]) > 0.05, "the distance has an effect"


def test_changes_of_scores_are_those_of_numpy() -> None:
    found = numbers("change of scores")
    for kind, change in zip(KINDS, found, strict=True):
        one, later = (attend(kind, [*range(T)], first)[0] for first in (0, positions.SHIFT))
        assert change == pytest.approx(np.abs(later - one).max(), abs=1e-5), kind
    assert found[1:3].min() > 0.1 > 1e-5 > found[3]


@pytest.mark.parametrize("size", [1, 2, 8, 32])
def test_a_head_looks_one_place_back_in_texts_of_any_length(size: int) -> None:
    told = make_lesson(
        "positions", make_material("positions", words=[f"w{n}" for n in range(size)])
    )
    weights = numbers("weights of this head", told)
    for s in range(size):
        powers = [math.exp(8 * math.cos(s - t - 1)) for t in range(s + 1)]
        expected = [power / sum(powers) for power in powers] + [0] * (size - s - 1)
        assert weights[s].tolist() == pytest.approx(expected, abs=1e-6)
        assert int(weights[s].argmax()) == max(0, s - 1)


def test_the_head_is_one_that_previous_heads_start() -> None:
    """Their first pair of coordinates has the same query and key, as a multiple of one row."""
    added = []
    for count in (0, 1):
        model = GPT(ModelConfig(vocab_size=3, n_layer=1, n_head=2, n_embd=16, previous_heads=count))
        initialise(model, 3)
        added.append(model.stored_parameters()["blocks.0.attention.qkv.weight"].double().numpy())
    qkv = (added[1] - added[0]).reshape(3, 2, 8, 16)  # (query key value, heads, D, C)
    query, key = numbers("query and key")
    row = qkv[0, 0, 0] / query[0]
    assert np.abs(row).max() > 0.01
    for n in range(2):
        np.testing.assert_allclose(qkv[0, 0, n], query[n] * row, atol=1e-6)
        np.testing.assert_allclose(qkv[1, 0, n], key[n] * row, atol=1e-6)


def test_costs_are_counted_operations_and_parameters() -> None:
    class Counting(TorchFunctionMode):
        count = 0

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if func.__name__ in ("mul", "add", "sub"):
                self.count += result.numel()
            return result

    with Counting() as counting:
        for _ in ("query", "key"):
            positions.rotate_pairs(torch.ones(1, 768), torch.ones(1, 384))
    (parameters, operations) = numbers("costs").tolist()
    assert parameters == [0, 1024 * 768, 0, 0]
    assert operations == [0, 768, 768, 12 * counting.count]
    text = played().steps[-1].text
    assert "Place 1024 has no learned row: torch raises IndexError: index 1024 is out" in text


def test_every_step_names_the_source_of_its_idea() -> None:
    for step in played().steps:
        assert re.search(r"et al\. (19|20)\d\d\)", step.text), step.title


def test_seed_changes_the_numbers() -> None:
    for table in ("contexts", "learned positions", "queries"):
        again, other = (
            make_lesson("positions", make_material("positions", seed=n)) for n in (123, 5)
        )
        np.testing.assert_array_equal(numbers(table), numbers(table, again))
        assert (numbers(table) != numbers(table, other)).any()


def unturned_keys(self: Any, queries: Any, keys: Any, at: Any) -> Any:
    return self._turn(queries, torch.view_as_complex(self.turns[at])), keys


def backwards(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    points = torch.view_as_complex(x.reshape(len(x), -1, 2)) * torch.exp(-1j * angles)
    return torch.view_as_real(points).flatten(-2)


@pytest.mark.parametrize(
    ("where", "slip", "fails"),
    [
        ("gpt.lessons.tutorials.positions.rotate_pairs", backwards, "= q · e^(i · a)"),
        (
            "gpt.lessons.tutorials.positions.rotate_pairs",
            backwards,
            "the word before: largest weight",
        ),
        ("gpt.lessons.tutorials.positions.rotate_pairs", lambda x, angles: x, "= Rotary"),
        (
            "gpt.lessons.tutorials.positions.rotate_pairs",
            lambda x, angles: 2 * x,
            "lengths stay equal",
        ),
        ("gpt.model.positions.Rotary.rotate", unturned_keys, "keys = Rotary"),
        ("gpt.model.positions.Rotary.rotate", unturned_keys, "3 places later: equal"),
        (
            "gpt.model.positions.Rotary.speeds",
            lambda config: torch.ones(config.head_size // 2).double(),
            "= Sinusoidal",
        ),
        (
            "gpt.model.positions.Sinusoidal.tables",
            staticmethod(lambda config: {"table": torch.ones(config.block_size, config.n_embd)}),
            "place 1024: Sinusoidal = sin, cos",
        ),
        ("gpt.model.positions.Learned.embed", lambda self, x, at: x, "= Learned"),
        (
            "gpt.model.positions.Position.rotate",
            lambda self, queries, keys, at: (queries * (1 + torch.arange(4.0)[at, None]), keys),
            "= P · contexts",
        ),
        (
            "gpt.lessons.tutorials.positions.causal",
            lambda size: torch.eye(size).bool(),
            "the word before: largest weight",
        ),
    ],
)
def test_a_slip_fails_a_check(
    where: str, slip: Any, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert played().failed == []
    monkeypatch.setattr(where, slip)
    told = make_lesson("positions", make_material("positions", words=["a", "b", "c", "d"]))
    assert fails in told.failed
