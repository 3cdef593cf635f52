"""Measures of the heads of a model with an encoder: of cross-attention and of the encoder's own
attention.

Each is a mean over pairs, with its standard error and its value for a head that attends uniformly.
For the decoder's self-attention, use the measures of models without an encoder (measures.py),
except those on synthetic texts. Tensor names: N heads of all layers, T rows, S columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gpt.config import Ablation, AttentionKind
from gpt.devices import require_memory
from gpt.errors import TextError
from gpt.heads.ablation import Done, Texts, measure_effects, share_between
from gpt.heads.alignment import alignments, correlations
from gpt.heads.attention_map import AttentionMap, stages_of
from gpt.heads.measures import TITLES, Measure, average_measure, entropies, mean, measure_heads
from gpt.heads.survey import Survey
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.vocabulary import Ids

#: name -> (title, explanation).
CROSS = {
    "copy": (
        "copy",
        "weight on the source's characters that equal the one to be written next; rows for which "
        "there is none left out",
    ),
    "monotone": (
        "monotone",
        "correlation of the row's and the column's position, with the weights as probabilities: 1 "
        "for a straight way through the source, negative for one from its end to its begin",
    ),
    "aligned": (
        "aligned",
        "most weight on pairs of a row and a column that never cross, as a share of their number, "
        "without the end's row: 1 for a head that goes through the source step by step",
    ),
    "sharp": ("sharp", "largest weight of a row"),
    "coverage": (
        "coverage",
        "share of the source's characters that have the largest weight of some row; uniform: if "
        "each row's largest were anywhere by chance",
    ),
    "entropy": TITLES["entropy"],
}
ENCODER = {
    "left": ("left", "weight on the character before"),
    "itself": ("itself", "weight on the character itself"),
    "right": ("right", "weight on the character after"),
    "duplicate": ("duplicate", "weight on other occurrences of the same character"),
    "sink": ("sink", "weight on the first character, from the second row on"),
    "entropy": TITLES["entropy"],
    "distance": ("distance", "mean characters between row and column, in both directions"),
}
#: A source's ids, and the ids that the decoder reads: TAB and the target.
Pair = tuple[Ids, Ids]


def measure_pairs(reader: Reader, maps: Iterable[AttentionMap]) -> list[Measure]:
    """All measures of maps of one kind of attention, in a model with an encoder.

    Leaves out texts of one character; a measure also leaves out texts that have no rows for it.
    """
    first, *others = maps
    kind, every = first.kind, (first, *others)
    if kind == "decoder":
        return measure_heads(reader, every)
    shape = len(first.layers), len(first.layers[0].q)
    taken: dict[str, list[Array]] = {}
    for each in every:
        if min(len(each.ids), len(each.column_ids)) < 2:
            continue
        weights = np.stack([head for layer in each.layers for head in layer.weights])
        found = (
            encoder_measures(weights, each.ids)
            if kind == "encoder"
            else cross_measures(weights, each)
        )
        for name, values in found.items():
            taken.setdefault(name, []).append(values)
    titles = ENCODER if kind == "encoder" else CROSS
    return [average_measure(name, taken[name], shape, titles) for name in titles if name in taken]


def survey_pairs(
    reader: Reader,
    pairs: Sequence[Pair],
    kind: AttentionKind,
    most: int = 32,
    ablation: Ablation | None = None,
    last: int = 0,
    done: Done = lambda share: None,
    text: str = "a text",
) -> Survey:
    """The measures of one kind of attention on at most `most` pairs, evenly spread over all of
    them.

    last: the id after a target, for `ablation`. text: the name of the pairs' text. Raises TextError
    if all pairs are too short, ConfigError like `ablate`.
    """
    chosen = spread_pairs(pairs, most)
    config = reader.config
    layers = config.encoder_layers if kind == "encoder" else config.n_layer
    heads = config.n_head * layers
    S, T = (max(map(len, sides)) for sides in zip(*chosen, strict=True))
    kept = 4 * (config.n_layer * T * (T + S) + config.encoder_layers * S * S)  # of all kinds
    measured = {"cross": 10.5 * T * S, "encoder": 12.0 * S * S, "decoder": 0.0}[kind] * layers
    matrices, longest = 4 * config.n_head * max(kept, measured), max(S, T)
    require_memory("measuring", longest, lambda n: matrices * (n / longest) ** 2)
    work = len(chosen) + (len(chosen) * heads if ablation else 0)

    def maps() -> Iterator[AttentionMap]:
        for number, (source, read) in enumerate(chosen):
            stages = stages_of(reader, read, source)[kind]
            ids = source if kind == "encoder" else read
            yield AttentionMap("", ids, stages, (), kind=kind, source=("", source))
            done((number + 1) / work)

    measures = measure_pairs(reader, maps())
    if not measures:
        raise TextError("the pairs are too short for measures: both sides need two characters")
    if ablation:
        texts, later = Texts.of_pairs(chosen, last), share_between(done, len(chosen) / work)
        measures += measure_effects(reader, texts, ablation, kind, later)
    longest = max(len(side) for pair in chosen for side in pair)
    return Survey(tuple(measures), len(chosen), longest, text, kind)


def spread_pairs(pairs: Sequence[Pair], most: int) -> list[Pair]:
    """At most `most` of the pairs, evenly spread."""
    places = np.linspace(0, len(pairs) - 1, min(most, len(pairs))).round().astype(int)
    return [pairs[place] for place in places]


def cross_measures(weights: Array, found: AttentionMap) -> dict[str, Array]:
    """(N, T, S) weights of a map -> every measure, (N + 1,); the last value is a uniform head's."""
    _, T, S = weights.shape
    source, written = found.column_ids, np.append(found.ids[1:], -1)  # −1: the end of the target
    uniform = np.full((1, T, S), 1 / S)
    every = np.concatenate([weights, uniform])
    equal = written[:, None] == source
    copied = (every * equal).sum(axis=-1)[:, equal.any(axis=-1)]
    strongest = weights.argmax(axis=-1)  # (N, T)
    covered = (strongest[..., None] == np.arange(S)).any(axis=1).mean(axis=-1)
    return {
        "copy": mean(copied),
        "monotone": correlations(every),
        "aligned": alignments(every[:, :-1] if T > 1 else every),
        "sharp": every.max(axis=-1).mean(axis=-1),
        "coverage": np.append(covered, 1 - (1 - 1 / S) ** T),
        "entropy": entropies(every).mean(axis=-1) / np.log(S),
    }


def encoder_measures(weights: Array, ids: Ids) -> dict[str, Array]:
    """(N, T, T) weights of a source -> every measure, (N + 1,), as `cross_measures` has them."""
    T = len(ids)
    every = np.concatenate([weights, np.full((1, T, T), 1 / T)])
    places = np.arange(T)
    away = np.abs(places[:, None] - places)
    equal = (ids[:, None] == ids) & (away > 0)
    repeated = (every * equal).sum(axis=-1)[:, equal.any(axis=-1)]
    return {
        "left": every[:, places[1:], places[:-1]].mean(axis=-1),
        "itself": every[:, places, places].mean(axis=-1),
        "right": every[:, places[:-1], places[1:]].mean(axis=-1),
        "duplicate": mean(repeated),
        "sink": every[:, 1:, 0].mean(axis=-1),
        "entropy": entropies(every).mean(axis=-1) / np.log(T),
        "distance": (every * away).sum(axis=(1, 2)) / T,
    }
