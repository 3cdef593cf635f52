"""The errors of gptx with their exit codes, and what Ctrl-C and other signals do.

An error's message tells the user what happened, then what to do next. It names options as Python's
keywords in backquotes, as in "`steps`" and "`device='cpu'`". On the command line,
`gpt.config.fields.error_with_flags` turns these keywords into flags.

A signal that comes again within ONE_PRESS seconds counts as the same press of Ctrl-C. It may come
again because the user holds the key down, or because a parent process passes on a signal that the
terminal has already sent to gptx.
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
_pressed_at: dict[int, float] = {}  # signal's number -> time of its first press


class GptxError(Exception):
    """Base of every error that gptx raises on purpose. Users see its text, no traceback."""

    exit_code = 1


class ConfigError(GptxError, ValueError):
    """An option is out of range or contradicts another option.

    ConfigError("n_layer", "0 is …") has a field and a reason; ConfigError("…") has only a reason.
    """

    exit_code = 2

    @property
    def field(self) -> str:
        """The option's Python name, perhaps with its value; "" if the error has only a reason."""
        return str(self.args[0]) if len(self.args) > 1 else ""

    @property
    def reason(self) -> str:
        """What is wrong with the option."""
        return str(self.args[-1])

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


class TextError(GptxError, ValueError):
    """A corpus or a prompt cannot be used."""

    exit_code = 3


class ForeignModelError(GptxError):
    """A file of another program is not a model that gptx can import."""

    exit_code = 3


class CheckpointError(GptxError):
    """A checkpoint is missing, is damaged, or was not made by gptx."""

    exit_code = 4


class RunInUseError(GptxError):
    """Another process is training this run."""

    exit_code = 5


class StorageError(GptxError):
    """A file cannot be written: the disk is full, read-only or gone."""

    exit_code = 6


class NumericsError(GptxError):
    """A loss or a gradient is not finite, numpy's logits differ from torch's, or a check failed."""

    exit_code = 7


class OutOfMemory(GptxError):
    """The model or the batch does not fit the device."""

    exit_code = 8


class RankError(GptxError):
    """During training on several processes, another process failed or was stopped."""

    exit_code = 9


class InstallationError(GptxError):
    """This installation lacks a package."""

    exit_code = 10


def _is_same_press(number: int) -> bool:
    return time.monotonic() - _pressed_at.get(number, -ONE_PRESS) < ONE_PRESS


def raise_first_interrupt() -> None:
    """Makes the first Ctrl-C raise KeyboardInterrupt, and the second one end the program at once.

    During an import, the first Ctrl-C already ends the program, because Python could print a
    traceback of the import, or lose the exception. Only programs call this function, never the
    library.
    """
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):
        signal.signal(signal.SIGINT, _raise_interrupt)
        # At exit, Python restores the default handler, with which a repeated signal kills gptx.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def exit_on_interrupt() -> None:
    """Makes Ctrl-C end the program at once. A program calls this when its work is done."""
    if signal.getsignal(signal.SIGINT) is _raise_interrupt:
        signal.signal(signal.SIGINT, _leave)


def _raise_interrupt(number: int, frame: FrameType | None) -> None:
    if _is_same_press(number):
        return
    _pressed_at[number] = time.monotonic()
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
    """A context in which the first signal calls `stop` with the signal's name. The second signal
    has the effect that it had before the context: usually, it ends the program. If it is the same
    signal within ONE_PRESS seconds, it has no effect.

    signals: the names of the signals. The context changes nothing for a signal that the system
    lacks or that nohup ignores, or outside the main thread, where Python handles no signals.
    """
    main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in signals if main and hasattr(signal, name)]
    previous = {
        number: handler
        for number in numbers
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    stopped = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            _pressed_at[number] = time.monotonic()
            stop(signal.Signals(number).name)
        elif _is_same_press(number):
            pass
        elif callable(handler := previous[number]):
            handler(number, frame)
        else:  # not set earlier, because Python may still call this handler after its removal
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
