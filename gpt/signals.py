"""Signals that end a work early, but not at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def graceful(stop: Callable[[str], None], *signals: str) -> Iterator[None]:
    """Inside, the first of these signals calls `stop` with its name; a second one ends the program.

    signals: their names; skips those that the system lacks and those that are ignored (nohup).
    Does nothing in another thread than the main one, as only that one handles signals.
    """
    main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in signals if main and hasattr(signal, name)]
    previous = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def on_signal(number: int, _: object) -> None:
        restore()
        stop(signal.Signals(number).name)

    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()
