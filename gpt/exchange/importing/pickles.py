"""Reads pickles of dicts, texts and whole numbers without running them: nanoGPT's meta.pkl.

A pickle is a program for a stack machine that can import and call any function. Only the
instructions that build these three kinds of values are known here; any other one is an error.
"""

from __future__ import annotations

import pickletools
from typing import Any

LONGEST = 4 * 2**20  # bytes
LARGEST = 2**31  # no whole number may be as large

_SKIPPED = ("PROTO", "FRAME")  # they build nothing
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4")
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT"), ("GET", "BINGET", "LONG_BINGET")


def plain_value(data: bytes) -> Any:
    """The value of a pickle of any protocol: a dict, a text or a whole number, or dicts of these.

    Raises ValueError for any other content, for damaged data and for more than LONGEST bytes.
    """
    if len(data) > LONGEST:
        raise ValueError(f"it has {len(data):,} bytes, more than any vocabulary needs")
    try:
        return _built(data)
    except (IndexError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"it is damaged: {type(error).__name__}") from error


def _built(data: bytes) -> Any:
    stack: list[Any] = []
    marks: list[int] = []  # heights of the stack
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in _SKIPPED:
            continue
        if name in _TEXTS:
            stack.append(argument)
        elif name in _NUMBERS:
            if type(argument) is not int or not 0 <= argument < LARGEST:
                raise ValueError(f"it has the number {argument!a:.30}")
            stack.append(argument)
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "DICT":
            stack.append(_filled({}, _popped(stack, marks.pop())))
        elif name == "SETITEM":
            items = _popped(stack, len(stack) - 2)
            _filled(stack[-1], items)
        elif name == "SETITEMS":
            items = _popped(stack, marks.pop())
            _filled(stack[-1], items)
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _PUTS:
            memo[int(str(argument))] = stack[-1]
        elif name in _GETS:
            stack.append(memo[int(str(argument))])
        elif name == "STOP" and len(stack) == 1:
            return stack[0]
        else:
            raise ValueError(f"it has more than dicts, texts and whole numbers: {name}")
    raise ValueError("it ends too early")


def _popped(stack: list[Any], height: int) -> list[Any]:
    """The values above this height, which are removed."""
    if not 0 <= height <= len(stack):
        raise IndexError(height)
    values = stack[height:]
    del stack[height:]
    return values


def _filled(target: Any, items: list[Any]) -> Any:
    """The dict with keys and values that alternate in `items`. Raises TypeError."""
    if type(target) is not dict or any(type(key) not in (str, int) for key in items[::2]):
        raise TypeError("not a dict, or a key that is neither a text nor a number")
    target.update(zip(items[::2], items[1::2], strict=True))
    return target
