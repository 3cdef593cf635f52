"""n-gram embeddings of earlier releases: the rows follow the definition, and are added up."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from gpt.config import ModelConfig
from gpt.errors import ConfigError
from gpt.reading.gpt import Reader
from gpt.reading.ngram_embedding import ngram_rows

LARGEST = 0x10FFFF - 1


def config_of(vocab_size: int, ngram: int, rows: int) -> ModelConfig:
    return ModelConfig(vocab_size=vocab_size, n_embd=4, n_head=1, ngram=ngram, ngram_rows=rows)


@pytest.mark.parametrize("vocab_size", [1, 2, 65, 3_000, LARGEST])
@pytest.mark.parametrize("ngram", [2, 3, 5, 8])
@pytest.mark.parametrize("rows", [1, 100, 2**14, 2**24])
def test_rows_follow_the_definition(vocab_size: int, ngram: int, rows: int) -> None:
    config = config_of(vocab_size, ngram, rows)
    ids = np.random.default_rng(1).integers(vocab_size, size=(3, 12))
    found = ngram_rows(config, ids)
    firsts = np.cumsum([0, *config.ngram_tables])
    for (text, end), of_orders in zip(np.ndindex(3, 12), found.reshape(-1, ngram - 1), strict=True):
        codes = [0] * ngram + [id + 1 for id in ids[text, : end + 1].tolist()]
        for order, row in enumerate(of_orders.tolist(), start=2):
            table, kinds = config.ngram_tables[order - 2], vocab_size + 1
            base = kinds if kinds**order <= table else 1_000_003
            number = sum(codes[-1 - n] * base ** (order - 1 - n) for n in range(order))
            assert row == number % (2**31 - 1) % table + firsts[order - 2]
    assert (found >= firsts[:-1]).all()
    assert (found < firsts[1:]).all()


def test_n_grams_have_their_own_rows_if_all_fit() -> None:
    config = config_of(3, 3, 64)
    assert config.ngram_tables == (16, 64)
    texts = np.array(list(itertools.product(range(3), repeat=3)))
    rows = ngram_rows(config, texts)  # (27, 3, 2)
    assert len(np.unique(rows[:, 2, 1])) == 27
    pairs = {(a, b): row for (_, a, b), row in zip(texts.tolist(), rows[:, 2, 0], strict=True)}
    assert len(set(pairs.values())) == 9
    begun = {tuple(rows[n, 0]) for n in range(27)}  # the first character of a text
    assert len(begun) == 3
    assert not {row for _, row in begun} & set(rows[:, 2, 1])


def test_hash_of_n_grams_is_uniform() -> None:
    config = config_of(200, 4, 1_000)
    assert config.ngram_tables == (1_000,) * 3
    ids = np.random.default_rng(2).integers(200, size=(500, 64))
    for order in range(3):
        rows = ngram_rows(config, ids)[:, 3:, order]
        counts = np.bincount(rows.ravel() - 1_000 * order, minlength=1_000)
        expected = rows.size / 1_000
        assert ((counts - expected) ** 2 / expected).sum() < 1_300 * (20 if order == 0 else 1)


def test_the_rows_of_all_orders_are_added_to_the_characters_own() -> None:
    config, random = config_of(5, 3, 300), np.random.default_rng(3)
    tensors = {name: random.normal(size=shape) for name, shape in config.shapes().items()}
    ids = np.array([[0, 1, 2, 3], [4, 4, 4, 4]])
    found = Reader(config, tensors).embed(ids)
    rows, table = ngram_rows(config, ids), tensors["ngram_embedding.weight"]
    expected = tensors["token_embedding.weight"][ids] + table[rows[..., 0]] + table[rows[..., 1]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("wrong", [{"ngram": 0}, {"ngram": 9}, {"ngram_rows": 0}])
def test_impossible_ngram_tables_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"^{next(iter(wrong))}: "):
        ModelConfig(vocab_size=3, **wrong)  # type: ignore[arg-type]
