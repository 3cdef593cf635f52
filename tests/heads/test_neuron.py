"""One unit: its passages, the text that it colours, and what it adds to logits."""

from __future__ import annotations

import numpy as np
import pytest
from variants import VARIANTS, name_of, random_weights, reader_of

from gpt.config import ModelConfig, NeuronsConfig
from gpt.errors import ConfigError
from gpt.heads.ablation import Texts
from gpt.heads.contributions import Part, contributions
from gpt.heads.neurons import BEFORE, PASSAGES, _added, _peaks, neuron, parse_unit
from gpt.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_text("\nabcdefghij")
SWIGLU = ModelConfig(
    vocab_size=11, block_size=64, n_layer=2, n_head=1, n_embd=8, activation="swiglu"
)
WITH_UNITS = [each for each in VARIANTS if each.feed_forward]


@pytest.mark.parametrize("config", WITH_UNITS, ids=name_of)
def test_what_units_add_to_logits_sums_to_what_their_layer_adds(config: ModelConfig) -> None:
    weights = random_weights(config)
    down = {name for name in weights if name.endswith("feed_forward.down.bias")}
    reader = reader_of(config, {n: it * (n not in down) for n, it in weights.items()})
    ids, place = np.random.default_rng(4).integers(11, size=9), 5
    texts = Texts(ids[None], ids[None])
    found = contributions(reader, reader.stages(ids), np.tile(np.arange(11), (9, 1)))
    for layer in range(2):
        units = range(config.ffn_hidden)
        added = sum(_added(reader, texts, (layer, unit), place) for unit in units)
        expected = found.values[place, :, found.parts.index(Part("ffn", layer))]
        np.testing.assert_allclose(added, expected, rtol=1e-4, atol=1e-4)


def test_passages_are_the_strongest_places_of_both_signs_and_apart() -> None:
    reader = reader_of(SWIGLU, random_weights(SWIGLU))
    ids = np.random.default_rng(4).integers(11, size=(6, 65)).astype(VOCABULARY.dtype)
    texts, at = Texts.of_windows(ids), (1, 2)
    x = reader.blocks(reader.embed(texts.ids), [0])
    mid = reader.block(x, 1)["resid_mid"]
    hidden = reader.feed_forward(mid, 1)[1][..., 2]
    on = Texts(ids[:1, :5], ids[:1, :5])
    found = neuron(reader, VOCABULARY, texts, NeuronsConfig(ablate="zero"), at, on, "a name")
    assert {each.full for each in found.passages} == {hidden.max(), hidden.min()}
    up = [each for each in found.passages if each.full > 0]
    assert up[0].values.max() == hidden.max()
    peaks = _peaks(hidden, 1)
    assert len(peaks) == len(up) <= PASSAGES
    values = [hidden[n, t] for n, t, _ in peaks]
    assert values == sorted(values, reverse=True)
    for number, (n, t, _) in enumerate(peaks):
        assert all(m != n or abs(t - s) > 12 for m, s, _ in peaks[:number])
        begin = max(0, t - BEFORE)
        assert up[number].text == VOCABULARY.decode(ids[n, begin : min(t + 13, 64)])
        np.testing.assert_allclose(up[number].values, hidden[n, begin : min(t + 13, 64)])
    assert _peaks(np.maximum(hidden, -0.05 * hidden.max()), -1) == []  # near 0, as of gelu
    assert found.text is not None
    np.testing.assert_allclose(found.text.values, hidden[0, :5], atol=1e-6)
    shown = found.text.passage().values
    full = found.text.full
    np.testing.assert_allclose(shown, 8 * np.maximum(0, hidden[0, :5] / full), atol=1e-5)
    effect = found.survey.measures[0]
    assert (effect.name, int(np.isfinite(effect.values).sum())) == ("ablation", 1)
    record = found.records()
    assert record.facts["unit"] == "L1N2"
    assert {*record.facts["logits"]} == {*VOCABULARY.characters}
    assert record.facts["values"]["ablation"] == effect.values[at]


def test_a_unit_that_is_always_0_says_so() -> None:
    weights = {
        name: it * ("feed_forward" not in name) for name, it in random_weights(SWIGLU).items()
    }
    ids = np.zeros((2, 65), VOCABULARY.dtype)
    texts = Texts.of_windows(ids)
    found = neuron(reader_of(SWIGLU, weights), VOCABULARY, texts, NeuronsConfig(), (0, 0))
    assert found.passages == ()
    assert "its value is 0 everywhere" in str(found.blocks())
    assert not found.logits.any()


@pytest.mark.parametrize("name", ["", "1.2", "L2N0", "L0N24", "L-1N0", "L0", "37", "L0H1", "L0N1x"])
def test_a_name_that_no_unit_has_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is not one of L0N0 … L1N23"):
        parse_unit(name, SWIGLU)
    assert parse_unit(" l1n23 ", SWIGLU) == (1, 23)
