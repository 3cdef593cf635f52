"""Work on several cores: one function for many tasks, here and in processes beside this one.

Python runs one thread at a time, so threads would not do. A process beside is a plain one that
reads tasks and writes answers, a line of JSON each. One that dies costs only time. Knows nothing of
what is done.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from queue import SimpleQueue
from typing import Any, TextIO

from gpt import errors

Task = dict[str, Any]
Answer = dict[str, Any]
Function = Callable[[Task], Answer]

_SERVE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from gpt.training.workers import serve
serve(sys.argv[2], sys.stdin, sys.stdout)
"""


def cores() -> int:
    """How many this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


class Workers:
    """This process and so many beside, which start at once and end with the block.

    They import a module meanwhile, so as to be ready for what it has to do.
    """

    def __init__(self, beside: int = 0, module: str = __name__) -> None:
        self._helpers = [_Helper(module) for _ in range(beside)]
        self._given_up = False

    @property
    def beside(self) -> int:
        """How many processes there are beside this one."""
        return len(self._helpers)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._helpers:
            helper.end()

    def do(
        self,
        function: Function,
        tasks: Sequence[Task],
        told: Callable[[int], object] = lambda _: None,
    ) -> list[Answer]:
        """The answers, in the order of the tasks.

        `function` is one of a module; what it takes and gives is JSON, and what it raises a
        GptxError. `told` is called with the number of each task that is done, in order too. Raises
        the error of the first task that has one; then others may be done.
        """
        answers: list[Answer] = []
        if not self._helpers or len(tasks) <= 1:
            for number, task in enumerate(tasks):
                answers.append(function(task))
                told(number)
            return answers
        free: SimpleQueue[Function] = SimpleQueue()
        free.put(function)
        for helper in self._helpers:
            free.put(partial(helper.ask, function))

        def one(task: Task) -> Answer:
            ask = free.get()
            try:
                return ask(task)
            except _Died:
                if self._given_up:
                    raise
                ask = function
                return function(task)
            finally:
                free.put(ask)

        pool = ThreadPoolExecutor(1 + len(self._helpers))
        try:
            for number, future in enumerate([pool.submit(one, task) for task in tasks]):
                answers.append(future.result())
                told(number)
        except BaseException:
            self._given_up = True  # nobody waits for what they do
            for helper in self._helpers:
                helper.end()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        return answers


class _Died(Exception):
    """A process beside has not answered."""


class _Helper:
    """A process beside."""

    def __init__(self, module: str) -> None:
        command = [sys.executable, "-c", _SERVE, json.dumps(sys.path), module]
        self._process: subprocess.Popen[str] | None = None
        with suppress(OSError, ValueError):  # no interpreter to start, or no room for one
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="ascii",
            )

    def ask(self, function: Function, task: Task) -> Answer:
        """Raises the GptxError that the function raises there, and _Died."""
        try:
            name = f"{function.__module__}:{function.__qualname__}"
            answer: Answer = json.loads(self._answered(json.dumps([name, task])))
        except (OSError, ValueError):
            raise _Died from None
        if "raised" in answer:
            name, message = answer["raised"]
            error: errors.GptxError = getattr(errors, name)(message)
            raise error
        return answer

    def _answered(self, line: str) -> str:
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            return ""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def end(self) -> None:
        """At once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def serve(module: str, tasks: TextIO, answers: TextIO) -> None:
    """What a process beside does: until there are no more lines, or nobody reads the answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked is told, and ends this process
    import_module(module)
    for line in tasks:
        name, task = json.loads(line)
        module, _, function = name.partition(":")
        work: Function = getattr(import_module(module), function)
        try:
            answer = work(task)
        except errors.GptxError as error:
            answer = {"raised": [type(error).__name__, str(error)]}
        try:
            print(json.dumps(answer), file=answers, flush=True)
        except OSError:
            return
