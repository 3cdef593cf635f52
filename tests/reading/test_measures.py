"""Measures of heads built by hand, of a trained one by plain loops, and where they must not lie."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hand_built import DUPLICATE, EVEN, FIRST, INDUCTION, PREVIOUS, SIZE, hand_built

from gpt.reading.inspector import AttentionMap, inspect
from gpt.reading.measures import KINDS, TITLES, Measure, induction, kinds, measure, strengths
from gpt.reading.reader import Array, Reader
from gpt.reading.trained import TrainedGPT
from gpt.run import Checkpoint

IDS = np.array([3, 7, 3, 3, 1, 7, 0, 5, 3, 1])


@pytest.fixture(scope="module")
def reader() -> Reader:
    return hand_built()


def map_of(reader: Reader, ids: np.ndarray) -> AttentionMap:  # type: ignore[type-arg]
    return inspect(reader, "".join(chr(97 + n) for n in ids), ids, 0.0)


def by_name(measures: list[Measure]) -> dict[str, Measure]:
    return {each.name: each for each in measures}


def by_loops(weights: Array, ids: list[int]) -> dict[str, float]:
    """The measures of one (T, T) matrix, number by number."""
    T = len(ids)
    previous = [weights[i][i - 1] for i in range(1, T)]
    sink = [weights[i][0] for i in range(T)]
    duplicate, entropy = [], []
    far, mass, far_later, mass_later = 0.0, 0.0, 0.0, 0.0
    for i in range(T):
        equal = [j for j in range(i) if ids[j] == ids[i]]
        if equal:
            duplicate.append(sum(weights[i][j] for j in equal))
        if i:
            bits = -sum(w * math.log(w) for w in weights[i][: i + 1].tolist() if w > 0)
            entropy.append(bits / math.log(i + 1))
        for j in range(i + 1):
            far, mass = far + weights[i][j] * (i - j), mass + weights[i][j]
            if j:
                far_later += weights[i][j] * (i - j)
                mass_later += weights[i][j]
    return {
        "previous": sum(previous) / len(previous),
        "duplicate": sum(duplicate) / len(duplicate) if duplicate else math.nan,
        "sink": sum(sink[1:]) / (T - 1),
        "sink_all": sum(sink) / T,
        "entropy": sum(entropy) / len(entropy),
        "distance": far / mass,
        "distance_later": far_later / mass_later,
    }


def test_every_measure_is_what_plain_loops_give(tiny: Checkpoint) -> None:
    trained = TrainedGPT(tiny.model())
    texts = [trained.attention(text) for text in ("the cat sat on", "no rat, no mat!", "at")]
    found = by_name(measure(trained.reader, texts))
    for layer in range(2):
        for head in range(2):
            each = [
                by_loops(text.layers[layer].weights[head].astype(np.float64), text.ids.tolist())
                for text in texts
            ]
            for name in each[0]:
                values = [one[name] for one in each if not math.isnan(one[name])]
                assert found[name].windows == len(values)
                assert found[name].values[layer, head] == pytest.approx(np.mean(values), abs=1e-9)
                error = np.std(values, ddof=1) / math.sqrt(len(values))
                assert found[name].errors[layer, head] == pytest.approx(error, abs=1e-9)
    for name in by_loops(np.eye(2), [0, 1]):
        even = [
            by_loops(np.tri(len(t.ids)) / np.arange(1, len(t.ids) + 1)[:, None], t.ids.tolist())
            for t in texts
        ]
        expected = np.nanmean([one[name] for one in even])
        assert found[name].uniform == pytest.approx(expected, abs=1e-12)


def test_value_weighted_shares_are_what_plain_loops_give(tiny: Checkpoint) -> None:
    trained = TrainedGPT(tiny.model())
    text = trained.attention("the cat sat on")
    found = by_name(measure(trained.reader, [text]))
    for layer, stages in enumerate(text.layers):
        weight, _ = trained.reader.linear(f"blocks.{layer}.attention.proj")
        for head in range(2):
            columns = weight[:, head * 8 : (head + 1) * 8].astype(np.float64)
            shares = []
            for i in range(1, 14):
                parts = stages.weights[head, i, :, None] * stages.v[head] @ columns.T
                lengths = [math.sqrt(sum(x * x for x in part)) for part in parts.tolist()]
                shares.append((lengths[i - 1] / sum(lengths), lengths[0] / sum(lengths)))
            previous, sink = np.mean(shares, axis=0)
            assert found["previous_valued"].values[layer, head] == pytest.approx(previous, abs=1e-6)
            assert found["sink_valued"].values[layer, head] == pytest.approx(sink, abs=1e-6)


def test_heads_built_by_hand_get_the_values_they_were_built_for(reader: Reader) -> None:
    found = by_name(measure(reader, [map_of(reader, IDS)]))
    assert found["previous"].values[PREVIOUS] == pytest.approx(1, abs=1e-3)
    assert found["sink"].values[FIRST] == pytest.approx(1, abs=1e-3)
    assert found["distance"].values[PREVIOUS] == pytest.approx(9 / 10, abs=1e-3)
    assert found["entropy"].values[PREVIOUS] == pytest.approx(0, abs=1e-2)
    # Equal characters so far, itself included, share the weight: m of m + 1 lie before.
    repeats = [1 / 2, 2 / 3, 1 / 2, 3 / 4, 1 / 2]
    assert found["duplicate"].values[DUPLICATE] == pytest.approx(np.mean(repeats), abs=1e-3)
    for each in found.values():
        if not each.name.endswith("_valued"):
            assert each.values[EVEN] == pytest.approx(each.uniform, abs=1e-6), each.name


def test_the_induction_head_is_found_and_only_it(reader: Reader) -> None:
    found = induction(reader)
    assert found is not None
    assert found.windows >= 32
    # The first row of the repetition also meets its own character at the text's beginning.
    assert 0.85 < found.values[INDUCTION] < 1
    others = np.delete(found.values.ravel(), 4 * INDUCTION[0] + INDUCTION[1])
    assert others.max() < 0.3
    # Which periods were taken shows in the baseline: rows P … 2P − 1 of each.
    rows = [np.mean([1 / (i + 1) for i in range(p, 2 * p)]) for p in (3, 5, 8)]
    assert found.uniform == pytest.approx(np.mean(rows))
    assert found.values[EVEN] == pytest.approx(found.uniform, abs=1e-6)


def test_a_context_too_short_for_repetition_has_no_induction(tiny: Checkpoint) -> None:
    trained = TrainedGPT(tiny.model())
    assert induction(trained.reader) is not None
    short = hand_built()
    object.__setattr__(short.config, "block_size", 5)
    assert induction(short) is None


def test_heads_are_named_after_what_they_do(reader: Reader) -> None:
    synthetic = induction(reader)
    assert synthetic is not None
    random = np.random.default_rng(0)
    texts = [map_of(reader, random.integers(0, 6, SIZE)) for _ in range(8)]
    measures = [*measure(reader, texts), synthetic]
    named = kinds(measures)
    assert named[0] == ["previous", "sink", "", "duplicate"]
    assert named[1] == ["induction", "", "", ""]
    strong = strengths(measures)
    assert strong[PREVIOUS] > 0.99
    assert strong[EVEN] < 1e-6


def test_what_is_not_certain_has_no_name() -> None:
    def one(value: float, error: float) -> Measure:
        return Measure("sink", "", "", np.array([[value]]), np.array([[error]]), 0.1, 4)

    assert kinds([one(0.9, 0.1)]) == [["sink"]]
    assert kinds([one(0.9, 0.3)]) == [[""]]
    assert kinds([one(0.3, 0.01)]) == [[""]]
    assert kinds([one(0.9, math.nan)]) == [["sink"]]
    assert kinds([]) == []


def test_short_texts_and_texts_without_repetition_are_no_trap(reader: Reader) -> None:
    assert measure(reader, [map_of(reader, IDS[:1])]) == []
    found = by_name(measure(reader, [map_of(reader, np.array([1, 2]))]))
    assert math.isnan(found["duplicate"].values[0, 0])
    assert found["duplicate"].windows == 0
    assert found["previous"].windows == 1
    assert np.isnan(found["previous"].errors).all()
    assert set(KINDS) < set(TITLES)
