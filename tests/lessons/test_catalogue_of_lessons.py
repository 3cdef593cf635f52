"""Lessons with the user's words and numbers: every check passes for any input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpt
from gpt.errors import ConfigError
from gpt.lessons.catalogue import ABOUT, LESSONS, OWN_ROWS, make_lesson, make_material
from gpt.lessons.lesson import LARGEST, MOST_ROWS, Material, Table

each_lesson = pytest.mark.parametrize("name", LESSONS)


@each_lesson
def test_each_lesson_passes_its_checks(name: str) -> None:
    told = make_lesson(name)  # type: ignore[arg-type]
    assert told.failed == []
    assert sum(len(step.checks) for step in told.steps) >= 3
    assert told.about == ABOUT[name]  # type: ignore[index]
    names = [table.name for step in told.steps for table in step.tables]
    assert len(names) == len(set(names)), "a table is found by its name"


@each_lesson
@settings(max_examples=8, deadline=None)
@given(
    rows=st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(st.floats(-LARGEST, LARGEST), min_size=width, max_size=width),
            min_size=1,
            max_size=5,
        )
    ),
    seed=st.integers(0, 2**63 - 1),
)
def test_checks_pass_for_any_embeddings(name: str, rows: list[list[float]], seed: int) -> None:
    told = make_lesson(name, make_material(name, rows=rows, seed=seed))  # type: ignore[arg-type]
    assert told.failed == []


@each_lesson
@pytest.mark.parametrize("words", [["a"], ["the", "cat", "the"], list("日本語"), ["👩", "é", "|"]])
def test_any_words_become_row_labels(name: str, words: list[str]) -> None:
    told = make_lesson(name, make_material(name, words=words))  # type: ignore[arg-type]
    assert told.failed == []
    labelled = [table.rows for step in told.steps for table in step.tables if table.rows]
    assert tuple(words) in labelled


def test_equal_words_have_equal_random_rows_and_another_seed_other_rows() -> None:
    first = make_material("simple", words=["the", "cat", "the"]).embeddings
    np.testing.assert_array_equal(first[0], first[2])
    assert (first[0] != first[1]).any()
    assert first.shape == (3, 3)
    again = make_material("simple", words=["the", "cat"]).embeddings
    np.testing.assert_array_equal(again, first[:2])
    assert (make_material("simple", words=["the"], seed=9).embeddings != first[0]).any()


def test_seed_changes_only_random_numbers() -> None:
    def value(name: str, table: str, seed: int | None) -> np.ndarray:  # type: ignore[type-arg]
        told = make_lesson(name, make_material(name, seed=seed))  # type: ignore[arg-type]
        return next(t.values for step in told.steps for t in step.tables if t.name == table)

    for name, table in (
        ("trainable", "W_query"),
        ("causal", "causal weights"),
        ("dropout", "dropout of ones"),
        ("multi-head", "contexts side by side"),
        ("mistakes", "weights, repaired"),
        ("learning", "∂W_output"),
        ("depth", "scores of b"),
        ("cross", "target"),
        ("encoder-decoder", "memory"),
    ):
        assert (value(name, table, 5) != value(name, table, None)).any(), name
        np.testing.assert_array_equal(value(name, table, 5), value(name, table, 5))
    np.testing.assert_array_equal(value("simple", "weights", 5), value("simple", "weights", None))


def test_weights_all_in_the_future_give_a_notice_instead_of_a_quotient() -> None:
    told = make_lesson("causal", make_material("causal", rows=[[53.0], [0.0]], seed=0))
    notices = [step.notice for step in told.steps if "belonged to later words" in step.notice]
    assert notices
    usual = make_lesson("causal")
    assert not any("belonged to later words" in step.notice for step in usual.steps)
    assert "three ways, one result" in [c.name for step in usual.steps for c in step.checks]


@each_lesson
def test_note_names_the_seed_of_random_rows(name: str) -> None:
    def note(**played_with: object) -> str:
        return make_lesson(name, make_material(name, **played_with)).note  # type: ignore[arg-type]

    its_own = name in OWN_ROWS
    for seed, told in ((None, "seed 0,"), (7, "seed 7,")):
        assert (told in note(words=["the", "cat"], seed=seed)) is not its_own
    assert note() == note(seed=7) == note(rows=[[1.0], [2.0]]) == ""


@pytest.mark.parametrize(
    ("words", "title"),
    [(["a"], "One word"), (["a", "b"], "2 characters"), (["a", "cat", "b", "c"], "4 words")],
)
def test_title_of_shiny_counts_the_users_words(words: list[str], title: str) -> None:
    told = make_lesson("shiny", make_material("shiny", words=words))
    assert told.steps[0].title == title
    assert "Hello" not in told.about
    assert make_lesson("shiny").steps[0].title == "Three words"
    assert "Hello" in make_lesson("shiny").about


def test_scores_with_sum_0_give_a_notice_instead_of_a_quotient() -> None:
    for rows in ([[1.0], [2.0], [-3.0]], [[0.1], [0.2], [-0.3]], [[0.0]]):
        step = make_lesson("simple", make_material("simple", rows=rows)).steps[2]
        assert "sum is 0" in step.notice
        assert step.tables == ()
    step = make_lesson("simple", make_material("simple", rows=[[1.0], [2.0], [-2.0]])).steps[2]
    assert "no shares" in step.notice
    assert len(step.tables) == 1


def test_last_step_of_dropout_mentions_other_machines_masks() -> None:
    *earlier, last = make_lesson("dropout").steps
    assert "MKL" in last.notice
    assert not any("MKL" in each.text + each.notice for each in earlier)


def test_rows_without_words_are_named_x1_x2() -> None:
    assert make_material("simple", rows=[[1.0], [2.0]]).words == ("x1", "x2")


@pytest.mark.parametrize(
    ("words", "rows", "problem"),
    [
        (["a", "b"], [[1.0]], "^embeddings: 1 rows for 2 words"),
        (["a"] * (MOST_ROWS + 1), None, f"^text: {MOST_ROWS + 1} words"),
        (None, [[1.0] * (MOST_ROWS + 1)], f"^embeddings: {MOST_ROWS + 1} numbers in a row"),
        (None, [[float("nan")]], "not finite"),
        (None, [[LARGEST * 2]], "beyond ±1,000"),
    ],
)
def test_invalid_words_and_numbers_are_refused(
    words: list[str] | None, rows: list[list[float]] | None, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_material("simple", words, rows)


def test_table_with_too_few_labels_raises_an_error() -> None:
    values = np.zeros((2, 3))
    Table("fits", values, ("a", "b"), ("x", "y", "z"))
    with pytest.raises(ValueError, match="1 labels for 2"):
        Table("rows", values, ("a",))
    with pytest.raises(ValueError, match="2 labels for 3"):
        Table("columns", values, (), ("x", "y"))
    with pytest.raises(ValueError, match="is no table"):
        Table("deep", np.zeros((1, 1, 1, 1)))


def test_query_is_the_second_word_or_the_only_one() -> None:
    assert Material(("a", "b"), np.zeros((2, 1))).query == 1
    assert Material(("a",), np.zeros((1, 1))).query == 0


def test_python_gives_the_lessons_of_the_command() -> None:
    told = gpt.explain("simple", "the cat", embeddings=[[1.0, 0.0], [0.0, 2.0]])
    assert told.steps[0].tables[0].rows == ("the", "cat")
    assert repr(gpt.explain("causal", "日本", seed=3)) == repr(
        make_lesson("causal", make_material("causal", [*"日本"], None, 3))
    )
    assert told._repr_html_()
    with pytest.raises(
        ConfigError, match="'causel' is not one of the lessons; did you mean causal"
    ):
        gpt.explain("causel")
    with pytest.raises(ConfigError, match="mistakes generates its own"):
        gpt.explain("mistakes", "a b", embeddings=[[1.0], [2.0]])
