"""The logit lens in the terminal and as JSON."""

from __future__ import annotations

import pytest
from drawn import drawn

from gpt.storage.checkpoint import Checkpoint
from gpt.trained import TrainedGPT
from gpt.view.selection import Selection, select
from gpt.view.terminal.lines import Page
from gpt.view.terminal.next_character import lens_lines, lens_record


@pytest.fixture
def trained(tiny: Checkpoint) -> TrainedGPT:
    return TrainedGPT(tiny.model())


def look(trained: TrainedGPT, text: str, query: str | None = None) -> Selection:
    return select(trained.attention(text), query=query)


def test_each_lens_cell_is_the_likeliest_character_and_its_probability(trained: TrainedGPT) -> None:
    chosen = look(trained, "the cat", "2:5")
    lens, characters = trained.lens(chosen.attention), trained.vocabulary.characters
    lines = [line.plain for line in lens_lines(chosen, lens, characters, Page())]
    assert lines[2].split() == ["embedded", "layer", "0", "layer", "1"]
    for line, query in zip(lines[3:6], range(2, 5), strict=True):
        cells = line.split()[2:]
        for depth in range(3):
            name, chance = cells[2 * depth : 2 * depth + 2]
            assert characters[lens.ids[depth, query, 0]] == {"␠": " ", "⏎": "\n"}.get(name, name)
            assert float(chance) == pytest.approx(lens.probabilities[depth, query, 0], abs=0.0051)


def test_actual_next_character_is_bold_in_the_lens(trained: TrainedGPT) -> None:
    chosen = look(trained, "the cat sat on")
    lens = trained.lens(chosen.attention)
    lines = lens_lines(chosen, lens, trained.vocabulary.characters, Page())[3:17]
    for query, line in enumerate(lines[:-1]):
        comes = [lens.ids[depth, query, 0] == chosen.attention.ids[query + 1] for depth in range(3)]
        bold = [bool(span.style.bold) for span in line.spans[-3:]]  # type: ignore[union-attr]
        assert bold == comes


@pytest.mark.parametrize("width", [40, 80])
def test_lines_fit_the_page_in_ascii_too(trained: TrainedGPT, width: int) -> None:
    chosen, page = look(trained, "the cat sat\non"), Page(width, ascii_only=True)
    lens = trained.lens(chosen.attention)
    assert drawn(lens_lines(chosen, lens, trained.vocabulary.characters, page), page)


def test_lens_json_has_ranks_at_every_depth_and_position(trained: TrainedGPT) -> None:
    lens = trained.lens(trained.attention("the cat"), most=4)
    record = lens_record(lens, trained.vocabulary.characters)
    assert (len(record), len(record[0]), len(record[0][0])) == (3, 7, 4)
    last = record[-1][-1]
    assert [each["probability"] for each in last] == pytest.approx(lens.probabilities[-1, -1])
