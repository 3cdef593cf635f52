"""n-gram embeddings: the same rows in torch and numpy, and their sum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from gpt.config import ModelConfig
from gpt.errors import ConfigError
from gpt.model.ngram_embedding import NgramEmbedding
from gpt.reading.ngram_embedding import ngram_rows

LARGEST = 0x10FFFF - 1


def config_of(vocab_size: int, ngram: int, rows: int) -> ModelConfig:
    return ModelConfig(vocab_size=vocab_size, n_embd=4, n_head=1, ngram=ngram, ngram_rows=rows)


@pytest.mark.parametrize("vocab_size", [1, 2, 65, 3_000, LARGEST])
@pytest.mark.parametrize("ngram", [2, 3, 5, 8])
@pytest.mark.parametrize("rows", [1, 100, 2**14, 2**24])
def test_numpy_n_gram_rows_equal_torchs(vocab_size: int, ngram: int, rows: int) -> None:
    config = config_of(vocab_size, ngram, rows)
    ids = np.random.default_rng(1).integers(vocab_size, size=(3, 12))
    module = NgramEmbedding.__new__(NgramEmbedding)  # without its large table
    torch.nn.Module.__init__(module)
    module.kinds, module.tables = vocab_size + 1, config.ngram_tables
    expected = module.rows(torch.from_numpy(ids)).numpy()
    found = ngram_rows(config, ids)
    assert np.array_equal(found, expected)
    firsts = np.cumsum([0, *config.ngram_tables])
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


def test_ngram_embedding_sums_its_rows() -> None:
    module = NgramEmbedding(config_of(5, 3, 300))
    torch.nn.init.normal_(module.weight)
    ids = torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4]])
    torch.testing.assert_close(module(ids), module.weight[module.rows(ids)].sum(dim=2))


@pytest.mark.parametrize("wrong", [{"ngram": 0}, {"ngram": 9}, {"ngram_rows": 0}])
def test_impossible_ngram_tables_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=rf"^{next(iter(wrong))}: "):
        ModelConfig(vocab_size=3, **wrong)  # type: ignore[arg-type]
