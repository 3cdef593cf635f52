"""Measures of heads built by hand and of a trained model, by plain loops; the names of heads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hand_built import EVEN, INDUCTION, PREVIOUS, SIZE, hand_built

from gpt.heads.measures import (
    SEQUENCES,
    Measure,
    greatest_strengths,
    measure_heads,
    name_heads,
    synthetic_induction,
)
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Array, Reader

#: All characters; the quartiles of the distances between equal ones are 3, 5 and 8.
WORDS = np.array([*[0, 1, 2] * 4, *[3, 4, 5, 6, 7] * 2, *list(range(8, SIZE)) * 2])


@pytest.fixture(scope="module")
def reader() -> Reader:
    return hand_built()


Text = tuple[np.ndarray, list[Array]]  # type: ignore[type-arg]


def read(reader: Reader, ids: np.ndarray) -> Text:  # type: ignore[type-arg]
    """The ids, and the weights of each layer."""
    return ids, [stages.weights for stages in reader.stages(ids)]


def texts_of(trained: TrainedGPT, *texts: str) -> list[Text]:
    return [read(trained.reader, trained.vocabulary.encode(text)) for text in texts]


def random_texts(reader: Reader) -> list[Text]:
    random = np.random.default_rng(0)
    return [read(reader, random.integers(0, 6, SIZE)) for _ in range(8)]


def by_name(measures: list[Measure]) -> dict[str, Measure]:
    return {measure.name: measure for measure in measures}


def completions(ids: list[int]) -> list[tuple[int, int]]:
    """(i, j + 1) for each i whose character occurred before, last at j < i − 1."""
    pairs = []
    for i, character in enumerate(ids):
        earlier = [j for j in range(i) if ids[j] == character]
        if earlier and earlier[-1] + 1 < i:
            pairs.append((i, earlier[-1] + 1))
    return pairs


def by_loops(weights: Array, ids: list[int]) -> dict[str, float]:
    """The measures of one (T, T) matrix, number by number."""
    T = len(ids)
    duplicate, entropy, far = [], [], 0.0
    for i in range(T):
        equal = [j for j in range(i) if ids[j] == ids[i]]
        if equal:
            duplicate.append(sum(weights[i][j] for j in equal))
        if i:
            nats = -sum(w * math.log(w) for w in weights[i][: i + 1].tolist() if w > 0)
            entropy.append(nats / math.log(i + 1))
        far += sum(weights[i][j] * (i - j) for j in range(i + 1))
    completed = [weights[i][j] for i, j in completions(ids)]
    return {
        "induction": sum(completed) / len(completed) if completed else math.nan,
        "duplicate": sum(duplicate) / len(duplicate) if duplicate else math.nan,
        "sink": sum(weights[i][0] for i in range(1, T)) / (T - 1),
        "entropy": sum(entropy) / len(entropy),
        "distance": far / weights.sum(),
    }


def test_every_measure_equals_plain_loops(trained: TrainedGPT) -> None:
    texts = texts_of(trained, "the cat sat on", "no rat, no mat!", "at")
    measures = by_name(measure_heads(texts))
    uniform = [
        by_loops(np.tri(len(ids)) / np.arange(1, len(ids) + 1)[:, None], ids.tolist())
        for ids, _ in texts
    ]
    for layer, head in np.ndindex(2, 2):
        expected = [by_loops(w[layer][head].astype(np.float64), i.tolist()) for i, w in texts]
        for name in expected[0]:
            values = [of_text[name] for of_text in expected if not math.isnan(of_text[name])]
            assert measures[name].windows == len(values)
            assert measures[name].values[layer, head] == pytest.approx(np.mean(values), abs=1e-9)
            error = np.std(values, ddof=1) / math.sqrt(len(values))
            assert measures[name].errors[layer, head] == pytest.approx(error, abs=1e-9)
            even = np.nanmean([of_text[name] for of_text in uniform])
            assert measures[name].uniform == pytest.approx(even, abs=1e-12)


def test_weight_n_back_equals_plain_loops(trained: TrainedGPT) -> None:
    texts = texts_of(trained, "the cat sat on", "no rat, no mat!", "the cat.")
    measure = by_name(measure_heads(texts))["back"]
    assert measure.offsets is not None
    for layer, head in np.ndindex(2, 2):
        means = {
            n: [
                np.mean([weights[layer][head][i][i - n] for i in range(n, len(ids))])
                for ids, weights in texts
            ]
            for n in range(1, 5)  # half of the shortest text
        }
        strongest = max(means, key=lambda n: float(np.mean(means[n])))
        assert measure.offsets[layer, head] == strongest
        values = means[strongest]
        assert measure.values[layer, head] == pytest.approx(np.mean(values), abs=1e-7)
        even = [np.mean([1 / (i + 1) for i in range(strongest, len(ids))]) for ids, _ in texts]
        assert measure.uniform_values[layer, head] == pytest.approx(np.mean(even), abs=1e-12)
        error = np.std(values, ddof=1) / math.sqrt(3)
        assert measure.errors[layer, head] == pytest.approx(error, abs=1e-7)


@pytest.mark.parametrize("back", [1, 2, 7])
def test_a_head_at_a_fixed_distance_is_named_after_it(back: int) -> None:
    measures = measure_heads(random_texts(hand_built(back=back)))
    measure = by_name(measures)["back"]
    assert measure.offsets is not None
    assert measure.offsets[PREVIOUS] == back
    assert measure.values[PREVIOUS] == pytest.approx(1, abs=1e-3)
    assert name_heads(measures)[0][0] == ("previous" if back == 1 else f"{back} back")
    assert greatest_strengths(measures)[PREVIOUS] > 0.99
    assert measure.offsets[EVEN] == 1  # a uniform head has most weight on the character before
    expected = np.mean([1 / (i + 1) for i in range(back, SIZE)])
    assert measure.uniform_values[PREVIOUS] == pytest.approx(expected)


def test_synthetic_measure_finds_only_the_induction_head(reader: Reader) -> None:
    measure = synthetic_induction(reader, WORDS)
    assert measure is not None
    assert measure.windows == 3 * SEQUENCES
    # The first row of the repetition also matches the same character at the text's beginning.
    assert 0.85 < measure.values[INDUCTION] < 1
    others = np.delete(measure.values.ravel(), 4 * INDUCTION[0] + INDUCTION[1])
    assert others.max() < 0.3
    # The uniform value shows which periods were measured: rows P … 2P − 1 of each.
    rows = [np.mean([1 / (i + 1) for i in range(p, 2 * p)]) for p in (3, 5, 8)]
    assert measure.uniform == pytest.approx(np.mean(rows))
    assert measure.values[EVEN] == pytest.approx(measure.uniform, abs=1e-6)


def test_heads_get_the_names_of_their_measures(reader: Reader) -> None:
    names = named(reader, random_texts(reader))
    assert names[0] == ["previous", "sink", "", "duplicate"]
    assert names[1] == ["induction", "", "", ""]


def named(reader: Reader, texts: list[Text]) -> list[list[str]]:
    synthetic = synthetic_induction(reader, WORDS)
    assert synthetic is not None
    return name_heads([*measure_heads(texts), synthetic])


@pytest.mark.parametrize("back", [1, 4])
def test_a_head_that_attends_at_a_fixed_distance_is_not_called_induction(back: int) -> None:
    reader = hand_built(back=back)
    period = np.arange(back + 1)
    texts = [read(reader, np.resize((period + n) % SIZE, SIZE)) for n in range(8)]
    assert by_name(measure_heads(texts))["induction"].values[PREVIOUS] > 0.9  # looks like induction
    assert named(reader, texts)[0][0] == ("previous" if back == 1 else f"{back} back")


def test_texts_too_short_or_without_repetition_name_no_head(reader: Reader) -> None:
    assert measure_heads([read(reader, np.array([3]))]) == name_heads([]) == []
    measures = measure_heads([read(reader, np.array([1, 2]))])
    duplicate = by_name(measures)["duplicate"]
    assert math.isnan(duplicate.values[0, 0])
    assert duplicate.windows == 0
    assert np.isnan(by_name(measures)["sink"].errors).all()
    assert not {"induction", "duplicate"} & {name for row in name_heads(measures) for name in row}
