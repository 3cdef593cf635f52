"""Ends work early after a signal, but not at once.

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
