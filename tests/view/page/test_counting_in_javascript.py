"""Counting and the gate in the page: unpacked tables and predictions are those of Python."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import TEXT
from javascript import JavaScript, JavaScriptError

from gpt.checks import Check
from gpt.config import ModelConfig
from gpt.counting.expert import CachedExpert, Expert
from gpt.counting.mixture import FEATURES, Gate, Mixture
from gpt.counting.tables import count
from gpt.errors import CheckpointError
from gpt.heads.attention_map import inspect
from gpt.heads.next_character import all_experts
from gpt.reading.gpt import Reader
from gpt.storage.model_file import Probe, StoredModel
from gpt.view.page.counted import counting_record
from gpt.vocabulary import Ids, Vocabulary

#: Characters, their number in the vocabulary, and orders: a page's text, one of few characters, one
#: of so many that gaps take two bytes, and very short ones.
TEXTS = [(30_000, 65, 8), (4000, 3, 8), (20_000, 900, 3), (2, 2, 8), (1, 5, 4), (300, 40, 1)]


def random_text(length: int, size: int) -> Ids:
    """Ids of which some are frequent and many are rare, and phrases return."""
    random = np.random.default_rng(length)
    ids = np.minimum(random.exponential(size / 9, length).astype(np.int32), size - 1)
    for start in random.integers(max(1, length - 40), size=length // 60):
        ids[start : start + 20] = ids[:20][: length - start]
    return ids


def mixture_over(ids: Ids, size: int, orders: int) -> Mixture:
    gate = np.random.default_rng(size).normal(0.2, 0.1, (2, len(FEATURES)))
    return Mixture(Expert(count(ids, size, orders), size), Gate(gate))


def stored(mixture: Mixture) -> StoredModel:
    """A model file's content with these counts and a GPT without weights."""
    size = mixture.expert.vocab_size
    config = ModelConfig(vocab_size=size, counting=mixture.expert.trie.orders)
    characters = Vocabulary("".join(map(chr, range(256, 256 + size))))
    probe = Probe(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32))
    place = Path("model.safetensors")
    return StoredModel(config, characters, {}, probe, "", 1, "", place, mixture.packed())


def record_of(mixture: Mixture) -> dict[str, Any]:
    record = counting_record(stored(mixture))
    assert record is not None
    return {**record, "gate": mixture.gate.weights.tolist()}


def test_packed_tables_are_small_and_a_model_without_counting_has_none() -> None:
    mixture = mixture_over(np.frombuffer(TEXT.encode(), np.uint8), 128, 8)
    arrays = gzip.compress(
        b"".join(array.tobytes() for array in mixture.expert.trie.packed().values())
    )
    assert len(record_of(mixture)["base64"]) * 3 / 4 < 0.7 * len(arrays)
    assert counting_record(replace(stored(mixture), counting=None)) is None


def test_counts_that_no_text_has_are_refused() -> None:
    whole = stored(mixture_over(random_text(500, 5), 6, 2))
    assert whole.counting
    counts = whole.counting["counts"].copy()
    counts[0] += 1
    with pytest.raises(CheckpointError, match=r"damaged: model.safetensors \(no text has"):
        counting_record(replace(whole, counting={**whole.counting, "counts": counts}))
    counts, symbols = counts.copy(), whole.counting["symbols"].copy()
    last = whole.counting["children"][0] - 1
    symbols[last], counts[0], counts[last] = 5, counts[0] - 1, 0  # which ends no longer n-gram
    other = {**whole.counting, "symbols": symbols, "counts": counts}
    with pytest.raises(CheckpointError, match=r"damaged: model.safetensors \(no text has"):
        counting_record(replace(whole, counting=other))


def damaged_records(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same tables with one change each."""
    data = base64.b64decode(record["base64"])
    for place in (20, len(data) // 2, len(data) - 6):
        changed = bytearray(data)
        changed[place] ^= 16
        yield {"base64": base64.b64encode(changed).decode()}
    yield {"base64": base64.b64encode(data[:-30]).decode()}
    yield {"base64": "no base64!"}
    yield {"base64": base64.b64encode(gzip.compress(gzip.decompress(data) + b"1")).decode()}
    levels = record["levels"]
    yield {"levels": levels[:-1]}
    yield {"levels": [levels[0], levels[1] + 1, *levels[2:]]}
    yield {"levels": [levels[0], levels[1] + 1, levels[2] - 1, *levels[3:]]}
    yield {"levels": [*levels[:-1], -1]}
    yield {"levels": [*levels[:-1], 2**60]}
    yield {"levels": []}
    yield {"vocabSize": levels[0] - 1}


def test_damaged_tables_are_refused(script: JavaScript) -> None:
    record = record_of(mixture_over(random_text(3000, 50), 50, 4))
    changes = list(damaged_records(record))
    assert len(changes) > 10
    for change in changes:
        with pytest.raises(JavaScriptError, match=r"counting tables in this file are damaged"):
            script("unpacked", {**record, **change})
    for gate in (record["gate"][:1], [row[:-1] for row in record["gate"]], [[None] * 3] * 2):
        with pytest.raises(JavaScriptError, match=r"gate in this file is damaged"):
            script("counted", {**record, "gate": gate}, np.zeros(2, np.int32))


@pytest.mark.parametrize(("length", "size", "orders"), TEXTS)
def test_page_counts_as_python(script: JavaScript, length: int, size: int, orders: int) -> None:
    """From the same tables as the model file's."""
    ids = random_text(length, size)
    mixture = mixture_over(ids, size, orders)
    unpacked = script("unpacked", record_of(mixture))
    for name, array in mixture.expert.trie.packed().items():
        np.testing.assert_array_equal(unpacked[name], array, err_msg=name)
    text = np.concatenate((ids[:150], random_text(150, size), ids[-30:])).astype(np.int32)
    found = script("counted", record_of(mixture), text)
    assert found["same"]
    chances = found["chances"].reshape(len(text) + 1, size)
    cached, nodes = CachedExpert(mixture.expert), [0]
    for position, id in enumerate([*text.tolist(), None]):
        np.testing.assert_array_equal(chances[position], cached.predict(nodes))
        if id is not None:
            nodes = cached.advance(nodes, id)
    expected = mixture.expert.predict(mixture.expert.trie.histories(text))
    np.testing.assert_allclose(chances, expected.chances, rtol=0, atol=1e-12)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=0, atol=1e-12)
    about = np.stack([expected.depth, expected.total, expected.kinds], axis=1)
    seen = expected.total > 0  # nothing follows the only character of a text
    np.testing.assert_array_equal(found["about"].reshape(-1, 3)[seen], about[seen])


def test_page_mixes_the_experts_as_python(script: JavaScript) -> None:
    vocabulary = Vocabulary.from_text(TEXT)
    ids, size = vocabulary.encode(TEXT), len(vocabulary)
    gate = Gate(np.array([[5.5, -0.5, 0.9], [-0.2, 0.4, -0.1]]))
    mixture = Mixture(Expert(count(ids, size, 6), size), gate)
    config = ModelConfig(vocab_size=size, block_size=64, n_layer=1, n_head=2, n_embd=8)
    random = np.random.default_rng(4)
    reader = Reader(
        config,
        {n: random.normal(size=s).astype(np.float32) for n, s in config.shapes().items()},
    )
    text = "the cat sat on no rat.\n\n the mat"
    attention = inspect(reader, text, vocabulary.encode(text), Check("logits", 0.0, 1e-4))
    logits = reader.logits(reader.final_norm(attention.layers[-1].resid_post[None]))[0]
    expected = all_experts(reader, attention, mixture)
    asked = record_of(mixture), attention.ids.astype(np.int32), logits
    found = script("expected", *asked)
    for name in ("gpt", "counting", "both"):
        chances = np.exp(found[name]).reshape(len(text), size)
        np.testing.assert_allclose(chances, getattr(expected, name), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["weights"].reshape(-1, 2), expected.weights, rtol=1e-9)
    assert {0.0, 4.0} < set(expected.weights.ravel().tolist())  # some are limited
    history = zip(expected.lengths, expected.totals, expected.kinds, expected.pairs, strict=True)
    assert found["history"] == [list(row) for row in history]
    assert {row[3] for row in found["history"]} == {False, True}
    histories = mixture.expert.trie.histories(attention.ids)[:, -1:]
    scores = mixture.scores(logits[-1:], histories)[0]
    np.testing.assert_allclose(
        found["scores"] - found["scores"].max(), scores - scores.max(), rtol=0, atol=1e-9
    )
