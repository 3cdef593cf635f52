"""Measures of cross-attention and of an encoder's heads: plain loops, known heads, uniform ones."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from encoded import CHARACTERS, PAIRS, encoded_file

from gpt import load
from gpt.config import AttentionKind
from gpt.corpus.pair_lines import fitting_pairs
from gpt.errors import ConfigError, TextError
from gpt.heads.ablation import Texts, mean_contexts
from gpt.heads.attention_map import AttentionMap, stages_of
from gpt.heads.measures import Measure, name_heads
from gpt.heads.pair_measures import (
    CROSS,
    ENCODER,
    cross_measures,
    encoder_measures,
    measure_pairs,
    spread_pairs,
)
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Reader, Stages
from gpt.reading.layers import Array
from gpt.reading.score import surprisals
from gpt.reading.targets import pair_ids, split_pair
from gpt.storage.run import Checkpoint
from gpt.vocabulary import Ids, Vocabulary

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


def most_weight(weights: list[list[float]]) -> float:
    """Of all sets of pairs of a row and a column that never cross: the definition."""
    T, S = len(weights), len(weights[0])
    return max(
        sum(weights[i][j] for i, j in zip(rows, columns, strict=True))
        for count in range(1, min(T, S) + 1)
        for rows in combinations(range(T), count)
        for columns in combinations(range(S), count)
    )


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
        "aligned": most_weight(weights[:-1].tolist()) / min(T - 1, S),
        "sharp": sum(max(line) for line in weights) / T,
        "coverage": len(strongest) / S,
        "entropy": sum(entropies) / T / math.log(S),
    }


def test_measures_of_cross_attention_equal_plain_loops() -> None:
    weights = random_weights(len(READ), len(SOURCE))
    found = cross_measures(weights, map_of(weights))
    assert list(found) == list(CROSS)
    for number, each in enumerate(weights):
        expected = cross_by_loops(each)
        assert {name: values[number] for name, values in found.items()} == pytest.approx(expected)


def test_measures_of_the_encoder_equal_plain_loops() -> None:
    T = len(SOURCE)
    weights = random_weights(T, T)
    found = encoder_measures(weights, SOURCE)
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


def test_each_measure_has_the_value_of_a_uniform_head() -> None:
    T, S = len(READ), len(SOURCE)
    uniform = np.full((1, T, S), 1 / S)
    found = {name: each[-1] for name, each in cross_measures(uniform, map_of(uniform)).items()}
    assert found == pytest.approx(
        {
            "copy": (2 + 1 + 2 + 1) / 4 / S,
            "monotone": 0,
            "aligned": 1 / S,
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
    assert name_heads(measures) == [["copy", "monotone", ""]]
    own = [map_of(np.eye(6)[None, [0, 0, 1, 2, 3, 4]], "encoder")] * 3
    assert name_heads(measure_pairs(None, own)) == [["left"]]  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "layers"), [("cross", 2), ("encoder", 3), ("decoder", 2)])
def test_a_survey_measures_the_pairs_of_the_model_file(
    trained: TrainedGPT, kind: Any, layers: int
) -> None:
    found = trained.heads(attention=kind, windows=7)
    assert found.windows == 7
    assert found.measures[0].values.shape == (layers, 2)
    assert found.measured.startswith("7 pairs of the validation split's first ")
    again = trained.heads(PAIRS, attention=kind, windows=7)
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


def test_mean_outputs_of_heads_are_means_over_all_positions_of_pairs(trained: TrainedGPT) -> None:
    text, size = trained.stored.excerpt_lines, trained.config.block_size
    texts = Texts.of_pairs(spread_pairs(pair_ids(trained.vocabulary, text, size), 3), last=0)
    pairs = [line.split("\t") for line in text.split("\n")]
    chosen = [pairs[0], pairs[round((len(pairs) - 1) / 2)], pairs[-1]]
    for kind in get_args(AttentionKind):
        maps = [trained.attn("\t".join(pair), attention=kind) for pair in chosen]
        rows = np.concatenate([each.to_numpy()["context"] for each in maps], axis=2)
        found = mean_contexts(trained.reader, texts, kind)
        np.testing.assert_allclose(found, rows.mean(axis=2), atol=1e-6)


def test_the_cut_last_line_of_the_model_file_is_no_pair(tmp_path: Path) -> None:
    model = load(encoded_file(tmp_path / "p.safetensors", excerpt="ab\t12\nbc\t34\ncd\t5"))
    pairs = fitting_pairs(model.stored.excerpt_lines, model.vocabulary, 16)
    sides = [(pair.source, pair.target) for pair in pairs]
    decode = model.vocabulary.decode
    assert [tuple(map(decode, pair)) for pair in sides] == [("ab", "12"), ("bc", "34")]
    assert model.heads().windows == 2


def test_texts_without_a_pair_are_refused(trained: TrainedGPT, tiny: Checkpoint) -> None:
    for text, problem in [
        ("24 abc", "^line 1 has no TAB: '24 abc'; each line is SOURCE"),
        ("2\t1", "too short for measures"),
    ]:
        with pytest.raises(TextError, match=problem):
            trained.heads(text)
    with pytest.raises(ConfigError, match="ablation of pairs: mean or zero; resample needs"):
        trained.heads(ablate="resample")
    with pytest.raises(ConfigError, match="no encoder: 'cross' is not one of decoder"):
        TrainedGPT(tiny.model()).heads(attention="cross")


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
@pytest.mark.parametrize("how", ["zero", "mean"])
def test_ablation_equals_a_model_with_changed_weights(
    trained: TrainedGPT, kind: Any, how: Any
) -> None:
    """Zero: the head's columns of the projection are zero. Mean: its mean output, over every
    character of all pairs, reaches the projection as a bias, too.
    """
    text = "ab\t12\n0ca\t3\nf\t4 5 6\n"
    found = by_name(trained.heads(text, attention=kind, ablate=how).measures)["ablation"]
    reader = trained.reader
    pairs = pair_ids(trained.vocabulary, text, trained.config.block_size)
    layers, heads, size = len(found.values), trained.config.n_head, trained.config.head_size
    sublayer = "cross" if kind == "cross" else "attention"
    outputs = [stages_of(reader, read, source)[kind] for source, read in pairs]
    for layer in range(layers):
        every = np.concatenate([each[layer].context for each in outputs], axis=1)  # (H, T, D)
        for head in range(heads):
            name = f"{'encoder.' * (kind == 'encoder')}blocks.{layer}.{sublayer}.proj"
            tensors = {n: array.copy() for n, array in trained.stored.tensors.items()}
            columns = slice(size * head, size * (head + 1))
            removed = tensors[f"{name}.weight"][:, columns].copy()
            tensors[f"{name}.weight"][:, columns] = 0
            if how == "mean":
                tensors[f"{name}.bias"] = removed @ every[head].mean(axis=0)
            without = Reader(trained.config, tensors)
            rises = [nats_of(without, pair) - nats_of(reader, pair) for pair in pairs]
            np.testing.assert_allclose(found.values[layer, head], np.mean(rises), atol=2e-6)
            error = np.std(rises, ddof=1) / math.sqrt(len(pairs))
            np.testing.assert_allclose(found.errors[layer, head], error, atol=2e-6)
    assert np.abs(found.values).min() > 1e-5


def nats_of(reader: Reader, pair: tuple[Ids, Ids]) -> float:
    """Mean nats of the target, each pair read alone."""
    source, read = pair
    memory = reader.encode(source[None])
    logits = reader.logits(reader.forward(read[None], memory))[0].astype(np.float64)
    last = Vocabulary.from_text(CHARACTERS).encode("\n")[0]
    return float(surprisals(logits, np.append(read[1:], last)).mean())


@pytest.mark.parametrize("text", ["24 abc\t2-1", "24 abc"])
def test_the_lens_shows_what_the_decoder_predicts_at_each_depth(
    trained: TrainedGPT, text: str
) -> None:
    source, ids = split_pair(trained.reader, trained.vocabulary, text)
    lens, reader, read = trained.lens(text), trained.reader, ids[None]
    assert lens.text == trained.vocabulary.decode(ids)
    assert lens.ids.shape == (3, len(ids), 8)
    last = reader.logits(reader.forward(read, reader.encode(source[None])))[0]
    assert np.array_equal(lens.ids[-1, :, 0], last.argmax(axis=-1))
    first = reader.logits(reader.final_norm(reader.embed(read)))[0]
    assert np.array_equal(lens.ids[0, :, 0], first.argmax(axis=-1))
    for kind in ("encoder", "decoder"):
        with pytest.raises(ValueError, match=f"the logit lens needs 'cross', not '{kind}'"):
            trained.lens(trained.attn(text, attention=kind))  # type: ignore[arg-type]


def by_name(measures: Any) -> dict[str, Measure]:
    return {each.name: each for each in measures}


def test_measures_of_cross_attention_over_training_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from gpt.heads.survey import development
    from gpt.view.figure.development import draw

    runs = [load(encoded_file(tmp_path / f"{n}.safetensors", n_embd=16)) for n in (1, 2)]
    found = development([1, 2], iter([run.heads() for run in runs]))
    titles = [axes.get_title() for axes in draw(found).axes]
    assert titles == [each.title for each in found.main_measures()]
