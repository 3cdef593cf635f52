"""What units follow, against independent code, units planted by hand and whole forwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hand_built import BEFORE, SIZE, TOKEN, hand_built
from variants import VARIANTS, name_of, random_weights, reader_of

from gpt.config import Ablation, ModelConfig, NeuronsConfig
from gpt.errors import ConfigError, TextError
from gpt.heads import neurons as module
from gpt.heads.ablation import Texts
from gpt.heads.neurons import Neurons, ablate_units, correlations, neurons, run_forwards
from gpt.heads.survey import head_name
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.score import surprisals

CHARACTERS = "\n abcdefghijkAB("
RANDOM = np.random.default_rng(5)
Windows = npt.NDArray[np.int64]


def windows(N: int = 8, T: int = SIZE) -> Windows:
    """(N, T + 1) random ids, with many newlines."""
    ids = RANDOM.integers(SIZE, size=(N, T + 1))
    return np.where(RANDOM.random(ids.shape) < 0.2, 0, ids)


def test_correlations_and_their_errors_are_those_of_numpy_without_each_text_in_turn() -> None:
    x = RANDOM.gamma(0.5, size=(6, 9, 4)) * 100 + 5
    x[..., 3] = 7  # does not vary
    follows = RANDOM.integers(4, size=(6, 9, 3)).astype(float)
    follows[..., 2] = 1
    follows[:, :3, 0] = np.nan
    values, errors = correlations(follows, x)
    assert np.isnan(values[2]).all()
    assert np.isnan(values[:, 3]).all()

    def direct(texts: list[int], feature: int, unit: int) -> float:
        f, v = follows[texts, :, feature].ravel(), x[texts, :, unit].ravel()
        return float(np.corrcoef(f[~np.isnan(f)], v[~np.isnan(f)])[0, 1])

    for feature, unit in np.ndindex(2, 3):
        assert values[feature, unit] == pytest.approx(direct([*range(6)], feature, unit))
        without = [direct([n for n in range(6) if n != out], feature, unit) for out in range(6)]
        spread = 5 / 6 * ((np.array(without) - np.mean(without)) ** 2).sum()
        assert errors[feature, unit] == pytest.approx(spread**0.5)
    assert np.isnan(correlations(follows[:1], x[:1])[1]).all()


def test_units_planted_in_a_model_earn_their_names_and_others_none() -> None:
    reader = hand_built()
    tensors = dict(reader.tensors)
    up = np.zeros_like(tensors["blocks.0.feed_forward.up.weight"])
    up[5, TOKEN.start + 4] = up[7, BEFORE.start] = 1  # fires on "c", and after "\n"
    tensors["blocks.0.feed_forward.up.weight"] = up
    texts = Texts.of_windows(windows())
    found = neurons(Reader(reader.config, tensors), texts, CHARACTERS, NeuronsConfig())
    named = {head_name(*at, "N"): found.names[at[0]][at[1]] for at in np.ndindex(2, len(up))}
    assert {place: name for place, name in named.items() if name} == {
        "L0N5": "one character 'c'",
        "L0N7": "after newline",
    }
    assert {*found.ranking()[:2]} == {(0, 5), (0, 7)}
    assert found.measures[-1].values[0, 5] > 0.99
    assert np.isnan(found.measures[-1].values[1]).all()  # its values are all 0


def planted(
    monkeypatch: pytest.MonkeyPatch, ids: Windows, **units: Array
) -> tuple[Neurons, dict[str, str]]:
    """The measures of noise and of some units with these values, and the names of those."""
    noise = np.random.default_rng(8).gamma(0.3, size=(*ids[:, 1:].shape, 60))
    hidden = np.concatenate([noise, np.stack([*units.values()], axis=-1)], axis=-1)

    monkeypatch.setattr(module, "unit_values", lambda *_: hidden)
    reader = reader_of(ONE, random_weights(ONE))
    found = neurons(reader, Texts.of_windows(ids), CHARACTERS, NeuronsConfig())
    assert not any(found.names[0][:60])
    return found, dict(zip(units, found.names[0][60:], strict=True))


ONE = ModelConfig(vocab_size=SIZE, block_size=32, n_layer=1, n_head=1, n_embd=8)


def test_each_feature_names_the_unit_that_follows_it_and_a_falling_one_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = windows(12, 32)
    text = np.array([*CHARACTERS])[ids]
    place = np.zeros(ids.shape)
    word = np.zeros(ids.shape)
    for n, t in np.ndindex(*ids.shape):
        place[n, t] = 0 if text[n, t] == "\n" else place[n, t - 1] + 1 if t else 1
        word[n, t] = text[n, t].isalpha() * (word[n, t - 1] + 1 if t else 1)
    first = np.concatenate([np.zeros((12, 1)), text[:, :-2] == "\n"], axis=1)
    found, names = planted(
        monkeypatch,
        ids,
        newline=first + 0.01 * RANDOM.random(first.shape),
        capital=np.char.isupper(text[:, 1:]) * RANDOM.gamma(9, 0.1, size=first.shape),
        line=0.1 * place[:, :-1],
        falls=np.exp(-place[:, :-1] / 8),
        word=0.3 * word[:, :-1] ** 1.5,
        letter=np.where(text[:, :-1] == "d", -3.0, 0.1),
        two=np.isin(text[:, :-1], ["e", "f"]),
    )
    assert names.pop("two") == ""  # not one character
    assert names == {
        "newline": "after newline",
        "capital": "capital next",
        "line": "place in line",
        "falls": "place in line, falls",
        "word": "place in word",
        "letter": "one character, falls 'd'",
    }
    rows = found.records().columns
    assert rows["character_of"][[*rows["unit"]].index(65)] == "d"
    first = [found.names[0][unit] for _, unit in found.ranking()[:6]]
    assert len({name.split(" '")[0] for name in first}) == 6  # the strongest of each name first


def test_a_name_needs_three_errors_above_random_directions() -> None:
    ids = windows()
    config = NeuronsConfig()
    found = neurons(hand_built(), Texts.of_windows(ids), CHARACTERS, config)
    shape = found.measures[0].values.shape
    sure = replace(
        found.measures[0],
        values=np.full(shape, 0.5),
        errors=np.full(shape, 0.1),
        uniform=np.full(shape, 0.15),
    )
    title = sure.title

    def name(**changed: float) -> str:
        numbers = {each: np.full(shape, value) for each, value in changed.items()}
        return replace(found, measures=(replace(sure, **numbers),)).names[0][0]

    assert (name(), name(values=-0.5)) == (title, f"{title}, falls")
    assert {name(uniform=0.21), name(errors=0.12), name(errors=np.nan), name(values=0.29)} == {""}


WITH_UNITS = [each for each in VARIANTS if each.feed_forward]


@pytest.mark.parametrize("config", WITH_UNITS, ids=name_of)
def test_the_effect_of_a_unit_is_that_of_a_forward_with_its_other_value(
    config: ModelConfig,
) -> None:
    reader = reader_of(config, random_weights(config))
    ids = np.random.default_rng(3).integers(11, size=(4, 10))
    texts = Texts.of_windows(ids)
    units = [(0, 3), (1, config.ffn_hidden - 1)]

    def losses(hook: Any) -> Array:
        x = reader.blocks(reader.embed(texts.ids), range(2), hook)
        nats = surprisals(reader.logits(reader.final_norm(x)), texts.targets)
        return nats.mean(axis=1, dtype=np.float64)

    def patched(layer: int, unit: int, new: Any) -> Array:
        def hook(name: str, at: int, stage: Array) -> Array:
            if (name, at) == ("ffn_hidden", layer):
                seen[layer] = stage[..., unit].copy()
                stage[..., unit] = stage[..., unit] if new is None else new
            return stage

        return losses(hook)

    seen: dict[int, Array] = {}
    for how in get_args(Ablation):
        found = ablate_units(run_forwards(reader, texts), units, how)
        for layer, unit in units:
            before = patched(layer, unit, None)
            own = seen[layer]
            new = {"zero": 0.0, "mean": own.mean(), "resample": own[others(len(own))]}[how]
            rise = patched(layer, unit, new) - before
            tolerance = 1e-5 * max(1, abs(before).max())
            assert found.values[layer, unit] == pytest.approx(rise.mean(), abs=tolerance)
            error = rise.std(ddof=1) / 2
            assert found.errors[layer, unit] == pytest.approx(error, abs=tolerance)
        assert np.isfinite(found.values).sum() == 2


def others(N: int) -> list[int]:
    """For each window another one, each once: in a random order, the one before it."""
    order = [*map(int, np.random.default_rng(0).permutation(N))]
    return [order[order.index(n) - 1] for n in range(N)]


def test_only_the_shown_units_are_ablated() -> None:
    reader = reader_of(ONE, random_weights(ONE))
    texts = Texts.of_windows(windows())
    asked = NeuronsConfig(ablate="mean", top=3)
    found = neurons(reader, texts, CHARACTERS, asked)
    effect = found.measures[0]
    assert {*zip(*np.nonzero(np.isfinite(effect.values)), strict=True)} == {*found.ranking()[:3]}
    by_effect = neurons(reader, texts, CHARACTERS, replace(asked, sort="ablation"))
    values = [by_effect.measures[0].values[at] for at in by_effect.ranking()]
    assert values[:3] == sorted(values[:3], reverse=True)
    assert np.isnan(values[3:]).all()
    with pytest.raises(ConfigError, match="ablation is measured only with"):
        neurons(reader, texts, CHARACTERS, NeuronsConfig(sort="ablation"))
    with pytest.raises(ConfigError, match="'foo' is not one of quotes, brackets"):
        neurons(reader, texts, CHARACTERS, NeuronsConfig(sort="foo"))
    with pytest.raises(TextError, match="resample needs two windows"):
        neurons(reader, texts.part(slice(1)), CHARACTERS, NeuronsConfig(ablate="resample"))
