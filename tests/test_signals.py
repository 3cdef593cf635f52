"""Signals that come together, in an import, or at Python's end: no traceback, and none is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

#: Two signals at once, of which the second one ends the program.
TOGETHER = """if True:
    import signal
    from gpt.signals import graceful
    both = {signal.SIGHUP, signal.SIGTERM}
    with graceful(print, "SIGINT", "SIGTERM", "SIGHUP"):
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            signal.raise_signal(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
        print("goes on")
"""
#: Ctrl-C after the command has ended.
AT_THE_END = """if True:
    import atexit, signal, sys
    import gpt.commands
    atexit.register(signal.raise_signal, signal.SIGINT)
    sys.argv = ["gptx", "--version"]
    gpt.commands.main()
"""
#: Ctrl-C in a callback of an import, where Python cannot raise.
IN_AN_IMPORT = """if True:
    import signal, sys
    import gpt.commands
    class Finder:
        def find_spec(self, name, path=None, target=None):
            class Left:
                def __del__(self):
                    signal.raise_signal(signal.SIGINT)
            Left()
    sys.meta_path.insert(0, Finder())
    sys.argv = ["gptx", "--version"]
    gpt.commands.main()
"""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (TOGETHER, -signal.SIGTERM),
        (AT_THE_END, -signal.SIGINT),
        (IN_AN_IMPORT, -signal.SIGINT),
    ],
)
def test_program_ends_by_the_signal_without_a_traceback(script: str, code: int) -> None:
    def listen() -> None:  # a shell or nohup may have set signals to be ignored
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)

    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", os.getcwd())},
        capture_output=True,
        timeout=60,
        preexec_fn=listen,
    )
    assert (done.returncode, done.stderr.decode()) == (code, "")
    assert b"goes on" not in done.stdout
