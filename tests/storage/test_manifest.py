"""Manifests round trip; wrong values are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpt.errors import CheckpointError
from gpt.storage.checkpoint_files import BLANK, Manifest, json_to_seal, open_json, seal, seal_json
from gpt.storage.run import Checkpoint

SOURCE = Path("manifest.json")


def read(data: bytes) -> Manifest:
    return open_json(data, Manifest, SOURCE)


def test_a_text_like_the_place_of_the_digest_stays(tiny: Checkpoint) -> None:
    corpus = replace(tiny.manifest.corpus, sources=(BLANK,))
    manifest = replace(tiny.manifest, corpus=corpus)
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
    assert read(seal(json_to_seal(values).encode())) == tiny.manifest
    with pytest.raises(CheckpointError, match=r"^damaged: manifest\.json ") as caught:
        read(seal(json_to_seal(values | {name: value}).encode()))
    assert caught.value.exit_code == 4
    if name != "schema":
        del values[name]
        with pytest.raises(CheckpointError, match="missing required field"):
            read(seal(json_to_seal(values).encode()))
