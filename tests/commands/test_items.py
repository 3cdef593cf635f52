"""Lists: windows begin at items, a sample is a whole item, and new items are new."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from program import TINY, Gptx

import gpt
from gpt.config import SampleConfig, TrainConfig
from gpt.corpus.corpus import batch_starts, splits_of_run
from gpt.reading import writing

PLACES = ("port", "ville", "minster", "ham", "ford", "stead", "bury", "mouth")
NAMES = [f"{first}{middle}{last}" for last in PLACES for middle in "aeiou" for first in "BDGKLMNR"]


@pytest.fixture(params=["\n", "\n%\n"])
def separator(request: pytest.FixtureRequest, gptx: Gptx, home: Path) -> str:
    """Trains the only run in lists/ on names between such separators."""
    text, folder = str(request.param).join(NAMES), home / "lists"
    if not folder.exists() or (home / "list.txt").read_text() != text:
        shutil.rmtree(folder, ignore_errors=True)
        (home / "list.txt").write_text(text)
        options = ("--items", "--separator", request.param.replace("\n", "\\n"), "--run", "list")
        answer = gptx("train", "list.txt", *TINY, *options, "--checkpoints", "lists")
        assert answer.code == 0, answer.err
        assert "gptx sample -n 20 --new" in answer.err
    return str(request.param)


def test_windows_and_samples_begin_at_items(separator: str, home: Path) -> None:
    run = gpt.load(home / "lists/list")
    ids, _ = splits_of_run(run.name, run.manifest, home / "data")
    text, between = run.vocabulary.decode(ids), run.vocabulary.encode(separator)
    train = TrainConfig(batch_size=8)
    for at in batch_starts(ids, train, 3, 16, between).tolist():
        assert text[at:].startswith(separator) or separator not in text[at : at + 16]
    sampled = run.sample(length=400, n=3, temperature=1.5)
    assert all(separator not in item for item in sampled)
    assert run.sample(length=40, seed=5) == run.sample(separator, length=40, seed=5).new


def test_new_items_are_whole_and_not_in_the_text_and_all_different(
    gptx: Gptx, separator: str
) -> None:
    line = ("sample", "-n", "12", "--new", "--seed", "3", "--checkpoints", "lists")
    out = gptx(*line).out
    assert out.endswith(separator)
    written = out.removesuffix(separator).split(separator)
    assert len({*written} - {*NAMES}) == 12
    records = [json.loads(row) for row in gptx(*line, "--json").out.splitlines()]
    assert [record["text"] for record in records] == written
    assert "leave out prompts" in gptx(*line, "--prompt", "B").err
    few = gptx(*line, "--length", "0")
    assert (few.code, few.out) == (0, "")
    assert "note: the model wrote only 0 new items" in few.err


def test_known_items_parts_of_items_and_repeated_ones_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Samples(list[list[str]]):
        stopped = ("\n", None, "\n", "\n", "\n")

    model: Any = SimpleNamespace(
        item_separator="\n",
        name="list",
        manifest_or_none=None,
        vocabulary=SimpleNamespace(decode=str),
        stream=lambda *_, **__: Samples(
            [["ann", "cut", "bo", "bob", "dora"], ["", "", "b", "", ""]]
        ),
    )
    monkeypatch.setattr("gpt.corpus.corpus.splits_of_run", lambda *_: ("ann\ncid", "dora"))
    assert [*writing.new_items(model, SampleConfig(n=3, seed=1))] == ["bob"]


def test_a_text_without_items_or_without_their_separator_is_refused(gptx: Gptx) -> None:
    answer = gptx("sample", "--new", "--run", "corpus-1")
    assert (answer.code, answer.out) == (3, "")
    assert "--new: this run has learned no list of items; train one with --items" in answer.err
    answer = gptx("train", "corpus.txt", "--items", "--separator", "|", *TINY)
    assert (answer.code, answer.out) == (3, "")
    assert "--items: the text has no separator '|'" in answer.err
