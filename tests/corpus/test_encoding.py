"""Drafts: they stand for exactly the text, whatever its size, order and characters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpt.corpus import encode_task as parts
from gpt.corpus import encoding, texts
from gpt.corpus.encode_task import look_up
from gpt.corpus.encoding import PLENTY, Draft, draft, worth_while
from gpt.corpus.sources import Source
from gpt.corpus.texts import measured, spans
from gpt.corpus.workers import Workers
from gpt.errors import StorageError, TextError
from gpt.storage import files
from gpt.vocabulary import Ids, Vocabulary

MANY = "".join(chr(point) for point in range(0x3400, 0x3400 + 300))  # more than bytes can number
MORE = "".join(chr(point) for point in range(0x10000, 0x10000 + 33_000))  # than two bytes can


def drafted(
    folder: Path,
    contents: Sequence[str],
    training: int | None = None,
    plenty: int = PLENTY,
    beside: int = 0,
) -> Draft:
    """Each text as a source of its own, with nothing between two of them."""
    folder.mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        (folder / f"{number}").write_bytes(content.encode())
    sources = [Source(folder / f"{number}", f"{number}") for number in range(len(contents))]
    text = measured(spans(sources, "", []), "blake3")
    training = len(contents) if training is None else training
    with Workers(beside, parts.__name__) as workers:
        return draft(text, training, folder / "data", workers, plenty)


def final(made: Draft) -> tuple[Vocabulary, Ids]:
    """The sorted vocabulary, and the table that leads to its ids."""
    vocabulary = Vocabulary("".join(sorted(map(chr, made.points))))
    return vocabulary, vocabulary.encode("".join(map(chr, made.points)))


def text_of(made: Draft, places: Sequence[tuple[int, int]]) -> str:
    """What a draft holds there, by way of its sorted vocabulary."""
    vocabulary, table = final(made)
    ids = list(made.looked_up(table, places))
    assert all(part.dtype == vocabulary.dtype for part in ids)
    return "".join(vocabulary.decode(part) for part in ids)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is done in large pieces, in small ones."""
    shrink(monkeypatch)


def shrink(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(texts, "SPAN", 20)
    patch.setattr(texts, "CHUNK", 9)
    patch.setattr(parts, "AT_ONCE", 7)
    patch.setattr(encoding, "SAMPLED", 30)
    patch.setattr(encoding, "SAMPLES", 2)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=60), max_size=6),
    st.integers(0, 6),
    st.sampled_from([0, PLENTY]),
)
@example(["plain", "é", "plain again"], 1, 0)
@example(["a" * 40, "b" * 99, "a" * 40], 2, PLENTY)
@example(["a" * 20, "b" * 20], 1, PLENTY)  # often, but not to train on
@example(["a" * 99, MANY, "z" * 9, MANY[::-1]], 1, 0)  # the sample does not tell how many
def test_a_draft_holds_the_text_and_what_was_counted(
    tmp_path_factory: pytest.TempPathFactory, contents: list[str], training: int, plenty: int
) -> None:
    whole = "".join(contents)
    assume(whole)
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        folder = tmp_path_factory.mktemp("draft")
        made = drafted(folder, contents, training, plenty)
        characters = [chr(point) for point in made.points]
        assert len(set(characters)) == len(characters)
        for counts, part in ((made.counts, contents), (made.in_training, contents[:training])):
            times = Counter("".join(part))
            for character, found in zip(characters, counts.tolist(), strict=True):
                enough = min(plenty, times[character]) if plenty else times[character]
                assert enough <= found <= max(times[character], enough)
        assert text_of(made, [(0, len(whole))]) == whole
        first, last = sorted((len(whole) // 3, len(whole) // 2))
        assert text_of(made, [(last, len(whole)), (first, last)]) == (
            whole[last:] + whole[first:last]
        )
        made.close()
        assert list((folder / "data").iterdir()) == []


@pytest.mark.parametrize("text", ["abc" * 50, MANY, "a" + MORE + "a"])
def test_characters_that_the_sample_has_not_make_ids_wider(
    small: None, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "SPAN", 2**20)
    monkeypatch.setattr(texts, "CHUNK", 2**9)
    whole = "once upon a time " * 70 + text + "a time"
    made = drafted(tmp_path, [whole])
    assert made.known == len(" aceimnoptu")
    assert made.width.itemsize == {150: 1, 300: 2}.get(len(text), 4)
    assert text_of(made, [(0, len(whole))]) == whole


@pytest.mark.parametrize(
    ("contents", "size", "stays", "same"),
    [
        (["abc" * 50, "cab"], 20, True, True),  # every id was right when it was written
        (["abd" * 50, "c" * 9, "dab"], 20, True, False),  # they change and keep their places
        (["a" * 50, MANY[:200]], 20, True, False),
        ([MANY, MANY[::-1]], 2**20, True, False),
        ([MANY, MANY[::-1]], 20, False, False),  # one byte in every span, two in all
        (["a" * 50, MANY[:200]], 2**20, False, False),  # two bytes for ids that fit one
    ],
)
def test_ids_are_looked_up_where_the_draft_lies_if_they_keep_their_width_and_place(
    small: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    contents: list[str],
    size: int,
    stays: bool,
    same: bool,
) -> None:
    monkeypatch.setattr(texts, "SPAN", size)
    made = drafted(tmp_path, contents)
    vocabulary, table = final(made)
    whole, before = [(0, len("".join(contents)))], made.path.read_bytes()
    with Workers() as workers:
        assert made.rewritten(table, [(1, 9), (0, 1)], workers) is None
        checked = made.rewritten(table, whole, workers)
    assert (checked is not None) == stays
    if checked is not None:
        data = made.path.read_bytes()
        assert vocabulary.decode(np.frombuffer(data, vocabulary.dtype)) == "".join(contents)
        assert (data == before) == same
        for size, checksum in checked:
            part, data = data[:size], data[size:]
            assert blake3(part).hexdigest() == checksum
        assert data == b""
    made.close()


def test_processes_beside_make_the_same(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "CHUNK", 2**16)  # as it is there: new ids are in order in a chunk
    contents = ["the cat sat on the mat. " * 99, "東京 " * 99 + MANY, "é" * 99]
    alone, beside = (drafted(tmp_path, contents, 1, 0, beside=n) for n in (0, 2))
    assert (alone.points.tolist(), alone.width) == (beside.points.tolist(), beside.width)
    assert alone.counts.tolist() == beside.counts.tolist()
    assert alone.path.read_bytes() == beside.path.read_bytes()
    _, table = final(alone)
    table, places = table.astype(alone.width), [(0, sum(map(len, contents)))]
    with Workers(2, parts.__name__) as two, Workers() as one:
        found = beside.rewritten(table, places, two)
        assert found is not None
        assert found == alone.rewritten(table, places, one)
    assert alone.path.read_bytes() == beside.path.read_bytes()


def test_ids_that_were_looked_up_in_part_are_written_down_again(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = drafted(tmp_path, ["abd" * 50, "c" * 9, "dab"])
    vocabulary, table = final(made)

    def dies(_: Any, tasks: Any, again: Any) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            if number % 2:  # some of it is done twice
                with pytest.raises(StorageError, match="is not what was written"):
                    look_up({**task, "count": task["count"] // 2})
            yield again(task)

    with Workers() as workers:
        monkeypatch.setattr(workers, "do", dies)
        checked = made.rewritten(table, [(0, 162)], workers)
    assert checked is not None
    data = made.path.read_bytes()
    assert vocabulary.decode(np.frombuffer(data, vocabulary.dtype)) == "abd" * 50 + "c" * 9 + "dab"


def test_a_draft_that_the_disk_has_changed_is_not_vouched_for(small: None, tmp_path: Path) -> None:
    made = drafted(tmp_path, ["abd" * 50, "c" * 9, "dab"])
    with open(made.path, "r+b") as file:
        file.seek(40)
        file.write(b"\0\0\0")
    with Workers() as workers, pytest.raises(StorageError, match="is not what was written"):
        made.rewritten(final(made)[1], [(0, 162)], workers)


def test_of_several_bytes_that_are_no_text_the_first_is_named(small: None, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * 300 + b"\xff" + b"a" * 300 + b"\xff")
    text = measured(spans([Source(tmp_path / "x", "x")], "", []), "blake3")
    for beside in (0, 2):
        first = pytest.raises(TextError, match=r"^x: invalid UTF-8 at byte 300;")
        with Workers(beside, parts.__name__) as workers, first:
            draft(text, 1, tmp_path / "data", workers)
        assert list((tmp_path / "data").iterdir()) == []


def test_a_text_that_is_not_what_was_measured_is_said(small: None, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a" * 90)
    text = measured(spans([Source(tmp_path / "x", "x")], "", []), "blake3")
    (tmp_path / "x").write_text("é" * 45)
    with Workers() as workers, pytest.raises(TextError, match=r"^x was changed while it was read"):
        draft(text, 1, tmp_path / "data", workers)


def test_many_short_texts_are_written_down_together(tmp_path: Path) -> None:
    contents = [f"text {number}\n" for number in range(300)]
    made = drafted(tmp_path, contents, training=290)
    assert [part.characters for part in made.parts] == [
        len("".join(contents[:290])),
        len("".join(contents[290:])),
    ]
    assert text_of(made, [(0, len("".join(contents)))]) == "".join(contents)


def test_processes_are_started_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, expected in ((1, 0), (2, 1), (64, encoding.MOST_BESIDE)):
        monkeypatch.setattr(encoding, "cores", lambda n=cores: n)
        assert worth_while(10**12) == expected
        assert worth_while(10**6) == 0


def test_a_disk_that_cannot_take_a_draft_is_a_storage_error(small: None, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(StorageError, match=r"^cannot write .*data: File exists$"):
        drafted(tmp_path, ["a" * 99])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
def test_a_full_disk_under_a_draft_is_a_storage_error(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.writing_at
    monkeypatch.setattr(files, "writing_at", lambda _, at: real(Path("/dev/full"), at))
    with pytest.raises(StorageError, match=r"^cannot write .*data: No space left on device$"):
        drafted(tmp_path, ["a" * 99])
    assert list((tmp_path / "data").iterdir()) == []


def test_a_draft_that_is_broken_off_leaves_nothing(small: None, tmp_path: Path) -> None:
    def impatient(_: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "x").write_text("a" * 99)
    text = measured(spans([Source(tmp_path / "x", "x")], "", []), "blake3")
    with Workers() as workers, pytest.raises(KeyboardInterrupt):
        draft(text, 1, tmp_path / "data", workers, told=impatient)
    assert list((tmp_path / "data").iterdir()) == []
