"""The corpus of a run is found again when the run is resumed: encoded, or from its texts."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import TEXT

from gpt.config import ModelConfig, TrainConfig
from gpt.corpus.corpus import find_corpus, read_corpus
from gpt.errors import TextError
from gpt.storage.manifest import CorpusId, Manifest
from gpt.vocabulary import Vocabulary

PIPE = io.BytesIO()


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a text in it; its data folder."""
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(TEXT)
    return tmp_path / "data"


def begun(identity: CorpusId) -> Manifest:
    """A run on TEXT, known as `identity`."""
    characters = "".join(sorted(set(TEXT)))
    return Manifest(
        step=0,
        model=ModelConfig(vocab_size=len(characters)),
        train=TrainConfig(),
        preset="default",
        vocabulary=Vocabulary(characters),
        corpus=identity,
        seconds=0.0,
        running=(0.0, 0),
    )


def emptied(data: Path) -> None:
    """Deletes what was encoded."""
    for path in data.iterdir():
        path.unlink()


def test_a_run_uses_its_encoded_corpus_even_if_the_text_has_changed(working: Path) -> None:
    identity = read_corpus(["book.txt"], working, PIPE).identity
    assert find_corpus(begun(identity), (), working, PIPE).notes == ()
    for change in (lambda: Path("book.txt").write_text("edited"), Path("book.txt").unlink):
        change()
        found = find_corpus(begun(identity), (), working, PIPE)
        assert (found.vocabulary.decode(found.ids), found.identity) == (TEXT, identity)


def test_resume_encodes_a_missing_corpus_again(working: Path) -> None:
    identity = read_corpus(["book.txt"], working, PIPE).identity
    emptied(working)
    found = find_corpus(begun(identity), (), working, PIPE)
    assert (found.vocabulary.decode(found.ids), found.identity) == (TEXT, identity)
    emptied(working)
    Path("book.txt").rename("moved.txt")
    assert (
        find_corpus(begun(identity), ["moved.txt"], working, PIPE).identity.digest
        == identity.digest
    )
    emptied(working)
    with pytest.raises(TextError, match=r"^cannot read corpus 'book\.txt'"):
        find_corpus(begun(identity), (), working, PIPE)


@pytest.mark.parametrize(
    "options", [{"split": "other.txt"}, {"split": "every:3"}, {"separator": "--"}]
)
def test_resume_finds_the_same_validation_split(working: Path, options: dict[str, Any]) -> None:
    Path("other.txt").write_text(TEXT[:500])
    config = TrainConfig(**options)
    names = ["book.txt", "book.txt", "book.txt"]
    first = read_corpus(names, working, PIPE, config=config)
    train, val = (part.tolist() for part in first.split(0.1, 4))
    assert bool(config.validation) == (first.vocabulary.decode(val) == TEXT[:500])
    run = replace(begun(first.identity), train=config, vocabulary=first.vocabulary)
    stored = replace(run, model=ModelConfig(vocab_size=len(run.vocabulary)))
    for forget in (False, True):  # from what is encoded; from the texts
        if forget:
            emptied(working)
        found = find_corpus(stored, (), working, PIPE)
        assert [part.tolist() for part in found.split(0.1, 4)] == [train, val]
        assert found.identity == first.identity


@pytest.mark.parametrize("names", [(), ("book.txt",)])
def test_resume_refuses_a_changed_corpus(working: Path, names: tuple[str, ...]) -> None:
    identity = read_corpus(["book.txt"], working, PIPE).identity
    emptied(working)
    Path("book.txt").write_text(TEXT + "!")
    with pytest.raises(TextError, match=r"^corpus changed: book\.txt is not the text") as caught:
        find_corpus(begun(identity), names, working, PIPE)
    assert caught.value.exit_code == 3


def test_run_from_a_pipe_is_resumable_while_its_encoding_exists(working: Path) -> None:
    identity = read_corpus(["-"], working, io.BytesIO(TEXT.encode())).identity
    assert not list(working.glob(".spool*"))
    found = find_corpus(begun(identity), (), working, PIPE)
    assert found.vocabulary.decode(found.ids) == TEXT
    emptied(working)
    with pytest.raises(TextError, match=r"^the corpus came through a pipe and is no longer in "):
        find_corpus(begun(identity), (), working, PIPE)
    again = find_corpus(begun(identity), ["-"], working, io.BytesIO(TEXT.encode()))
    assert again.identity == identity
