"""How work ends early: the errors of gptx, each with its exit code of the command line; signals.

A message tells the user what happened, then what to do next. It names options as keywords in
backquotes, as in "`steps`" and "`device='cpu'`"; for the command line,
`gpt.config.fields.error_with_flags` turns them into flags.

A signal that comes again within a second is the same press of Ctrl-C: a key that bounces or is held
down, or a program that passes the signal on to gptx, which has received it already.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ONE_PRESS = 1.0  # seconds
_stopped_at: dict[int, float] = {}  # when a signal has asked to stop


class GptxError(Exception):
    """Base of every error that gptx raises on purpose; users see its text, without a traceback."""

    exit_code = 1


class ConfigError(GptxError, ValueError):
    """An option that is out of range or contradicts another one: ConfigError("n_layer", "0 is …").

    field: the option's name in Python, "" if the error concerns no single option; a value may
    follow the name, as in "config my.toml". reason: what is wrong. ConfigError(reason) has no
    field.
    """

    exit_code = 2

    def __init__(self, *parts: str) -> None:
        super().__init__(*parts)
        *fields, self.reason = parts
        self.field = fields[0] if fields else ""

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


class TextError(GptxError, ValueError):
    """A corpus or a prompt that cannot be used."""

    exit_code = 3


class ForeignModelError(GptxError):
    """A file of another program that is not a model that gptx can import."""

    exit_code = 3


class CheckpointError(GptxError):
    """A checkpoint that is missing, damaged or was not made by gptx."""

    exit_code = 4


class RunInUseError(GptxError):
    """Another process is training this run."""

    exit_code = 5


class StorageError(GptxError):
    """A file cannot be written: the disk is full, read-only or gone."""

    exit_code = 6


class NumericsError(GptxError):
    """A loss or a gradient stopped being a finite number."""

    exit_code = 7


class OutOfMemory(GptxError):
    """The model or the batch does not fit the device."""

    exit_code = 8


class RankError(GptxError):
    """In training on several processes, another process failed or was stopped."""

    exit_code = 9


class InstallationError(GptxError):
    """This installation lacks a package."""

    exit_code = 10


def _is_same_press(number: int) -> bool:
    return time.monotonic() - _stopped_at.get(number, -ONE_PRESS) < ONE_PRESS


def raise_first_interrupt() -> None:
    """After this call, the first Ctrl-C raises KeyboardInterrupt, or ends the program at once while
    modules load; the second one ends the program at once.

    For programs only. During an import and at Python's end, KeyboardInterrupt would print a
    traceback, be lost, or abort.
    """
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, _raise_interrupt)
        # Python's last steps put the default in place of a handler: a bounce would end by a signal.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def leave_on_interrupt() -> None:
    """After this call, which follows the program's work, Ctrl-C ends the program at once."""
    if signal.getsignal(signal.SIGINT) is _raise_interrupt:
        signal.signal(signal.SIGINT, _leave)


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    if _is_same_press(number):
        return
    _stopped_at[number] = time.monotonic()
    signal.signal(number, _leave)
    while frame:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave(number: int, frame: FrameType | None) -> None:
    if not _is_same_press(number):
        os._exit(128 + number)


@contextmanager
def stop_on_signals(stop: Callable[[str], None], *signals: str) -> Iterator[None]:
    """A context in which the first of these signals calls `stop` with its name; a second one ends
    the program, unless it is the same signal within ONE_PRESS seconds.

    signals: their names. Signals that the system lacks or that are ignored (nohup) are skipped.
    Works in the main thread only, as Python handles signals only there; elsewhere it does nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in signals if main and hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    previous = {
        number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN
    }
    stopped = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            _stopped_at[number] = time.monotonic()
            stop(signal.Signals(number).name)
        elif _is_same_press(number):
            pass
        elif callable(handler := previous[number]):
            handler(number, frame)
        else:  # not earlier: Python may report a signal late, after its handler was removed
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in previous:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)
