"""Texts of pairs to test with."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gpt.config import TrainConfig
from gpt.corpus.corpus import Corpus, read_corpus
from gpt.corpus.pairs import Pairs
from gpt.vocabulary import Ids

WORDS = "".join(map(chr, range(ord("a"), ord("k")))) + "árvíztűrő年月日👩🚀 \u2028\x85\0"
SIDE = st.text(st.sampled_from(WORDS), min_size=1, max_size=8)
LINES = st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=30)
ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n\r\n"])


def read(folder: Path, *texts: str, **options: Any) -> Corpus:
    """The texts, in files 0.tsv, 1.tsv, …, as a corpus of pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.tsv").write_bytes(text.encode())
    names = [str(folder / f"{number}.tsv") for number in range(len(texts))]
    config = TrainConfig(**options)
    return read_corpus(names, folder / "data", io.BytesIO(), config=config, pairs=True)


def texts_of(pairs: Pairs, corpus: Corpus, lines: Sequence[int]) -> list[tuple[str, str]]:
    """(source, target) of these lines."""
    decode = corpus.vocabulary.decode
    both = (sides(pairs, line) for line in lines)
    return [(decode(source), decode(target)) for source, target in both]


def sides(pairs: Pairs, line: int) -> tuple[Ids, Ids]:
    """The ids of a line's source and target."""
    start, tab, end = pairs.starts[line], pairs.tabs[line], pairs.ends[line]
    return pairs.ids[start:tab], pairs.ids[tab + 1 : end]
