"""meta.pkl is read without being run: dicts, texts and whole numbers, and nothing else."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from foreign import CHARACTERS, meta_of

from gpt.exchange.importing.pickles import LONGEST, plain_value

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value",
    [
        meta_of(CHARACTERS),
        {},
        {"a": {"b": {"c": 1}}, 2: "é\n\\\u2028😀", 3: ""},
        {n: chr(n + 100) for n in range(2000)},
        {"numbers": {n: n for n in (0, 1, 255, 256, 65535, 65536, 2**31 - 1)}},
    ],
    ids=["meta", "empty", "nested", "many", "numbers"],
)
def test_dicts_of_texts_and_numbers_are_read(value: Any, protocol: int) -> None:
    assert plain_value(pickle.dumps(value, protocol)) == value


class Payload:
    """Runs a command when a pickle of it is loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class Built:
    """Gets attributes when a pickle of it is loaded."""

    def __init__(self) -> None:
        self.numbers = 1


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
            with pytest.raises(ValueError, match="more than dicts, texts and whole numbers"):
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
        b"}(S'a'\nI1\nu.",  # a text of Python 2
        b"Ppersistent\n.",
        b"I1\nQ.",
        b"\x82\x01.",  # a function of the extension registry
        b"\x80\x02}q\x00}b.",
        b"]q\x00.",
        b"\x80\x02\x88.",
        b"N.",
        b"F1.5\n.",
        b"\x80\x03C\x02ab.",
        b"I01\n.",  # True
        b"I-1\n.",
        b"I2147483648\n.",
        b"L9999999999L\n.",
    ],
    ids=repr,
)
def test_other_instructions_and_values_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it has"):
        plain_value(data)


def test_objects_and_other_containers_are_refused() -> None:
    for value in ([1], (1,), {1}, 1.5, None, True, b"a", Built(), {"a": [1]}, {(1, 2): 3}, -5):
        for protocol in PROTOCOLS:
            with pytest.raises(ValueError, match="it has"):
                plain_value(pickle.dumps(value, protocol))


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
        assert type(value) in (dict, str, int)
    assert values > 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"}",
        b"u.",
        b"s.",
        b"d.",
        b"t.",
        b"(((((.",
        b"}s.",
        b"I1\nI2\ns.",
        b"}}I1\ns.",  # a dict as a key
        b"g0\n.",
        b"p0\n.",
        b"\x94.",
        b"}(I1\nu.",  # a key without a value
        b"\xff\x00\x01",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"I1\nI2\n.",
        b"L" + 5000 * b"9" + b"L\n.",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_wrong_pickles_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        plain_value(data)


def test_a_dict_that_contains_itself_and_deep_dicts_do_no_harm() -> None:
    itself = plain_value(b"}p0\nI1\ng0\ns.")
    assert itself[1] is itself
    data = b"}I1\n" * 50_000 + b"I1\n" + b"s" * 50_000 + b"."
    value = plain_value(data)
    for _ in range(50_000):
        value = value[1]
    assert value == 1


def test_a_file_of_more_bytes_than_any_vocabulary_needs_is_refused() -> None:
    with pytest.raises(ValueError, match="more than any vocabulary needs"):
        plain_value(b"." * (LONGEST + 1))
