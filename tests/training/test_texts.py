"""Texts as one stream: whole characters whatever the chunks, a separator only where one is due."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.training import texts as module
from gpt.training.sources import Source
from gpt.training.texts import pieces, total_bytes


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


@settings(deadline=None, max_examples=150)
@given(
    contents=st.lists(st.text("a\n-é東😀", max_size=6), max_size=5),
    separator=st.sampled_from(["\n", "\n\n", "", "--", "é", "\n-\n", "😀"]),
    chunk=st.integers(1, 9),
)
@example(contents=["a\n", "b"], separator="\n\n", chunk=1)
@example(contents=["\n", "\n"], separator="\n\n", chunk=1)  # of two texts, not the end of one
def test_texts_are_separated_unless_the_first_ends_so(
    tmp_path_factory: pytest.TempPathFactory, contents: list[str], separator: str, chunk: int
) -> None:
    sources = sources_of(tmp_path_factory.mktemp("texts"), contents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        found = list(pieces(sources, separator, []))
    assert "".join(piece.text for piece in found) == joined(contents, separator)
    assert all(piece.text and piece.data == piece.text.encode() for piece in found)
    places = [piece.source for piece in found]
    assert places == sorted(places)
    for number, content in enumerate(contents):
        of_source = "".join(piece.text for piece in found if piece.source == number)
        assert of_source in (content, content + separator)  # it ends a text, and belongs to it


def test_what_there_is_to_read_is_known_as_far_as_it_can_be(tmp_path: Path) -> None:
    sources = sources_of(tmp_path, ["abc", "é"])
    assert total_bytes([*sources, Source(tmp_path / "missing", "missing")]) == 5
