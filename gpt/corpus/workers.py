"""Work on several cores: one function for many tasks, here and in processes beside this one.

Python runs one thread at a time, so threads would not do. A process beside is a plain one that
reads tasks and writes answers, a line of JSON each. What one that dies has begun is done here.
Knows nothing of what is done.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

from gpt import errors

Task = dict[str, Any]
Answer = dict[str, Any]
Function = Callable[[Task], Answer]

_SERVE = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what anything here prints is no answer
from gpt.corpus.workers import serve
serve(sys.argv[2], sys.stdin, answers)
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

    @property
    def beside(self) -> int:
        """How many processes there are beside this one."""
        return len(self._helpers)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._helpers:
            helper.end()
        self._helpers = []

    def do(
        self, function: Function, tasks: Iterable[Task], again: Function | None = None
    ) -> Generator[Answer]:
        """The answers, in the order of the tasks, which are taken as they are needed.

        `function` is one of a module; what it takes and gives is JSON, and what it raises a
        GptxError. `again` is what to do in its place, here, for a task that a process that died has
        begun. Raises the error of the first task that has one; then others may be done.
        """
        if not self._helpers:
            yield from map(function, tasks)
            return
        free: SimpleQueue[tuple[_Helper | None, Function]] = SimpleQueue()
        free.put((None, function))
        for helper in self._helpers:
            free.put((helper, partial(helper.ask, function)))

        def one(task: Task) -> Answer:
            helper, ask = free.get()
            try:
                return ask(task)
            except _Died:
                if helper not in self._helpers:
                    raise
                helper.end()  # it may have answered something else, and be at work still
                self._helpers.remove(helper)
                helper, ask = None, function
                return (again or function)(task)
            finally:
                free.put((helper, ask))

        pool = ThreadPoolExecutor(1 + len(self._helpers))
        pending: deque[Future[Answer]] = deque()
        try:
            most = 2 * (1 + len(self._helpers))
            for task in tasks:
                pending.append(pool.submit(one, task))
                if len(pending) > most:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except GeneratorExit:
            raise
        except BaseException:
            ended, self._helpers = self._helpers, []  # nobody waits for what they do
            for helper in ended:
                helper.end()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


class _Died(Exception):
    """A process beside has not answered."""


class _Helper:
    """A process beside."""

    def __init__(self, module: str) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._asked = 0
        root = str(Path(__file__).parents[2])
        path = json.dumps([each for each in (*sys.path, root) if isinstance(each, str)])
        with suppress(OSError, ValueError):  # no room for a process
            if sys.executable:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _SERVE, path, module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    encoding="ascii",
                )

    def ask(self, function: Function, task: Task) -> Answer:
        """Raises the GptxError that the function raises there, and _Died."""
        self._asked += 1
        name = f"{function.__module__}:{function.__qualname__}"
        try:
            number, answer = json.loads(self._answered(json.dumps([self._asked, name, task])))
        except (OSError, ValueError, TypeError):
            raise _Died from None
        if number != self._asked:
            raise _Died
        if "raised" in answer:
            kind, message = answer["raised"]
            error: errors.GptxError = getattr(errors, kind)(message)
            raise error
        found: Answer = answer
        return found

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
        number, name, task = json.loads(line)
        module, _, function = name.partition(":")
        work: Function = getattr(import_module(module), function)
        try:
            answer = work(task)
        except errors.GptxError as error:
            answer = {"raised": [type(error).__name__, str(error)]}
        try:
            print(json.dumps([number, answer]), file=answers, flush=True)
        except OSError:
            return
