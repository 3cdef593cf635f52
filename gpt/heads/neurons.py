"""What each unit of the feed-forward layers follows: correlations of its values with features of
the text, the names that follow from them, and how much the loss rises without it.

A unit's value is its column of the stage ffn_hidden. Tensor names: N texts, T time, U units, K
features, L layers, C n_embd.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import call
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Cell, Column, Fold, Note, Table, Title, number
from gpt.characters import quoted
from gpt.config import Ablation, AttentionKind, NeuronsConfig
from gpt.devices import cores, require_memory
from gpt.errors import ConfigError
from gpt.heads.ablation import REPLACED_BY, Texts, other_windows
from gpt.heads.features import FEATURES, features
from gpt.heads.measures import CERTAIN, Measure, places, standard_errors
from gpt.heads.places import head_name
from gpt.heads.survey import ADVICE, Survey, sorted_places
from gpt.reading.decode import on_cores
from gpt.reading.gpt import CROSS, Reader
from gpt.reading.layers import Array
from gpt.reading.score import surprisals, windows_at_once
from gpt.words import counted

RANDOM = 64  # random directions of each layer
#: Least correlations that give a name; of one character, so that most of a unit's value is on it.
#: Chosen on models of the Python reference and of repeats (benchmarks/LOG.md).
STRONG, SINGLE = 0.3, 0.8
FEWEST = 3  # texts that must have a character for it to be a feature
AT_ONCE = 32  # features
VARIES = 1e-9  # least share of a variance that a part of the text has
TITLES = FEATURES | {
    "character": ("one character", "the character is the one, of all, that the unit follows most"),
}
#: The rule of names, as text.
RULE = (
    f"a unit gets the name of its strongest correlation that is at least {STRONG:g}, with one "
    f"character {SINGLE:g}, and {CERTAIN:g} standard errors above the highest of {RANDOM} random "
    "directions of its layer; “falls”: the correlation is negative"
)


@dataclass(frozen=True, repr=False)
class UnitMeasure(Measure):
    """A correlation (Pearson's, −1 … 1) or the effect of every unit: values and errors are (L, U),
    NaN where unknown. uniform (L, U): the largest absolute value of a layer's random directions.

    characters (L, U): of the measure `character`, the one that each unit follows most; uniform is
    of the same one.
    """

    characters: npt.NDArray[np.object_] | None = None

    def __repr__(self) -> str:
        return f"<UnitMeasure {self.name} of {self.values.size:,} units>"

    def cell(self, layer: int, head: int, errors: bool = True) -> Cell:
        """A unit's value with its standard error; of a character "'e' .90±.02/.31": which one, and
        the value of random directions.
        """
        found = super().cell(layer, head, errors)
        if found.share is not None and self.characters is not None:
            random = self.random(layer, head)
            text = f"{quoted(self.characters[layer, head])} {found.text}/{random}"
            found = replace(found, text=text)
        return replace(found, share=found.share and abs(found.share))

    def random(self, layer: int, unit: int = 0) -> str:
        """The value of random directions, as text; nothing where there is none."""
        return number(self.uniform_of(layer, unit)).strip("–")

    def uniform_cell(self) -> Cell:
        """The largest value of random directions; "/" where it stands beside each unit's."""
        highest = max(map(self.random, range(len(self.values))))
        return Cell("/" if self.characters is not None else highest, tone="dim")

    def blocks(self) -> list[Block]:
        """The units with the largest values."""
        return Neurons((self,), self.windows, 0, sort=self.name).blocks()

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Its values, errors and those of random directions for every unit."""
        of = {} if self.characters is None else {"character_of": self.characters.ravel()}
        return super().columns() | of


@dataclass(frozen=True, repr=False)
class Neurons(Survey):
    """The measures of all units of the feed-forward layers, with an encoder of the decoder's.

    sort, top: in which order, and how many units tables show; the others have no effect measured.
    """

    measures: tuple[UnitMeasure, ...]
    sort: str | None = None
    top: int = NeuronsConfig.top  # type: ignore[assignment]

    what, letter, even, rule, title = "unit", "N", "random", RULE, "neurons"
    caveat = "a correlation is not an effect"

    def __repr__(self) -> str:
        units = counted(self.measures[0].values.size, "unit")
        return f"<Neurons: {units} on {self.measured}: {self.named}>"

    @property
    def named(self) -> str:
        """How many units have which name."""
        groups = Counter(name.split(" '")[0] for row in self.names for name in row if name)
        counts = ", ".join(f"{count:,} {name}" for name, count in groups.most_common())
        return f"named: {counts}" if counts else "no unit gets a name"

    @cached_property
    def _earned(self) -> tuple[npt.NDArray[np.intp], Array]:
        """(L, U) which of the measures names a unit, −1 for none; and its size, or if there is none
        the largest one − 1.
        """
        sizes, errors, random = (
            np.abs([getattr(each, name) for each in self.measures])  # (K, L, U)
            for name in ("values", "errors", "uniform")
        )
        least = [SINGLE if each.characters is not None else STRONG for each in self.measures]
        named = (sizes >= np.reshape(least, (-1, 1, 1))) & (sizes - CERTAIN * errors > random)
        of = [each.name != "ablation" for each in self.measures]
        size = np.where(named, sizes, np.nan_to_num(sizes) * np.reshape(of, (-1, 1, 1)) - 1)
        return np.where(named.any(axis=0), size.argmax(axis=0), -1), size.max(axis=0)

    @property
    def names(self) -> list[list[str]]:
        """(L, U) the name of each unit by RULE, or ""."""
        best, _ = self._earned
        names = np.full(best.shape, "", object)
        for at in zip(*np.nonzero(best >= 0), strict=True):
            found = self.measures[best[at]]
            names[at] = found.title + ", falls" * bool(found.values[at] < 0)
            if found.characters is not None:
                names[at] += f" {quoted(found.characters[at])}"
        return names.tolist()  # type: ignore[no-any-return]

    def shown(self, every: bool = False) -> list[UnitMeasure]:  # type: ignore[override]
        """The measures of features that the text has."""
        return [each for each in self.measures if not np.isnan(each.values).all()]

    def ranking(self, sort: str | None = None) -> list[tuple[int, int]]:
        """(layer, unit) of every unit; the strongest of each name, then the second of each …, then
        those without a name. sort: the largest absolute value of a measure first.

        Raises ConfigError for an unknown measure.
        """
        if sort := sort or self.sort:
            return Survey(tuple(map(_absolute, self.measures)), self.windows, 0).ranking(sort)
        (best, sizes), seen, ranks = self._earned, Counter[int](), dict[tuple[int, int], int]()
        for at in sorted_places(sizes):
            name = int(best[at])
            ranks[at] = seen[name] if name >= 0 else best.size
            seen[name] += 1
        return sorted(ranks, key=ranks.__getitem__)

    def blocks(
        self, every: bool = False, sort: str | None = None, top: int | None = None
    ) -> list[Block]:
        """How many units have which name, a row for each unit that is shown, and for each layer
        the largest values of random directions. Raises ConfigError.
        """
        chosen, names, order = self.shown(every), self.names, self.ranking(sort)
        columns = [Column("unit", left=True), Column("name", left=True)]
        rows, count = list[list[Cell]](), min(top or self.top, len(order))
        for at in order[:count]:
            begin = Cell(head_name(*at, self.letter)), Cell(names[at[0]][at[1]] or "–")
            rows.append([*begin, *(each.cell(*at) for each in chosen)])
        for layer in range(len(names)):
            texts = ["/" if m.characters is not None else m.random(layer) for m in chosen]
            rows.append([Cell(each, tone="dim") for each in (f"{self.even} L{layer}", "", *texts)])
        sure = "±: standard error" if self.windows > 1 else "one window: too little for names"
        ablated = any(each.name == "ablation" for each in chosen)
        effect = "Δloss of these alone" if ablated else "--ablate mean measures their effect"
        return [
            Title(self.title, [self.measured]),
            Note(self.named),
            Table([*columns, *(Column(each.title) for each in chosen)], rows, labels=2),
            Fold("what the columns mean", [*(Note(m.meaning) for m in chosen), Note(sure)]),
            Note(self.rule),
            Note(f"shown: {count:,} of {len(order):,}, --top N shows others · {effect}"),
        ]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The layer, number and name of every unit, and its measures."""
        columns = places(self.measures[0].values.shape)
        columns |= {"unit": columns.pop("head"), "name": np.array(self.names).ravel()}
        return columns | {name: it for each in self.measures for name, it in each.columns().items()}


def _absolute(measure: UnitMeasure) -> UnitMeasure:
    """The measure without signs, but for the effect."""
    return replace(measure, values=abs(measure.values)) if measure.name != "ablation" else measure


def neurons(
    reader: Reader,
    texts: Texts,
    characters: Sequence[str],
    asked: NeuronsConfig,
    text: str = "a text",
    done: Callable[[float], object] = lambda share: None,
    ablated: Sequence[tuple[int, int]] = (),
) -> Neurons:
    """The measures of every unit on texts, whose name is `text`. characters: of the vocabulary.

    ablated: the units, (layer, unit), whose effect is measured; none: those that are shown. done:
    receives the share of the work that is done. Raises ConfigError for an unknown measure to sort
    by, TextError if there is one window only to resample from.
    """
    (N, T), config = texts.ids.shape, reader.config
    row = config.n_layer * (config.ffn_hidden + 2 * config.n_embd) + 8 * config.ffn_hidden
    require_memory("measuring", T, lambda n: 4 * N * n * row, ADVICE)
    follows, layers, passed = _features_of(texts, characters), [], forwards(reader, texts)
    for layer in range(config.n_layer):
        layers.append(_of_layer(values_of(passed, layer), texts, follows, layer))
        done((layer + 1) / config.n_layer / (1 + bool(asked.ablate)))
    values, errors, random, ids = (np.stack(each, axis=-2) for each in zip(*layers, strict=True))
    measures = [
        UnitMeasure(name, *TITLES[name], values[n], errors[n], random[n], N)
        for n, name in enumerate(TITLES)
    ]
    measures[-1] = replace(measures[-1], characters=np.array([*characters], object)[ids])
    kind: AttentionKind | None = None if texts.sources is None else "decoder"
    found = Neurons(tuple(measures), N, T, text, kind, sort=asked.sort, top=asked.top)
    by_effect = asked.ablate and asked.sort == "ablation"
    order = (replace(found, sort=None) if by_effect else found).ranking()
    if asked.ablate:
        units = ablated or order[: asked.top]
        effect = ablate_units(passed, units, asked.ablate, lambda share: done((1 + share) / 2))
        found = replace(found, measures=(effect, *measures))
    return found


def _features_of(texts: Texts, characters: Sequence[str]) -> Array:
    """(N, T, K) the features of FEATURES; NaN for padding."""
    found = np.full((*texts.ids.shape, len(FEATURES)), np.nan)
    for n, read in enumerate(texts.read):
        row = [characters[each] for each in (*texts.ids[n, read], texts.targets[n, read][-1])]
        values = features(row, begins=texts.sources is not None)
        found[n, read] = np.transpose([*values.values()])
    return found


def _of_layer(
    hidden: Array, texts: Texts, follows: Array, seed: int
) -> tuple[Array, Array, Array, Array]:
    """(N, T, U) -> of each feature, the character last, the (K + 1, U) correlations, their standard
    errors and the largest ones of random directions; and the (U,) ids of characters.
    """
    K, U = follows.shape[-1], hidden.shape[-1]
    mixed = np.random.default_rng(seed).standard_normal((U, RANDOM))
    x = np.concatenate([hidden, hidden @ (mixed / np.linalg.norm(mixed, axis=0))], axis=-1)
    each_text = [np.unique(ids[read]) for ids, read in zip(texts.ids, texts.read, strict=True)]
    seen, counts = np.unique(np.concatenate(each_text), return_counts=True)
    often, found = seen[counts >= min(FEWEST, counts.max())], [correlations(follows, x)]
    for ids in np.array_split(often, math.ceil(len(often) / AT_ONCE)):
        ones = np.where(texts.read[..., None], texts.ids[..., None] == ids, np.nan)
        found.append(correlations(ones, x))
    values, errors = (np.concatenate(each) for each in zip(*found, strict=True))
    random = np.fmax.reduce(np.abs(values[:, U:]), axis=1)
    best = np.nan_to_num(np.abs(values[K:, :U])).argmax(axis=0)
    rows = np.concatenate([np.tile(np.arange(K)[:, None], U), K + best[None]])
    columns = np.arange(U)
    return values[rows, columns], errors[rows, columns], random[rows], often[best]


def correlations(follows: Array, x: Array) -> tuple[Array, Array]:
    """(N, T, K) features, NaN where unknown, and (N, T, U) values -> (K, U) Pearson's correlations
    over all known positions, and their standard errors by the jackknife over texts (Tukey 1958).

    NaN where a feature or a unit does not vary.
    """
    N, known = len(x), ~np.isnan(follows)
    f = np.where(known, follows, 0.0)
    f = np.where(known, f - f.sum(axis=(0, 1)) / np.maximum(1, known.sum(axis=(0, 1))), 0.0)
    x = x - x.mean(axis=(0, 1), dtype=np.float64)
    ones = known.swapaxes(1, 2).astype(np.float64)  # (N, K, T)
    n, of_f, of_ff = (each.sum(axis=1)[..., None] for each in (known, f, f * f))  # (N, K, 1)
    sums = [n, of_f, ones @ x, of_ff, ones @ (x * x), f.swapaxes(1, 2) @ x]  # and (N, K, U)
    whole = [each.sum(axis=0) for each in sums]
    least = VARIES * whole[3], VARIES * (x * x).sum(axis=(0, 1))  # of a variance
    others = _pearson([each - part for each, part in zip(whole, sums, strict=True)], least)
    errors = others.std(axis=0) * (N - 1) ** 0.5
    return _pearson(whole, least), errors if N > 1 else np.full_like(errors, np.nan)


def _pearson(sums: Sequence[Array], least: tuple[Array, Array]) -> Array:
    """Correlations; NaN where a variance, times the number of positions, is not above `least`."""
    n, f, x, ff, xx, fx = sums
    with np.errstate(all="ignore"):
        of_f, of_x = ff - f * f / n, xx - x * x / n
        vary = (of_f > least[0]) & (of_x > least[1])
        return np.where(vary, (fx - f * x / n) / np.sqrt(of_f * of_x), np.nan)


class Forward:
    """Some texts under the whole model. stages: (name, layer) -> (B, T, …): the units, what the
    stream is before the feed-forward, and what that adds. losses: (B,) mean nats of the targets.
    """

    def __init__(self, reader: Reader, texts: Texts) -> None:
        self.reader, self.texts, self.stages = reader, texts, dict[tuple[str, int], Array]()
        self._memory: dict[str, Any] = {}
        if texts.sources is not None:
            self._memory["memory"] = reader.encode(texts.sources, texts.seen)
        layers = range(reader.config.n_layer)
        self.losses = self._loss(
            reader.blocks(reader.embed(texts.ids), layers, self._keep, **self._memory)
        )

    def _keep(self, name: str, layer: int, stage: Array) -> Array:
        if (own := name.removeprefix(CROSS)) in ("ffn_hidden", "resid_mid", "ffn_out"):
            self.stages[own, layer] = stage
        return stage

    def rise(self, layer: int, unit: int, new: Array) -> Array:
        """(B,) rise of each text's loss if a unit has other values, (B, T): their difference times
        its column of the down projection is added to the stream.
        """
        reader, units = self.reader, self.stages["ffn_hidden", layer]
        weight, _ = reader.linear(f"blocks.{layer}.feed_forward.down")  # (C, U)
        moved = (new - units[..., unit]).astype(reader.dtype)[..., None] * weight[:, unit]
        out, block = self.stages["ffn_out", layer] + moved, f"blocks.{layer}.norm2"
        x = reader.add(self.stages["resid_mid", layer], out, block)
        later = range(layer + 1, reader.config.n_layer)
        return self._loss(reader.blocks(x, later, **self._memory)) - self.losses

    def _loss(self, x: Array) -> Array:
        """(B, T, C), what leaves the last layer -> (B,)"""
        read, logits = self.texts.read, self.reader.logits(self.reader.final_norm(x))
        nats = surprisals(logits, self.texts.targets).astype(np.float64) * read
        return nats.sum(axis=-1) / read.sum(axis=-1)  # type: ignore[no-any-return]


def forwards(reader: Reader, texts: Texts) -> list[Forward]:
    """One for each core, or more if memory needs it."""
    size = min(windows_at_once(reader.config), math.ceil(len(texts) / cores()))
    parts = [texts.part(slice(first, first + size)) for first in range(0, len(texts), size)]
    return on_cores(partial(Forward, reader), parts)


def values_of(passed: Sequence[Forward], layer: int, unit: int | slice = slice(None)) -> Array:
    """(N, T, U) the units of a layer, or (N, T) one of them."""
    return np.concatenate([each.stages["ffn_hidden", layer][..., unit] for each in passed])


def ablate_units(
    passed: Sequence[Forward],
    units: Sequence[tuple[int, int]],
    how: Ablation,
    done: Callable[[float], object] = lambda share: None,
    seed: int = 0,
) -> UnitMeasure:
    """Rise of the loss by each of some units, (layer, unit), in nats a character, with paired
    standard errors over texts; NaN for the others. how: as for heads (gpt/heads/ablation.py).

    Raises TextError if there is one text only to resample from, ConfigError to resample pairs.
    """
    read, config = np.concatenate([each.texts.read for each in passed]), passed[0].reader.config
    if how == "resample" and config.encoder_layers:
        raise ConfigError("ablation of pairs: mean or zero; resample needs texts of one length")
    others = other_windows(len(read), seed) if how == "resample" else None
    rises = np.full((len(read), config.n_layer, config.ffn_hidden), np.nan)
    for n, (layer, unit) in enumerate(units):
        values = values_of(passed, layer, unit)
        mean = values[read].mean(dtype=np.float64) if how == "mean" else 0.0
        new = np.full(values.shape, mean) if others is None else values[others]
        ends = np.cumsum([len(each.losses) for each in passed])[:-1]
        parts = zip(passed, np.split(new, ends), strict=True)
        works = [partial(each.rise, layer, unit, part) for each, part in parts]
        rises[:, layer, unit] = np.concatenate(on_cores(call, works))
        done((n + 1) / len(units))
    explained = f"rise of the loss without the unit (its value: {REPLACED_BY[how]}), nats/char"
    values, errors = rises.mean(axis=0), standard_errors(rises)
    unknown = np.full_like(values, np.nan)
    return UnitMeasure("ablation", "Δloss", explained, values, errors, unknown, len(read))
