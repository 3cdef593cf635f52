"""The lesson "sampling" and its functions, compared with plain Python and the sampler."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import combinations, islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gpt.config import ModelConfig, SampleConfig
from gpt.config.sample import DISTRIBUTION_OPTIONS
from gpt.lessons.catalogue import JOURNEY, make_lesson, make_material
from gpt.lessons.lesson import Lesson, Table
from gpt.lessons.tutorials import sampling
from gpt.reading import sampler

fast = settings(deadline=None, max_examples=100)
#: Whole multiples of numbers without a common measure: few sums are exactly a filter's value.
logit_rows = st.lists(st.integers(-9, 9).map(lambda n: n * 0.437), min_size=1, max_size=12)
shares = st.sampled_from([0.001, 0.31, 0.77, 1.0])
configs = st.builds(
    SampleConfig,
    temperature=st.sampled_from([0.0, 0.31, 1.0, 2.3]),
    top_k=st.none() | st.integers(1, 13),
    top_p=st.none() | shares,
    min_p=st.none() | shares,
    typical_p=st.none() | shares,
)


@cache
def played() -> Lesson:
    return make_lesson("sampling")


def table_of(name: str, told: Lesson | None = None) -> Table:
    tables = [table for step in (told or played()).steps for table in step.tables]
    return next(table for table in tables if table.name == name)


def column(table: str, name: str) -> dict[str, float]:
    """Word -> its number in a column of the tutorials' lesson."""
    found = table_of(table)
    values = found.values[:, found.columns.index(name)]
    return dict(zip(found.rows, values.tolist(), strict=True))


def by_hand(temperature: float = 1) -> dict[str, float]:
    """Word -> its probability, from the tutorials' rows, in plain Python."""
    last = list(JOURNEY.values())[-1]
    products = {w: sum(a * b for a, b in zip(row, last, strict=True)) for w, row in JOURNEY.items()}
    scale = 5 / max(map(abs, products.values()))
    weights = {word: math.exp(scale * each / temperature) for word, each in products.items()}
    return {word: weight / sum(weights.values()) for word, weight in weights.items()}


def entropy(p: dict[str, float]) -> float:
    return -sum(each * math.log(each) for each in p.values() if each)


def renormalised(p: dict[str, float], kept: set[str]) -> dict[str, float]:
    whole = sum(p[word] for word in kept)
    return {word: p[word] / whole if word in kept else 0.0 for word in p}


def fewest(p: dict[str, float], mass: float) -> set[str]:
    """The smallest set of words that reaches a sum, of all sets; the likeliest of equally small."""
    for size in range(1, len(p) + 1):
        best = max(combinations(p, size), key=lambda words: sum(p[word] for word in words))
        if sum(p[word] for word in best) >= mass:
            return set(best)
    return set(p)


def close(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found == pytest.approx(expected, abs=1e-12)


def test_probabilities_and_entropy_follow_from_the_embeddings() -> None:
    p, last = by_hand(), JOURNEY["step"]
    products = {w: sum(a * b for a, b in zip(row, last, strict=True)) for w, row in JOURNEY.items()}
    close(column("products", "product"), products)
    scale = 5 / max(products.values())
    close(column("likeliest first", "logit"), {word: scale * products[word] for word in p})
    close(column("likeliest first", "p"), p)
    close(column("likeliest first", "bits"), {word: -math.log2(each) for word, each in p.items()})
    assert list(table_of("likeliest first").rows) == sorted(p, key=lambda word: -p[word])
    bits = entropy(p) / math.log(2)
    assert f"entropy is {bits:.4f} bits" in played().steps[0].notice
    assert f"= {2**bits:.2f} equally likely words" in played().steps[0].notice


def test_temperatures_have_the_probabilities_and_entropies_of_divided_logits() -> None:
    likeliest = max(by_hand(), key=by_hand().__getitem__)
    close(column("temperatures", "T = 0"), {word: float(word == likeliest) for word in JOURNEY})
    bits = table_of("entropy in bits")
    entropies = dict(zip(bits.columns, bits.values.tolist(), strict=True))
    assert entropies["T = 0"] == 0
    for name, temperature in (("T = 0.5", 0.5), ("T = 1", 1.0), ("T = 2", 2.0)):
        p = by_hand(temperature)
        close(column("temperatures", name), p)
        assert entropies[name] == pytest.approx(entropy(p) / math.log(2))
        ratio = max(p.values()) / min(p.values())
        assert f"{ratio:,.2f} times" in played().steps[1].notice


def test_each_filter_keeps_the_words_of_its_definition() -> None:
    p = by_hand()
    nats = {word: abs(-math.log(each) - entropy(p)) for word, each in p.items()}
    nearest, typical, held = sorted(p, key=nats.__getitem__), set(), 0.0
    for word in nearest:
        if held < 0.5:
            typical.add(word)
        held += p[word]
    kept = {
        "Top-k": set(sorted(p, key=lambda word: -p[word])[:3]),
        "Top-p": fewest(p, 0.9),
        "Min-p": {word for word in p if p[word] >= 0.1 * max(p.values())},
        "Typical-p": typical,
    }
    assert [len(kept[name]) for name in kept] == [3, 4, 5, 2], "each differs from the others"
    for step, (name, words) in zip(played().steps[2:6], kept.items(), strict=True):
        close(column(name, "p"), p)
        close(column(name, "after"), renormalised(p, words))
        sums = np.cumsum([p[word] for word in table_of(name).rows])
        np.testing.assert_allclose(list(column(name, "sum").values()), sums, atol=1e-12)
        assert f"{len(words)} of 6 words" in step.notice
        assert f"{sum(p[word] for word in words):.4f}" in step.notice
        assert ("likeliest is removed" in step.notice) == (name == "Typical-p")
    close(column("Min-p", "ratio"), {word: each / max(p.values()) for word, each in p.items()})
    assert list(table_of("Typical-p").rows) == nearest
    assert column("Typical-p", "distance") == pytest.approx(nats, abs=1e-8)


def test_all_options_together_are_the_samplers_in_both_orders() -> None:
    words = table_of("two orders").rows
    values: dict[str, Any] = {"temperature": 0.8, "top_k": 3, "top_p": 0.9}
    values |= {"min_p": 0.1, "typical_p": 0.5}
    logits = np.array([[math.log(by_hand()[word]) for word in words]])

    def after(names: tuple[str, ...]) -> Any:
        scores = logits
        for name in names:  # one option at a time
            config = SampleConfig(**{"temperature": 1, name: values[name]})
            with np.errstate(divide="ignore"):
                scores = np.log(sampler.probabilities(scores, config))
        return np.exp(scores[0])

    stages = table_of("after each").values.T
    for count, stage in enumerate(stages, 1):
        config = SampleConfig(**{"temperature": 1, **dict(list(values.items())[:count])})
        np.testing.assert_allclose(stage, sampler.probabilities(logits, config)[0], atol=1e-12)
        np.testing.assert_allclose(stage, after(DISTRIBUTION_OPTIONS[:count]), atol=1e-12)
    gptx, reverse = table_of("two orders").values.T
    np.testing.assert_allclose(gptx, stages[-1], atol=0)
    np.testing.assert_allclose(reverse, after(DISTRIBUTION_OPTIONS[::-1]), atol=1e-12)
    assert set(np.flatnonzero(gptx)) != set(np.flatnonzero(reverse))
    step = played().steps[6]
    assert "different words" in step.notice
    assert "T = 0.8, top-k, top-p, min-p, typical-p" in step.text
    two = make_lesson("sampling", make_material("sampling", words=["the", "cat"]))
    assert "the same words" in two.steps[6].notice


class Fixed:
    """A decoder whose logits are always the lesson's."""

    def __init__(self, logits: np.ndarray[Any, Any]) -> None:
        self.config, self.logits = ModelConfig(vocab_size=len(logits), block_size=8), logits

    def start(self, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.tile(self.logits, (len(ids), 1))

    step = start


@pytest.mark.parametrize("seed", [None, 7, 2**63 - 1])
def test_lesson_draws_the_words_that_sampling_with_this_seed_draws(seed: int | None) -> None:
    told = make_lesson("sampling", make_material("sampling", seed=seed))
    shown = table_of("likeliest first", told)
    logits = shown.values[:, shown.columns.index("logit")]
    config = SampleConfig(length=1_000, seed=SampleConfig().seed if seed is None else seed)
    drawn = [int(ids[0]) for ids in sampler.sample_ids(Fixed(logits), np.array([0]), config)]
    first = table_of("first u and their words", told)
    assert list(first.rows) == [shown.rows[n] for n in drawn[:5]]
    expected = list(islice(sampler.uniforms(config.seed, 0), 5))
    assert first.values[:, 0].tolist() == expected
    assert f"“{shown.rows[drawn[0]]}”" in told.steps[7].notice
    assert f"--seed {config.seed}`" in told.steps[7].text
    draws = table_of("1,000 draws", told)
    p, share, error = draws.values.T
    np.testing.assert_array_equal(share, [drawn.count(n) / 1_000 for n in range(len(p))])
    np.testing.assert_allclose(error, [math.sqrt(each * (1 - each) / 1_000) for each in p])
    near = sum(abs(share - p) <= error)
    assert f"{near} of 6 shares" in told.steps[8].notice


def test_intervals_lie_side_by_side_and_are_as_long_as_the_probabilities() -> None:
    p, start, end = table_of("intervals").values.T
    close(column("intervals", "p"), by_hand(SampleConfig().temperature))
    np.testing.assert_allclose(end - start, p, atol=1e-12)
    np.testing.assert_array_equal(start[1:], end[:-1])
    assert (start[0], end[-1]) == (0, pytest.approx(1))


@fast
@given(row=logit_rows, config=configs)
def test_shape_is_the_samplers_distribution(row: list[float], config: SampleConfig) -> None:
    expected = sampler.probabilities(np.array([row]), config)[0]
    found = sampling.shape(torch.tensor(row, dtype=torch.float64), config)
    np.testing.assert_allclose(found[-1], expected, atol=1e-9)


@fast
@given(row=logit_rows, name=st.sampled_from([*sampler.FILTERS]), k=st.integers(1, 13), p=shares)
def test_each_filter_keeps_what_the_samplers_filter_keeps(
    row: list[float], name: str, k: int, p: float
) -> None:
    ranked = np.sort(sampler.probabilities(np.array([row]), SampleConfig(temperature=1)))[:, ::-1]
    value = k if name == "top_k" else p
    found = sampling.FILTERS[name](torch.from_numpy(ranked[0].copy()), value)
    np.testing.assert_array_equal(found, sampler.FILTERS[name](ranked, value)[0])


def test_filters_are_the_samplers_in_the_same_order() -> None:
    assert list(sampling.FILTERS) == list(sampler.FILTERS) == list(DISTRIBUTION_OPTIONS[1:])


@fast
@given(row=logit_rows, seed=st.integers(0, 2**63 - 1))
def test_draws_and_random_numbers_are_the_samplers(row: list[float], seed: int) -> None:
    u = sampling.uniforms(seed, 300)
    assert u.tolist() == list(islice(sampler.uniforms(seed, 0), 300))
    p = sampler.probabilities(np.array([row]), SampleConfig(temperature=1, top_k=3))
    expected = sampler.draw(np.repeat(p, 300, axis=0), u.numpy())
    np.testing.assert_array_equal(sampling.draw(torch.from_numpy(p[0]), u), expected)


@pytest.mark.parametrize(
    ("p", "u", "ids"),
    [
        ([0.25, 0.25, 0.5], [0.0, 0.2499, 0.25, 0.5], [0, 0, 1, 2]),  # an end belongs to the next
        ([0.2, 0.2], [0.4, 0.6], [0, 1]),  # a sum below 1 is the whole line
        ([0.1] * 10, [0.0, 1 - 2.0**-53], [0, 9]),
    ],
)
def test_a_random_number_draws_by_its_interval(
    p: list[float], u: list[float], ids: list[int]
) -> None:
    found = sampling.draw(*(torch.tensor(each, dtype=torch.float64) for each in (p, u)))
    assert found.tolist() == ids == sampler.draw(np.array([p] * len(u)), np.array(u)).tolist()


def test_of_equally_typical_words_the_likeliest_is_first() -> None:
    p = torch.tensor([1 / 8, 1 / 2, 1 / 8, 1 / 8, 1 / 8])  # the entropy is 2 bits, each 1 bit away
    kept = sampling.FILTERS["typical_p"](p.double(), 0.5)
    assert kept.tolist() == [False, True, False, False, False]
    config = SampleConfig(temperature=1, typical_p=0.5)
    np.testing.assert_array_equal(sampler.probabilities(p.log()[None].numpy(), config)[0] > 0, kept)


@pytest.mark.parametrize(
    ("words", "rows", "left"),
    [(["a"], [[3.0]], 1), (["a", "b", "c", "d"], [[0.0]] * 4, 4), (["a", "b", "a"], None, 2)],
)
def test_one_word_equal_words_and_repeated_words(
    words: list[str], rows: list[list[float]] | None, left: int
) -> None:
    told = make_lesson("sampling", make_material("sampling", words=words, rows=rows))
    assert told.failed == []
    shown = table_of("likeliest first", told)
    assert sorted(shown.rows) == sorted(set(words))
    assert len(shown.rows) == left
    if rows:
        np.testing.assert_allclose(shown.values[:, 1], 1 / left)
        assert f"= {left}.00 equally likely" in told.steps[0].notice
        assert "entropy is -" not in told.steps[0].notice


uniforms, draw, shape = sampling.uniforms, sampling.draw, sampling.shape


def halved(*given: Any) -> list[Tensor]:
    """The probabilities without the division by the sum of the kept ones."""
    return [each / 2 for each in shape(*given)]


def slip(name: str, **functions: Callable[..., Any]) -> Any:
    return pytest.param(functions, name, id=name)


SLIPS = [
    slip(
        "ratios at T = 0.5", temperature_softmax=lambda logits, T: torch.softmax(logits * T, dim=0)
    ),
    slip(
        "a T near 0 = T at 0", temperature_softmax=lambda z, T: torch.softmax(z / (T or 1), dim=0)
    ),
    slip("kept = torch.topk", top_k=lambda p, k: torch.arange(len(p)) <= k),
    slip("one word fewer is too few", top_p=lambda p, mass: p.cumsum(dim=0) < mass),
    slip("one word fewer is too few", top_p=lambda p, mass: p > 0),
    slip("logit ≥ largest + ln min_p", min_p=lambda p, share: p >= share),
    slip("no removed word is nearer", typical_p=lambda p, mass: p.cumsum(dim=0) - p < mass),
    slip("distance = |logit − Σ p × logit|", distances=lambda p: -p.log()),
    slip("softmax with −∞ for the removed", shape=halved),
    slip("u = numpy’s Generator.random", uniforms=lambda seed, n: uniforms(seed + 1, n)),
    slip("shares differ only by chance", uniforms=lambda seed, n: uniforms(seed, n) / 2),
    slip("each u is in the interval of its word", draw=lambda p, u: (draw(p, u) + 1) % len(p)),
    slip("evenly spaced u give p", draw=lambda p, u: (draw(p, u) + 1) % len(p)),
]


@pytest.mark.parametrize(("functions", "name"), SLIPS)
def test_a_slip_in_a_function_fails_a_check(
    functions: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function, wrong in functions.items():
        if function in sampling.FILTERS:
            monkeypatch.setitem(sampling.FILTERS, function, wrong)
        else:
            monkeypatch.setattr(sampling, function, wrong)
    assert name in make_lesson("sampling").failed
