"""Manifests round trip; anything else is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import corpus_of, manifest_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt.config.schedule import Budget
from gpt.errors import CheckpointError, SchemaError
from gpt.storage.json_values import add_checksum, read_json_object
from gpt.storage.manifest import Baseline, CorpusId, Manifest
from gpt.storage.run import Checkpoint

SOURCE = Path("manifest.json")
ANY_LOSS = st.none() | st.floats(-1e99, 1e99)


BUDGET = Budget(seconds=60.0, per_step=0.1, evaluating=0.5, saving=1.0)


def read(text: str | bytes) -> Manifest:
    """The manifest in a text."""
    return Manifest.from_json(text if isinstance(text, bytes) else text.encode(), SOURCE)


def values_of(manifest: Manifest) -> dict[str, Any]:
    """The values of a manifest, without its checksum."""
    values: dict[str, Any] = json.loads(manifest.to_json())
    del values["digest"]
    return values


def written(values: dict[str, Any]) -> bytes:
    """A manifest with these values and a correct checksum."""
    return add_checksum(json.dumps(values, indent=1).encode())


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
        train=replace(tiny.manifest.train, steps=700, step_plan="0:900 120:800 310:700"),
        budget=Budget(seconds=60.0, per_step=total, evaluating=0.5, saving=1.0, steps=step),
        elapsed=total,
        whole_loss=best_loss,
    )
    assert read(manifest.to_json()) == manifest


def test_nan_loss_is_never_written(tiny: Checkpoint) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        replace(tiny.manifest, val_loss=float("nan")).to_json()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema", "1"),
        ("schema", None),
        ("step", -1),
        ("step", 1.0),
        ("step", "1"),
        ("step", True),
        ("model", {"n_layer": 4}),
        ("model", None),
        ("train", {"steps": 0}),
        ("train", []),
        ("vocabulary", {"characters": ""}),
        ("vocabulary", {"characters": "aa"}),
        ("vocabulary", {"characters": "abc"}),
        ("vocabulary", {"characters": 15}),
        ("corpus", {}),
        ("corpus", {"digest": "", "characters": 1, "sources": None}),
        ("corpus", {"digest": 1, "characters": 1, "sources": ["a"]}),
        ("corpus", {"digest": "a", "characters": "1", "sources": ["a"]}),
        ("running", [1.0]),
        ("train", {"steps": 9, "step_plan": "0:8"}),
        ("elapsed", "1"),
        ("val_characters", -1),
        ("whole_loss", True),
        ("budget", {"seconds": 60.0}),
        ("budget", {**vars(BUDGET), "per_step": None}),
        ("budget", {**vars(BUDGET), "steps": 0.5}),
        ("running", "12 3"),
        ("running", [1.0, -1]),
        ("best_step", "6"),
        ("best_step", -6),
        ("since_best", None),
        ("preset", None),
        ("environment", {"torch": []}),
        ("environment", [["torch", "2.13"]]),
        ("seconds", 2.0**1020),
        ("baseline", {"losses": [], "counted": 1, "scored": 1}),
        ("baseline", {"losses": [1.0, None], "counted": 1, "scored": 1}),
        ("baseline", {"losses": [1.0], "counted": 0, "scored": 1}),
        ("files", {"model.safetensors": 7}),
        ("files", {"model.safetensors": ["x", "y"]}),
        ("files", []),
        ("baseline", {}),
        ("baseline", {"losses": [1.5], "counted": 9}),
        ("baseline", {"losses": "15", "counted": 9, "scored": 9}),
        ("baseline", {"losses": [True], "counted": 9, "scored": 9}),
        ("baseline", {"losses": [1.5], "counted": "9", "scored": 9}),
        ("baseline", {"losses": [1.5], "counted": 9, "scored": 0}),
    ],
)
def test_wrong_value_in_a_manifest_is_damage(tiny: Checkpoint, name: str, value: Any) -> None:
    values = values_of(tiny.manifest)
    with pytest.raises(CheckpointError, match=r"^damaged: manifest\.json ") as caught:
        read(written({**values, name: value}))
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("colour", "red"),
        ("model", {"vocab_size": 15, "colour": 4}),
        ("baseline", {"losses": [1.5], "counted": 9, "scored": 9, "colour": 1}),
    ],
)
def test_an_unknown_field_is_damage(tiny: Checkpoint, name: str, value: Any) -> None:
    values = {**values_of(tiny.manifest), name: value}
    with pytest.raises(CheckpointError, match=r"^damaged: manifest\.json .*'colour'"):
        read(written(values))


def test_missing_field_without_default_is_damage(tiny: Checkpoint) -> None:
    values = values_of(tiny.manifest)
    assert read(written(values)) == tiny.manifest
    for name in ("elapsed", "budget", "val_characters", "whole_loss"):
        del values[name]
    bare = replace(tiny.manifest, elapsed=0.0, val_characters=0)
    assert read(written(values)) == bare
    for name in ("step", "model", "train", "preset", "vocabulary", "corpus", "seconds", "running"):
        with pytest.raises(CheckpointError, match="damaged"):
            read(written({key: value for key, value in values.items() if key != name}))


def test_baseline_names_its_best_order(tiny: Checkpoint) -> None:
    baseline = Baseline((3.0, 1.5, 2.0), 9, 9)
    assert (baseline.order, baseline.nats) == (2, 1.5)
    values = values_of(replace(tiny.manifest, baseline=baseline))
    assert read(written(values)).baseline == baseline
    del values["baseline"]
    assert read(written(values)).baseline is None


@pytest.mark.parametrize("schema", [0, 2, 5, 10**99])
def test_another_schema_is_refused(schema: int) -> None:
    with pytest.raises(SchemaError, match=r"^manifest\.json has the unknown schema .* reads 1$"):
        read(json.dumps({"schema": schema, "weights": "unknown"}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 1}', "duplicate keys"),
        ('{"a": {"b": 1, "b": 2}}', "duplicate keys"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": [-Infinity]}', "-Infinity is not JSON"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, "recursion"),
        ("[]", "not a JSON object"),
        ("1", "not a JSON object"),
        ("", "Expecting value"),
        ('{"a": 1', "delimiter"),
        ('{"a": 1} {}', "Extra data"),
        ('{"a": ' + "9" * 5_000 + "}", "limit"),
        (b'{"a": "\xff"}', "decode"),
        ('{"a": ["\\ud800"]}', "surrogates not allowed"),
    ],
)
def test_json_is_parsed_strictly(text: str | bytes, problem: str) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(CheckpointError, match=rf"^damaged: manifest\.json \(.*{problem}"):
        read_json_object(data, SOURCE)


@pytest.mark.parametrize("value", [b"{}", b"[]", b"0", b'{"a":1}'])
def test_json_of_more_values_than_any_file_has_is_refused_before_it_is_parsed(value: bytes) -> None:
    data = b'{"a":[' + b",".join([value] * 600_000) + b"]}"
    with pytest.raises(CheckpointError, match=r"damaged: .* \(more than 524,288 values\)"):
        read_json_object(data, SOURCE)
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    data = json.dumps({"characters": every, "files": ["a"] * 99}, ensure_ascii=False).encode()
    assert read_json_object(data, SOURCE)["characters"] == every


def test_a_long_name_in_a_manifest_gives_a_short_error(tiny: Checkpoint) -> None:
    values = json.loads(tiny.manifest.to_json()) | {"x" * 10**6: 1}
    del values["digest"]
    data = add_checksum(json.dumps(values, indent=1).encode())
    with pytest.raises(CheckpointError) as raised:
        Manifest.from_json(data, SOURCE)
    assert len(str(raised.value)) < 400


def test_manifest_with_a_flipped_bit_or_cut_is_refused(tiny: Checkpoint) -> None:
    whole = tiny.manifest.to_json()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(CheckpointError):
            read(bytes(flipped))
        with pytest.raises(CheckpointError, match="damaged"):
            read(whole[:place])
    with pytest.raises(CheckpointError, match="damaged"):
        read(whole + b"\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seconds": 0.0', '"seconds": 1e999'),
        ('"text.txt"', f'"{"x" * 20_000}"'),
        ('"dropout": 0.0', '"dropout": 1' + "0" * 400),
    ],
)
def test_an_impossible_value_is_damage(tmp_path: Path, old: str, new: str) -> None:
    values = values_of(manifest_of(corpus_of("abc" * 99, tmp_path)))
    good = json.dumps(values, indent=1)
    assert good.count(old) == 1
    read(add_checksum(good.encode()))
    with pytest.raises(CheckpointError, match="damaged"):
        read(add_checksum(good.replace(old, new).encode()))
