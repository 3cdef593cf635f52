"""Values reach JavaScript and come back unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from javascript import TYPED, JavaScript, JavaScriptError


@pytest.fixture(scope="module")
def script() -> Iterator[JavaScript]:
    with JavaScript(Path(__file__).with_suffix(".js")) as running:
        yield running


@pytest.mark.parametrize("name", TYPED)
def test_arrays_become_typed_arrays_and_come_back(script: JavaScript, name: str) -> None:
    array = np.arange(6).astype(name).reshape(2, 3)
    assert script("nameOf", array) == TYPED[name]
    back = script("same", {"inside": [array]})["inside"][0]
    assert back.dtype == array.dtype
    assert np.array_equal(back, array.ravel())


def test_texts_and_numbers_come_back(script: JavaScript) -> None:
    value = ["é\n\u2028😀", 0.1, None, {"a": [True, -5]}]
    assert script("same", value) == value
    assert script("total", [np.int64(1), np.float32(0.5)]) == 1.5
    assert script("same", None) is None


def test_a_long_text_comes_back(script: JavaScript) -> None:
    text = "é" * 500_000
    assert script("same", text) == text


def test_an_error_has_the_message_of_javascript(script: JavaScript) -> None:
    with pytest.raises(JavaScriptError, match=r"^not this one$"):
        script("fail", "not this one")
    assert script("total", [1, 2]) == 3
