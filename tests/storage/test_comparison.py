"""Runs side by side: what differs, the order, texts that do not compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drawn import shown
from manifests import manifest

from gpt.config import ModelConfig, TrainConfig
from gpt.errors import CheckpointError, ConfigError
from gpt.storage.comparison import compare_runs
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.run import Run
from gpt.storage.runs import find_runs

Row = tuple[Run, Manifest]


@pytest.fixture
def row(tmp_path: Path) -> Callable[..., Row]:
    """Makes a run with two evaluations."""

    def make(name: str, loss: float | None = 2.0, **options: Any) -> Row:
        run = Run(tmp_path / name)
        run.path.mkdir()
        for step in (6, 12) if loss else ():
            record = {"train_loss": 2.0, "val_loss": (loss or 9.0) + 1 / step}
            run.append("metrics", {"step": step, **record})
        fields = {key: options.pop(key) for key in [*options] if key in vars(manifest())}
        train = TrainConfig(**{"steps": 12, **options})
        found = manifest(step=12, train=train, best_loss=loss, best_step=12, val_characters=999)
        return run, replace(found, **fields)

    return make


def test_the_lowest_loss_comes_first_and_only_options_that_differ_are_named(
    row: Callable[..., Row],
) -> None:
    one, two = row("a", 2.0, learning_rate=0.01), row("b", 1.0, learning_rate=0.1, seed=2)
    found = compare_runs([one, two, one, row("c", None)])
    assert [run.name for run in found.runs] == ["b", "a", "c"]
    assert found.differs == ("learning_rate", "seed")
    first, second, last = found.rows
    assert (first["run"], first["learning_rate"], first["val_nats"]) == ("b", 0.1, 1.0)
    assert second["characters"] == 12 * 32 * ModelConfig(vocab_size=65).block_size
    assert last["val_nats"] is None
    lines = shown(found, 80)
    assert lines[0] == "3 runs, the lowest loss first"
    cells = [line.split() for line in lines]
    assert ["a", "b", "1.0000", "learning_rate", "0.1", "·", "seed", "2"] in cells
    assert lines[-1].startswith("c c ")
    assert len(found.to_csv().splitlines()) == 4
    assert "learning_rate" in str(found._repr_html_())


def test_steps_that_the_clock_chose_are_no_option(row: Callable[..., Row]) -> None:
    assert compare_runs([row("d"), row("e", steps=24)]).differs == ("steps",)
    assert compare_runs([row("f"), row("g", eval_chars=64)]).differs == ()


@pytest.mark.parametrize(
    "changes", [{}, {"corpus": CorpusId("1" * 64, 9, ("日本.txt",))}, {"val_characters": 998}]
)
def test_losses_of_other_texts_are_said_not_to_compare(
    row: Callable[..., Row], changes: dict[str, Any]
) -> None:
    found = compare_runs([row("a"), row("b", 1.0, **changes)])
    assert found.sentence().startswith("not all losses are of the same text") == bool(changes)


@pytest.mark.parametrize("width", [20, 40, 80, None])
def test_a_comparison_fits_any_page_and_keeps_its_numbers(
    row: Callable[..., Row], width: int | None
) -> None:
    found = compare_runs([row("x" * 90, learning_rate=0.01), row("日本語" * 9, 1.25)])
    text = "".join(line.strip() for line in shown(found, width, ascii_only=False))
    assert "1.2500" in text
    assert "2.0000" in text


def test_runs_are_found_by_names_and_patterns(fresh_run: Run) -> None:
    root = fresh_run.path.parent
    for name in ("lr-10", "lr-2", "other"):
        (root / name).symlink_to(fresh_run.path)
    names = [run.name for run in find_runs(root, ["other", "lr-*", "lr-2"])]
    assert (names[0], {*names}, len(names)) == ("other", {"other", "lr-2", "lr-10"}, 3)
    with pytest.raises(CheckpointError, match=r"no run matches 'z\*' in .*; there are: .*tiny"):
        find_runs(root, ["tiny", "z*"])
    with pytest.raises(CheckpointError, match="no run 'lr-3'"):
        find_runs(root, ["lr-3"])
    with pytest.raises(ConfigError, match="invalid run name"):
        find_runs(root, ["../tiny"])
