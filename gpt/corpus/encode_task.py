"""What one process does for a part of a text: writes it down in provisional ids, or looks them up.

Each is told all that it needs as JSON, so that any process can do it. Knows no other parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from gpt.corpus.draft_ids import Numbers, TooMany
from gpt.corpus.texts import Span, changed
from gpt.corpus.workers import Answer, Task
from gpt.errors import StorageError
from gpt.storage import files
from gpt.vocabulary import Ids

AT_ONCE = 2**17  # ids that are looked up together


def bytes_of(ids: Ids) -> memoryview:
    """The bytes of an array that lie together, not copied."""
    return np.ascontiguousarray(ids).data.cast("B")


def write_down(task: Task) -> Answer:
    """Spans in provisional ids, in their place in the draft; nothing if there are too many.

    Raises TextError and StorageError.
    """
    width, checksum = np.dtype(task["width"]), blake3()
    try:
        numbers = Numbers(task["known"], width, task["plenty"], task["often"])
        with _written(task, width) as append:
            for values, left in task["spans"]:
                span = Span(**values)
                for text in span.chunks():
                    ids = numbers.ids(text)
                    left -= len(ids)
                    if left < 0:
                        break
                    append(bytes_of(ids))
                    checksum.update(bytes_of(ids))
                if left:
                    raise changed(span.name)
    except TooMany:
        return {}
    new = numbers.characters[len(task["known"]) :]
    counts = numbers.counts.tolist()
    return {"new": new, "counts": counts, "checksum": checksum.hexdigest()}


def look_up(task: Task) -> Answer:
    """Final ids for provisional ones, in their place. Raises StorageError."""
    before, after = blake3(), blake3()
    with _written(task, np.dtype(task["to"])) as append:
        for ids in looked_up(task, before):
            append(bytes_of(ids))
            after.update(bytes_of(ids))
    if before.hexdigest() != task["checksum"]:
        raise StorageError(f"{task['path']} is not what was written; check the disk")
    return {"checksum": after.hexdigest()}


def look_up_again(task: Task) -> Answer:
    """The same, where that may have been done to some of the ids. Raises as write_down, too."""
    write_down(task["task"])
    return look_up(task)


def looked_up(task: Task, checksum: blake3 | None = None) -> Iterator[Ids]:
    """Final ids for provisional ones, from a place on. Their checksum goes on with what was there.

    Raises StorageError.
    """
    table, width = np.array(task["table"], task["to"]), np.dtype(task["width"])
    narrow = table.tobytes().ljust(256) if table.itemsize == width.itemsize == 1 else b""
    at, left = task["first"] * width.itemsize, task["count"] * width.itemsize
    with files.storage_errors(f"read {task['path']}"), open(task["path"], "rb", 0) as file:
        while left:
            file.seek(at)
            data = file.read(min(left, AT_ONCE * width.itemsize))
            if not data:
                raise StorageError(f"{task['path']} is shorter than it was written")
            if checksum is not None:
                checksum.update(data)
            if narrow:  # the same as below, and faster
                yield np.frombuffer(data.translate(narrow), np.uint8)
            else:
                yield np.take(table, np.frombuffer(data, width), mode="clip")
            at, left = at + len(data), left - len(data)


@contextmanager
def _written(task: Task, width: np.dtype[Any]) -> Iterator[files.Write]:
    """Writes ids into the draft, from a task's place on. Raises StorageError."""
    path = Path(task["path"])
    with (
        files.storage_errors(f"write {path.parent}"),
        files.writing_at(path, task["first"] * width.itemsize) as append,
    ):
        yield append
