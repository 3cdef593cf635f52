"""Sources equal an exhaustive search: maximal passages, their lines, and a cover by the longest."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt.blocks import Fold, Passage, Table
from gpt.reading import novelty as module
from gpt.reading.novelty import Source, sources
from gpt.reading.sampler import Sample
from gpt.vocabulary import Vocabulary

LETTERS = st.text(alphabet="abé東\U0001f600\n", max_size=30)
KNOWN = Vocabulary.from_text("abé東\U0001f600\n cdehnorty")


def maximal(text: str, other: str, least: int) -> set[tuple[int, int]]:
    """(start, end) of the substrings that occur and are in no longer one that does."""
    size = len(text)
    spans = [(s, e) for s in range(size) for e in range(s + least, size + 1) if text[s:e] in other]
    return {
        (s, e) for s, e in spans if not any(a <= s < e <= b for a, b in spans if (a, b) != (s, e))
    }


@settings(deadline=None, max_examples=300)
@given(LETTERS, LETTERS, st.integers(1, 4))
@example("aaaa", "aaaaaaa", 2)
@example("abab", "ab\nbab", 1)
@example("", "a", 1)
@example("a", "", 1)
def test_passages_are_maximal_and_cover_all_that_occurs(text: str, other: str, least: int) -> None:
    ids = KNOWN.encode(other)
    (found,) = sources([text], ids, ids[:0], KNOWN, least)
    spans = maximal(text, other, least)
    kept = [(each.start, each.start + len(each)) for each in found.passages]
    assert set(kept) <= spans
    assert {n for span in kept for n in range(*span)} == {n for span in spans for n in range(*span)}
    lengths = [end - start for start, end in kept]
    assert lengths == sorted(lengths, reverse=True)
    for start, end in spans - set(kept):  # longer ones, or as long ones, cover what is left out
        others = {n for a, b in kept if b - a >= end - start for n in range(a, b)}
        assert {*range(start, end)} <= others
    covered = len({n for span in spans for n in range(*span)})
    assert math.isclose(found.covered, covered / len(text) if text else 0)
    for each in found.passages:
        assert each.text == text[each.start : each.start + len(each)]
        assert each.at == other.index(each.text)
        assert each.times == sum(other.startswith(each.text, at) for at in range(len(other)))
        assert other[: each.at].count("\n") + 1 == each.line
        assert each.last_line == each.line + each.text[:-1].count("\n")
        whole = other[max(0, each.at - 30) : each.at + len(each) + 30]
        assert each.before + each.text + each.after == whole


def test_equal_hashes_are_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_powers", lambda base, count: np.ones(count, "u8"))
    ids = KNOWN.encode("ab")
    assert (
        sources(["ba"], ids, ids, KNOWN, 2)[0].passages == ()
    )  # the sum of their ids is one number


def test_the_prompt_is_not_searched_and_each_character_names_its_longest_passage() -> None:
    train = KNOWN.encode("on the\nred hat, not here".replace(",", ""))
    sample = Sample("the ", "red hat the\nt ")
    (found,) = sources([sample], train, train[:9], KNOWN, 3)
    assert [(each.text, each.start) for each in found.passages] == [
        ("red hat ", 4),
        (" the\n", 11),
    ]
    shown = next(block for block in found.blocks() if isinstance(block, Passage))
    assert [shown.value(n) for n in (3, 4, 11, 12, 15)] == [
        pytest.approx(each, nan_ok=True) for each in (math.nan, 2, 2, 5 / 4, 5 / 4)
    ]
    assert shown.hints[:4] == ["the prompt"] * 4
    assert shown.hints[11] == "line 2, 1 time: on the⏎[red hat ]not here"
    assert shown.hints[12].startswith("line 1, 1 time: on[ the⏎]red hat")
    assert shown.hints[16] == "not in the training text"
    (fold,) = (block for block in found.blocks(most=1) if isinstance(block, Fold))
    (table,) = fold.blocks
    assert isinstance(table, Table)
    assert [cell.text for cell in table.rows[0]][:4] == ["8", "4", "2", "1"]
    assert len(table.rows) == 1
    assert found.records().columns["start"] == [4, 11]
    assert "[red hat ]" in str(found._repr_html_())


def test_the_usual_share_is_measured_on_the_validation_text() -> None:
    train = KNOWN.encode("to be or not to be")
    (found,) = sources(["ba"], train, KNOWN.encode("to be\n" * 100), KNOWN, 2)
    assert (found.covered, found.median, found.largest) == (0, 1, 1)
    (long,) = sources(["b" * 600], train, KNOWN.encode("to be\n" * 200), KNOWN, 3)
    assert long.median == pytest.approx(5 / 6, abs=0.02)


def test_a_copy_of_the_whole_text_is_one_passage() -> None:
    words = np.random.default_rng(0).choice(list("abcd ehno\n"), 20_000)
    text = "".join(words)
    (found,) = sources([text[5000:9000]], KNOWN.encode(text), KNOWN.encode(text[:300]), KNOWN)
    (one,) = found.passages
    assert (one.at, len(one), one.times, one.before) == (5000, 4000, 1, text[4970:5000])
    assert isinstance(one, Source)
