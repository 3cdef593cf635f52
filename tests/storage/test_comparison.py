"""Runs side by side: groups of seeds, means, what differs, texts that do not compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import shown
from manifests import manifest

from gpt.config import ModelConfig, TrainConfig
from gpt.config.schedule import Budget
from gpt.errors import CheckpointError, ConfigError
from gpt.storage.comparison import Comparison, compare_runs, group_label
from gpt.storage.manifest import CorpusId, Manifest
from gpt.storage.run import Run
from gpt.storage.runs import find_runs, natural_key
from gpt.view.records import to_record
from gpt.view.terminal.lines import Page

Row = tuple[Run, Manifest]


def rows_of(found: Comparison) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = to_record(found.records(), {})["rows"]
    return rows


@pytest.fixture
def row(tmp_path: Path) -> Callable[..., Row]:
    """Makes a run with evaluations after these steps."""

    def make(
        name: str, loss: float | None = 2.0, at: tuple[int, ...] = (6, 12), **options: Any
    ) -> Row:
        run = Run(tmp_path / name)
        run.path.mkdir(exist_ok=True)
        for step in at:
            record = {"train_loss": 2.0, "val_loss": (loss or 9.0) + 1 / step}
            run.append("training", {**record, "step": step, "gradient_norm": 1, "learning_rate": 0})
            run.append("metrics", {"step": step, **record})
        fields = {key: options.pop(key) for key in [*options] if key in vars(manifest())}
        train = TrainConfig(**{"steps": 12, **options})
        found = manifest(step=12, train=train, best_loss=loss, best_step=12, val_characters=999)
        return run, replace(found, **fields)

    return make


def test_runs_that_differ_only_in_seed_are_one_row(row: Callable[..., Row]) -> None:
    rows = [
        row(f"lr-{rate}-{seed}", loss=2 + rate * 10 + seed / 10, learning_rate=rate, seed=seed)
        for rate in (0.1, 0.01)
        for seed in (1, 2, 3)
    ]
    found = compare_runs(rows)
    assert found.differs == ("learning_rate",)
    (groups,) = found.sets
    assert [group.label for group in groups] == ["lr-0.01-*", "lr-0.1-*"]  # the lower loss first
    record, _ = rows_of(found)
    assert record["runs"] == ["lr-0.01-1", "lr-0.01-2", "lr-0.01-3"]
    assert record["n"] == 3
    assert record["learning_rate"] == 0.01
    assert record["val_nats"] == pytest.approx(2.3)
    assert record["val_nats_sd"] == pytest.approx(0.1)
    assert record["characters"] == 12 * 32 * ModelConfig(vocab_size=65).block_size
    assert repr(found) == "<6 runs of 2 recipes: best lr-0.01-* 2.3000 ± 0.1000>"
    assert len(found.to_pandas()) == 2


def test_a_run_counts_once(row: Callable[..., Row]) -> None:
    one, two = row("a", 2.0, seed=1), row("b", 1.0, seed=2)
    found = compare_runs([one, two, one])
    assert found.differs == ()
    assert [group.names for group in found.groups] == [["a", "b"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"corpus": CorpusId("1" * 64, 9, ("日本.txt",))},
        {"split": "every:5"},
        {"val_fraction": 0.2},
        {"val_characters": 998},
    ],
)
def test_losses_on_other_validation_texts_are_neither_averaged_nor_ranked(
    row: Callable[..., Row], changes: dict[str, Any]
) -> None:
    found = compare_runs(
        [row("a", seed=1), row("b", 1.0, seed=2, **changes), row("c", 3.0, seed=3)]
    )
    assert [[group.names for group in groups] for groups in found.sets] == [[["a", "c"]], [["b"]]]
    assert [record["validation"] for record in rows_of(found)] == [1, 2]
    assert found.differs == ()  # the heading of each table has the text
    assert "2 validation texts" in repr(found)


def test_steps_that_the_clock_decided_are_no_option(row: Callable[..., Row]) -> None:
    budget = Budget(seconds=120, per_step=0.1, evaluating=0.5, saving=0.5)
    plan = {"steps": 24, "step_plan": "0:12 6:24", "evaluations": 9, "eval_part": 64}
    one, two = row("a", seed=1, budget=budget), row("b", seed=2, budget=budget, **plan)
    assert len(compare_runs([one, two]).groups) == 1
    longer = row("c", seed=3, budget=replace(budget, seconds=240))
    assert compare_runs([one, two, longer]).differs == ("minutes",)
    assert compare_runs([row("d"), row("e", steps=24)]).differs == ("steps",)


def test_losses_on_the_whole_split_come_before_those_on_a_part(row: Callable[..., Row]) -> None:
    part = {"train": TrainConfig(eval_part=100, steps=12, batch_size=8)}
    found = compare_runs(
        [row("part", 1.0, **part), row("a", 2.0, seed=1), row("b", 2.5, batch_size=9)]
    )
    (groups,) = found.sets
    assert [group.label for group in groups] == ["a", "b", "part"]
    assert [round(group.share, 2) for group in groups] == [1, 1, 0.06]
    lines = shown(found.blocks(), Page())
    assert any("1.0000 (6%)" in line for line in lines if line.startswith("c part"))


def test_mean_curve_needs_evaluations_after_the_same_steps(row: Callable[..., Row]) -> None:
    one, two = row("a", 2.0, seed=1), row("b", 3.0, seed=2)
    (group,) = compare_runs([one, two]).groups
    mean = group.mean_curve()
    assert mean is not None
    assert mean[0].tolist() == [6, 12]
    assert mean[1] == pytest.approx([2.5 + 1 / 6, 2.5 + 1 / 12])
    (group,) = compare_runs([one, row("c", seed=3, at=(5, 12))]).groups
    assert group.mean_curve() is None
    assert [x.tolist() for x, _ in group.lines()] == [[6, 12], [5, 12]]


def test_steps_of_different_sizes_are_compared_by_characters(row: Callable[..., Row]) -> None:
    found = compare_runs([row("a", batch_size=8), row("b", batch_size=16)])
    assert found.compares_by_characters
    places = [group.lines(found.compares_by_characters)[0][0].tolist() for group in found.groups]
    assert np.array(places[1]).tolist() == [2 * each for each in places[0]]
    assert not compare_runs([row("c"), row("d", learning_rate=0.1)]).compares_by_characters


def test_unevaluated_unfinished_and_repeated_runs(row: Callable[..., Row]) -> None:
    one, new = row("a", seed=1), row("b", None, at=(), seed=2)
    record = rows_of(compare_runs([one, new]))[0]
    assert (record["n"], record["val_nats"], record["val_nats_sd"]) == (1, 2.0, None)
    (group,) = compare_runs([one, new, row("c", seed=1)]).groups
    assert group.repeats == ["c"]
    assert not compare_runs([row("d", steps=24)]).groups[0].entries[0].ended
    assert compare_runs([row("e", steps=24, patience=1, since_best=1)]).groups[0].entries[0].ended
    assert isinstance(compare_runs([new]), Comparison)
    assert repr(compare_runs([new])) == "<1 run of 1 recipe>"


def test_a_group_is_labelled_by_a_pattern_that_matches_only_its_runs() -> None:
    every = ["lr-1-1", "lr-1-2", "lr-1-11", "lr-2-1", "x"]
    assert group_label(["x"], every) == "x"
    assert group_label(["lr-1-1", "lr-1-2"], every) == "lr-1-1, lr-1-2"  # lr-1-* has another run
    assert group_label(["lr-1-1", "lr-1-2", "lr-1-11"], every) == "lr-1-*"
    assert group_label(["a-1-z", "a-2-z"], ["a-1-z", "a-2-z", "b"]) == "a-*-z"


def test_runs_are_found_by_names_and_patterns(fresh_run: Run) -> None:
    root = fresh_run.path.parent
    for name in ("lr-10", "lr-2", "other"):
        (root / name).symlink_to(fresh_run.path)
    assert [run.name for run in find_runs(root, ["other", "lr-*", "lr-2"])] == [
        *("other", "lr-2", "lr-10")
    ]
    with pytest.raises(CheckpointError, match=r"no run matches 'z\*' in .*; there are: .*tiny"):
        find_runs(root, ["tiny", "z*"])
    with pytest.raises(CheckpointError, match="no run 'lr-3'"):
        find_runs(root, ["lr-3"])
    with pytest.raises(ConfigError, match="invalid run name"):
        find_runs(root, ["../tiny"])
    assert sorted(["b10", "b9", "a²"], key=natural_key) == ["a²", "b9", "b10"]
