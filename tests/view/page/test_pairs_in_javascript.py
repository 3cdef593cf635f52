"""The page of a model with an encoder: its JavaScript computes the map's stages of each kind."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from encoded import encoded_file
from javascript import JavaScript
from pages import payload_of

from gpt import load
from gpt.config import AttentionKind, DrawnStage
from gpt.config.model import HEAD_STAGES, SQUARE
from gpt.heads.attention_map import AttentionMap
from gpt.heads.measures import StartHead
from gpt.view.page.page import build_page, make_subject

PAIR = "24 abc\t2-1"
KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[AttentionMap, Any]]:
    """The map of each kind of attention, and the data of its page; "normed": of cross-attention in
    a model with a norm after each block.
    """
    path, found = tmp_path_factory.mktemp("pairs") / "p.safetensors", {}
    for name in (*KINDS, "normed"):
        model = load(encoded_file(path, post_norm=name == "normed"))
        one = model.attn(PAIR, attention="cross" if name == "normed" else name)  # type: ignore[arg-type]
        found[name] = one, payload_of(build_page([make_subject(one)], StartHead(), "pair"))
    return found


@pytest.mark.parametrize("kind", [*KINDS, "normed"])
def test_the_page_has_every_stage_of_every_kind(
    script: JavaScript, pages: dict[str, tuple[AttentionMap, Any]], kind: str
) -> None:
    found, page = pages[kind]
    for stage in get_args(DrawnStage):
        for layer, head in ((0, 0), (1, 1)):
            state = {"stage": stage, "layer": layer, "head": head}
            read = script("matrix", page, state)
            expected = found[stage, layer, head if stage in HEAD_STAGES else None]
            assert (read["rows"], read["columns"]) == expected.shape
            values = read["values"].reshape(expected.shape)
            np.testing.assert_allclose(values, expected, rtol=0, atol=2e-5, err_msg=stage)
            causal = kind == "decoder" and stage in ("weights", "masked")
            assert read["causal"] == causal
            assert read["keys"] == (stage in SQUARE)
    context = script("sum", page, {"stage": "context"}, 2, 5)
    assert context["value"] == pytest.approx(found["context", 0, 0][2, 5], abs=1e-5)
    keys = found.columns[:3] if kind == "decoder" else found.columns
    assert context["names"] == list(keys.replace("\t", "⇥").replace(" ", "␣"))
    score = script("sum", page, {"stage": "weights"}, 2, 1)
    assert score["value"] == pytest.approx(found["scores", 0, 0][2, 1], abs=1e-5)


def test_rollout_is_the_maps_in_the_encoder_and_refused_for_two_texts(
    script: JavaScript, pages: dict[str, tuple[AttentionMap, Any]]
) -> None:
    found, page = pages["encoder"]
    read = script("matrix", page, {"view": "rollout", "layer": 2})
    np.testing.assert_allclose(read["values"].reshape(6, 6), found.rollout(2), atol=1e-6)
    refused = script("matrix", pages["cross"][1], {"view": "rollout", "layer": 1})
    assert refused == "Rollout exists for self-attention only."


def test_a_pinned_cell_lies_within_both_texts_which_the_data_names(
    script: JavaScript, pages: dict[str, tuple[AttentionMap, Any]]
) -> None:
    for kind, cell, kept in (
        ("cross", [1, 5], True),
        ("cross", [3, 6], False),  # the source has 6 characters
        ("cross", [4, 0], False),  # the decoder reads 4
        ("encoder", [1, 5], True),
        ("decoder", [1, 3], False),  # a later character
    ):
        assert script("pinned", pages[kind][1], {"cell": cell}) == (cell if kept else None)
    page = pages["cross"][1]
    (subject,) = page["subjects"]
    assert "".join(page["characters"]) == "\t2-1"
    assert "".join(subject["columns"]["characters"]) == "24 abc"
    assert page["legend"] == ["␣ space", "⇥ tab"]
    assert page["title"] == "pair · cross-attention"
    assert (subject["lens"], subject["experts"], subject["full"]) == (None, None, True)
