"""What a text is named by: a hash of its UTF-8, written ALGORITHM:HEX.

BLAKE3 (O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020), which is ten times as fast as SHA-256
where a processor has no instructions for that; runs of gptx 0.2 and before have SHA-256. `b3sum`
and `sha256sum` print the same numbers for a file without a byte order mark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from blake3 import blake3

TODAY = "blake3"


class Hash(Protocol):
    """What hashlib's objects are."""

    def update(self, data: bytes, /) -> object: ...
    def hexdigest(self) -> str: ...


ALGORITHMS: dict[str, Callable[[], Hash]] = {TODAY: blake3, "sha256": hashlib.sha256}


class Digest:
    """A name in the making. Raises KeyError for an algorithm that is none of ours."""

    def __init__(self, algorithm: str = TODAY) -> None:
        self._algorithm, self._hash = algorithm, ALGORITHMS[algorithm]()
        self.update = self._hash.update

    def name(self) -> str:
        """Of what has been seen so far."""
        return f"{self._algorithm}:{self._hash.hexdigest()}"


def algorithm_of(name: str) -> str:
    """How a text was named: today's way if it is not known."""
    algorithm = name.partition(":")[0]
    return algorithm if algorithm in ALGORITHMS else TODAY


def short(name: str) -> str:
    """Enough of a name to tell texts apart, fit for a file's."""
    return name.rpartition(":")[2][:16]
