"""Reads embeddings of words from JSON or from lines of text. Imports no torch."""

from __future__ import annotations

import json
import re
from typing import Any

from gpt.errors import ConfigError

#: A word, if the file has one, and its numbers.
Named = tuple[str | None, list[float]]


def words_of(text: str) -> list[str]:
    """The words of a text; of a text without spaces, its characters.

    Raises ConfigError for a text without words.
    """
    words = text.split()
    if not words:
        raise ConfigError("text", "no words in it; give at least one")
    return words if len(words) > 1 else list(words[0])


def read_embeddings(text: str, source: str) -> tuple[list[str] | None, list[list[float]]]:
    """The words, if the file has any, and an equally long row of numbers for each.

    JSON: a list of rows, or an object of word: row. Otherwise one row per line: numbers separated
    by commas, semicolons or spaces, with or without a word before them; lines that start with # are
    skipped. Raises ConfigError.
    """
    try:
        named = _from_json(text) if text.lstrip().startswith(("[", "{")) else _from_lines(text)
        rows = [row for _, row in named]
        words = [word for word, _ in named if word is not None]
        if any("\ud800" <= each < "\ue000" for each in "".join(words)):
            raise ValueError("a word has half of a surrogate pair; write the whole character")
        if not rows:
            raise ValueError("no numbers in it; give a row for each word")
        for place, row in enumerate(rows, 1):
            if len(row) != len(rows[0]) or not row:
                raise ValueError(
                    f"row {place} has {len(row)} numbers, row 1 has {len(rows[0])}; give every row "
                    "as many"
                )
        if words and len(words) < len(rows):
            raise ValueError("name every row or none")
    except ValueError as error:
        raise ConfigError(f"embeddings {source}", str(error)) from None
    return words or None, rows


def _from_json(text: str) -> list[Named]:
    try:
        data: Any = json.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None
    named: list[Named] = []
    for place, each in enumerate(data, 1):
        word, row = (each, data[each]) if isinstance(data, dict) else (None, each)
        if not isinstance(row, list):
            raise ValueError(f"row {place} is not a list of numbers")
        named.append((word, [_number(cell, f"row {place}") for cell in row]))
    return named


def _from_lines(text: str) -> list[Named]:
    named: list[Named] = []
    for place, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip('"') for cell in re.split(r"\s*[,;]\s*|\s+", line.strip()) if cell]
        if not cells or cells[0].startswith("#"):
            continue
        word = None
        try:
            float(cells[0])
        except ValueError:
            word = cells.pop(0)
        named.append((word, [_number(cell, f"line {place}") for cell in cells]))
    return named


def _number(cell: Any, where: str) -> float:
    try:
        if isinstance(cell, bool):
            raise TypeError
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{where}: {str(cell)[:20]!r} is not a number") from None
