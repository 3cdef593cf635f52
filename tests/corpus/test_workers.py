"""Processes beside: the same answers, errors as from here, and nothing lost when one dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpt.corpus import workers as module
from gpt.corpus.workers import Workers, cores
from gpt.errors import StorageError


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


def negative(task: dict[str, Any]) -> dict[str, Any]:
    return {"number": -1}


def chatter(task: dict[str, Any]) -> dict[str, Any]:
    if os.getpid() != task["parent"]:
        os.write(1, b"something\n")  # goes elsewhere
        time.sleep(0.05)
    return {"number": task["number"]}


def wait(task: dict[str, Any]) -> dict[str, Any]:
    if os.getpid() != task["parent"]:
        time.sleep(60)
    time.sleep(0.5)
    raise StorageError("no")


def test_answers_come_in_order_from_here_and_from_beside() -> None:
    tasks = [{"number": number, "sleep": 0.02} for number in range(40)]
    with Workers(2, __name__) as workers:
        for _ in range(3):  # as often as one likes
            answers = list(workers.do(square, iter(tasks)))
            assert [answer["square"] for answer in answers] == [n * n for n in range(40)]
        assert len({answer["pid"] for answer in answers}) == 3


def test_no_more_tasks_are_made_than_are_needed_soon() -> None:
    made: list[int] = []

    def tasks() -> Iterator[dict[str, Any]]:
        for number in range(100):
            made.append(number)
            yield {"number": number}

    with Workers(1, __name__) as workers:
        answers = workers.do(square, tasks())
        assert next(answers)["square"] == 0
        assert len(made) < 10
        answers.close()
        assert [each["square"] for each in workers.do(square, tasks())][-1] == 99**2


@pytest.mark.parametrize("executable", ["/nowhere/python", "", None])
def test_without_an_interpreter_to_start_all_is_done_here(
    monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr("sys.executable", executable)
    monkeypatch.setattr("sys.path", [*sys.path, Path("/a/path/that/is/no/text")])
    with Workers(2, __name__) as workers:
        answers = list(workers.do(square, [{"number": number} for number in range(5)]))
    assert {answer["pid"] for answer in answers} == {os.getpid()}


@pytest.mark.parametrize("beside", [0, 2])
def test_the_error_of_the_first_task_that_fails_comes_out(beside: int) -> None:
    tasks = [{"number": number, "bad": [7, 20]} for number in range(30)]
    with Workers(beside, __name__) as workers, pytest.raises(StorageError, match=r"^cannot do 7$"):
        list(workers.do(fail, tasks))


def test_processes_that_die_cost_nothing_but_time() -> None:
    tasks = [{"number": number, "parent": os.getpid()} for number in range(12)]
    with Workers(2, __name__) as workers:
        answers = list(workers.do(die, tasks))
    assert [answer["number"] for answer in answers] == [*range(12)]


def test_what_a_process_that_died_has_begun_is_done_otherwise() -> None:
    tasks = [{"number": number, "parent": os.getpid()} for number in range(12)]
    with Workers(1, __name__) as workers:
        answers = list(workers.do(die, tasks, again=negative))
    assert sorted(answer["number"] for answer in answers if answer["number"] < 0) == [-1]


def test_what_a_process_prints_is_no_answer() -> None:
    tasks = [{"number": number, "parent": os.getpid(), "sleep": 0.05} for number in range(9)]
    with Workers(1, __name__) as workers:
        assert [each["number"] for each in workers.do(chatter, tasks)] == [*range(9)]
        assert len({each["pid"] for each in workers.do(square, tasks)}) == 2  # it is asked on


@pytest.mark.parametrize("told", ['[0, {"square": -1, "pid": 0}]', "[]", "7", "something", ""])
def test_a_process_that_says_something_else_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setattr(module._Helper, "_answered", lambda *_: told)
    with Workers(1, __name__) as workers:
        answers = list(workers.do(square, [{"number": number} for number in range(6)]))
        assert [answer["square"] for answer in answers] == [0, 1, 4, 9, 16, 25]
        assert workers.beside == 0  # nor asked again


def test_a_file_of_the_users_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    with Workers(1, __name__) as workers:
        list(workers.do(square, [{"number": number, "sleep": 0.1} for number in range(9)]))
    assert not (tmp_path / "ran").exists()


def test_who_breaks_off_waits_for_nobody() -> None:
    begun = time.monotonic()
    with Workers(2, __name__) as workers:
        tasks = [{"parent": os.getpid(), "number": number} for number in range(9)]
        with pytest.raises(StorageError):
            list(workers.do(wait, tasks))
    assert time.monotonic() - begun < 30


def test_there_is_at_least_one_core() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)
