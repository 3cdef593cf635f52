"""New items of a list, such as names: whole ones that are not in the text, no two equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpt.config import SampleConfig
from gpt.corpus.corpus import splits_of_run
from gpt.errors import TextError

if TYPE_CHECKING:
    from gpt.interface.trained import TrainedGPT

AT_ONCE = 64  # samples
MOST_ROUNDS = 20  # rounds of samples without a new item, in turn
NEXT_SEED = 2**32  # between the seeds of two rounds


def new_items(model: TrainedGPT, config: SampleConfig, data: Path = Path("data")) -> Iterator[str]:
    """Up to config.n items; fewer if the model finds no more. An item that is longer than
    config.length is not whole. config: with a seed. data: the folder of the encoded corpora.

    Raises TextError if the run's text is not a list, or is gone.
    """
    separator = model.separator
    if not separator:
        raise TextError("`new`: this run has learned no list; train it with `items`")
    known = {""}
    for ids in splits_of_run(model.name, model.recorded, data, "`new`"):
        known |= {*model.vocabulary.decode(ids).split(separator)}
    left, seed, rounds = config.n, config.seed or 0, 0
    config = replace(config, n=min(config.n, AT_ONCE), keep_stop=False)
    while left and rounds < MOST_ROUNDS:
        samples = model.stream("", replace(config, seed=seed), data=data)
        texts = [""] * len(samples.stopped)
        for gained in samples:
            texts = [text + new for text, new in zip(texts, gained, strict=True)]
        rounds += 1
        for item, stop in zip(texts, samples.stopped, strict=True):
            if left and stop and item not in known:
                known.add(item)
                yield item
                left, rounds = left - 1, 0
        seed = (seed + NEXT_SEED) % 2**63
