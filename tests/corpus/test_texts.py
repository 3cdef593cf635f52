"""Texts as one: whole characters wherever they are cut, a separator only where one is due."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.corpus import texts as module
from gpt.corpus.sources import Source
from gpt.corpus.texts import Span, measured, spans, total_bytes
from gpt.errors import TextError


def sources_of(folder: Path, contents: Sequence[str]) -> list[Source]:
    for number, content in enumerate(contents):
        (folder / f"{number}").write_bytes(content.encode())
    return [Source(folder / f"{number}", f"{number}") for number in range(len(contents))]


def joined(contents: Sequence[str], separator: str) -> str:
    """The texts that have something in them, separated as the option promises."""
    result, last = "", None
    for content in filter(None, contents):
        if last is not None and not last.endswith(separator):
            result += separator
        result, last = result + content, content
    return result


def text_of(span: Span) -> str:
    chunks = list(span.chunks())
    assert all(chunks)
    return "".join(each if isinstance(each, str) else each.decode("ascii") for each in chunks)


@settings(deadline=None, max_examples=200)
@given(
    contents=st.lists(st.text("a\n-é東😀", max_size=12), max_size=5),
    separator=st.sampled_from(["\n", "\n\n", "", "--", "é", "\n-\n", "😀"]),
    chunk=st.integers(1, 9),
    size=st.integers(1, 9),
)
@example(contents=["a\n", "b"], separator="\n\n", chunk=1, size=4)
@example(contents=["\n", "\n"], separator="\n\n", chunk=1, size=4)
def test_texts_are_cut_between_characters_and_separated_unless_the_first_ends_so(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[str],
    separator: str,
    chunk: int,
    size: int,
) -> None:
    sources = sources_of(tmp_path_factory.mktemp("texts"), contents)
    whole = joined(contents, separator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        patch.setattr(module, "SPAN", size)
        found = spans(sources, separator, [])
        parts = [text_of(span) for span in found]
        told: list[int] = []
        text = measured(found, "blake3", told.append)
    assert "".join(parts) == whole
    assert [len(part) for part in parts] == list(text.counts)
    assert [len(part.encode()) for part in parts] == [span.size for span in found]
    assert all(0 < span.size <= max(size, 4) + 3 for span in found)
    assert text.digest == f"blake3:{blake3(whole.encode()).hexdigest()}"
    assert told == [*accumulate(span.size for span in found)]
    places = [span.source for span in found]
    assert places == sorted(places)
    starts = text.starts(len(contents))
    assert starts[-1] == text.characters == len(whole)
    for number, content in enumerate(contents):
        of_source = whole[starts[number] : starts[number + 1]]
        assert of_source in (content, content + separator)  # it ends a text, and belongs to it
        assert of_source == "".join(p for p, at in zip(parts, places, strict=True) if at == number)


def test_a_long_text_has_no_more_spans_than_a_list_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SPAN", 10)
    monkeypatch.setattr(module, "MOST_SPANS", 7)
    found = spans(sources_of(tmp_path, ["x" * 1000]), "\n", [])
    assert [span.size for span in found] == [143] * 6 + [142]


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
def test_a_file_that_the_system_makes_up_is_read_although_it_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    sources = [Source(Path("/proc/self/environ"), "p"), Source(tmp_path / "a", "a")]
    made_up = Path("/proc/self/environ").read_bytes()
    whole = "".join(text_of(span) for span in spans(sources, "\n", []))
    assert whole.encode() in (made_up + b"\na", made_up + b"a")


SIZE_OF_A_PAGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(not SIZE_OF_A_PAGE.exists(), reason="reads /sys")
def test_a_file_whose_size_is_not_what_it_holds_is_read_to_its_end() -> None:
    assert SIZE_OF_A_PAGE.stat().st_size > len(SIZE_OF_A_PAGE.read_text())
    (span,) = spans([Source(SIZE_OF_A_PAGE, "p")], "\n", [])
    assert text_of(span) == SIZE_OF_A_PAGE.read_text()


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a device without an end")
def test_what_has_no_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD", 8)
    monkeypatch.setattr(module, "MOST_MADE_UP", 1000)
    with pytest.raises(TextError, match=r"^zero has no size; save it to a file first$"):
        spans([Source(Path("/dev/zero"), "zero")], "\n", [])


def test_a_file_that_shrinks_while_it_is_read_is_said(tmp_path: Path) -> None:
    (span,) = spans(sources_of(tmp_path, ["x" * 99]), "\n", [])
    os.truncate(tmp_path / "0", 50)
    for read in (lambda: list(span.chunks()), lambda: measured([span], "blake3")):
        with pytest.raises(TextError, match=r"^0 was changed while it was read; try again"):
            read()


def test_what_there_is_to_read_is_known_as_far_as_it_can_be(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, ["abc", "é"])
    assert total_bytes([*sources, Source(tmp_path / "missing", "missing")]) == 5
