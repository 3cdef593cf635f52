"""Draws follow the probabilities; filters, window and stops follow their definitions."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_reader

from gpt.config import SampleConfig
from gpt.errors import ConfigError
from gpt.reading.decode import CachedDecoder
from gpt.reading.gpt import Array, Reader
from gpt.reading.sampler import (
    Samples,
    StopFilter,
    draw,
    lower_repetition,
    probabilities,
    sample_ids,
    uniforms,
)
from gpt.reading.writing import Passages
from gpt.vocabulary import Ids, Vocabulary

LOGITS = np.array([[1.0, 0.5, 3.0, 0.5, -2.0, 2.5, 0.0, 1.5, -1.0, 2.0, 0.5, -0.5]])


def reader_of(block_size: int, position: str = "rotary") -> Reader:
    return random_reader(vocab_size=7, n_layer=1, block_size=block_size, position=position)


def continued(reader: Reader, prompt: list[int], config: SampleConfig, sample: int) -> list[int]:
    """One sample by the documented rule, without a cache."""
    block, text, stream = reader.config.block_size, list(prompt), uniforms(config.seed, sample)
    hop = max(1, block // 2)
    for _ in range(config.length):
        start = 0
        while len(text) - start > block:
            start += hop
        logits = reader.logits(reader.forward(np.array([text[start:]])))[:, -1]
        text += draw(probabilities(logits, config), np.array([next(stream)])).tolist()
    return text[len(prompt) :]


def written(reader: Reader, prompt: list[int], config: SampleConfig) -> list[list[int]]:
    steps = list(sample_ids(CachedDecoder(reader), np.array(prompt), config))
    return np.array(steps, dtype=int).reshape(len(steps), config.n).T.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("block_size", "prompt", "position"),
    [
        *((1, 1, "rotary"), (3, 5, "learned"), (8, 1, "sinusoidal")),
        *((8, 8, "learned"), (16, 40, "rotary")),
    ],
)
def test_samples_past_the_context_follow_the_window_rule(
    block_size: int, prompt: int, position: str
) -> None:
    reader = reader_of(block_size, position)
    ids = np.random.default_rng(5).integers(7, size=prompt).tolist()
    config = SampleConfig(length=40, n=3, temperature=1.0, seed=11)
    together = written(reader, ids, config)
    assert together == [continued(reader, ids, config, sample) for sample in range(3)]
    assert len({tuple(sample) for sample in together}) == 3
    assert written(reader, ids, replace(config, n=1)) == together[:1]


def test_every_sample_has_its_own_fixed_uniforms() -> None:
    first = list(islice(uniforms(1337, 0), 1000))
    assert first == list(islice(uniforms(1337, 0), 1000))
    assert all(0 <= number < 1 for number in first)
    assert len({*first, *islice(uniforms(1337, 1), 1000), *islice(uniforms(1338, 0), 1000)}) == 3000
    assert first[:2] == [0.9196162942606468, 0.9844011843586706]


VALUES: dict[str, Any] = {"top_k": 8, "top_p": 0.9, "min_p": 0.05}
OPTIONS = [
    {"temperature": temperature, **{name: VALUES[name] for name in names}}
    for count in range(len(VALUES) + 1)
    for names in combinations(VALUES, count)
    for temperature in (0.5, 1.3)
]


def exact(logits: list[float], options: dict[str, Any]) -> list[float]:
    """The distribution by the definitions of the filters, id by id."""
    weights = [math.exp(logit / options["temperature"]) for logit in logits]
    chances = {token: weight / sum(weights) for token, weight in enumerate(weights)}
    order = sorted(chances, key=lambda token: (-chances[token], token))
    if "top_k" in options:  # the k likeliest (Fan et al. 2018)
        chances = {token: chances[token] for token in order[: options["top_k"]]}
    if "top_p" in options:  # the fewest with sum p (Holtzman et al. 2020)
        whole, held, kept = sum(chances.values()), 0.0, {}
        for token in (token for token in order if token in chances):
            if held / whole < options["top_p"]:
                kept[token] = chances[token]
            held += chances[token]
        chances = kept
    if "min_p" in options:  # at least min_p times the likeliest (Nguyen et al. 2024)
        least = options["min_p"] * max(chances.values())
        chances = {token: chance for token, chance in chances.items() if chance >= least}
    return [chances.get(token, 0.0) / sum(chances.values()) for token in range(len(logits))]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_100_000_draws_follow_the_exact_distribution(options: dict[str, Any]) -> None:
    exactly = np.array(exact(LOGITS[0].tolist(), options))
    weights = probabilities(LOGITS, SampleConfig(**options))
    np.testing.assert_allclose(weights[0], exactly, rtol=0, atol=1e-12)
    chances = np.fromiter(islice(uniforms(4, 0), 100_000), float)
    counts = np.bincount(draw(np.broadcast_to(weights, (100_000, 12)), chances), minlength=12)
    possible = exactly > 0
    assert counts[~possible].sum() == 0
    expected = 100_000 * exactly[possible]
    chi_square = float(((counts[possible] - expected) ** 2 / expected).sum())
    freedom = len(expected) - 1  # the bound is exceeded by chance once in 10,000 (Wilson–Hilferty)
    assert freedom > 1
    assert chi_square < freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3


def test_temperature_0_draws_the_first_of_the_likeliest() -> None:
    logits = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    for options in ({}, {"top_k": 2}, {"top_p": 0.1, "min_p": 1.0}):
        chosen = probabilities(logits, SampleConfig(temperature=0, **options))
        assert chosen.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_ties_are_ordered_by_id() -> None:
    even = np.zeros((2, 300))
    for options in ({"top_k": 3}, {"top_p": 2.5 / 300}):
        kept = probabilities(even, SampleConfig(temperature=1.0, **options))
        assert [row.nonzero()[0].tolist() for row in kept] == [[0, 1, 2]] * 2
    assert probabilities(even, SampleConfig(min_p=1.0)).all()
    half = probabilities(np.zeros((1, 4)), SampleConfig(temperature=1.0, top_p=0.5))
    assert half.tolist() == [[0.5, 0.5, 0, 0]]  # two reach it exactly


def no_suffix_of_another(stops: list[str]) -> bool:
    return not any(a != b and a.endswith(b) for a in stops for b in stops)


@settings(deadline=None, max_examples=300)
@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("ab", max_size=4), max_size=3).filter(
        lambda stops: no_suffix_of_another([stop for stop in stops if stop])
    ),
)
def test_the_text_is_shown_up_to_the_first_stop(text: str, stops: list[str]) -> None:
    ends = [
        (end, stop)
        for end in range(1, len(text) + 1)
        for stop in stops
        if stop and text[:end].endswith(stop)
    ]
    expected = text[: ends[0][0] - len(ends[0][1])] if ends else text
    filter_, shown = StopFilter(stops), ""
    for seen, character in enumerate(text, start=1):
        shown += filter_.push(character)
        assert expected.startswith(shown)
        assert bool(filter_.stop) == bool(ends and ends[0][0] <= seen)
        if not filter_.stop:  # all text that cannot belong to a stop is shown
            held = text[len(shown) : seen]
            assert held == "" or any(stop.startswith(held) for stop in stops)
    assert shown + filter_.flush() == expected


def test_each_sample_stops_by_itself() -> None:
    decoding, vocabulary = nullcontext(CachedDecoder(reader_of(8))), Vocabulary("\nabcdef")
    config = SampleConfig(length=60, n=4, temperature=4.0, seed=1)

    def texts(*stops: str) -> list[str]:
        steps = Samples(decoding, vocabulary, "a", config, stops=stops)
        return ["".join(gained) for gained in zip(*steps, strict=True)]

    free = texts()
    assert [len(text) for text in free] == [60] * 4
    for stop in (free[0][9], free[1][20:22], free[2][30:34]):
        assert texts(stop) == [text.split(stop)[0] for text in free]
    assert {len(text) == 60 for text in texts(free[2][30:34])} == {True, False}
    gate = StopFilter(["bc"], keep=True)
    assert "".join(map(gate.push, "abcd")) + gate.flush() == "abc"


def test_an_empty_prompt_begins_after_the_start_or_a_newline() -> None:
    decoder, vocabulary = CachedDecoder(reader_of(8)), Vocabulary("\nabcdef")
    config = SampleConfig(length=9, seed=1)

    def texts(prompt: str, start: str = "") -> list[list[str]]:
        return [*Samples(nullcontext(decoder), vocabulary, prompt, config, start=start)]

    assert texts("") == texts("\n")
    assert texts("", start="ab") == texts("ab")


def new_texts(corpus: str, **options: Any) -> Samples:
    """Samples of a small random model that avoid passages of a text."""
    vocabulary = Vocabulary("\nabcdef")
    config = SampleConfig(length=80, n=3, temperature=4.0, seed=1, **options)
    copies = Passages(vocabulary.encode(corpus), (config.avoid_copies or 0) + 1)
    decoding = nullcontext(CachedDecoder(reader_of(8)))
    return Samples(decoding, vocabulary, "ab", config, mixture=None, copies=copies)


def test_a_sample_ends_where_only_copies_are_left() -> None:
    pairs = "".join(a + b for a in "\nabcdef" for b in "\nabcdef")
    samples = new_texts(pairs, avoid_copies=1)  # every pair of characters is a copy
    texts = ["".join(gained) for gained in zip(*samples, strict=True)]
    assert max(map(len, texts)) <= 1
    assert samples.ended == ["copies"] * 3


def test_going_back_writes_a_likely_text_instead_of_a_broken_word() -> None:
    """After "ab" only "c" is likely, but "abc" is a copy: the sample goes back and avoids "ab"."""

    class Scripted:
        config, dead_ends = reader_of(8).config, 0

        def start(self, ids: Ids) -> Array:
            self._ids, logits = ids, np.zeros((1, 7))
            if ids[0, -1] == 1:
                logits[0, 2] = 3.5  # "b" is likely, but not the only possible one
            if ids[0, -2:].tolist() == [1, 2]:
                logits[0, 3] = 20.0
                self.dead_ends += 1
            return logits

        def step(self, ids: Ids) -> Array:
            return self.start(np.append(self._ids, ids[:, None], axis=1))

    vocabulary = Vocabulary("\nabcdef")
    config = SampleConfig(length=400, seed=1, temperature=1.0, avoid_copies=2)
    copies = Passages(vocabulary.encode("abc"), 3)
    decoder = Scripted()
    samples = Samples(nullcontext(decoder), vocabulary, "f", config, copies=copies)
    text = "".join(gained for (gained,) in samples)
    assert len(text) == 400
    assert "ab" not in text
    assert text.count("a") > 20
    assert 0 < decoder.dead_ends <= text.count("a")  # no place tries "b" twice


def test_repetition_lowers_what_would_repeat_a_passage() -> None:
    past = np.array([[*b"the cat sat. the cat "]])
    lowered = lower_repetition(np.zeros((1, 128)), past, penalty=0.5)[0]
    assert lowered[ord("s")] == -0.5 * (len("the cat ") + 1 - 5)
    assert set(np.flatnonzero(lowered).tolist()) == {ord("s")}  # "at " and "t " are too short


def test_banned_characters_are_never_drawn() -> None:
    decoding, vocabulary = nullcontext(CachedDecoder(reader_of(8))), Vocabulary("\nabcdef")
    config = SampleConfig(length=200, temperature=4.0, ban="af\n☃")
    text = "".join(gained for (gained,) in Samples(decoding, vocabulary, "a", config))
    assert set(text) == set("bcde")
    with pytest.raises(ConfigError, match="ban"):
        Samples(decoding, vocabulary, "a", replace(config, ban="\nabcdef"))


def test_without_a_seed_texts_differ_and_their_seed_repeats_them() -> None:
    decoding, vocabulary = nullcontext(CachedDecoder(reader_of(8))), Vocabulary("\nabcdef")
    config = SampleConfig(length=30, temperature=4.0)
    first, second = (Samples(decoding, vocabulary, "a", config) for _ in range(2))
    text = [*first]
    assert text != [*second]
    assert text == [*Samples(decoding, vocabulary, "a", replace(config, seed=first.seed))]
