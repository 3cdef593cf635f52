"""Measures of heads built by hand and of a trained model, by plain loops; the names of heads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hand_built import EVEN, INDUCTION, PREVIOUS, SIZE, hand_built

from gpt.heads.attention_map import AttentionMap, inspect
from gpt.heads.measures import (
    FARTHEST,
    KINDS,
    SEQUENCES,
    TITLES,
    Measure,
    induction,
    measure_heads,
    name_heads,
    strengths,
)
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array

#: All characters; the quartiles of the distances between equal ones are 3, 5 and 8.
WORDS = np.array([*[0, 1, 2] * 4, *[3, 4, 5, 6, 7] * 2, *list(range(8, SIZE)) * 2])


@pytest.fixture(scope="module")
def reader() -> Reader:
    return hand_built()


def map_of(reader: Reader, ids: np.ndarray) -> AttentionMap:  # type: ignore[type-arg]
    return inspect(reader, "".join(chr(97 + n) for n in ids), ids)


def by_name(measures: list[Measure]) -> dict[str, Measure]:
    return {each.name: each for each in measures}


def completions(ids: list[int]) -> list[tuple[int, int]]:
    """(i, j + 1) for each i whose character occurred before, last at j < i − 1."""
    found = []
    for i, character in enumerate(ids):
        earlier = [j for j in range(i) if ids[j] == character]
        if earlier and earlier[-1] + 1 < i:
            found.append((i, earlier[-1] + 1))
    return found


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
    completed = [weights[i][j] for i, j in completions(ids)]
    return {
        "previous": sum(previous) / len(previous),
        "induction": sum(completed) / len(completed) if completed else math.nan,
        "duplicate": sum(duplicate) / len(duplicate) if duplicate else math.nan,
        "sink": sum(sink[1:]) / (T - 1),
        "sink_all": sum(sink) / T,
        "entropy": sum(entropy) / len(entropy),
        "distance": far / mass,
        "distance_later": far_later / mass_later,
    }


def test_every_measure_equals_plain_loops(trained: TrainedGPT) -> None:
    texts = [trained.attn(text) for text in ("the cat sat on", "no rat, no mat!", "at")]
    found = by_name(measure_heads(texts))
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


def test_induction_by_distance_equals_plain_loops(trained: TrainedGPT) -> None:
    texts = [trained.attn(text) for text in ("the cat sat on", "no rat, no mat!", "at")]
    found = by_name(measure_heads(texts))["induction"].least
    assert found is not None

    def expected(weights: list[Array]) -> list[float]:
        """For each text: the mean weight of all texts at its induction distances."""
        at: dict[int, list[float]] = {}
        for matrix in weights:
            for i in range(len(matrix)):
                for j in range(i + 1):
                    at.setdefault(i - j, []).append(float(matrix[i][j]))
        asked = [[i - key for i, key in completions(text.ids.tolist())] for text in texts]
        return [float(np.mean([np.mean(at[back]) for back in each])) for each in asked if each]

    for layer in range(2):
        for head in range(2):
            values = expected([text.layers[layer].weights[head] for text in texts])
            assert found[layer, head] == pytest.approx(np.mean(values), abs=1e-7)


def test_weight_n_back_equals_plain_loops(trained: TrainedGPT) -> None:
    texts = [trained.attn(text) for text in ("the cat sat on", "no rat, no mat!", "the cat.")]
    found = by_name(measure_heads(texts))["back"]
    assert found.offsets is not None
    for layer in range(2):
        for head in range(2):
            means = {}
            for n in range(1, 5):  # half of the shortest text
                means[n] = [
                    np.mean([text.layers[layer].weights[head][i][i - n] for i in range(n, T)])
                    for text in texts
                    for T in [len(text.ids)]
                ]
            strongest = max(means, key=lambda n: float(np.mean(means[n])))
            assert found.offsets[layer, head] == strongest
            values = means[strongest]
            assert found.values[layer, head] == pytest.approx(np.mean(values), abs=1e-7)
            even = [np.mean([1 / (i + 1) for i in range(strongest, len(t.ids))]) for t in texts]
            assert found.uniform_value(layer, head) == pytest.approx(np.mean(even), abs=1e-12)
            error = np.std(values, ddof=1) / math.sqrt(3)
            assert found.errors[layer, head] == pytest.approx(error, abs=1e-7)


@pytest.mark.parametrize("back", [1, 2, 7])
def test_a_head_at_a_fixed_distance_is_named_after_it(back: int) -> None:
    random = np.random.default_rng(0)
    reader = hand_built(back=back)
    measures = measure_heads([map_of(reader, random.integers(0, 6, SIZE)) for _ in range(8)])
    found = by_name(measures)
    assert found["back"].offsets is not None
    assert found["back"].offsets[PREVIOUS] == back
    assert found["back"].values[PREVIOUS] == pytest.approx(1, abs=1e-3)
    assert name_heads(measures)[0][0] == ("previous" if back == 1 else f"{back} back")
    assert strengths(measures)[PREVIOUS] > 0.99
    # A uniform head has most weight on the character directly before, as much as `previous` says.
    assert found["back"].offsets[EVEN] == 1
    assert found["back"].uniform_value(*EVEN) == pytest.approx(found["previous"].uniform)
    # The uniform head of a row is the one at the row's own distance.
    expected = np.mean([1 / (i + 1) for i in range(back, SIZE)])
    assert found["back"].uniform_value(*PREVIOUS) == pytest.approx(expected)
    if back == 1:
        assert found["back"].values[PREVIOUS] == pytest.approx(found["previous"].values[PREVIOUS])


def test_a_head_further_back_than_the_farthest_has_no_name() -> None:
    assert FARTHEST == 8
    long, random = hand_built(back=9), np.random.default_rng(0)
    texts = [map_of(long, random.integers(0, 6, SIZE)) for _ in range(8)]
    assert name_heads(measure_heads(texts))[0][0] == ""


def test_synthetic_measure_finds_only_the_induction_head(reader: Reader) -> None:
    found = induction(reader, WORDS)
    assert found is not None
    assert found.windows >= 32
    # The first row of the repetition also matches the same character at the text's beginning.
    assert 0.85 < found.values[INDUCTION] < 1
    others = np.delete(found.values.ravel(), 4 * INDUCTION[0] + INDUCTION[1])
    assert others.max() < 0.3
    # The uniform value shows which periods were measured: rows P … 2P − 1 of each.
    rows = [np.mean([1 / (i + 1) for i in range(p, 2 * p)]) for p in (3, 5, 8)]
    assert found.uniform == pytest.approx(np.mean(rows))
    assert found.values[EVEN] == pytest.approx(found.uniform, abs=1e-6)


def test_the_synthetic_measure_and_its_error_combine_the_periods() -> None:
    found = induction(
        hand_built(back=4), WORDS
    )  # the first head attends to the repetition for P = 5 only
    assert found is not None
    assert [part.name for part in found.parts] == ["period_3", "period_5", "period_8"]
    assert [part.windows for part in found.parts] == [SEQUENCES] * 3
    values = [part.values[PREVIOUS] for part in found.parts]
    assert values == pytest.approx([0, 1, 0], abs=0.15)
    assert found.values[PREVIOUS] == pytest.approx(np.mean(values))
    for part, P in zip(found.parts, (3, 5, 8), strict=True):
        assert part.uniform == pytest.approx(np.mean([1 / (i + 1) for i in range(P, 2 * P)]))
    spread = np.std(values, ddof=1) / math.sqrt(3)  # 0.33; the errors within are below 0.01
    assert found.errors[PREVIOUS] == pytest.approx(spread)
    low, high = (found.values[PREVIOUS] + n * found.errors[PREVIOUS] for n in (-2, 2))
    assert low < min(values)
    assert max(values) < high


def test_the_synthetic_texts_have_only_characters_and_distances_of_the_text(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a text of 26 letters, a space and a newline has no word of 28 different characters."""
    read: list[list[int]] = []
    stages = reader.stages
    monkeypatch.setattr(reader, "stages", lambda ids: [read.append(ids.tolist()), stages(ids)][1])
    found = induction(reader, np.array([2, 9, 4, 7, 2, 9, 4, 7, 5, 5, 5]))
    assert found is not None
    assert [part.title for part in found.parts] == ["P=4"]
    assert {n for ids in read for n in ids} <= {2, 9, 4, 7, 5}
    assert all(ids[:4] == ids[4:] and len(set(ids)) == 4 for ids in read)
    assert found.errors[INDUCTION] == found.parts[0].errors[INDUCTION]  # one period: no spread
    assert induction(reader, np.arange(SIZE)) is None
    assert induction(reader, np.arange(0)) is None


def test_short_context_has_no_synthetic_induction(trained: TrainedGPT) -> None:
    assert induction(trained.reader, np.arange(30) % 5) is not None
    short = hand_built()
    object.__setattr__(short.config, "block_size", 5)
    assert induction(short, WORDS) is None


def test_heads_get_the_names_of_their_measures(reader: Reader) -> None:
    synthetic = induction(reader, WORDS)
    assert synthetic is not None
    random = np.random.default_rng(0)
    texts = [map_of(reader, random.integers(0, 6, SIZE)) for _ in range(8)]
    measures = [*measure_heads(texts), synthetic]
    named = name_heads(measures)
    assert named[0] == ["previous", "sink", "", "duplicate"]
    assert named[1] == ["induction", "", "", ""]
    strong = strengths(measures)
    assert strong[PREVIOUS] > 0.99
    assert strong[EVEN] < 1e-6


def named(reader: Reader, texts: list[AttentionMap]) -> list[list[str]]:
    synthetic = induction(reader, WORDS)
    return name_heads([*measure_heads(texts), *([synthetic] if synthetic else [])])


def test_induction_in_text_alone_names_a_head() -> None:
    reader = hand_built(completed=3)
    random = np.random.default_rng(0)
    texts = [map_of(reader, random.permutation([0, 1, 2] * 3 + [3, 4, 5, 6])) for _ in range(16)]
    found = by_name(measure_heads(texts))["induction"]
    synthetic = induction(reader, WORDS[9:])  # each character once or twice
    assert synthetic is not None
    assert found.values[INDUCTION] > 0.4
    assert synthetic.values[INDUCTION] < 0.3
    assert named(reader, texts)[1][0] == "induction"
    assert name_heads([synthetic])[1][0] == ""


@pytest.mark.parametrize("back", [1, 4])
def test_a_head_that_attends_at_a_fixed_distance_is_not_called_induction(back: int) -> None:
    reader = hand_built(back=back)
    period = np.arange(back + 1)
    texts = [map_of(reader, np.resize((period + n) % SIZE, SIZE)) for n in range(8)]
    found = by_name(measure_heads(texts))["induction"]
    assert found.values[PREVIOUS] > 0.9  # looks like induction here
    names = [name for row in named(reader, texts) for name in row]
    assert names[0] == ("previous" if back == 1 else f"{back} back")
    synthetic = induction(reader, WORDS)
    assert synthetic is not None
    parts = sorted(part.values[PREVIOUS] for part in synthetic.parts)
    assert parts[-1] > 0.9 or back == 1  # P = 3, 5, 8: one period has this distance
    assert name_heads([synthetic])[0][0] == ""


def test_a_head_with_an_uncertain_measure_has_no_name() -> None:
    def one(value: float, error: float) -> Measure:
        return Measure("sink", "", "", np.array([[value]]), np.array([[error]]), 0.1, 4)

    assert name_heads([one(0.9, 0.1)]) == [["sink"]]
    assert name_heads([one(0.9, 0.3)]) == [[""]]
    assert name_heads([one(0.3, 0.01)]) == [[""]]
    assert name_heads([one(0.9, math.nan)]) == [["sink"]]
    assert name_heads([]) == []


def test_short_texts_and_texts_without_repetition(reader: Reader) -> None:
    assert measure_heads([map_of(reader, np.array([3]))]) == []
    found = by_name(measure_heads([map_of(reader, np.array([1, 2]))]))
    assert math.isnan(found["duplicate"].values[0, 0])
    assert found["duplicate"].windows == 0
    assert found["previous"].windows == 1
    assert np.isnan(found["previous"].errors).all()
    assert set(KINDS) < set(TITLES)
