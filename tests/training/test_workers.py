"""Processes beside: the same answers, errors as from here, and nothing lost when one dies."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from gpt.errors import StorageError
from gpt.training.workers import Workers, cores


def square(task: dict[str, Any]) -> dict[str, Any]:
    time.sleep(task.get("sleep", 0.0))
    return {"square": task["number"] ** 2, "pid": os.getpid()}


def fail(task: dict[str, Any]) -> dict[str, Any]:
    if task["number"] in task["bad"]:
        raise StorageError(f"cannot do {task['number']}")
    return {}


def die(task: dict[str, Any]) -> dict[str, Any]:
    if os.getpid() != task["parent"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": task["number"]}


def interrupt(task: dict[str, Any]) -> dict[str, Any]:
    if os.getpid() != task["parent"]:
        time.sleep(60)
    return {}


def test_answers_come_in_order_from_here_and_from_beside() -> None:
    tasks = [{"number": number, "sleep": 0.02} for number in range(40)]
    told: list[int] = []
    with Workers(2, __name__) as workers:
        for _ in range(3):  # as often as one likes
            answers = workers.do(square, tasks, told.append)
            assert [answer["square"] for answer in answers] == [n * n for n in range(40)]
        assert len({answer["pid"] for answer in answers}) == 3
    assert told == [*range(40)] * 3


@pytest.mark.parametrize("beside", [0, 2])
def test_the_error_of_the_first_task_that_fails_comes_out(beside: int) -> None:
    tasks = [{"number": number, "bad": [7, 20]} for number in range(30)]
    with Workers(beside, __name__) as workers, pytest.raises(StorageError, match=r"^cannot do 7$"):
        workers.do(fail, tasks)


def test_processes_that_die_cost_nothing_but_time() -> None:
    tasks = [{"number": number, "parent": os.getpid()} for number in range(12)]
    with Workers(2, __name__) as workers:
        answers = workers.do(die, tasks)
    assert [answer["number"] for answer in answers] == [*range(12)]


def test_without_an_interpreter_to_start_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with Workers(2, __name__) as workers:
        answers = workers.do(square, [{"number": number} for number in range(5)])
    assert {answer["pid"] for answer in answers} == {os.getpid()}


def test_who_breaks_off_waits_for_nobody() -> None:
    def impatient(_: int) -> None:
        raise KeyboardInterrupt

    begun = time.monotonic()
    with Workers(2, __name__) as workers, pytest.raises(KeyboardInterrupt):
        workers.do(interrupt, [{"parent": os.getpid()} for _ in range(9)], impatient)
    assert time.monotonic() - begun < 30


def test_there_is_at_least_one_core() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
