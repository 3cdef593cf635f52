"""Joined texts: whole characters at any chunk size, separators between texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from blake3 import blake3
from conftest import sources_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.corpus import sources as module
from gpt.corpus.sources import JoinedText, measure_text

#: The BLAKE3 of "abc", of the authors of BLAKE3.
ABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"


def joined(contents: Sequence[str], separator: str) -> str:
    """The texts that are not empty, with separators between them."""
    result, last = "", None
    for content in filter(None, contents):
        if last is not None and not last.endswith(separator):
            result += separator
        result, last = result + content, content
    return result


@settings(deadline=None, max_examples=120)
@given(
    contents=st.lists(st.text("a\n-é東😀", max_size=12), max_size=5),
    separator=st.sampled_from(["\n", "\n\n", "", "--", "é", "\n-\n", "😀"]),
    chunk=st.integers(4, 9),
    training=st.integers(0, 6),
)
@example(contents=["a\n", "b"], separator="\n\n", chunk=4, training=1)
@example(contents=["\n", "\n"], separator="\n\n", chunk=4, training=2)
def test_texts_are_separated_hashed_and_counted(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[str],
    separator: str,
    chunk: int,
    training: int,
) -> None:
    sources = sources_of(tmp_path_factory.mktemp("texts"), *contents)
    whole = joined(contents, separator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        joined_text = JoinedText(sources, separator)
        chunks = list(joined_text.chunks())
        progress: list[float] = []
        text = measure_text(joined_text, training, progress.append)
    parts = ["".join(map(chr, points)) for _, _, points in chunks]
    assert "".join(parts) == whole
    assert [data.decode() for _, data, _ in chunks] == parts
    assert text.digest == blake3(whole.encode()).hexdigest()
    assert progress == sorted(progress)
    assert not whole or progress[-1] == 1
    places = [number for number, _, _ in chunks]
    assert places == sorted(places)
    assert (text.starts[0], text.starts[-1]) == (0, len(whole))
    for number, content in enumerate(contents):
        of_source = whole[text.starts[number] : text.starts[number + 1]]
        assert of_source in (content, content + separator)  # a final separator belongs to its text
        assert of_source == "".join(p for p, at in zip(parts, places, strict=True) if at == number)
    border = text.starts[min(training, len(contents))]
    for part, counts in zip((whole[:border], whole[border:]), text.counts, strict=True):
        assert {chr(n): int(counts[n]) for n in counts.nonzero()[0]} == Counter(part)


def test_a_digest_is_the_blake3_of_all_texts(tmp_path: Path) -> None:
    assert measure_text(JoinedText(sources_of(tmp_path, "a", "bc"))).digest == ABC
