"""Manifests round trip; anything else is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.errors import CheckpointError
from gpt.storage.manifest import Baseline, Clock, CorpusId, Manifest, Parent, TrainedText
from gpt.storage.model_file import open_json, seal, seal_json, to_json
from gpt.storage.run import Checkpoint

SOURCE = Path("manifest.json")
ANY_LOSS = st.none() | st.floats(-1e99, 1e99)


def read(data: bytes) -> Manifest:
    return open_json(data, Manifest, SOURCE)


@settings(deadline=None, max_examples=50)
@given(
    best_loss=ANY_LOSS,
    total=st.floats(0, 1e9),
    step=st.integers(0, 10**11),
    sources=st.lists(st.text(), max_size=3),
    environment=st.dictionaries(st.text(), st.text() | st.integers(0, 2**62)),
    losses=st.lists(st.floats(0, 1e9), max_size=8),
)
def test_manifest_round_trips_exactly(
    tiny: Checkpoint,
    best_loss: float | None,
    total: float,
    step: int,
    sources: list[str],
    environment: dict[str, str | int],
    losses: list[float],
) -> None:
    manifest = replace(
        tiny.manifest,
        step=step,
        best_loss=best_loss,
        running=(total, step),
        corpus=CorpusId("ab" * 32, step, tuple(sources)),
        environment=environment,
        files={"model.safetensors": (step, "cd" * 32)},
        baseline=Baseline(tuple(losses), step + 1, 9) if losses else None,
        train=replace(tiny.manifest.train, steps=700),
        clock=Clock(seconds=60.0, start_step=step, start_elapsed=total, progress=0.25),
        elapsed=total,
        final_loss=best_loss,
        parent=Parent("older", step, "ef" * 32, "é", (TrainedText("oldest"),)),
    )
    assert read(seal_json(manifest)) == manifest


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_never_written(tiny: Checkpoint, number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal_json(replace(tiny.manifest, val_loss=number))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema", "1"),
        ("step", True),
        ("train", {"steps": 0}),
        ("vocabulary", {"characters": "aa"}),
    ],
)
def test_wrong_value_in_a_manifest_is_damage(tiny: Checkpoint, name: str, value: Any) -> None:
    values = msgspec.to_builtins(tiny.manifest)
    assert read(seal(to_json(values).encode())) == tiny.manifest
    with pytest.raises(CheckpointError, match=r"^damaged: manifest\.json ") as caught:
        read(seal(to_json(values | {name: value}).encode()))
    assert caught.value.exit_code == 4
    if name != "schema":
        del values[name]
        with pytest.raises(CheckpointError, match="missing required field"):
            read(seal(to_json(values).encode()))
