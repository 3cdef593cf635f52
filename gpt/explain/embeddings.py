"""Reads embeddings of words from JSON or from lines of text. Knows no lesson and no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gpt.errors import ConfigError


def words_of(text: str) -> list[str]:
    """The words of a text; of a text without spaces, its characters.

    Raises ConfigError for a text without words.
    """
    words = text.split()
    if not words:
        raise ConfigError("text", "no words in it; give at least one")
    return words if len(words) > 1 else list(words[0])


def read_embeddings(text: str, source: str) -> tuple[list[str] | None, list[list[float]]]:
    """Words, if the file names them, and their rows of equally many numbers.

    JSON: a list of rows, or an object of word: row. Else one row per line, with or without a word
    before its numbers, separated by commas, semicolons or spaces; lines that start with # are
    skipped. Raises ConfigError.
    """
    try:
        is_json = text.lstrip().startswith(("[", "{"))
        named = _from_json(text) if is_json else _from_lines(text)
    except ValueError as error:
        raise ConfigError(f"embeddings {source}", str(error)) from None
    if not named:
        raise ConfigError(f"embeddings {source}", "no numbers in it; give a row for each word")
    lengths = [len(row) for _, row in named]
    for place, length in enumerate(lengths, 1):
        if length != lengths[0] or not length:
            raise ConfigError(
                f"embeddings {source}",
                f"row {place} has {length} numbers, row 1 has {lengths[0]}; give every row as many",
            )
    words = [word for word, _ in named if word is not None]
    if words and len(words) < len(named):
        raise ConfigError(f"embeddings {source}", "name every row or none")
    return words or None, [row for _, row in named]


def _from_json(text: str) -> list[tuple[str | None, list[float]]]:
    try:
        data: Any = json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None
    pairs = list(data.items()) if isinstance(data, dict) else [(None, row) for row in data]
    for place, (_, row) in enumerate(pairs, 1):
        if not isinstance(row, list):
            raise ValueError(f"row {place} is not a list of numbers")
    return [(word, _numbers(row, f"row {place}")) for place, (word, row) in enumerate(pairs, 1)]


def _from_lines(text: str) -> list[tuple[str | None, list[float]]]:
    named: list[tuple[str | None, list[float]]] = []
    for place, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip('"') for cell in re.split(r"\s*[,;]\s*|\s+", line.strip()) if cell]
        if not cells or cells[0].startswith("#"):
            continue
        word = None if _is_number(cells[0]) else cells.pop(0)
        named.append((word, _numbers(cells, f"line {place}")))
    return named


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: Sequence[Any], where: str) -> list[float]:
    numbers = []
    for cell in cells:
        try:
            if isinstance(cell, bool):
                raise TypeError
            numbers.append(float(cell))
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{where}: {str(cell)[:20]!r} is not a number") from None
    return numbers
