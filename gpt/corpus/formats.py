"""Tables, JSON, notebooks, web pages and subtitles: recognised by what is in them, and one column
of a table read as items.

Knows texts and lines, but opens no files.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpt.errors import TextError
from gpt.words import first_few

SHOWN = 2**14  # characters at the start of a text that show its kind
FEWEST_ROWS = 3  # of a table, without its header
ALIKE = 0.9  # of its rows have as many fields as its header; the others are broken
DELIMITERS = ",\t;|"
LONGEST_FIELD = 2**24  # characters; Python's csv reads 131,072 unless it is told otherwise
COLUMN = re.compile(r"[^\W\d]\w*([ ./()%-]+\w+){0,2}\)?")  # the name of one: up to three words
MOST_COLUMNS = 12  # that a message names
#: How a text begins -> what it is, and what a model would learn of it besides its words.
BEGINNINGS = {
    r'\{\s*"(cells|nbformat|metadata)"': ("a notebook", "cell types, outputs and \\n"),
    r'\{\s*"|\[\s*([\[{]\s*["\d]|"[^"]*"\s*,|-?\d[\d.]*\s*,)': (
        "JSON",
        "braces, quotes and \\u2014",
    ),
    r"(?i)<(!doctype html|html|head|body)\b": ("HTML", "tags and &amp;"),
    r"<\?xml\b": ("XML", "tags and &amp;"),
    r"WEBVTT\b|\d+\n\d\d:\d\d:\d\d[,.]\d{3} --> ": ("subtitles", "numbers and times"),
}


@dataclass(frozen=True)
class Table:
    """The form of a table. delimiter: "" for JSON lines."""

    columns: tuple[str, ...]
    delimiter: str = ""

    @property
    def kind(self) -> str:
        return {"": "JSON lines", "\t": "TSV"}.get(self.delimiter, "CSV")


def table_of(head: str) -> Table | None:
    """The table that begins with these characters, as far as they show; None for another text."""
    whole = head if len(head) < SHOWN else head[: head.rfind("\n") + 1]
    lines = [line for line in whole.split("\n") if line.strip()]
    with suppress(ValueError):
        records = [json.loads(line) for line in lines]
        if len(records) > 1 and all(isinstance(record, dict) for record in records):
            return Table(tuple(dict.fromkeys(name for record in records for name in record)))
    for delimiter in DELIMITERS:
        with suppress(csv.Error):
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
            header = [name.strip() for name in rows[0]] if rows else []
            are_names = len({*header}) == len(header) > 1 and all(map(COLUMN.fullmatch, header))
            alike = sum(len(row) == len(header) for row in rows[1:])
            if are_names and alike >= max(FEWEST_ROWS, ALIKE * (len(rows) - 1)):
                return Table(tuple(header), delimiter)
    return None


def note_of(head: str) -> str:
    """What a model would learn from a text that begins with these characters, and what helps; ""
    for a plain text.
    """
    head = head[:SHOWN]
    if table := table_of(head):
        learned = (
            "names, braces, quotes and \\u2014" if table.kind == "JSON lines" else "all columns"
        )
        names = first_few(table.columns, MOST_COLUMNS, ", ")
        return (
            f"{table.kind}: {learned} would be learned; to learn from one column, use `column`: "
            f"{names}"
        )
    for pattern, (kind, learned) in BEGINNINGS.items():
        if re.match(pattern, head.lstrip()):
            return f"{kind}: {learned} would be learned, too; to avoid this, extract its text first"
    return ""


def read_column(lines: Iterable[str], table: Table | None, column: str, name: str) -> Iterator[str]:
    """The items of one column that are not empty. lines: of the whole text, with their ends. name:
    the text's. Raises TextError for an unknown or empty column, or a broken line.
    """
    if table is None:
        raise TextError(f"{name} has no columns: `column` reads CSV, TSV and JSON lines")
    if column not in table.columns:
        names = first_few(table.columns, MOST_COLUMNS, ", ")
        raise TextError(f"{name} has no column {column!r}; its columns are {names}")
    read = _json_items if table.kind == "JSON lines" else _csv_items
    is_empty = True
    for item in read(lines, table, column, name):
        if item.strip():
            is_empty = False
            yield item
    if is_empty:
        raise TextError(f"{name}: the column {column!r} is empty")


def _csv_items(lines: Iterable[str], table: Table, column: str, name: str) -> Iterator[str]:
    csv.field_size_limit(LONGEST_FIELD)  # of the process: no argument sets it for one reader
    reader = csv.reader(lines, delimiter=table.delimiter, strict=True)
    place = table.columns.index(column)
    try:
        for number, row in enumerate(filter(None, reader)):
            if len(row) != len(table.columns):
                raise csv.Error(f"{len(row)} fields in place of {len(table.columns)}")
            if number:  # the first row has the names
                yield row[place]
    except csv.Error as error:
        raise TextError(f"{name}, line {reader.line_num:,}: broken {table.kind}: {error}") from None


def _json_items(lines: Iterable[str], _: Table, column: str, name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record: Any = json.loads(line)
                item = record.get(column) if isinstance(record, dict) else record
            except ValueError as error:
                raise TextError(f"{name}, line {number:,}: broken JSON: {error}") from None
            if not isinstance(item, str | None):
                raise TextError(f"{name}, line {number:,}: {column!r} is no text: {item!r:.40}")
            yield item or ""
