"""The docs' table of stages is the program's; keys name the same numbers everywhere."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt.config import DrawnStage, ModelConfig
from gpt.config.model import FINAL_STAGES, HEAD_STAGES, SQUARE, STAGES
from gpt.heads.activations import stage_shapes
from gpt.heads.places import ParsedKey, parse_key
from gpt.interface.trained import TrainedGPT
from gpt.reading.gpt import Stages
from gpt.storage.run import Checkpoint

HEADS = Path(__file__).parents[2] / "docs/heads.md"
ROW = re.compile(r"^\| `(\w+)` \| \(([^)]*)\) \| .* \| .* \|$", re.MULTILINE)
CONFIG = ModelConfig(vocab_size=9, block_size=8, n_layer=3, n_head=2, n_embd=8)


def test_the_table_in_the_docs_has_every_stage_in_order_with_its_shape() -> None:
    rows = ROW.findall(HEADS.read_text(encoding="utf-8"))
    assert tuple(name for name, _ in rows) == STAGES
    sizes = {"T": 5, "C": 8, "H": 2, "D": 4, "V": 9, "4·C": CONFIG.ffn_hidden}
    found = {name: tuple(sizes[axis] for axis in shape.split(", ")) for name, shape in rows}
    assert found == stage_shapes(CONFIG, 5)
    assert {name for name, shape in rows if shape.startswith("H")} == set(HEAD_STAGES)


def test_parts_of_the_list_are_in_its_order() -> None:
    kept = tuple(field.name for field in fields(Stages))
    for part in (SQUARE, HEAD_STAGES, FINAL_STAGES, get_args(DrawnStage), kept):
        assert part == tuple(name for name in STAGES if name in part)
    assert set(get_args(DrawnStage)) < set(kept)


@given(data=st.data())
def test_every_right_key_is_taken_as_it_is_and_what_is_left_out_means_all(data: Any) -> None:
    name = data.draw(st.sampled_from(STAGES))
    layer = None if name in FINAL_STAGES else data.draw(st.none() | st.integers(0, 2))
    head = (
        data.draw(st.none() | st.integers(0, 1) | st.just("mean")) if name in HEAD_STAGES else None
    )
    position = data.draw(st.none() | st.integers(-5, 4))
    whole, known = (name, layer, head, position), stage_shapes(CONFIG, 5)
    while True:
        assert parse_key(whole, known, range(3)) == ParsedKey(*(*whole, None, None, None)[:4])
        if len(whole) == 1 or whole[-1] is not None:
            break
        whole = whole[:-1]
    if len(whole) == 1:
        assert parse_key(name, known, range(3)) == ParsedKey(name, None, None, None)


@pytest.mark.parametrize("key", ["weights", ("weights", 1), ("q", 0, 1), ("k", None, 1, -1)])
def test_maps_and_activations_have_the_same_numbers_at_a_key(tiny: Checkpoint, key: Any) -> None:
    run = TrainedGPT(tiny.model())
    found = run.activations("the cat")[key]
    np.testing.assert_array_equal(run.attn("the cat")[key], found[0])
