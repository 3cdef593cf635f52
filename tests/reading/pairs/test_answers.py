"""Targets that a model with an encoder writes: greedy, drawn, by beam search, in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from random_models import random_reader

from gpt.config import SampleConfig
from gpt.reading import pairs
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.reading.pairs import WrittenTarget, beam_search, encode_sources, sample_targets
from gpt.reading.sampler import draw, probabilities, uniforms
from gpt.vocabulary import Ids

FIRST, LAST = 1, 2
GREEDY = SampleConfig(temperature=0)
SHAPE: dict[str, Any] = dict(vocab_size=6, block_size=6, encoder_layers=1)


def reader_with(**options: Any) -> Reader:
    """A reader with an encoder and random weights in float64, so that batches round alike."""
    return random_reader(seed=3, **SHAPE | options)


@pytest.fixture(params=[{}, {"encoder_layers": 0, "block_size": 11}])
def reader(request: pytest.FixtureRequest) -> Reader:
    """With an encoder, and decoder-only: that one reads the source before the target."""
    return reader_with(**request.param)


@pytest.fixture
def sources() -> list[Ids]:
    random = np.random.default_rng(5)
    return [random.integers(3, 6, size) for size in (4, 1, 6, 2, 3, 3, 5, 1)]


def logits_after(reader: Reader, source: Ids, target: list[int]) -> Array:
    """(T + 1, V) logits at the place before the target and at its characters, by one forward."""
    before = [FIRST] if reader.encoder else [LAST, *source, FIRST]
    memory = encode_sources(reader, [source])
    logits: Array = reader.logits(reader.forward(np.array([[*before, *target]]), memory))[0]
    return logits[len(before) - 1 :]


def most_of(reader: Reader, source: Ids) -> int:
    return reader.config.block_size - (1 if reader.encoder else len(source) + 2)


def cost(reader: Reader, source: Ids, target: list[int]) -> float:
    """−ln p of these characters."""
    logits = logits_after(reader, source, target[:-1])
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -float(logs[np.arange(len(target)), target].sum())


def cost_of(reader: Reader, source: Ids, written: WrittenTarget) -> float:
    return cost(reader, source, [*written.ids.tolist(), *([LAST] if written.ended else [])])


def one_by_one(reader: Reader, source: Ids, config: SampleConfig, sample: int) -> Iterator[int]:
    """The characters of one sample, each by a forward without a cache; with the last."""
    ids, chances = list[int](), uniforms(config.seed, sample)
    for _ in range(min(config.length, most_of(reader, source)) + 1):
        logits = logits_after(reader, source, ids)[-1:]
        logits[:, FIRST] = -np.inf  # no target has one
        weights = probabilities(logits, config)
        (drawn,) = draw(weights, np.array([next(chances)])).tolist()
        yield drawn
        if drawn == LAST:
            return
        ids.append(drawn)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 1.3, "seed": 4},
        {"temperature": 2.0, "top_k": 3},
        {"temperature": 2.0, "top_p": 0.8, "min_p": 0.1},
        {"temperature": 2.0, "typical_p": 0.7, "length": 3},
    ],
)
@pytest.mark.parametrize("at_once", [1, 5])
def test_samples_are_those_of_a_plain_loop_in_batches_of_any_size(
    reader: Reader,
    sources: list[Ids],
    options: dict[str, Any],
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairs, "windows_at_once", lambda config: at_once)
    config = SampleConfig(n=3, **options)
    found = sample_targets(reader, sources, FIRST, LAST, config)
    assert len({tuple(target.ids.tolist()) for each in found for target in each}) > 1
    for source, targets in zip(sources, found, strict=True):
        assert len(targets) == 3
        for sample, target in enumerate(targets):
            expected = list(one_by_one(reader, source, config, sample))
            assert target.ids.tolist() == expected[:-1]
            assert target.ended == (expected[-1] == LAST)
            assert target.nats == pytest.approx(cost_of(reader, source, target), rel=1e-9)
            (alone,) = sample_targets(reader, [source], FIRST, LAST, config)
            assert alone[sample].ids.tolist() == target.ids.tolist()


def test_greedy_is_beam_search_of_width_one(reader: Reader, sources: list[Ids]) -> None:
    targets = sample_targets(reader, sources, FIRST, LAST, GREEDY)
    searched = beam_search(reader, sources, FIRST, LAST, 1)
    written, expected = ([each.ids.tolist() for (each,) in found] for found in (targets, searched))
    assert written == expected


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_wide_beam_finds_the_likeliest_targets_of_all(
    sources: list[Ids], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "windows_at_once", lambda config: at_once)
    reader = reader_with(block_size=5, vocab_size=5)
    sources = [source[:5] % 5 for source in sources]
    others = [each for each in range(5) if each not in (FIRST, LAST)]
    every = [list(each) for T in range(4) for each in product(others, repeat=T)]
    found = beam_search(reader, sources, FIRST, LAST, len(every), n=4, length=3)
    for source, targets in zip(sources, found, strict=True):
        costs = sorted((cost(reader, source, [*target, LAST]), target) for target in every)
        assert [target.ids.tolist() for target in targets] == [target for _, target in costs[:4]]
        assert [target.nats for target in targets] == pytest.approx([each for each, _ in costs[:4]])
        assert all(target.ended for target in targets)


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 3.0, "seed": 4}])
def test_what_no_target_has_is_never_written(
    reader: Reader, sources: list[Ids], options: dict[str, Any]
) -> None:
    """The costs stay the model's own; what is likeliest without a rule is never written."""
    config = SampleConfig(n=1 if not options["temperature"] else 20, **options)
    free = sample_targets(reader, sources, FIRST, LAST, config)
    common = Counter(id for each in free for target in each for id in target.ids.tolist())
    never = [id for id, _ in common.most_common(2)]
    searched = beam_search(reader, sources, FIRST, LAST, 4, n=4, never=never)
    for found in (sample_targets(reader, sources, FIRST, LAST, config, never), searched):
        for source, targets in zip(sources, found, strict=True):
            for target in targets:
                assert not {*target.ids.tolist()} & {*never}
                assert target.nats == pytest.approx(cost_of(reader, source, target), rel=1e-9)


def test_beam_search_keeps_the_best_beginnings(reader: Reader, sources: list[Ids]) -> None:
    """A plain search, one source at a time, without a cache."""
    K = 3
    found = beam_search(reader, sources, FIRST, LAST, K, n=2)
    for source, targets in zip(sources, found, strict=True):
        beams, most = list[list[int]]([[]]), most_of(reader, source)
        for at in range(most + 1):
            grown = [each for each in beams if each[-1:] == [LAST]]
            for each in beams:
                if each[-1:] != [LAST]:
                    following = [0, LAST, 3, 4, 5] if at < most else [LAST]
                    grown += [[*each, token] for token in following]
            beams = sorted(grown, key=lambda ids: cost(reader, source, ids) if ids else 0)[:K]
        assert [[*target.ids.tolist(), LAST] for target in targets] == beams[:2]
        for target in targets:
            assert target.nats == pytest.approx(cost_of(reader, source, target))


def test_each_source_is_encoded_once(sources: list[Ids], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, rows, encode = reader_with(), list[int](), Reader.encode

    def counted(self: Reader, source: Ids, *more: Any) -> Any:
        rows.append(len(source))
        return encode(self, source, *more)

    monkeypatch.setattr(Reader, "encode", counted)
    monkeypatch.setattr(pairs, "windows_at_once", lambda config: 2)
    sample_targets(reader, sources, FIRST, LAST, SampleConfig(n=5))
    assert sum(rows) == len(sources)
    rows.clear()
    beam_search(reader, sources, FIRST, LAST, 4)
    assert sum(rows) == len(sources)


def test_no_sources_have_no_targets(reader: Reader) -> None:
    assert sample_targets(reader, [], FIRST, LAST, GREEDY) == []
    assert beam_search(reader, [], FIRST, LAST, 3) == []
