"""The figure of the logit lens: the likeliest character, its shade and its mark in each cell."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt.characters import SPACE
from gpt.errors import ConfigError
from gpt.heads.next_character import Lens
from gpt.view.figure.lens import LINE, draw

SHOWN = {" ": SPACE, "\n": "⏎"}


def lens_of(text: str, depths: int = 3, seed: int = 1) -> Lens:
    """Random guesses among the characters of a text."""
    random, characters = np.random.default_rng(seed), "".join(sorted(set(text)))
    ids = random.integers(len(characters), size=(depths, len(text), 2))
    return Lens(ids, random.random(ids.shape), text, characters)


def panels(figure: Figure) -> list[Axes]:
    """The axes without that of the colour bar."""
    return figure.axes[:-1]


def columns(axes: Axes) -> list[str]:
    return [tick.get_text() for tick in axes.get_xticklabels()]


def underlined(axes: Axes) -> set[tuple[int, int]]:
    """(row, column) of the cells with a line."""
    return {(int(line.get_ydata()[0]), round(np.mean(line.get_xdata()))) for line in axes.lines}  # type: ignore[arg-type,index]


def shades(axes: Axes) -> Any:
    """The probabilities that are drawn; NaN: none."""
    found = axes.images[0].get_array()
    assert found is not None
    return np.ma.filled(found, np.nan)


def test_a_cell_is_the_likeliest_character_shaded_and_underlined_if_the_text_has_it() -> None:
    text = "aba ab\naabb ab"
    lens = lens_of(text)
    (axes,) = panels(draw({"a run": lens})[0])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [
        "embedding",
        "layer 0",
        "layer 1",
    ]
    assert columns(axes) == [SHOWN.get(each, each) for each in text]
    np.testing.assert_array_equal(shades(axes), lens.probabilities[..., 0])
    assert len(axes.texts) == 3 * len(text)
    comes = set()
    for cell in axes.texts:
        column, row = map(int, cell.get_position())
        guess = lens.characters[lens.ids[row, column, 0]]
        assert cell.get_text() == SHOWN.get(guess, guess)
        if text[column + 1 : column + 2] == guess:
            comes.add((row, column))
    assert underlined(axes) == comes != set()


def test_a_long_text_goes_on_in_the_next_panel_and_checkpoints_stand_below_each_other() -> None:
    text = "ab" * LINE
    lenses = {"step 0": lens_of(text, seed=1), "step 9": lens_of(text, depths=4, seed=2)}
    chosen = range(3, LINE + 8)
    found = panels(draw(lenses, chosen)[0])
    ranges = [f"characters 3 to {LINE + 2}", f"characters {LINE + 3} to {LINE + 7}"]
    titles = [f"{name} · {part}" for name in lenses for part in ranges]
    assert [axes.get_title() for axes in found] == titles
    assert ["".join(columns(axes)) for axes in found] == [
        text[3 : LINE + 3],
        text[LINE + 3 : LINE + 8],
    ] * 2
    late = lenses["step 9"].probabilities[:, LINE + 3 : LINE + 8, 0]
    np.testing.assert_array_equal(shades(found[3])[:, :5], late)
    assert np.isnan(shades(found[3])[:, 5:]).all()
    assert np.isnan(shades(found[0])[3]).all()  # the first model has a layer less


def test_labels_are_ascii_on_request() -> None:
    (axes,) = panels(draw({"": lens_of("a\nb a")}, ascii_only=True)[0])
    assert columns(axes) == ["a", "\\n", "b", "\\s", "a"]


def test_save_writes_the_figure_and_refuses_other_endings(tmp_path: Path) -> None:
    lens = lens_of("the cat")
    for ending, start in {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}.items():
        path = lens.save(tmp_path / f"lens.{ending}")
        assert path.read_bytes().startswith(start)
    assert ElementTree.parse(tmp_path / "lens.svg").getroot().tag.endswith("svg")
    with pytest.raises(ConfigError, match=r"lens.txt does not end in .svg, .pdf or .png"):
        lens.save(tmp_path / "lens.txt")


def test_labels_of_any_characters_stay_between_their_panels() -> None:
    figure, warnings = draw({"": lens_of("ab\ue000\x00 \n" * 12)})  # labelled a, b, U+E000 …
    assert warnings == []
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in panels(figure)]
    assert len(boxes) == 3
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    whole = figure.bbox
    assert all(whole.y0 <= box.y0 < box.y1 <= whole.y1 for box in boxes)
    assert f"T=72 · {SPACE} space · ⏎ newline" in [text.get_text() for text in figure.texts]
