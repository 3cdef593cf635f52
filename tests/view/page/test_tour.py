"""Tours of live pages: which one a page has, and what is wrong with a text."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import train_tiny
from pages import HOSTILE, payload_of

import gpt
from gpt.errors import ConfigError
from gpt.interface.trained import TrainedGPT
from gpt.view.page.tour import LONGEST, TOURS, tour_of, tour_problem


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return gpt.load(train_tiny(tmp_path_factory.mktemp("tour")).path.parent)


def model_of(*sources: str) -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(corpus=SimpleNamespace(sources=sources)))


@pytest.mark.parametrize(
    ("model", "begin"),
    [
        (model_of("repeats"), "# Which head copies?\n"),
        (model_of("other.txt"), ""),
        (model_of("repeats", "other.txt"), ""),
        (SimpleNamespace(), ""),
    ],
)
def test_a_run_of_repeats_has_the_tour_of_its_corpus(model: Any, begin: str) -> None:
    text = tour_of(model, None)
    assert text[: text.find("\n") + 1] == begin
    assert tour_of(model, Path("none")) == ""


def test_the_built_in_tour_is_right_and_contains_no_measured_number() -> None:
    text = (TOURS / "repeats.md").read_text("utf-8")
    assert tour_problem(text) == ""
    assert 8 <= text.count("\n## ") <= 10
    assert text.count("\n? ") == text.count("\n! ") == text.count("\n## ")
    captions = [line for line in text.splitlines() if not line.startswith(("see:", "#"))]
    assert not [line for line in captions if "0." in line or "%" in line or "H1" in line]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("## A\nsee: layer=1&off=induction&temperature=1\n? Why?\nsee: rows=0.1:2:1=1\n! So.", ""),
        ("see: text=a=b%26c&top_k=\n\n## A\n", ""),
        ("# Only a title\nsee: layer=1\n", "it has no stop: begin one with a line such as ##"),
        ("", "it has no stop"),
        (
            "## A\r\nsee: layer=1\r\nsee: hed=2",
            "line 3: no setting 'hed'; there are text, ",
        ),
        ("## A\nsee:\nsee: stop=2", "line 3: no setting 'stop'"),
        ("## A\nsee: <b>", "line 2: no setting '<b>'"),
        ("## A" + "a" * LONGEST, "it has more than 100,000 characters: shorten it"),
    ],
)
def test_a_text_that_is_no_tour_is_refused_with_the_line(text: str, problem: str) -> None:
    found = tour_problem(text)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)
    assert "\n" not in found


def test_a_page_has_the_tour_of_a_file_as_data(run: TrainedGPT, tmp_path: Path) -> None:
    file = tmp_path / "tour.md"
    text = f"\ufeff## {HOSTILE}\nsee: layer=1\n"
    file.write_text(text, "utf-8", newline="")
    html = run.live(tmp_path / "page.html", tour=file).read_text("utf-8")
    assert payload_of(html)["tour"] == text.removeprefix("\ufeff")
    assert "hacked" in html
    assert "<img src=x" not in html
    assert payload_of(run.live(tmp_path / "page.html").read_text("utf-8"))["tour"] == ""


def test_a_file_that_cannot_be_a_tour_is_refused_in_one_line(
    run: TrainedGPT, tmp_path: Path
) -> None:
    file, page = tmp_path / "tour.md", tmp_path / "page.html"
    file.write_bytes(b"## caf\xe9\n")
    for tour, reason in (
        (file, "not UTF-8, from byte 6 on: save it as UTF-8"),
        (str(file), "not UTF-8, from byte 6 on: save it as UTF-8"),
        (tmp_path, "cannot be read: "),
        (tmp_path / "missing.md", "No such file or directory"),
        ("a\0b", "cannot be read: "),
        (os.devnull, "it has no stop"),
    ):
        with pytest.raises(ConfigError) as caught:
            run.live(page, tour=tour)
        assert str(caught.value).startswith("tour: ")
        assert reason in str(caught.value)
        assert "\n" not in str(caught.value)
    file.write_text("## A\nsee: heads=1\n", "utf-8")
    with pytest.raises(ConfigError, match=r"tour.md: line 2: no setting 'heads'"):
        run.live(page, tour=file)
    assert not page.exists()
