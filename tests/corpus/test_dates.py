"""The corpus "dates": each date as written has one meaning, and the split shares no date."""

from __future__ import annotations

import hashlib
import io
from dataclasses import fields
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gpt.config import TrainConfig
from gpt.corpus import sources
from gpt.corpus.corpus import read_corpus
from gpt.corpus.dates import CENTURY, DATES, FIRST, FORMATS, LAST, RECIPE, dates
from gpt.corpus.dates import _fields as fields_of
from gpt.corpus.dates import _written as written
from gpt.corpus.pair_batches import split_pairs
from gpt.corpus.pairs import find_pairs

SHA256 = "ab394aaa64644a4b767ecc196acb7a2e1682b48777b2ada4a6a8986701b2271e"


@cache
def lines() -> list[tuple[str, str]]:
    """(source, target) of each line."""
    found = [line.split("\t") for line in dates().decode().removesuffix("\n").split("\n")]
    return [(source, target) for source, target in found]


def test_dates_has_the_same_bytes_everywhere_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", None)
    found = sources.find_sources(["dates"], tmp_path, io.BytesIO())
    assert [(source.path, source.name) for source in found] == [(tmp_path / "dates.txt", "dates")]
    assert hashlib.sha256(found[0].path.read_bytes()).hexdigest() == SHA256


def test_each_source_has_one_target_and_lines_of_a_date_are_neighbours() -> None:
    assert len({source for source, _ in lines()}) == len(lines())
    targets = [target for _, target in lines()]
    changes = sum(a != b for a, b in zip(targets[1:], targets, strict=False))
    assert changes + 1 == len(set(targets)) == DATES
    days = [date.fromisoformat(target) for target in targets]
    assert FIRST <= min(days) < max(days) <= LAST
    assert abs(np.corrcoef(np.arange(len(days)), [day.toordinal() for day in days])[0, 1]) < 0.02


def test_no_date_as_written_has_two_meanings() -> None:
    meant: dict[str, date] = {}
    for year in (1900, 1970, 2000, 2024, 2026, 2069, 2099):
        day = date(year, 1, 1)
        while day.year == year:
            fields = fields_of(day)
            for locale, form in FORMATS:
                if year in CENTURY or "{yy}" not in form:
                    assert meant.setdefault(written(day, fields, locale, form), day) == day
            day += timedelta(1)


def test_split_of_the_recipe_shares_no_date_and_validates_on_two_thousand(tmp_path: Path) -> None:
    train_options = {each.name for each in fields(TrainConfig)}
    config = TrainConfig(**{name: it for name, it in RECIPE.items() if name in train_options})
    corpus = read_corpus(["dates"], tmp_path, io.BytesIO(), config=config, pairs=True)
    pairs = find_pairs(corpus)
    train, val = (half.lines for half in split_pairs(corpus, config))
    assert len(pairs) == len(lines()) == len(train) + len(val)
    for side in (0, 1):
        assert not {lines()[n][side] for n in train} & {lines()[n][side] for n in val}
    assert len({lines()[n][1] for n in val}) >= 2000
    assert 0.05 < len(val) / len(pairs) < 0.1
    assert pairs.longest < 40
