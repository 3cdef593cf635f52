"""Reading torchrun's environment, and which run a restarted launch resumes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import train_tiny

import gpt
from gpt.errors import ConfigError
from gpt.storage.run import Run
from gpt.training import ranks
from gpt.training.ranks import LAUNCH_FILE

GIVEN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "TORCHELASTIC_MAX_RESTARTS": "2",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without torchrun, which the test may change."""
    found: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", found)
    return found


def launch(environment: dict[str, str], name: str, attempt: int = 0) -> None:
    """Makes this process the only one of a launch."""
    environment |= {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": name}
    environment["TORCHELASTIC_RESTART_COUNT"] = str(attempt)


def test_a_process_reads_its_rank_from_the_environment(environment: dict[str, str]) -> None:
    for given, expected in (
        ({}, (0, 1, True)),
        ({"RANK": "1"}, (0, 1, True)),  # half of it is no launch
        ({"WORLD_SIZE": "4"}, (0, 1, True)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1, True)),
        ({"RANK": "0", "WORLD_SIZE": "4"}, (0, 4, True)),
        (GIVEN, (3, 4, False)),
    ):
        environment.clear()
        environment |= given
        assert (ranks.rank(), ranks.world_size(), ranks.is_first()) == expected, given
    assert ranks.will_restart()
    environment["TORCHELASTIC_RESTART_COUNT"] = "2"
    assert not ranks.will_restart()


def test_a_launch_resumes_only_its_own_run(tmp_path: Path, environment: dict[str, str]) -> None:
    run, root = Run(train_tiny(tmp_path).path.parent), tmp_path / "checkpoints"
    for name in ("job", "none"):
        launch(environment, name, attempt=1)
        assert ranks.interrupted_run(root) is None
        launch(environment, name)
        ranks.mark_run(run)
        assert ranks.interrupted_run(root) is None  # the name may only be used again
        launch(environment, name, attempt=1)
        assert ranks.interrupted_run(root) == run
        launch(environment, "other", attempt=1)
        assert ranks.interrupted_run(root) is None
        environment.clear()
        assert ranks.interrupted_run(root) is None
    (run.path / LAUNCH_FILE).write_text("elsewhere:1")  # another torchrun without a name
    launch(environment, "none", attempt=1)
    assert ranks.interrupted_run(root) is None


def test_without_torchrun_a_run_is_not_marked(tmp_path: Path, environment: dict[str, str]) -> None:
    ranks.mark_run(Run(tmp_path))
    assert not (tmp_path / LAUNCH_FILE).exists()


def test_python_functions_train_in_one_process(environment: dict[str, str]) -> None:
    environment |= GIVEN
    with pytest.raises(ConfigError, match=r"^gpt.train trains in one process; use torchrun"):
        gpt.train()
    with pytest.raises(ConfigError, match=r"^gpt.resume trains in one process; use torchrun"):
        gpt.resume("run")
