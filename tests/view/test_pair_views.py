"""Views of a model with an encoder: rows and columns have the characters of their own texts."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from encoded import encoded_file

from gpt import load
from gpt.config import AttentionKind, Drawing, DrawnStage
from gpt.errors import ConfigError
from gpt.heads.attention_map import AttentionMap
from gpt.interface.trained import TrainedGPT
from gpt.view import exports
from gpt.view.figure.figure import draw
from gpt.view.notebook import attention as notebook
from gpt.view.selection import select
from gpt.view.terminal.attention import compare, render
from gpt.view.terminal.lines import Page

PAIR = "24 abc\t2-1"
READ, SOURCE = "\t2-1", "24 abc"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedGPT:
    return load(encoded_file(tmp_path_factory.mktemp("pairs") / "p.safetensors"))


@pytest.fixture(scope="module")
def cross(trained: TrainedGPT) -> AttentionMap:
    return trained.attn(PAIR)


def drawn(
    found: AttentionMap, view: Drawing, stage: DrawnStage = "weights", **part: str
) -> list[str]:
    selection = select(found, stage=stage, **part)
    return [line.plain for line in render(selection, view, Page(160))]


def test_numbers_have_the_targets_rows_and_the_sources_columns(cross: AttentionMap) -> None:
    title, _, positions, heading, *lines = drawn(cross, "numbers")
    assert title.startswith("cross-attention · layer 0 head 0 · weights · rows = target, ")
    assert "columns = source · T=4 · S=6" in title
    assert positions.split() == list("012345")
    assert heading.split() == ["2", "4", "␠", "a", "b", "c"]
    assert "each row is what the decoder reads; it predicts the character after it" in lines
    weights = cross.layers[0].weights[0]
    for row, (line, character) in enumerate(zip(lines, "⇥2-1", strict=False)):
        number, name, *cells = line.split()
        strongest = int(weights[row].argmax())
        assert (number, name, len(cells)) == (str(row), character, 9)
        assert cells[-2:] == [str(strongest), f"'{'24␠abc'[strongest]}'"]


def test_strongest_characters_are_the_sources(cross: AttentionMap) -> None:
    weights = cross.layers[0].weights[0]
    first = drawn(cross, "top", query="1")[2]
    strongest = int(weights[1].argmax())
    assert first.startswith(f"1 '2' ← {strongest} '{'24␠abc'[strongest]}' ")
    assert first.count("·") == 3  # three characters and the rest: none is masked
    assert any(line.split() == ["2", "4", "␠", "a", "b", "c"] for line in drawn(cross, "heat"))
    overview = drawn(cross, "heads", layer="all", head="all")
    assert overview[0].startswith("cross-attention · weights of every head · rows = target")


def test_ranges_count_in_their_own_text(cross: AttentionMap) -> None:
    selection = select(cross, key="4:6", query="3")
    np.testing.assert_array_equal(
        selection.panels()[0].values, cross.layers[0].weights[0, 3:4, 4:6]
    )
    with pytest.raises(ConfigError, match="query: '4:6' does not fit a text of 4 characters"):
        select(cross, query="4:6")
    with pytest.raises(ConfigError, match="head: rollout exists for self-attention only"):
        select(cross, head="rollout")


def test_the_encoders_rows_read_later_characters(trained: TrainedGPT) -> None:
    found = trained.attn(PAIR, attention="encoder")
    lines = drawn(found, "numbers")
    assert lines[0].startswith("encoder self-attention · ")
    assert len(lines[4].split()) == 2 + 6 + 3
    rows = list(csv.reader(io.StringIO(exports.to_csv([select(found)]))))
    assert len(rows) == 1 + 36


def test_two_models_are_compared_on_both_texts(cross: AttentionMap) -> None:
    sides = [select(cross, name=name) for name in ("one", "two")]
    lines = [line.plain for line in compare(sides, "auto", Page(160))]
    change = "mean change .00 · largest .00 at query 0 '⇥', key 0 '2'"
    assert change in lines


def test_csv_has_every_source_character_beside_each_row(cross: AttentionMap) -> None:
    rows = list(csv.reader(io.StringIO(exports.to_csv([select(cross)]))))
    assert rows[0] == ["layer", "head", "q_pos", "q_char", "k_pos", "k_char", "weight"]
    assert [(row[3], row[5]) for row in rows[1:]] == [(q, k) for q in READ for k in SOURCE]


def test_json_names_the_kind_and_both_texts(cross: AttentionMap, trained: TrainedGPT) -> None:
    document = json.loads(exports.to_json([exports.selection_record(select(cross), {})]))
    assert document["attention"] == "cross"
    assert (document["text"], document["columns"]) == (READ, SOURCE)
    assert document["column_ids"] == trained.vocabulary.encode(SOURCE).tolist()
    assert np.shape(document["values"]) == (1, 4, 6)


def test_npz_has_both_texts(cross: AttentionMap, tmp_path: Path) -> None:
    with np.load(cross.save(tmp_path / "a.npz")) as read:
        assert (str(read["text"]), str(read["columns"])) == (READ, SOURCE)
        assert read["column_codes"].tolist() == [ord(each) for each in SOURCE]
        np.testing.assert_array_equal(read["k"], np.stack([each.k for each in cross.layers]))
        assert read["weights"].shape == (2, 2, 4, 6)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_figures_say_what_a_row_of_cross_attention_predicts(
    cross: AttentionMap, trained: TrainedGPT, ascii_only: bool
) -> None:
    for found in (cross, trained.attn(PAIR, attention="decoder")):
        figure, _ = draw(select(found), ascii_only=ascii_only)
        said = "a row predicts the character after it" in "".join(
            x.get_text() for x in figure.texts
        )
        assert said == (found is cross)


def test_a_figure_has_labels_of_both_texts(cross: AttentionMap) -> None:
    figure, _ = draw(select(cross))
    axes = figure.axes[0]
    sides = axes.yaxis, axes.xaxis
    shown = ["".join(tick.get_text() for tick in axis.get_ticklabels()) for axis in sides]
    assert shown == ["⇥2-1", "24␣abc"]
    assert [axis.get_label_text() for axis in sides] == ["target", "source"]
    assert not axes.lines  # no key is masked
    assert "cross-attention" in figure.get_suptitle()


def test_a_notebook_shows_the_page(cross: AttentionMap) -> None:
    html = cross._repr_html_()
    title = html.partition("</p>")[0].partition('class="title">')[2]
    assert title.startswith("Cross-attention <span>of &#x27;\\t2-1&#x27; to &#x27;24 abc&#x27; · ")
    assert "<iframe" in html


@pytest.mark.parametrize("kind", get_args(AttentionKind))
def test_a_large_map_of_a_pair_fits_in_a_notebook(trained: TrainedGPT, kind: AttentionKind) -> None:
    found = trained.attn("24 abc\t2-1-2-1-2-1", attention=kind)
    whole, count = notebook._page(found, notebook.LIMIT)
    assert whole
    assert count == len(found.text)
    rooms = range(len(whole) - 500, 0, -500)
    smaller = (notebook._page(found, room) for room in rooms)
    page, shown = next((page, shown) for page, shown in smaller if shown < count)
    if kind == "encoder":  # whose first rows are not those of a shorter text
        assert page is None
    else:
        assert page
        assert 0 < shown < count
