"""Reads pickles of plain values without running them: nanoGPT's meta.pkl and files of torch.save.

A pickle is a program for a stack machine that can import and call any function. Here, Python's own
unpickler knows only the instructions for plain values, and imports nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

LONGEST = 2**19  # bytes of a pickle; what it builds may take a hundred times as many
LONGEST_NAME = 100  # characters of a function's full name
MOST_ARGUMENTS = 8

_EVERY = pickle._Unpickler.dispatch
_NAMES = (
    "PROTO FRAME MARK STOP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 EMPTY_DICT EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 "
    "TUPLE2 TUPLE3 BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL BINPERSID"
)
_CODES = [getattr(pickle, name)[0] for name in _NAMES.split()]


def plain_value(
    data: bytes,
    known: Callable[[str], Any] = lambda name: None,
    stored: Callable[[Any], Any] | None = None,
) -> Any:
    """The value of a pickle of protocol 2 or later: None, a number, a text, or a dict, list or
    tuple of these. Keys of dicts are texts and small whole numbers.

    known: returns what stands for the function or class with a full name; None: nothing does.
    stored: returns what stands for a value that is stored outside the pickle. A part may occur in
    many places, and parts may be nested deeply: never compare, hash, copy or show a part before its
    type is known. Raises ValueError for any other content, for damaged data and for more than
    LONGEST bytes.
    """
    if len(data) > LONGEST:
        raise ValueError(f"it has more than {LONGEST:,} bytes")
    unpickler = _Unpickler(BytesIO(data))
    unpickler.known = known
    if stored:
        unpickler.persistent_load = stored  # type: ignore[assignment, method-assign]
    try:
        return unpickler.load()
    except ValueError:
        raise
    except Exception as error:  # damaged data can raise almost any exception
        raise ValueError("it is damaged, or has more than dicts, texts and numbers") from error


def _fill(unpickler: Any, items: list[Any]) -> None:
    """Fills the dict on top of the stack. Other keys could take long to hash or to compare."""
    for key in items[::2]:
        if type(key) is not str and not (type(key) is int and -(2**31) <= key < 2**31):
            raise ValueError("it has a key that is neither a text nor a small whole number")
    if type(unpickler.stack[-1]) is not dict:
        raise TypeError
    unpickler.stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _call(unpickler: Any) -> None:
    arguments = unpickler.stack.pop()
    if type(arguments) is not tuple or len(arguments) > MOST_ARGUMENTS:
        raise TypeError
    unpickler.stack[-1] = unpickler.stack[-1](*arguments)


class _Unpickler(pickle._Unpickler):
    known: Callable[[str], Any]
    dispatch = {code: _EVERY[code] for code in _CODES} | {
        pickle.SETITEM[0]: lambda self: _fill(self, [self.stack.pop(-2), self.stack.pop()]),
        pickle.SETITEMS[0]: lambda self: _fill(self, self.pop_mark()),
        pickle.REDUCE[0]: _call,
        pickle.BUILD[0]: lambda self: self.stack.pop(),  # the attributes of a dict
    }

    def find_class(self, module: str, name: str) -> Any:
        if len(module) + len(name) > LONGEST_NAME or not (it := self.known(f"{module}.{name}")):
            raise ValueError(f"it would call {module:.60}.{name:.60}")
        return it
