"""The logit lens as a table, and its rows for programs."""

from __future__ import annotations

import pytest
from drawn import shown

from gpt.heads.next_character import Lens
from gpt.interface.trained import TrainedGPT
from gpt.view.records import to_record
from gpt.view.terminal.blocks import lines_of
from gpt.view.terminal.lines import Page


def lens(trained: TrainedGPT, text: str, most: int = 8) -> Lens:
    return trained.lens(trained.attn(text), most)


def test_each_lens_cell_is_the_likeliest_character_and_its_probability(trained: TrainedGPT) -> None:
    found, characters = lens(trained, "the cat"), trained.vocabulary.characters
    lines = shown(found.blocks(range(2, 5)), Page())
    assert lines[2].split() == ["after", "embedded", "layer", "0", "layer", "1"]
    for line, query in zip(lines[3:6], range(2, 5), strict=True):
        cells = line.split()[2:]
        for depth in range(3):
            name, chance = cells[2 * depth : 2 * depth + 2]
            assert characters[found.ids[depth, query, 0]] == {"␠": " ", "⏎": "\n"}.get(name, name)
            assert float(chance) == pytest.approx(found.probabilities[depth, query, 0], abs=0.0051)


def test_actual_next_character_is_bold_in_the_lens(trained: TrainedGPT) -> None:
    text = "the cat sat on"
    found = lens(trained, text)
    for query, line in enumerate(lines_of(found.blocks(), Page())[3:16]):
        comes = [
            trained.vocabulary.characters[found.ids[depth, query, 0]] == text[query + 1]
            for depth in range(3)
        ]
        styles = [span.style for span in line.spans if span.style in ("bold", "dim")]
        assert [style == "bold" for style in styles] == comes


@pytest.mark.parametrize("width", [40, 80])
def test_lines_fit_the_page_in_ascii_too(trained: TrainedGPT, width: int) -> None:
    assert shown(lens(trained, "the cat sat\non").blocks(), Page(width, ascii_only=True))


def test_lens_rows_have_ranks_at_every_depth_and_position(trained: TrainedGPT) -> None:
    found = lens(trained, "the cat", most=4)
    rows = to_record(found.records(), {})["rows"]
    assert len(rows) == 3 * 7 * 4
    last = [row["probability"] for row in rows if (row["depth"], row["position"]) == (2, 6)]
    assert last == pytest.approx(found.probabilities[-1, -1])
