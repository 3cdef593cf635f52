"""Provisional ids: they stand for exactly the text, whatever its size, order and characters."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.errors import StorageError
from gpt.training import encoding as module
from gpt.training.encoding import Beside, Draft, draft
from gpt.training.texts import Piece
from gpt.vocabulary import Vocabulary

MANY = "".join(chr(point) for point in range(0x3400, 0x3400 + 300))  # more than bytes can number
MORE = "".join(chr(point) for point in range(0x10000, 0x10000 + 70_000))  # than two bytes can


def drafted(folder: Path, texts: Sequence[str], training: int | None = None) -> Draft:
    """Each text as a source of one piece."""
    found = (Piece(n, text, text.encode()) for n, text in enumerate(texts) if text)
    return draft(found, len(texts), len(texts) if training is None else training, folder)


def text_of(made: Draft, spans: Sequence[tuple[int, int]] | None = None) -> str:
    """What a draft holds, by way of its sorted vocabulary."""
    order = np.argsort(made.points)
    order = order[made.counts[order] > 0]
    vocabulary = Vocabulary("".join(chr(point) for point in made.points[order]))
    table = np.zeros(len(made.points), vocabulary.dtype)
    table[order] = np.arange(len(vocabulary))
    ids = list(made.looked_up(table, spans or [(0, made.characters)]))
    assert all(part.dtype == vocabulary.dtype for part in ids)
    return "".join(vocabulary.decode(part) for part in ids)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is done in large pieces, in small ones."""
    shrink(monkeypatch)


def shrink(patch: pytest.MonkeyPatch) -> None:
    for name, value in (("IN_MEMORY", 20), ("AT_ONCE", 7), ("PAIRS_FROM", 3), ("WAITING", 1)):
        patch.setattr(module, name, value)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=6), st.data())
@example(["plain", "é", "plain again"], None)
@example(["a" * 9, MANY, "z" * 9, MANY[::-1]], None)
def test_a_draft_holds_the_text_its_counts_its_hash_and_where_sources_begin(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject | None
) -> None:
    whole = "".join(texts)
    training = data.draw(st.integers(0, len(texts))) if data else 1
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        folder = tmp_path_factory.mktemp("draft")
        made = drafted(folder, texts, training)
        assert made.digest == f"blake3:{blake3(whole.encode()).hexdigest()}"
        assert made.characters == len(whole)
        assert made.starts == tuple(len("".join(texts[:n])) for n in range(len(texts) + 1))
        characters = [chr(point) for point in made.points]
        for counts, part in ((made.counts, texts), (made.in_training, texts[:training])):
            found = {c: n for c, n in zip(characters, counts.tolist(), strict=True) if n}
            assert found == Counter("".join(part))
        if whole:
            assert text_of(made) == whole
            first, last = sorted((len(whole) // 3, len(whole) // 2))
            assert text_of(made, [(last, len(whole)), (first, last)]) == (
                whole[last:] + whole[first:last]
            )
        made.close()
        assert list(folder.iterdir()) == []  # a draft has no name


@pytest.mark.parametrize(("text", "width"), [("abc" * 50, 1), (MANY, 2), ("a" + MORE + "a", 4)])
def test_ids_are_as_wide_as_the_characters_ask_for(tmp_path: Path, text: str, width: int) -> None:
    made = drafted(tmp_path, ["once upon a time", text, "a time"])
    assert made.numbers.read(0, 1)[1].itemsize == width
    assert text_of(made) == "once upon a time" + text + "a time"
    made.close()


def test_what_is_counted_by_twos_is_counted_once(small: None, tmp_path: Path) -> None:
    made = drafted(tmp_path, ["abcba", "é", "aa", "ab" * 300])
    assert dict(zip("abcé", made.counts[[97, 98, 99, 128]].tolist(), strict=True)) == {
        "a": 304,
        "b": 302,
        "c": 1,
        "é": 1,
    }
    made.close()


def test_the_share_that_is_read_is_told(tmp_path: Path) -> None:
    told: list[float] = []
    draft(
        [Piece(0, "é" * 5, b"\0" * 10), Piece(0, "ab", b"ab")], 1, 1, tmp_path, progress=told.append
    )
    assert told == [10, 12]


def test_a_reader_that_fails_leaves_no_draft(small: None, tmp_path: Path) -> None:
    def failing() -> Iterator[Piece]:
        yield Piece(0, "a" * 99, b"a" * 99)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        draft(failing(), 1, 1, tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_a_disk_that_cannot_take_a_draft_is_a_storage_error(small: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"^cannot write .*file/data: Not a directory$"):
        drafted(tmp_path / "file" / "data", ["a" * 99])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
def test_a_full_disk_under_a_draft_is_a_storage_error(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = open("/dev/full", "w+b", buffering=0)  # noqa: SIM115
    monkeypatch.setattr(module.Store, "_to_disk", lambda _: full)
    with pytest.raises(StorageError, match=r"^cannot write .*: No space left on device$"):
        drafted(tmp_path, ["a" * 99])
    assert full.closed


def test_work_beside_is_done_in_order_and_its_error_comes_out() -> None:
    done: list[int] = []
    with Beside() as beside:
        for number in range(50):
            beside.do(done.append, number)
        beside.wait()
        assert done == list(range(50))

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Beside() as beside:
        beside.do(fail, 1)
        with pytest.raises(OSError, match="No space"):
            beside.wait()
