"""Pickles are read without being run: plain values, and nothing else, in bounded time."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from foreign import CHARACTERS, meta_of

from gpt.exchange.importing.pickles import LONGEST, plain_value

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        meta_of(CHARACTERS),
        {},
        {"a": {"b": {"c": 1}}, 2: "é\n\\\u2028😀", 3: ""},
        {n: chr(n + 100) for n in range(2000)},
        {"numbers": {n: n for n in (0, 1, 255, 256, 65535, 65536, 2**31 - 1, -(2**31))}},
        [1, -5, 1.5, None, True, False, (), (1,), (1, (2, 3), [4]), 2**40, {"a": [{}]}],
    ],
    ids=["meta", "empty", "nested", "many", "numbers", "others"],
)
def test_plain_values_are_read(value: Any, protocol: int) -> None:
    assert plain_value(pickle.dumps(value, protocol)) == value


class Payload:
    """Runs a command when a pickle of it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_functions_are_never_called(protocol: int, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = f"touch {ran}"
    payloads: list[Any] = [
        Payload(os.system, command),
        Payload(eval, f"open({str(ran)!r}, 'w')"),
        Payload(getattr, "a", "upper"),
    ]
    for payload in payloads:
        for value in (payload, {"itos": payload}, {0: {1: payload}}):
            with pytest.raises(ValueError, match="it would call "):
                plain_value(pickle.dumps(value, protocol))
    assert not ran.exists()
    pickle.loads(pickle.dumps(payloads[0], protocol))
    assert ran.exists()  # so the payload works where pickles are run


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"(S'touch ran'\nios\nsystem\n.",
        b"(cos\nsystem\nS'touch ran'\no.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x09touch ran\x85R.",
        b"cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x02\x85R.",  # 8 GiB
        b"}(S'a'\nK\x01u.",  # a text of Python 2
        b"Ppersistent\n.",
        b"K\x01Q.",
        b"\x82\x01.",  # a function of the extension registry
        b"\x80\x03C\x02ab.",
        b"\x8b\x01\x00\x00\x00\x01.",  # a number of up to 2 GiB
        b"I1\n.",
        b"L9999999999L\n.",
    ],
    ids=repr,
)
def test_other_instructions_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it (would call|is damaged)"):
        plain_value(data)


def test_objects_and_other_containers_are_refused() -> None:
    numbers = SimpleNamespace(numbers=1)  # gets attributes when a pickle of it is loaded
    for value in ({1}, b"a", numbers, frozenset("a"), 1j, {(1, 2): 3}, {1.5: 0}, {2**61: 0}):
        for protocol in PROTOCOLS:
            with pytest.raises(ValueError, match=r"it (would call|is damaged|has a key)"):
                plain_value(pickle.dumps(value, protocol))


def doubled(levels: int, begin: bytes, unit: bytes) -> bytes:
    """Instructions for a value that has the one before it twice, and so on. unit: for the two."""
    return (
        b"\x80\x02"
        + begin
        + b"".join(b"q%c" % n + unit.replace(b"?", b"h%c" % n) for n in range(levels))
    )


@pytest.mark.parametrize(
    "data",
    [
        b"}" + doubled(60, b")", b"?\x86") + b"K\x01s.",  # as a key: 2^60 hashes
        doubled(60, b"]", b"]?a?a") + b")R.",  # as a function: its name has 2^60 parts
        b"ctorch\nSize\nq\x00(" + b"N" * 100_000 + b"tq\x01" + b"h\x00h\x01R" * 80_000 + b".",
        b"\x8c\x01aq\x00X\x40\x0d\x03\x00" + b"b" * 200_000 + b"q\x01" + b"h\x00h\x01\x93" * 40_000,
        b"}("
        + b"".join(
            b"\x8a\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + b"N" for n in range(1, 35_000)
        )
        + b"u.",
    ],
    ids=["hashes", "names", "arguments", "functions", "collisions"],
)
def test_work_that_grows_faster_than_the_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it (would call|is damaged|has a key)"):
        plain_value(data, lambda name: (lambda *_: None) if name.startswith("torch") else None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_truncated_and_damaged_data_is_refused_or_has_only_plain_values(protocol: int) -> None:
    data = pickle.dumps(meta_of(list("abc")), protocol)
    for length in range(len(data)):
        with pytest.raises(ValueError):  # noqa: PT011
            plain_value(data[:length])
    numbers, values = random.Random(protocol), 0
    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(numbers.randint(1, 3)):
            changed[numbers.randrange(len(data))] = numbers.randrange(256)
        try:
            value = plain_value(bytes(changed))
        except ValueError:
            continue
        values += 1
        assert type(value) in (dict, list, tuple, str, int, float, bool, type(None))
    assert values > 0


def test_a_dict_that_contains_itself_and_deep_dicts_do_no_harm() -> None:
    itself = plain_value(b"}q\x00K\x01h\x00s.")
    assert itself[1] is itself
    value = plain_value(b"}K\x01" * 50_000 + b"K\x01" + b"s" * 50_000 + b".")
    for _ in range(50_000):
        value = value[1]
    assert value == 1
    with pytest.raises(ValueError, match="it has more than"):
        plain_value(b"." * (LONGEST + 1))
