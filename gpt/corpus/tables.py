"""Reads tables of inflection as pairs: lines `lemma TAB form TAB features` (SIGMORPHON until 2022)
or `lemma TAB features TAB form` (2023) become `lemma features TAB form`.

It knows lines of text, no ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpt.corpus.pair_lines import NEWLINE, QUOTED, RETURN, TAB
from gpt.errors import TextError
from gpt.vocabulary import SPACE

if TYPE_CHECKING:
    from gpt.corpus.sources import Source

SAMPLED, HEAD = 1000, 2**20  # lines and bytes at a text's start that decide what it is
LEAST_SHARE = 0.9  # share of the lines that are in three columns, or of the cells that are features
_FEATURES = re.compile(r"[A-Z0-9][A-Z0-9_.,+*/(){}\-]*(;[A-Z0-9_.,+*/(){}\-]+)+")


def are_features(cells: Sequence[str]) -> bool:
    """Whether nearly all cells are morphological features: "V;PST;3;SG", "N;NOM(PL)"."""
    return sum(map(bool, map(_FEATURES.fullmatch, cells))) >= LEAST_SHARE * len(cells) > 0


def features_column(lines: Sequence[str]) -> int | None:
    """The index, 1 or 2, of the column with the features if the first lines show that the text is a
    table of inflection; else None.
    """
    rows = [line.removesuffix(RETURN).split(TAB) for line in lines[:SAMPLED] if line.strip()]
    table = [row for row in rows if len(row) == 3]
    if not table or len(table) < LEAST_SHARE * len(rows):
        return None
    found = [column for column in (1, 2) if are_features([row[column] for row in table])]
    return found[0] if len(found) == 1 else None


def source_of_columns(line: str) -> str:
    """ "lemma TAB features", two columns of a table, as a source; other lines stay as they are."""
    lemma, _, features = line.partition(TAB)
    return f"{lemma}{SPACE}{features}" if are_features([features.removesuffix(RETURN)]) else line


def pairs_of_table(text: str) -> str:
    """The text as pairs if it is a table of inflection; else the text. Raises TextError with the
    number of a line that does not have three columns.
    """
    lines = text.split(NEWLINE)
    column = features_column(lines)
    return text if column is None else NEWLINE.join(_pairs(lines, column))


def _pairs(lines: Iterable[str], column: int, of: str = "") -> Iterator[str]:
    """The lines of a table as pairs; blank lines stay."""
    for number, line in enumerate(lines, 1):
        body = line.removesuffix(RETURN)
        cells = body.split(TAB)
        if not body:
            yield line
        elif len(cells) == 3 and all(cells):
            joined = f"{cells[0]}{SPACE}{cells[column]}{TAB}{cells[3 - column]}"
            yield joined + line[len(body) :]  # keeps the number of bytes, to which errors refer
        else:
            shown = f"{line[:QUOTED]!r}" + "…" * (len(line) > QUOTED)
            raise TextError(
                f"line {number:,}{of} does not have the three columns of the other lines, lemma, "
                f"form and features: {shown}; correct the line or delete it"
            )


def table_as_pairs(source: Source, split: str, data: Path, notes: list[str]) -> Source:
    """The source, or a copy of it as pairs in `data` if it is a table of inflection; sources.py
    explains copies. Adds a note for the user to `notes`. Raises TextError, StorageError.
    """
    # Slow to import, and `sample` does not need it.
    from gpt.corpus.sources import open_source, temporary_copy

    with open_source(source) as stream:
        head = (stream.read(HEAD) or b"").decode("utf-8-sig", "replace").split(NEWLINE)
    column = features_column(head[: max(1, len(head) - 1)])
    if column is None:
        return source
    with temporary_copy(data) as copy, open_source(source) as stream:
        lines = (line.decode(errors="surrogateescape") for line in stream)
        texts = (line.removesuffix(NEWLINE) for line in lines)
        for pair in _pairs(texts, column, f" of {source.name}"):
            copy.write(f"{pair}{NEWLINE}".encode(errors="surrogateescape"))
    example = next(_pairs((line for line in head if line.strip()), column)).split(TAB)[0]
    advice = "; to validate on other lemmas: `split='group:1'`" * (split in ("last", "source"))
    notes.append(
        f"{source.name} is a table of lemma, form and features: a source is the lemma, a space and "
        f"the features, as in {example!r}{advice}"
    )
    return replace(source, spooled=copy)
