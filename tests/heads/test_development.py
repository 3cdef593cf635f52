"""Measures of heads over a training: the arrays, the names, and what changed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import train_tiny
from hand_built import INDUCTION, PREVIOUS, SIZE, hand_built

from gpt.errors import CheckpointError, ConfigError
from gpt.heads.measures import name_heads
from gpt.heads.survey import Development, Survey, development, survey
from gpt.interface.trained import TrainedGPT, load
from gpt.storage.run import Checkpoint


def surveys(*backs: int) -> list[Survey]:
    """Of models whose first head attends so many characters back; induction needs it at 1."""
    ids = np.random.default_rng(0).integers(0, 6, 8 * SIZE + 1)
    return [survey(hand_built(back=back), ids) for back in backs]


@pytest.fixture(scope="module")
def found() -> Development:
    return development([0, 10, 20, 300], surveys(9, 2, 1, 1))


def test_arrays_hold_every_survey(found: Development) -> None:
    M = len(found.names)
    assert found.values.shape == found.errors.shape == (4, M, 2, 4)
    assert (found.uniform.shape, found.kinds.shape) == ((4, M, 2, 4), (4, 2, 4))
    for number, one in enumerate(surveys(9, 2, 1, 1)):
        assert found.kinds[number].tolist() == name_heads(one.measures)
        for place, each in enumerate(one.measures):
            assert found.names[place] == each.name
            assert np.array_equal(found.values[number, place], each.values)
            assert np.array_equal(found.errors[number, place], each.errors)
            assert (found.uniform[number, place] == each.uniform).all()
    assert not found.values.flags.writeable
    assert repr(found) == (
        "<Development of 2 layers × 4 heads at 4 steps, 0 to 300, on 8 windows of 16 characters of "
        "a text>"
    )


def test_change_is_the_largest_minus_the_smallest_value(found: Development) -> None:
    values = found.of("previous")
    assert values.shape == (4, 2, 4)
    change = found.change("previous")
    assert change[PREVIOUS] == pytest.approx(values[:, 0, 0].max() - values[:, 0, 0].min())
    assert change[PREVIOUS] == change.max() > 0.9
    with pytest.raises(ValueError, match="'size' is not one of back, previous"):
        found.of("size")


def test_names_are_dated_from_the_step_since_which_they_stay(found: Development) -> None:
    assert [names[0][0] for names in found.kinds] == ["", "2 back", "previous", "previous"]
    since = found.named_since()
    assert since[PREVIOUS] == since[INDUCTION] == 20
    assert since[0, 1] == 0  # the sink, which does not change
    assert since[0, 2] == -1  # the uniform head has no name
    unsteady = development([1, 2, 3], surveys(1, 2, 1))
    assert unsteady.named_since()[PREVIOUS] == 3


def test_an_unknown_value_is_no_change() -> None:
    ids = np.arange(SIZE)  # no repeated character: no duplicate, no induction
    found = development([1, 2], [survey(hand_built(back), ids) for back in (1, 2)])
    assert math.isnan(found.of("duplicate")[0, 0, 0])
    assert (found.change("duplicate") == 0).all()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """The last step of a tiny run that keeps the steps 0, 4, 8 and 12."""
    return train_tiny(tmp_path_factory.mktemp("kept"), {"eval_interval": 4, "keep_all": True})


def test_a_run_is_measured_at_its_steps_as_each_step_alone(trained: Checkpoint) -> None:
    last, run = TrainedGPT(trained.model()), trained.path.parent
    shares: list[float] = []
    found = last.heads(steps="all", windows=2, ablate="mean", done=shares.append)
    assert found.steps.tolist() == [0, 4, 8, 12]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    for number, step in enumerate(found.steps.tolist()):
        alone = load(run, step=step).heads(windows=2, ablate="mean")
        assert found.measured == alone.measured
        for place, each in enumerate(alone.measures):
            assert np.array_equal(found.values[number, place], each.values, equal_nan=True)
    assert found.names[-2:] == ("ablation", "shapley")
    some = last.heads("the cat sat on the mat", steps=["last", 4, "4"], name="it")
    assert (some.steps.tolist(), some.surveys[0].text) == ([4, 12], "it")


def test_steps_that_cannot_be_measured_are_refused(trained: Checkpoint) -> None:
    last = TrainedGPT(trained.model())
    with pytest.raises(ConfigError, match="steps: all of these are step 4; tiny keeps 0, 4, 8"):
        last.heads(steps=[4, "4"])
    with pytest.raises(CheckpointError, match="tiny has no step 5; it keeps 0, 4, 8, 12"):
        last.heads(steps=[4, 5])
    with pytest.raises(ConfigError, match="steps: '4' is neither 'all' nor a list of steps"):
        last.heads(steps="4")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="steps: 4 is neither 'all' nor a list of steps"):
        last.heads(steps=4)  # type: ignore[call-overload]
    alone = trained.path.parent.parent / "model.safetensors"
    alone.write_bytes((trained.path / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="a model file without its run"):
        load(alone).heads(steps="all")
