"""What people's own texts are: tables, lists, copies, other endings; each is said, with advice."""

from __future__ import annotations

import json
import keyword
import random
from dataclasses import replace
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pytest
from conftest import TEXT, manifest_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus, batch_starts, read_corpus, windows
from gpt.corpus.doubts import find_doubts, losses_of_tenths
from gpt.corpus.formats import find_separator, note_on_kind
from gpt.corpus.sources import Texts
from gpt.errors import TextError
from gpt.storage.checkpoint_files import Doubts
from gpt.vocabulary import Vocabulary

MANUAL = "\n\n".join(topics[name].strip() for name in sorted(topics))[:200_000]
WORDS = sorted({word for word in MANUAL.split() if word.isalpha()})
ROWS = [{"id": str(n), "text": f"A “text”, number {n}:\nits end"} for n in range(30)]
CSV = "id,text\r\n" + "".join(f'{row["id"]},"{row["text"]}"\r\n' for row in ROWS)
TSV = "id\ttext\n" + "".join(f"{n}\ttext {n}\n" for n in range(30))
JSONL = "".join(json.dumps(row) + "\n" for row in ROWS)
CHAPTERS = "\n***\n".join(MANUAL[start : start + 4000] for start in range(0, 16_000, 4000))


def corpus_of(folder: Path, *contents: str, **options: object) -> Corpus:
    names = []
    for number, content in enumerate(contents):
        path = folder / f"{number}.txt"
        path.write_text(content, newline="")
        names.append(str(path))
    config = TrainConfig(**options)  # type: ignore[arg-type]
    return read_corpus(Texts(names), folder / "data", config)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (CSV, "CSV: all columns would be learned"),
        (TSV, "TSV: all columns would be learned"),
        (JSONL, "JSON lines: names, braces"),
        (json.dumps({"cells": [], "nbformat": 4}, indent=1), "a notebook"),
        (json.dumps(ROWS), "JSON: braces"),
        ("<!DOCTYPE html>\n<html><body>Hello", "HTML"),
    ],
)
def test_a_file_that_is_no_plain_text_is_named_with_what_would_be_learned(
    tmp_path: Path, text: str, kind: str
) -> None:
    assert note_on_kind(text).startswith(kind)
    (note,) = corpus_of(tmp_path, text).notes
    assert f"0.txt is {kind}" in note
    assert ("use `column`: id, text" in note) == ("column" in kind or "lines" in kind)


@pytest.mark.parametrize(
    "text",
    [
        *(MANUAL, CHAPTERS, Path(random.__file__).read_text(), TEXT),
        *("[1] a\n", "a,b", "\n", "[" * 10**4),
    ],
)
def test_plain_texts_and_programs_get_no_note(text: str) -> None:
    assert note_on_kind(text) == find_separator(text[: 2**14]) == ""


@pytest.mark.parametrize("content", [CSV, JSONL])
def test_one_column_is_read_as_items(tmp_path: Path, content: str) -> None:
    corpus = corpus_of(tmp_path, content, column="text", separator="\n%\n")
    assert corpus.vocabulary.decode(corpus.ids) == "\n%\n".join(row["text"] for row in ROWS)
    assert corpus.notes == ()
    (note,) = corpus_of(tmp_path, content, column="text").notes
    assert "some items contain the separator" in note


@pytest.mark.parametrize(
    ("content", "column", "problem"),
    [
        (CSV, "name", r"has no column 'name'; its columns are id, text"),
        (JSONL, "name", r"has no column 'name'; its columns are id, text"),
        (TSV.replace("\ttext ", "\t ").translate({n: None for n in range(48, 58)}), "text", ""),
        ("id,text\n" + "1,\n" * 9, "text", r"the column 'text' is empty"),
        (CSV + '7,"open', "text", r", line 62: broken CSV: unexpected end of data"),
        (CSV + "1,2,3\n", "text", r", line 62: broken CSV: 3 fields in place of 2"),
        (JSONL * 200 + "{", "text", r", line 6,001: broken JSON: "),
        (JSONL * 200 + "[" * 10**5, "text", r", line 6,001: broken JSON: "),
        (JSONL * 200 + r'{"text": "\ud800"}', "text", r", line 6,001: broken JSON: "),
        (JSONL * 200 + '{"text": 5}', "text", r", line 6,001: 'text' is no text: 5"),
        (TEXT, "text", r"has no columns: `column` reads CSV, TSV and JSON lines"),
    ],
)
def test_an_unknown_or_empty_column_and_a_broken_line_are_errors(
    tmp_path: Path, content: str, column: str, problem: str
) -> None:
    with pytest.raises(TextError, match=r"0\.txt.*" + problem):
        corpus_of(tmp_path, content, column=column)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("https://example.org/a.txt", r"download it first: curl -L https://example.org/a.txt \|"),
        ("texts/*.txt", r"all texts of the folder: gptx train texts$"),
        ("tables", r"one column of them: gptx train tables/\*\.csv --column NAME$"),
    ],
)
def test_a_name_that_is_no_text_is_answered_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, advice: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv").write_text(CSV)
    with pytest.raises(TextError, match=advice):
        read_corpus(Texts([name]), tmp_path / "data", TrainConfig())


@pytest.mark.parametrize(
    ("items", "separator"),
    [
        (WORDS, "\n"),
        (keyword.kwlist * 2, "\n"),
        (MANUAL.split("\n\n")[:300], "\n%%\n"),
        (MANUAL.split("\n\n")[:300], "\n<|endoftext|>\n"),
    ],
)
def test_a_list_is_recognised_with_its_separator(
    tmp_path: Path, items: list[str], separator: str
) -> None:
    text = separator.join(items) + separator
    assert find_separator(text[: 2**16]) == separator
    corpus = corpus_of(tmp_path, text)
    assert any("the text is a list: with `items`" in note for note in corpus.notes)
    assert corpus_of(tmp_path, text, items=True).notes == ()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text("ab", min_size=1, max_size=9), min_size=8, max_size=30),
    st.sampled_from([";", "--"]),
    st.integers(0, 99),
    st.sampled_from(["random", "epochs"]),
)
def test_windows_begin_with_a_separator_that_is_near(
    items: list[str], separator: str, seed: int, order: Any
) -> None:
    text, size = separator.join(items), 6
    vocabulary = Vocabulary("ab-;")
    ids, between = vocabulary.encode(text), vocabulary.encode(separator)
    train = TrainConfig(seed=seed, batch_size=5, window_order=order)
    for step in range(3):
        plain, _ = windows(ids, batch_starts(ids, train, step, size), size)
        starts_at_items = batch_starts(ids, train, step, size, between)
        rows, targets = windows(ids, starts_at_items, size)
        assert np.array_equal(rows[:, 1:], targets[:, :-1])
        for before, row in zip(
            map(vocabulary.decode, plain), map(vocabulary.decode, rows), strict=True
        ):
            near_end = len(text) - text.rfind(before) <= 2 * size + len(separator)
            assert row.startswith(separator) or separator not in before or near_end


def test_text_that_stands_in_both_splits_is_said(tmp_path: Path) -> None:
    twice = corpus_of(tmp_path, MANUAL[:60_000], MANUAL[:60_000])
    assert any("1.txt is the same text as " in note for note in twice.notes)
    assert find_doubts(twice, TrainConfig()).copied == 1
    (text, *_) = find_doubts(twice, TrainConfig()).sentences
    assert text.startswith("100% of the validation text stands in the training text")
    generator = random.Random(1)
    names = "\n".join(generator.choice(WORDS[:300]) for _ in range(4000)) + "\n"
    assert find_doubts(corpus_of(tmp_path, names), TrainConfig()).copied > 0.9
    distinct = "\n".join(generator.sample(WORDS, len(WORDS)))
    assert find_doubts(corpus_of(tmp_path, distinct), TrainConfig()) == Doubts()


def test_an_end_of_another_kind_is_said_unless_pieces_of_the_whole_text_validate(
    tmp_path: Path,
) -> None:
    other = MANUAL[80_000:90_000].swapcase()
    for split, said in (("last", True), ("every:20", False)):
        corpus = corpus_of(tmp_path, MANUAL[:80_000] + other, split=split)
        reasons = find_doubts(corpus, TrainConfig(split=split))
        assert (reasons.unlike > 0.2, reasons.copied) == (said, 0)
        assert all("`split='every:20'`" in text for text in reasons.sentences)


def test_the_last_step_is_the_best_if_the_end_is_of_another_kind(tmp_path: Path) -> None:
    manifest = manifest_of(corpus_of(tmp_path, TEXT))
    for unlike, best in ((0.0, 1), (0.5, 2)):
        now = replace(manifest, doubts=Doubts(unlike=unlike))
        for step, loss in ((1, 1.5), (2, 1.75)):
            now = replace(now, step=step).with_losses(loss)
        assert (now.best_step, now.since_best) == (best, 2 - best)


def test_losses_of_tenths_are_those_of_counting_in_plain_python() -> None:
    text = "".join(random.Random(2).choices("abc", k=400))
    ids, tenth = Vocabulary("abc").encode(text), 10
    losses = losses_of_tenths(ids, 3)
    pieces = [text[n * tenth : (n + 1) * tenth] for n in range(40)]
    grams = [
        (n // 4, piece[at - 3 : at + 1]) for n, piece in enumerate(pieces) for at in range(3, 10)
    ]
    expected = [[] for _ in range(10)]  # type: list[list[float]]
    for own, gram in grams:
        others, chance = [other for of, other in grams if of != own], 1 / 3
        for length in range(4):
            history = gram[3 - length : 3]
            times = sum(other[3 - length : 3] == history for other in others)
            together = sum(other[3 - length :] == history + gram[3] for other in others)
            chance = (together + 5 * chance) / (times + 5)
        expected[own].append(-np.log(chance))
    np.testing.assert_allclose(losses, [np.mean(part) for part in expected])
