"""Reading torchrun's environment."""

from __future__ import annotations

import os

import pytest

import gpt
from gpt.errors import ConfigError
from gpt.training import ranks

GIVEN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without torchrun, which the test may change."""
    found: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", found)
    return found


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


def test_python_functions_train_in_one_process(environment: dict[str, str]) -> None:
    environment |= GIVEN
    with pytest.raises(ConfigError, match=r"^gpt.train trains in one process; use torchrun"):
        gpt.train()
    with pytest.raises(ConfigError, match=r"^gpt.resume trains in one process; use torchrun"):
        gpt.resume("run")
