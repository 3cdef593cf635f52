"""What each unit of the feed-forward layers follows: correlations of its values with features of
the text, the names that follow from them, and how much the loss rises without it.

A unit's value is its column of the stage ffn_hidden. Tensor names: N texts, T time, U units, K
features, L layers, C n_embd.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from gpt.heads.survey import ADVICE, Survey, head_name, sorted_places
from gpt.reading.decode import on_cores
from gpt.reading.gpt import CROSS, Reader
from gpt.reading.layers import Array
from gpt.reading.score import surprisals, windows_at_once
from gpt.words import counted

RANDOM = 64  # random directions of each layer
#: Least correlations that give a name; of one character alone, so that most of a unit's value is on
#: it. Chosen on models of the Python reference and of repeats (benchmarks/LOG.md).
STRONG, SINGLE = 0.3, 0.8
FEWEST = 3  # texts that must have a character for it to be a feature
AT_ONCE = 32  # features
VARIES = 1e-9  # least share of a variance that a part of the text has
KEPT = ("ffn_hidden", "resid_mid", CROSS + "resid_mid", "ffn_out")  # stages
CHARACTER = "character"
TITLES = FEATURES | {
    CHARACTER: (
        "one character",
        "the character is a certain one; the one that the unit follows most",
    )
}
#: The rule of names, as text.
RULE = (
    f"a unit gets the name of its strongest correlation that is at least {STRONG:g}, with one "
    f"character {SINGLE:g}, and {CERTAIN:g} standard errors above the highest of {RANDOM} random "
    "directions of its layer; “falls”: the correlation is negative"
)


@dataclass(frozen=True, repr=False)
class UnitMeasure(Measure):
    """A correlation, −1 … 1, or the effect, of every unit: values and errors are (L, U), NaN where
    unknown. uniform (L, U): the largest absolute value of a layer's random directions.

    characters (L, U): of the measure `character`, the one that each unit follows most; uniform is
    of the same one.
    """

    characters: npt.NDArray[np.object_] | None = None

    def __repr__(self) -> str:
        layers, units = self.values.shape
        return f"<UnitMeasure {self.name} of {counted(layers, 'layer')} × {counted(units, 'unit')}>"

    def cell(self, layer: int, head: int, errors: bool = True) -> Cell:
        """A unit's value with its standard error; of a character "'e' .90±.02/.31": which one, and
        the value of random directions.
        """
        found = super().cell(layer, head, errors)
        if found.share is None:
            return found
        text = found.text
        if self.characters is not None:
            text = f"{quoted(self.characters[layer, head])} {text}/{self.random(layer, head)}"
        return replace(found, text=text, share=abs(found.share))

    def random(self, layer: int, unit: int) -> str:
        """The value of random directions, as text; nothing where there is none."""
        found = self.uniform_of(layer, unit)
        return "" if math.isnan(found) else number(found)

    def uniform_cell(self) -> Cell:
        """The value of random directions, the highest of all layers; "/" where it stands beside
        each unit's.
        """
        highest = max(self.random(layer, 0) for layer in range(len(self.values)))
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
    top: int = NeuronsConfig.top

    what, letter, even, rule, title = "unit", "N", "random", RULE, "neurons"
    caveat = "a correlation is not an effect"

    def __repr__(self) -> str:
        layers, units = self.measures[0].values.shape
        whose = f"{counted(layers, 'layer')} × {counted(units, 'unit')}"
        return f"<Neurons of {whose} on {self.measured}: {self.named}>"

    @property
    def named(self) -> str:
        """How many units have which name."""
        groups = Counter(name.split(" '")[0] for row in self.names for name in row if name)
        counts = ", ".join(f"{count:,} {name}" for name, count in groups.most_common())
        return f"named: {counts}" if counts else "no unit gets a name"

    @property
    def features(self) -> list[UnitMeasure]:
        """The correlations, which name units."""
        return [each for each in self.measures if each.name != "ablation"]

    @cached_property
    def _earned(self) -> tuple[npt.NDArray[np.intp], Array]:
        """(L, U) which of `features` names a unit, −1 for none; and its size, or if there is none
        the largest one − 1.
        """
        sizes = np.abs([each.values for each in self.features])  # (K, L, U)
        errors = np.stack([each.errors for each in self.features])
        random = np.stack(
            [np.broadcast_to(each.uniform, each.values.shape) for each in self.features]
        )
        least = [SINGLE if each.name == CHARACTER else STRONG for each in self.features]
        named = (sizes >= np.reshape(least, (-1, 1, 1))) & (sizes - CERTAIN * errors > random)
        size = np.where(named, sizes, np.nan_to_num(sizes) - 1)
        best = size.argmax(axis=0)
        return np.where(named.any(axis=0), best, -1), size.max(axis=0)

    @property
    def names(self) -> list[list[str]]:
        """(L, U) the name of each unit by RULE, or ""."""
        best, _ = self._earned
        names = np.full(best.shape, "", object)
        for at in zip(*np.nonzero(best >= 0), strict=True):
            found = self.features[best[at]]
            which = found.characters
            falls = ", falls" * bool(found.values[at] < 0)
            names[at] = found.title + falls + (f" {quoted(which[at])}" if which is not None else "")
        return names.tolist()  # type: ignore[no-any-return]

    @property
    def most(self) -> int:
        """How many units tables show."""
        return self.top

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
        (best, sizes), seen = self._earned, Counter[int]()
        rank = np.full(best.shape, best.size)
        places = sorted_places(sizes)
        for at in places:
            if best[at] >= 0:
                rank[at] = seen[int(best[at])]
                seen[int(best[at])] += 1
        return sorted(places, key=lambda at: rank[at])

    def blocks(
        self, every: bool = False, sort: str | None = None, top: int | None = None
    ) -> list[Block]:
        """How many units have which name, a row for each unit that is shown, and for each layer
        the largest values of random directions. Raises ConfigError.
        """
        chosen, names, top = self.shown(every), self.names, top or self.top
        columns = [Column("unit", left=True), Column("name", left=True)]
        rows, units = list[list[Cell]](), self.measures[0].values.size
        for at in self.ranking(sort)[:top]:
            begin = Cell(head_name(*at, self.letter)), Cell(names[at[0]][at[1]] or "–")
            rows.append([*begin, *(each.cell(*at) for each in chosen)])
        for layer in range(len(names)):
            texts = ["/" if m.characters is not None else m.random(layer, 0) for m in chosen]
            rows.append([Cell(each, tone="dim") for each in (f"{self.even} L{layer}", "", *texts)])
        meanings = [each.meaning for each in chosen]
        meanings += [
            "±: standard error" if self.windows > 1 else "one window: too little for names"
        ]
        ablated = any(each.name == "ablation" for each in chosen)
        effect = "Δloss of these alone" if ablated else "--ablate mean measures their effect"
        return [
            Title(self.title, [self.measured]),
            Note(self.named),
            Table([*columns, *(Column(each.title) for each in chosen)], rows, labels=2),
            Fold("what the columns mean", [Note(each) for each in meanings]),
            Note(self.rule),
            Note(
                f"shown: {len(rows) - len(names):,} of {units:,}, --top N shows others · {effect}"
            ),
        ]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The layer, number and name of every unit, and its measures."""
        columns = places(self.measures[0].values.shape)
        columns["unit"] = columns.pop("head")
        columns["name"] = np.array(self.names).ravel()
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
    """The measures of every unit on texts. characters: of the vocabulary, by id.

    ablated: the units, (layer, unit), whose effect is measured; none: those that are shown. text:
    the texts' name. done: receives the share of the work that is done. Raises ConfigError for an
    unknown measure to sort by, TextError if there is one window only to resample from.
    """
    (N, T), config = texts.ids.shape, reader.config
    row = 4 * config.ffn_hidden + (2 + config.n_layer) * config.n_embd
    require_memory("measuring", T, lambda n: 8 * N * n * row, ADVICE)
    follows, layers = _features_of(texts, characters), []
    for layer, hidden in enumerate(hidden_of(reader, texts)):
        layers.append(_of_layer(hidden, texts, follows, layer))
        done((layer + 1) / config.n_layer / (1 + bool(asked.ablate)))
    values, errors, uniform, ids = (np.stack(each, axis=-2) for each in zip(*layers, strict=True))
    measures = [
        UnitMeasure(name, *TITLES[name], values[n], errors[n], uniform[n], N)
        for n, name in enumerate(TITLES)
    ]
    measures[-1] = replace(measures[-1], characters=np.array([*characters], object)[ids])
    kind: AttentionKind | None = None if texts.sources is None else "decoder"
    found = Neurons(tuple(measures), N, T, text, kind, asked.sort, asked.top)
    if not asked.ablate:
        found.ranking()  # raises for an unknown measure
        return found
    by_name = replace(found, sort=None) if asked.sort == "ablation" else found
    units = ablated or by_name.ranking()[: asked.top]
    effect = ablate_units(reader, texts, units, asked.ablate, lambda share: done((1 + share) / 2))
    return replace(found, measures=(effect, *measures))


def _features_of(texts: Texts, characters: Sequence[str]) -> Array:
    """(N, T, K) the features of FEATURES; NaN for padding."""
    found = np.full((*texts.ids.shape, len(FEATURES)), np.nan)
    for n, (ids, targets, read) in enumerate(
        zip(texts.ids, texts.targets, texts.read, strict=True)
    ):
        row = [characters[each] for each in (*ids[read], targets[read][-1])]
        each = features(row, begins=texts.sources is not None)
        found[n, : len(row) - 1] = np.transpose([*each.values()])
    return found


def hidden_of(reader: Reader, texts: Texts, layers: int | None = None) -> Iterator[Array]:
    """(N, T, U) the units of each of the first layers, one layer after the other; None: all."""
    parts = _parts(reader, texts)
    streams = [reader.embed(part.ids) for part in parts]
    memories = [memory_of(reader, part) for part in parts]
    for layer in range(layers or reader.config.n_layer):

        def through(x: Array, memory: Any, layer: int = layer) -> list[Array]:
            kept = list[Array]()

            def keep(name: str, at: int, stage: Array) -> Array:
                kept.extend([stage] * (name == "ffn_hidden"))
                return stage

            return [reader.block(x, layer, keep, **memory)["resid_post"], *kept]

        works = [partial(through, *each) for each in zip(streams, memories, strict=True)]
        streams, hidden = map(list, zip(*on_cores(call, works), strict=True))
        yield np.concatenate(hidden)


def _parts(reader: Reader, texts: Texts) -> list[Texts]:
    """The texts in parts: one for each core, or more if memory needs it."""
    size = min(windows_at_once(reader.config), math.ceil(len(texts) / cores()))
    return [texts.part(slice(first, first + size)) for first in range(0, len(texts), size)]


def memory_of(reader: Reader, texts: Texts) -> dict[str, Any]:
    """What cross-attention reads, as an argument of Reader.block."""
    return {} if texts.sources is None else {"memory": reader.encode(texts.sources, texts.seen)}


def _of_layer(
    hidden: Array, texts: Texts, follows: Array, seed: int
) -> tuple[Array, Array, Array, Array]:
    """(N, T, U) -> of each feature, the character last, the (K + 1, U) correlations, their standard
    errors and the largest ones of random directions; and the (U,) ids of characters.
    """
    U = hidden.shape[-1]
    mixed = np.random.default_rng(seed).standard_normal((U, RANDOM))
    x = np.concatenate([hidden, hidden @ (mixed / np.linalg.norm(mixed, axis=0))], axis=-1)
    each_text = [np.unique(ids[read]) for ids, read in zip(texts.ids, texts.read, strict=True)]
    seen, counts = np.unique(np.concatenate(each_text), return_counts=True)
    often = seen[counts >= min(FEWEST, counts.max())]
    found = [correlations(follows, x)]
    for ids in np.array_split(often, math.ceil(len(often) / AT_ONCE)):
        ones = np.where(texts.read[..., None], texts.ids[..., None] == ids, np.nan)
        found.append(correlations(ones, x))
    values, errors = (np.concatenate(each) for each in zip(*found, strict=True))
    K = follows.shape[-1]
    best = K + np.nan_to_num(np.abs(values[K:])).argmax(axis=0)
    rows = np.concatenate([np.broadcast_to(np.arange(K)[:, None], (K, len(best))), best[None]])
    random = np.fmax.reduce(np.abs(values[:, U:]), axis=1)[rows[:, :U]]
    values, errors = (
        np.take_along_axis(each[:, :U], rows[:, :U], axis=0) for each in (values, errors)
    )
    return values, errors, random, often[best[:U] - K]


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
    values = _pearson(whole, least)
    others = _pearson([each - part for each, part in zip(whole, sums, strict=True)], least)
    errors = np.sqrt(others.var(axis=0) * (N - 1)) if N > 1 else np.full_like(values, np.nan)
    return values, errors


def _pearson(sums: Sequence[Array], least: tuple[Array, Array]) -> Array:
    """Correlations; NaN where a variance, times the number of positions, is not above `least`."""
    n, f, x, ff, xx, fx = sums
    with np.errstate(all="ignore"):
        of_f, of_x = ff - f * f / n, xx - x * x / n
        vary = (of_f > least[0]) & (of_x > least[1])
        return np.where(vary, (fx - f * x / n) / np.sqrt(of_f * of_x), np.nan)


def ablate_units(
    reader: Reader,
    texts: Texts,
    units: Sequence[tuple[int, int]],
    how: Ablation,
    done: Callable[[float], object] = lambda share: None,
    seed: int = 0,
) -> UnitMeasure:
    """Rise of the loss by each of some units, (layer, unit), in nats a character, with paired
    standard errors over texts; NaN for the others. how: as for heads (gpt/heads/ablation.py).

    Another value of a unit adds its difference times the unit's column of the down projection to
    the stream; what follows is computed again. Raises TextError if there is one text only to
    resample from, ConfigError to resample pairs.
    """
    if how == "resample" and texts.sources is not None:
        raise ConfigError("ablation of pairs: mean or zero; resample needs texts of one length")
    others = other_windows(len(texts), seed) if how == "resample" else None
    parts = [_Part(reader, part, units) for part in _parts(reader, texts)]
    values = np.concatenate([part.values for part in parts])  # (N, T, units)
    if others is not None:
        new = values[others]
    else:
        mean = (values * texts.read[..., None]).sum(
            axis=(0, 1), dtype=np.float64
        ) / texts.read.sum()
        new = np.broadcast_to(mean if how == "mean" else 0.0, values.shape)
    ends = np.cumsum([len(part.values) for part in parts])[:-1]
    rises = np.full((len(texts), reader.config.n_layer, reader.config.ffn_hidden), np.nan)
    for n, (layer, unit) in enumerate(units):
        works = [
            partial(part.rise, n, each)
            for part, each in zip(parts, np.split(new[..., n], ends), strict=True)
        ]
        rises[:, layer, unit] = np.concatenate(on_cores(call, works))
        done((n + 1) / len(units))
    explained = f"rise of the loss without the unit (its value: {REPLACED_BY[how]}), nats/char"
    unknown = np.full((len(rises[0]), 1), np.nan)
    numbers = rises.mean(axis=0), standard_errors(rises), unknown
    return UnitMeasure("ablation", "Δloss", explained, *numbers, len(texts))


class _Part:
    """Some texts under the whole model: the (B, T) values of each of the `units`, what the stream
    is before each layer's feed-forward and what that adds, and the losses.
    """

    def __init__(self, reader: Reader, texts: Texts, units: Sequence[tuple[int, int]]) -> None:
        self.reader, self.texts, self.units = reader, texts, units
        self.memory, kept = memory_of(reader, texts), dict[tuple[str, int], Array]()
        self.kept = kept

        def keep(name: str, layer: int, stage: Array) -> Array:
            if name in KEPT:
                kept[name.removeprefix(CROSS), layer] = stage
            return stage

        layers = range(reader.config.n_layer)
        x = reader.blocks(reader.embed(texts.ids), layers, keep, **self.memory)
        columns = [kept["ffn_hidden", layer][..., unit] for layer, unit in units]
        self.values, self.losses = np.stack(columns, axis=-1), self.loss(x)

    def rise(self, number: int, new: Array) -> Array:
        """(B,) rise of each text's loss with (B, T) other values of a unit."""
        reader, (layer, unit) = self.reader, self.units[number]
        weight, _ = reader.linear(f"blocks.{layer}.feed_forward.down")  # (C, U)
        moved = (new - self.values[..., number])[..., None].astype(reader.dtype) * weight[:, unit]
        out = self.kept["ffn_out", layer] + moved
        x = reader.add(self.kept["resid_mid", layer], out, f"blocks.{layer}.norm2")
        later = range(layer + 1, reader.config.n_layer)
        return self.loss(reader.blocks(x, later, **self.memory)) - self.losses

    def loss(self, x: Array) -> Array:
        """(B, T, C), what leaves the last layer -> (B,) mean nats of each text's targets."""
        read = self.texts.read
        nats = surprisals(self.reader.logits(self.reader.final_norm(x)), self.texts.targets)
        return (nats.astype(np.float64) * read).sum(axis=-1) / read.sum(axis=-1)  # type: ignore[no-any-return]
