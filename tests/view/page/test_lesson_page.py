"""A lesson's page: its rules give Python's numbers, its formulas are MathML, texts are texts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from javascript import JavaScript, JavaScriptError
from pages import HOSTILE, Document, payload_of
from ruled import evaluate, ruled

import gpt
from gpt.errors import ConfigError
from gpt.lessons import catalogue
from gpt.lessons.catalogue import LESSONS
from gpt.lessons.lesson import Lesson, Step, Table, digits_of
from gpt.view.mathml import mathml_of
from gpt.view.page.lesson import lesson_page, rule_tree

RULED = ("simple", "shiny", "trainable", "causal", "dropout", "multi-head", "positions", "cross")
RULED += ("sampling",)
OWN = ("of", "it's", "“x”", "of", "b")


@cache
def played(name: str, words: tuple[str, ...] | None = None) -> Lesson:
    return catalogue.make_lesson(name, catalogue.make_material(name, words))


@pytest.mark.parametrize("words", [None, ("a",), OWN], ids=["tutorial", "one", "own"])
@pytest.mark.parametrize("name", LESSONS)
def test_every_rule_gives_the_numbers_of_its_table_in_python_and_in_javascript(
    name: str, words: tuple[str, ...] | None, script: JavaScript
) -> None:
    found = [*ruled(played(name, words))]
    assert bool(found) == (name in RULED)
    for table, before in found:
        expected = table.values.ravel()
        by_python = np.array(evaluate(table.rule, before), np.float64).ravel()
        records = {key: {"shape": v.shape, "values": v.ravel() * 1.0} for key, v in before.items()}
        by_script = script("ruled", rule_tree(table.rule), records)
        for numbers in (by_python, by_script):
            np.testing.assert_allclose(
                numbers, expected, rtol=1e-12, atol=1e-12, err_msg=table.name
            )


@pytest.mark.parametrize(
    "rule",
    [
        "-x[1] - x[-1] * 2 / x[0]",
        "x[:2].T @ x[1:]",
        "x[:, None][:, 0] @ x.T",
        "y[:, :, ::2] @ y[1, :, 1::2].T",
        "y @ y.T / sqrt(3)",
        "x[:, 1] * x[:, 0][:, None]",
        "above(x, x[:1], columns(z, z, z))",
        "stack(z, interleave(z, z)[1:4])",
        "where(x >= 0, log(abs(x)), -inf) + max(x)[:, None] * cos(range(3))",
        "columns(before(z, z), before(z, 0 * z + 1), cumsum(z), z < 1, z == 1)",
        "(1 - 2 - 3) / 4 / 5 - -6",
    ],
)
def test_rules_have_pythons_precedence_slices_and_broadcasting(
    rule: str, script: JavaScript
) -> None:
    random = np.random.default_rng(0)
    tables = {"x": random.normal(size=(3, 3)), "y": random.normal(size=(2, 3, 4))}
    tables["z"] = np.array([1.0, 2.0, 1.0])
    records = {key: {"shape": v.shape, "values": v.ravel()} for key, v in tables.items()}
    with np.errstate(all="ignore"):
        expected = np.ravel(evaluate(rule, tables))
    np.testing.assert_allclose(
        script("ruled", rule_tree(rule), records), expected * 1.0, rtol=1e-14
    )


def test_what_is_no_rule_is_an_error(script: JavaScript) -> None:
    records = {"x": {"shape": (2,), "values": np.ones(2)}}
    for wrong in ("x +", "x y", "x[0", "(x", "x.S", "unknown", "hack(x)", "x @ range(3)", "x ** 2"):
        with pytest.raises((SyntaxError, ValueError, JavaScriptError)):
            script("ruled", rule_tree(wrong), records)


def test_the_page_writes_numbers_as_python_does(script: JavaScript) -> None:
    random = np.random.default_rng(1)
    values = np.concatenate(
        (
            random.normal(size=300) * 10.0 ** random.integers(-8, 5, 300),
            np.arange(-40, 40) / 32,  # ties
            [0.5, 1.5, 2.5, -0.00001, 0.0, -0.0, np.inf, -np.inf, 0.00015, 1.005, 123456.78905],
        )
    )
    for digits in (0, 1, 2, 4, 9):
        assert script("texts", values, digits) == [digits_of(each, digits) for each in values]


@pytest.mark.parametrize(
    ("guess", "value", "right", "said"),
    [
        ("0.9544", 0.95441, True, "✓ Right: 0.9544"),
        ("0,9544", 0.95441, True, "✓ Right: 0.9544"),
        (".95", 0.95441, True, "✓ Right to 2 digits: 0.9544"),
        ("0.954412", 0.95441, True, "✓ Right: 0.9544"),
        ("−1.50", -1.5, True, "✓ Right to 2 digits: −1.5000"),
        ("0.9543", 0.95441, False, "✗ 0.9543 is too small. Try again, or show it."),
        ("0.96", 0.95441, False, "✗ 0.96 is too large. Try again, or show it."),
        ("0.9500", 0.95441, False, "✗ 0.9500 is too small. Try again, or show it."),
        ("1", 0.95441, False, "Give 1 with at least 2 digits after the point."),
        ("one", 0.95441, False, "“one” is not a number."),
        ("1e3", 1000.0, False, "“1e3” is not a number."),
    ],
)
def test_a_guess_is_right_or_wrong_to_its_digits(
    guess: str, value: float, right: bool, said: str, script: JavaScript
) -> None:
    assert script("judged", guess, value, 4) == [right, said]


def test_a_whole_number_is_guessed_without_digits(script: JavaScript) -> None:
    assert script("judged", "3", 3, 0) == [True, "✓ Right: 3"]
    assert script("judged", "2", 3, 0)[0] is False


def formulas() -> list[str]:
    from gpt.lessons import own_model

    of_mine = [*own_model.NORM_FORMULA.values(), *own_model.ACTIVATION_FORMULA.values()]
    return of_mine + [step.formula for name in LESSONS for step in played(name).steps]


def test_formulas_of_all_lessons_are_well_formed_and_only_code_stays_text() -> None:
    texts, small = [], str.maketrans("ᵀᵗ²₁₂", "Tt212")
    for formula in formulas():
        read = ""
        for markup in mathml_of(formula):
            root = ElementTree.fromstring(markup)
            read += "".join(root.itertext())
            if root.tag == "code":
                texts.append(root.text or "")
            for element in root.iter():
                if element.tag in ("mfrac", "msub", "msup", "msubsup"):
                    assert len(element) == (3 if element.tag == "msubsup" else 2), markup
        signs, expected = (
            [each for each in text.translate(small) if each.isalnum()] for text in (read, formula)
        )
        assert signs == expected
    code = re.compile(r"\.(?!\d)|\*\*|#| \| ")
    assert texts
    assert all(code.search(text) for text in texts), texts


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("a / b", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (
            "(a + b) / √D",
            "<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow>"
            "<mrow><msqrt><mi>D</mi></msqrt></mrow></mfrac>",
        ),
        ("x[i, j]", "<msub><mi>x</mi><mrow><mi>i</mi><mo>,</mo><mi>j</mi></mrow></msub>"),
        ("W_key", "<msub><mi>W</mi><mi>key</mi></msub>"),
        ("W_keyᵀ", "<msubsup><mi>W</mi><mi>key</mi><mi>T</mi></msubsup>"),
        ("head_size", "<mi>head_size</mi>"),
        ("e^(2i)", "<msup><mi>e</mi><mrow><mn>2</mn><mi>i</mi></mrow></msup>"),
        ("Σ x²", "<mo>Σ</mo><msup><mi>x</mi><mi>2</mi></msup>"),
        (
            "t / s at t = 1",
            "<mfrac><mrow><mi>t</mi></mrow><mrow><mi>s</mi></mrow></mfrac>"
            '<mspace width="0.28em"></mspace><mi>at</mi><mspace width="0.28em"></mspace><mi>t</mi>'
            "<mo>=</mo><mn>1</mn>",
        ),
        ("t > s", "<mi>t</mi><mo>&gt;</mo><mi>s</mi>"),
    ],
)
def test_a_formula_becomes_mathematics(formula: str, expected: str) -> None:
    assert mathml_of(formula) == [f'<math display="block">{expected}</math>']


def test_several_formulas_are_separate_and_what_is_not_understood_is_a_text() -> None:
    assert len(mathml_of("a = b    c = d\ne")) == 3
    for unknown in ("x.shape", "a ** b", "(a", "a)", "a / ", "a[1", "f(x)    # why"):
        (markup,) = mathml_of(unknown)
        assert ElementTree.fromstring(markup).text == unknown.strip()


def tables_of(page: str) -> list[list[tuple[str, str]]]:
    """Of each step: the names of its tables and their roles."""
    figure = re.compile(r'<figure class="(\w+)" data-table="\d+" aria-label="([^"]*)"')
    steps = re.split("<section>", page)[1:]
    return [[(name, role) for role, name in figure.findall(step)] for step in steps]


def test_a_step_has_its_tables_and_the_earlier_ones_that_its_rules_use() -> None:
    lesson = played("simple")
    steps = tables_of(lesson_page([lesson]))
    assert steps[0] == [("inputs", "given")]
    assert steps[1] == [("inputs", "earlier"), ("scores of “journey”", "result")]
    assert steps[4][:2] == [("inputs", "earlier"), ("weights of “journey”", "earlier")]
    assert steps[6] == [("scores", "earlier"), ("weights", "result"), ("row sums", "result")]


def test_a_row_that_stands_for_others_has_nothing_to_guess() -> None:
    page = lesson_page([played("simple", tuple("abcdefghijklmn"))])
    assert '<th scope="row"><bdi>…</bdi></th><td>…</td>' in page
    places = re.findall('data-at="([^"]*)"', page)
    assert places
    assert all(place.isdigit() for place in places)


def test_the_page_has_the_numbers_of_tables_in_rules_and_every_text() -> None:
    lessons = [played(name) for name in ("simple", "positions", "learning")]
    page = lesson_page(lessons)
    records = payload_of(page)["tables"]
    tables = [table for each in lessons for step in each.steps for table in step.tables]
    used = {number for record in records.values() for number in record["uses"].values()}
    kept = {number for number, table in enumerate(tables) if table.rule or number in used}
    assert {int(number) for number in records} == kept
    for number, record in records.items():
        values = np.frombuffer(base64.b64decode(record["base64"]), "<f8")
        assert np.array_equal(values.reshape(record["shape"]), tables[int(number)].values)
    text = re.sub(r"<[^>]+>", "", page)
    for step in (step for lesson in lessons for step in lesson.steps):
        for said in (step.title, step.text, step.notice, *(check.name for check in step.checks)):
            assert said.replace("`", "").replace("<", "&lt;").replace(">", "&gt;") in (
                text.replace("&quot;", '"').replace("&#x27;", "'").replace("&amp;", "&")
            )
    assert "Sources: Gehring et al. 2017 · Haviv et al. 2022 · Lee et al. 2019" in page
    assert "Loshchilov &amp; Hutter 2019" in page
    assert "Rumelhart, Hinton &amp; Williams 1986" in page
    alone = Document(lesson_page([played("simple")], answers=True, start=3))
    assert '"answers":true,"start":3' in alone.texts["payload"]


def test_a_hostile_word_is_text_and_the_policy_allows_only_the_pages_own_program() -> None:
    values = np.array([[1.0, -np.inf], [np.nan, 2.0]])
    hostile = Table(HOSTILE, values, rows=(HOSTILE, "b"), columns=("a", HOSTILE))
    result = Table("result", values, rule=f"{hostile.key}")
    page = lesson_page(
        [Lesson("x", HOSTILE, (Step(HOSTILE, HOSTILE, HOSTILE, (hostile, result)),))]
    )
    document = Document(page)
    usual = Document(lesson_page([Lesson("x", "a", (Step("a", "a", "", (Table("a", values),)),))]))
    assert {tag for tag, _ in document.tags} - {tag for tag, _ in usual.tags} <= {"code", "math"}
    assert "\u202e" not in page
    for kind, directive in (("script", "script-src"), ("style", "style-src")):
        digest = base64.b64encode(hashlib.sha256(document.texts[kind].encode()).digest()).decode()
        policy = next(a["content"] for _, a in document.tags if "http-equiv" in a)
        assert policy
        assert f"{directive} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; ")
    addresses = [a for _, a in document.tags if {"src", "href", "action", "style"} & {*a}]
    assert addresses == [{"rel": "icon", "href": "data:,"}]
    assert not re.search(r"https?:", page)


def test_a_lesson_saves_its_page_and_no_other_format(tmp_path: Path) -> None:
    lesson = gpt.explain("shiny", seed=1)
    path = lesson.save(tmp_path / "shiny.html", answers=True)
    assert path.read_text("utf-8") == lesson_page([lesson], answers=True)
    with pytest.raises(ConfigError, match=r"shiny\.md does not end in \.html"):
        lesson.save(tmp_path / "shiny.md")
