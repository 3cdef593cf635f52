"""Packs the counting tables for the page's data, in a third of the space of their compressed
arrays.

Most of the trie follows from the rest of it. What follows a history also follows the history
without its first character. So for each history we only store which of the characters after the
shorter history follow it, too: these characters are its candidates. And the count of an n-gram
below the last order is the number of longer n-grams that end with it. assets/model/tables.js reads
what this module writes.

The data, compressed by gzip: the gaps between the ids of the characters that occur; for each
further order, the subsets of its histories; the four bytes of each count of the last order, all
lowest bytes first. A history with at most DENSE candidates has one bit for each, set for candidates
that follow it. These histories are sorted by the number of their candidates, as this compresses
best, and their bits are filled up to a whole byte. Then, for each other history, come the gaps
before the candidates that follow it and before the end of its candidates. A gap of 255 or more
takes several bytes: 255 as often as it fits, then the rest.
"""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.counting.mixture import load_mixture
from gpt.counting.tables import Numbers, Trie
from gpt.errors import CheckpointError
from gpt.storage.model_file import StoredModel
from gpt.view.page.packing import in_base64

DENSE = 32
LEVEL = 6  # of gzip; 9 takes five times as long for 2% less


def counting_record(stored: StoredModel) -> dict[str, Any] | None:
    """The counting tables of a model file; None without counting.

    Raises CheckpointError if they are damaged.
    """
    mixture = load_mixture(stored)
    if mixture is None:
        return None
    trie, size = mixture.expert.trie, mixture.expert.vocab_size
    try:
        data = packed_trie(trie)
    except ValueError as error:
        raise CheckpointError(f"damaged: {stored.source} ({error})") from error
    return {
        "vocabSize": size,
        "levels": np.diff(trie.ends).tolist(),
        "base64": in_base64(np.frombuffer(data, np.uint8)),
    }


def packed_trie(trie: Trie) -> bytes:
    """The trie in the format of this module. Raises ValueError if no text has such n-grams and
    counts.
    """
    children = np.diff(trie.starts)
    histories = np.repeat(np.arange(len(children)), children)  # (G,) the history of each n-gram
    shorter = np.zeros(len(children), np.int64)  # node -> the node without its first character
    unigrams = trie.symbols[: trie.ends[1]]
    parts = [_gaps(np.append(-1, unigrams))]
    for before, first, end in zip(trie.ends, trie.ends[1:], trie.ends[2:], strict=False):
        history = histories[first:end]
        candidates = shorter[history]
        found = trie.follow(candidates, trie.symbols[first:end])
        seen = found[found < trie.unseen_node] - 1 - before
        counts = np.bincount(seen, minlength=first - before)
        if len(seen) < len(found) or (counts != trie.counts[before:first]).any():
            raise ValueError("no text has these n-grams")
        shorter[1 + first : 1 + end] = found
        nodes = slice(1 + before, 1 + first)  # nodes of this order's histories
        places = found - 1 - trie.starts[candidates]
        parts.append(_subsets(children[shorter[nodes]], history - nodes.start, places))
    last = trie.counts[trie.ends[-2] :].astype("<u4")
    parts.append(last.view(np.uint8).reshape(-1, 4).T.tobytes())
    return gzip.compress(b"".join(parts), LEVEL, mtime=0)


def _subsets(kinds: Numbers, histories: Numbers, places: Numbers) -> bytes:
    """kinds: (H,) the number of candidates of each history. The others are (G,), for each n-gram in
    order: its history, and which candidate it is.
    """
    sparse = kinds > DENSE
    order = np.argsort(np.minimum(kinds, DENSE + 1), kind="stable")
    lengths = (kinds + sparse)[order]  # the end of the candidates counts, too
    begins = np.empty(len(kinds), np.int64)
    begins[order] = np.cumsum(lengths) - lengths
    cells = begins[histories] + places
    dense = int(kinds[~sparse].sum())
    bits = np.zeros(dense, np.bool_)
    bits[cells[cells < dense]] = True
    ends = (begins + kinds)[sparse]
    marks = np.concatenate(([dense - 1], cells[cells >= dense], ends))
    return np.packbits(bits).tobytes() + _gaps(np.sort(marks))


def _gaps(places: Numbers) -> bytes:
    """How many places lie before each place and after the one before it. See above for the
    bytes.
    """
    gaps = places[1:] - places[:-1] - 1
    ends = np.cumsum(gaps // 255 + 1)
    found: npt.NDArray[np.uint8] = np.full(ends[-1] if len(ends) else 0, 255, np.uint8)
    found[ends - 1] = gaps % 255
    return found.tobytes()
