"""Measures of cross-attention and of an encoder's heads: plain loops, known heads, uniform ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoded import PAIRS, encoded_file

from gpt import load
from gpt.errors import ConfigError, TextError
from gpt.heads.attention_map import AttentionMap
from gpt.heads.kinds import kinds
from gpt.heads.measures import Measure
from gpt.heads.pair_measures import CROSS, ENCODER, measure_pairs, of_cross, of_encoder
from gpt.reading.layers import Array
from gpt.reading.stages import Stages
from gpt.storage.checkpoint import Checkpoint
from gpt.trained import TrainedGPT

SOURCE, READ = np.array([3, 1, 2, 5, 1, 4]), np.array([0, 1, 2, 1, 4])  # READ begins with TAB, 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return load(encoded_file(tmp_path_factory.mktemp("pairs") / "p.safetensors"))


def map_of(weights: Array, kind: Any = "cross") -> AttentionMap:
    """A map of one layer with (H, T, S) weights of SOURCE."""
    nothing = np.zeros((len(weights), 1, 1))
    stages = Stages(*(weights if name == "weights" else nothing for name in Stages.__annotations__))
    ids = READ if kind == "cross" else SOURCE
    return AttentionMap("", ids, (stages,), (), kind=kind, source=("", SOURCE))


def random_weights(rows: int, columns: int) -> Array:
    weights = np.random.default_rng(1).random((3, rows, columns)) ** 4
    return weights / weights.sum(axis=-1, keepdims=True)


def sharp_at(*columns: int) -> Array:
    """(1, T, S) weights: all of each row on one column."""
    return np.eye(len(SOURCE))[None, list(columns)]


def cross_by_loops(weights: Array) -> dict[str, float]:
    T, S = weights.shape
    following = [*READ[1:].tolist(), None]
    copy = []
    for i in range(T):
        equal = [j for j in range(S) if SOURCE[j] == following[i]]
        copy += [sum(weights[i, j] for j in equal)] if equal else []
    pairs = [(i, j, weights[i, j] / T) for i in range(T) for j in range(S)]
    row = sum(p * i for i, _, p in pairs)
    column = sum(p * j for _, j, p in pairs)
    both = sum(p * (i - row) * (j - column) for i, j, p in pairs)
    rows = sum(p * (i - row) ** 2 for i, _, p in pairs)
    columns = sum(p * (j - column) ** 2 for _, j, p in pairs)
    strongest = {max(range(S), key=lambda j: weights[i, j]) for i in range(T)}
    entropies = [-sum(w * math.log(w) for w in line if w > 0) for line in weights]
    return {
        "copy": sum(copy) / len(copy),
        "monotone": both / math.sqrt(rows * columns),
        "sharp": sum(max(line) for line in weights) / T,
        "coverage": len(strongest) / S,
        "entropy": sum(entropies) / T / math.log(S),
    }


def test_measures_of_cross_attention_equal_plain_loops() -> None:
    weights = random_weights(len(READ), len(SOURCE))
    found = of_cross(weights, map_of(weights))
    assert list(found) == list(CROSS)
    for number, each in enumerate(weights):
        expected = cross_by_loops(each)
        assert {name: values[number] for name, values in found.items()} == pytest.approx(expected)


def test_measures_of_the_encoder_equal_plain_loops() -> None:
    T = len(SOURCE)
    weights = random_weights(T, T)
    found = of_encoder(weights, SOURCE)
    assert list(found) == list(ENCODER)
    for n, w in enumerate(weights):
        entropies = [-sum(x * math.log(x) for x in line if x > 0) for line in w]
        expected = {
            "left": np.mean([w[i, i - 1] for i in range(1, T)]),
            "itself": np.mean([w[i, i] for i in range(T)]),
            "right": np.mean([w[i, i + 1] for i in range(T - 1)]),
            "duplicate": (w[1, 4] + w[4, 1]) / 2,
            "sink": np.mean([w[i, 0] for i in range(1, T)]),
            "entropy": sum(entropies) / T / math.log(T),
            "distance": sum(w[i, j] * abs(i - j) for i in range(T) for j in range(T)) / T,
        }
        assert {name: values[n] for name, values in found.items()} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("columns", "name", "value"),
    [
        ((0, 1, 2, 3, 4), "monotone", 1.0),
        ((5, 4, 3, 2, 1), "monotone", -1.0),
        ((3, 3, 3, 3, 3), "monotone", 0.0),  # it does not move
        ((0, 1, 2, 3, 4), "coverage", 5 / 6),
        ((3, 3, 3, 3, 3), "coverage", 1 / 6),
        ((3, 3, 3, 3, 3), "sharp", 1.0),
        ((1, 2, 4, 5, 0), "copy", 0.75),  # READ goes on with 1, 2, 1, 4; 1 is twice in the source
        ((1, 2, 1, 5, 0), "copy", 0.75),
    ],
)
def test_known_heads(columns: tuple[int, ...], name: str, value: float) -> None:
    weights = sharp_at(*columns)
    if name == "copy":
        weights[0, 2] = 0.0
        weights[0, 2, 3] = 1.0  # one of the four rows reads another character
    assert of_cross(weights, map_of(weights))[name][0] == pytest.approx(value)


def test_each_measure_has_the_value_of_a_uniform_head() -> None:
    T, S = len(READ), len(SOURCE)
    uniform = np.full((1, T, S), 1 / S)
    found = {name: each[-1] for name, each in of_cross(uniform, map_of(uniform)).items()}
    assert found == pytest.approx(
        {
            "copy": (2 + 1 + 2 + 1) / 4 / S,
            "monotone": 0,
            "sharp": 1 / S,
            "coverage": 1 - (1 - 1 / S) ** T,
            "entropy": 1,
        }
    )
    draws = np.random.default_rng(1).integers(S, size=(20_000, T))
    by_chance = np.mean([len(set(each)) / S for each in draws.tolist()])
    assert found["coverage"] == pytest.approx(by_chance, abs=0.005)


def test_heads_are_named_by_what_they_do() -> None:
    copying, straight = sharp_at(1, 2, 4, 5, 0), sharp_at(0, 1, 2, 3, 4)
    maps = [map_of(np.concatenate([copying, straight, np.full((1, 5, 6), 1 / 6)]))] * 3
    measures = measure_pairs(None, maps)  # type: ignore[arg-type]
    assert kinds(measures) == [["copy", "monotone", ""]]
    own = [map_of(np.eye(6)[None, [0, 0, 1, 2, 3, 4]], "encoder")] * 3
    assert kinds(measure_pairs(None, own)) == [["left"]]  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "layers"), [("cross", 2), ("encoder", 3), ("decoder", 2)])
def test_a_survey_measures_the_pairs_of_the_model_file(
    trained: TrainedGPT, kind: Any, layers: int
) -> None:
    found = trained.heads(kind=kind, windows=7)
    assert found.windows == 7
    assert found.measures[0].values.shape == (layers, 2)
    assert found.measured.startswith("7 pairs of the validation split's first ")
    again = trained.heads(PAIRS, kind=kind, windows=7)
    for one, other in zip(found.measures, again.measures, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_a_survey_is_the_mean_over_its_pairs(trained: TrainedGPT) -> None:
    pairs = ["24 abc\t2-1", "11b\t1c"]
    survey = by_name(trained.heads("\n".join(pairs)).measures)
    single = [by_name(trained.measures(text)) for text in pairs]
    for name, each in survey.items():
        values = [one[name].values for one in single]
        np.testing.assert_allclose(each.values, np.mean(values, axis=0))
        error = np.std(values, axis=0, ddof=1) / math.sqrt(2)
        np.testing.assert_allclose(each.errors, error, atol=1e-12)
    assert set(survey) == set(CROSS)


def test_the_cut_last_line_of_the_model_file_is_no_pair(tmp_path: Path) -> None:
    model = load(encoded_file(tmp_path / "p.safetensors", excerpt="ab\t12\nbc\t34\ncd\t5"))
    assert model.pairs() == [("ab", "12"), ("bc", "34")]
    assert model.heads().windows == 2


def test_texts_without_a_pair_are_refused(trained: TrainedGPT, tiny: Checkpoint) -> None:
    for text, problem in [("24 abc", "no pair that fits"), ("2\t1", "too short for measures")]:
        with pytest.raises(TextError, match=problem):
            trained.heads(text)
    with pytest.raises(ConfigError, match="ablation of heads: not for a model with an encoder"):
        trained.heads(ablation="mean")
    with pytest.raises(ConfigError, match="no encoder: 'cross' is not one of decoder"):
        TrainedGPT(tiny.model()).heads(kind="cross")


def by_name(measures: Any) -> dict[str, Measure]:
    return {each.name: each for each in measures}
