"""What each unit of the feed-forward layers follows: correlations of its values with features of
the text, names by these correlations, and how much the loss rises without it.

A unit's value is its column of the stage ffn_hidden. Tensor names: N texts, T time, U units, K
features, L layers, C n_embd.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import call
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.blocks import (
    Block,
    Cell,
    Column,
    Fold,
    Note,
    Passage,
    Records,
    Table,
    Title,
    format_number,
)
from gpt.characters import quoted
from gpt.checks import Result, TableResult
from gpt.config import Ablation, ModelConfig, NeuronsConfig
from gpt.devices import require_memory
from gpt.errors import ConfigError, TextError
from gpt.heads.ablation import (
    REPLACED_BY,
    Done,
    Texts,
    keep_unchanged,
    other_windows,
    share_between,
    text_losses,
)
from gpt.heads.contributions import BackwardPass, Part
from gpt.heads.features import FEATURES, features
from gpt.heads.measures import CERTAIN, Measure, standard_errors
from gpt.heads.places import head_name
from gpt.heads.survey import ADVICE, Survey, sorted_heads
from gpt.reading.decode import map_on_cores
from gpt.reading.gpt import Reader
from gpt.reading.layers import Array
from gpt.vocabulary import Vocabulary
from gpt.words import counted

RANDOM = 64  # random directions of each layer
#: The smallest correlation that gives a name. For the feature of one character it is higher, so
#: that most of the unit's value lies on that character. Chosen on models of the Python reference
#: and of repeats (benchmarks/LOG.md).
STRONG, SINGLE = 0.3, 0.8
FEWEST = 3  # texts that must have a character for it to be a feature
AT_ONCE = 32  # features computed together
VARIES = 1e-9  # least share of its variance by which a part of the text must vary
PASSAGES = 8
BEFORE, AFTER = 40, 12  # characters of a passage before and after its strongest place
LOW = 0.1  # negative values have passages, too, if they reach this share of the largest value
LOGITS = 6  # characters whose logits are listed
TITLES = FEATURES | {
    "character": ("one character", "the character is the one that the unit follows most"),
}
#: The rule by which units are named, as text.
RULE = (
    f"a unit gets the name of its strongest correlation that is at least {STRONG:g}, with one "
    f"character {SINGLE:g}, and {CERTAIN:g} standard errors above the highest of {RANDOM} random "
    "directions of its layer; “falls”: the correlation is negative"
)


@dataclass(frozen=True, repr=False)
class Neurons(Survey):
    """The measures of all units of the feed-forward layers.

    sort: the order of tables; top: how many units they show. Only these have their effect measured.
    """

    sort: str | None = None
    top: int = NeuronsConfig.top  # type: ignore[assignment]

    what, letter, even, rule, title = "unit", "N", "random", RULE, "neurons"
    caveat = "a correlation is not an effect"

    def __repr__(self) -> str:
        units = counted(self.measures[0].values.size, "unit")
        return f"<Neurons: {units} on {self.measured}: {self.named}>"

    @property
    def named(self) -> str:
        """How many units have each name."""
        groups = Counter(name.split(" '")[0] for row in self.names for name in row if name)
        counts = ", ".join(f"{count:,} {name}" for name, count in groups.most_common())
        return f"named: {counts}" if counts else "no unit gets a name"

    @cached_property
    def _earned(self) -> tuple[npt.NDArray[np.intp], Array]:
        """(L, U) the number of the measure that names a unit, −1 for none; and (L, U) the measure's
        size, or for unnamed units the largest size − 1.
        """
        sizes, errors, random = (
            np.abs([getattr(each, name) for each in self.measures])  # (K, L, U)
            for name in ("values", "errors", "uniform")
        )
        least = [SINGLE if each.offsets is not None else STRONG for each in self.measures]
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
            if found.offsets is not None:
                names[at] += f" {quoted(found.offsets[at])}"
        return names.tolist()  # type: ignore[no-any-return]

    def shown(self, every: bool = False) -> list[Measure]:
        """The measures of features that occur in the text."""
        return [each for each in self.measures if not np.isnan(each.values).all()]

    def ranking(self, sort: str | None = None) -> list[tuple[int, int]]:
        """(layer, unit) of every unit: the strongest of each name, then the second of each, …, then
        those without a name. sort: a measure; then the largest absolute values come first.

        Raises ConfigError for an unknown measure.
        """
        if sort := sort or self.sort:
            return super().ranking(sort)
        (best, sizes), seen, ranks = self._earned, Counter[int](), dict[tuple[int, int], int]()
        for at in sorted_heads(sizes):
            name = int(best[at])
            ranks[at] = seen[name] if name >= 0 else best.size
            seen[name] += 1
        return sorted(ranks, key=ranks.__getitem__)

    @property
    def remarks(self) -> list[str]:
        """How many units have each name, the rule, and how many are shown."""
        effect = "--ablate mean measures their effect"
        if self.measures[0].name == "ablation":
            effect = "Δloss of these alone"
        units = self.measures[0].values.size
        shown = f"{min(self.top, units):,} of {units:,}, --top N shows others"
        random = f"{self.even}: the largest of its values in any layer"
        return [self.named, self.rule, random, f"shown: {shown} · {effect}"]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The layer, number and name of every unit, and its measures."""
        columns = super().columns()
        return columns | {"character_of": columns.pop("character_offset")}


def neurons(
    reader: Reader,
    texts: Texts,
    characters: str,
    asked: NeuronsConfig,
    text: str = "a text",
    done: Done = lambda share: None,
    ablated: Sequence[tuple[int, int]] = (),
) -> Neurons:
    """The measures of every unit on these texts; `text` is their name.

    characters: the vocabulary's. ablated: the units, (layer, unit), whose effect to measure; none:
    those that tables show. Raises ConfigError for an unknown measure to sort by, TextError for
    resampling with a single window.
    """
    (N, T), config = texts.ids.shape, reader.config
    row = config.n_layer * (config.ffn_hidden + 2 * config.n_embd) + 8 * config.ffn_hidden
    require_memory("measuring", T, lambda n: 4 * N * n * row, ADVICE)
    follows, layers, passed = _features_of(texts, characters), [], run_forwards(reader, texts)
    for layer in range(config.n_layer):
        layers.append(_of_layer(unit_values(passed, layer), texts, follows, layer))
        done((layer + 1) / config.n_layer / (1 + bool(asked.ablate)))
    values, errors, random, ids = (np.stack(each, axis=-2) for each in zip(*layers, strict=True))
    measures = [
        Measure(name, *TITLES[name], values[n], errors[n], random[n], N)
        for n, name in enumerate(TITLES)
    ]
    measures[-1] = replace(measures[-1], offsets=np.array([*characters], object)[ids])
    found = Neurons(tuple(measures), N, T, text, sort=asked.sort, top=asked.top)
    by_effect = asked.ablate and asked.sort == "ablation"
    order = (replace(found, sort=None) if by_effect else found).ranking()
    if asked.ablate:
        units = ablated or order[: asked.top]
        effect = ablate_units(passed, units, asked.ablate, share_between(done, 0.5))
        found = replace(found, measures=(effect, *measures))
    return found


def _features_of(texts: Texts, characters: str) -> Array:
    """(N, T, K) the values of FEATURES."""
    found = np.empty((*texts.ids.shape, len(FEATURES)))
    for n, (ids, targets) in enumerate(zip(texts.ids, texts.targets, strict=True)):
        values = features("".join(characters[each] for each in (*ids, targets[-1])))
        found[n] = np.transpose([*values.values()])
    return found


def _of_layer(
    hidden: Array, texts: Texts, follows: Array, seed: int
) -> tuple[Array, Array, Array, Array]:
    """(N, T, U) values -> for each feature, with the character as the last, the (K + 1, U)
    correlations, their standard errors and the largest correlations of random directions; and the
    (U,) ids of the characters.
    """
    K, U = follows.shape[-1], hidden.shape[-1]
    mixed = np.random.default_rng(seed).standard_normal((U, RANDOM))
    x = np.concatenate([hidden, hidden @ (mixed / np.linalg.norm(mixed, axis=0))], axis=-1)
    each_text = [np.unique(ids) for ids in texts.ids]
    seen, counts = np.unique(np.concatenate(each_text), return_counts=True)
    often, found = seen[counts >= min(FEWEST, counts.max())], [correlations(follows, x)]
    for ids in np.array_split(often, math.ceil(len(often) / AT_ONCE)):
        ones = (texts.ids[..., None] == ids).astype(np.float64)
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
    """Correlations from sums; NaN where a variance, times the positions, is at most `least`."""
    n, f, x, ff, xx, fx = sums
    with np.errstate(all="ignore"):
        of_f, of_x = ff - f * f / n, xx - x * x / n
        vary = (of_f > least[0]) & (of_x > least[1])
        return np.where(vary, (fx - f * x / n) / np.sqrt(of_f * of_x), np.nan)


class ForwardPass:
    """Some texts computed by the whole model. stages: (name, layer) -> (B, T, …): the units, the
    stream before the feed-forward layer, and what the layer adds. last: (B, T, C) output of the
    last layer. losses: (B,) mean nats of the targets.
    """

    def __init__(self, reader: Reader, texts: Texts) -> None:
        self.reader, self.texts, self.stages = reader, texts, dict[tuple[str, int], Array]()
        layers = range(reader.config.n_layer)
        self.last = reader.blocks(reader.embed(texts.ids), layers, self._keep)
        self.losses = text_losses(reader, texts, self.last)

    def _keep(self, name: str, layer: int, stage: Array) -> Array:
        if name in ("ffn_hidden", "resid_mid", "ffn_out"):
            self.stages[name, layer] = stage
        return stage

    def rise(self, layer: int, unit: int, new: Array) -> Array:
        """(B,) how much each text's loss rises if a unit has the values `new`, (B, T): the
        difference times its column of the down projection is added to the stream.
        """
        reader, units = self.reader, self.stages["ffn_hidden", layer]
        weight, _ = reader.linear(f"blocks.{layer}.feed_forward.down")  # (C, U)
        moved = (new - units[..., unit]).astype(reader.dtype)[..., None] * weight[:, unit]
        x = self.stages["resid_mid", layer] + (self.stages["ffn_out", layer] + moved)
        later = range(layer + 1, reader.config.n_layer)
        last = reader.blocks(x, later, keep_unchanged)
        return text_losses(reader, self.texts, last) - self.losses


def run_forwards(reader: Reader, texts: Texts) -> list[ForwardPass]:
    """The texts in parts."""
    return map_on_cores(partial(ForwardPass, reader), texts.parts(reader.config))


def unit_values(
    passed: Sequence[ForwardPass], layer: int, unit: int | slice = slice(None)
) -> Array:
    """(N, T, U) the units of a layer, or (N, T) one of them."""
    return np.concatenate([each.stages["ffn_hidden", layer][..., unit] for each in passed])


def ablate_units(
    passed: Sequence[ForwardPass],
    units: Sequence[tuple[int, int]],
    how: Ablation,
    done: Done = lambda share: None,
) -> Measure:
    """How much the loss rises without each of these units, (layer, unit), in nats per character,
    with paired standard errors over texts; NaN for other units. how: as for heads
    (gpt/heads/ablation.py).

    Raises TextError for resampling with a single text.
    """
    N, config = sum(len(each.texts) for each in passed), passed[0].reader.config
    others = other_windows(N, 0) if how == "resample" else None
    rises = np.full((N, config.n_layer, config.ffn_hidden), np.nan)
    for n, (layer, unit) in enumerate(units):
        values = unit_values(passed, layer, unit)
        mean = values.mean(dtype=np.float64) if how == "mean" else 0.0
        new = np.full(values.shape, mean) if others is None else values[others]
        ends = np.cumsum([len(each.losses) for each in passed])[:-1]
        parts = zip(passed, np.split(new, ends), strict=True)
        works = [partial(each.rise, layer, unit, part) for each, part in parts]
        rises[:, layer, unit] = np.concatenate(map_on_cores(call, works))
        done((n + 1) / len(units))
    explained = f"rise of the loss without the unit (its value: {REPLACED_BY[how]}), nats/char"
    values, errors = rises.mean(axis=0), standard_errors(rises)
    unknown = np.full_like(values, np.nan)
    return Measure("ablation", "Δloss", explained, values, errors, unknown, N)


@dataclass(frozen=True, repr=False)
class ColouredText(Result):
    """A text, and (n,) the values of a unit after each character. full: the value with the
    strongest colour; values with the other sign have no colour.
    """

    text: str
    values: Array
    full: float

    def passage(self, scale: bool = True) -> Passage:
        """The coloured text. scale: whether to show the scale of the colours."""
        eighths = 8 * np.maximum(0, self.values / (self.full or 1))
        strongest = format_number(self.full)
        unit = f"eighths of {strongest}, the unit's strongest value on the measured text"
        hints = [format_number(value) for value in self.values.tolist()]
        return Passage(self.text, eighths.tolist(), unit, hints=hints, scale=scale)


@dataclass(frozen=True, repr=False)
class Neuron(TableResult):
    """One unit. survey: the measures of all units, on the same text. passages: the strongest first;
    passages with values below 0 come last.

    logits: (V,) what the unit adds directly to each logit where it is strongest, with the mean and
    scale of the last norm held. characters: of the vocabulary, id -> character. text: coloured by
    the unit, if a text was given.
    """

    layer: int
    unit: int
    survey: Neurons
    passages: tuple[ColouredText, ...]
    logits: Array
    characters: str
    text: ColouredText | None = None

    @property
    def place(self) -> str:
        """ "L1N37" """
        return head_name(self.layer, self.unit, self.survey.letter)

    @property
    def name(self) -> str:
        """The name that its measures give it, or ""."""
        return self.survey.names[self.layer][self.unit]

    def __repr__(self) -> str:
        return f"<Neuron {self.place}: {self.name or 'no name'}, on {self.survey.measured}>"

    def blocks(self) -> list[Block]:
        """The measures, strongest passages, changed logits, and the text."""
        at, shown = (self.layer, self.unit), self.survey.shown()
        rows = [
            [Cell(each.title), each.cell(*at), Cell(format_number(each.uniform_value(*at)))]
            for each in shown
        ]
        columns = [Column("measure", left=True), Column(self.place), Column("random")]
        notes = [*(each.meaning for each in shown), self.survey.rule]
        passages = [
            each.passage(scale=each.full not in [later.full for later in self.passages[n + 1 :]])
            for n, each in enumerate(self.passages)
        ]
        return [
            Title(f"neuron {self.place}", [self.name or "no name", self.survey.measured]),
            Table(columns, rows),
            Fold("what these are", [Note(each) for each in notes]),
            *passages,
            *[Note("its value is 0 everywhere")] * (not passages),
            *self._changes(),
            *([self.text.passage()] if self.text else []),
        ]

    def _changes(self) -> list[Block]:
        """The characters whose logits the unit raises and lowers most."""
        order, rows = np.argsort(-self.logits, kind="stable"), list[list[Cell]]()
        for pair in zip(order[:LOGITS], order[::-1][:LOGITS], strict=True):
            each = ((quoted(self.characters[id]), f"{self.logits[id]:+.2f}") for id in pair)
            rows.append([Cell(text) for texts in each for text in texts])
        columns = [Column(title, left=bool(title)) for title in ("raises", "", "lowers", "")]
        about = "the logits that it changes most at its strongest place, the last norm held"
        return [Note(about), Table(columns, rows)]

    def records(self) -> Records:
        """A row for each passage; the facts have the measures, the logits and the text."""
        facts = {"unit": self.place, "name": self.name, **self.survey.facts}
        columns, at = self.survey.columns(), self.layer * len(self.survey.names[0]) + self.unit
        facts["values"] = {name: values.tolist()[at] for name, values in columns.items()}
        facts["logits"] = dict(zip(self.characters, self.logits.tolist(), strict=True))
        if self.text:
            facts["on"] = {"text": [*self.text.text], "values": self.text.values.tolist()}
        passages: dict[str, list[Any]] = {
            "passage": [each.text for each in self.passages],
            "values": [each.values.tolist() for each in self.passages],
        }
        return Records(passages, facts)


def parse_unit(unit: str, config: ModelConfig) -> tuple[int, int]:
    """ "L1N37" -> (1, 37). Raises ConfigError."""
    found = re.fullmatch(r"[Ll](\d{1,4})[Nn](\d{1,7})", unit.strip())
    at = (int(found[1]), int(found[2])) if found else (config.n_layer, 0)
    if at[0] >= config.n_layer or at[1] >= config.ffn_hidden:
        last = f"L{config.n_layer - 1}N{config.ffn_hidden - 1}"
        raise ConfigError("unit", f"{unit!r} is not one of L0N0 … {last}")
    return at


def text_to_colour(vocabulary: Vocabulary, text: str, longest: int) -> Texts:
    """A text of at most `longest` characters. Raises TextError."""
    if not 1 <= len(text) <= longest:
        found = f"`on` has {len(text):,} characters"
        raise TextError(f"{found}; the model reads 1 to {longest:,} at once")
    ids = vocabulary.encode(text)[None]
    return Texts(ids, ids)


def neuron(
    reader: Reader,
    vocabulary: Vocabulary,
    texts: Texts,
    asked: NeuronsConfig,
    at: tuple[int, int],
    on: Texts | None = None,
    name: str = "a text",
    done: Done = lambda share: None,
) -> Neuron:
    """One unit `at`, (layer, unit), on these texts; `name` is their name. on: a text to colour.
    Raises what `neurons` raises.
    """
    survey = neurons(reader, texts, vocabulary.characters, asked, name, done, [at])
    values = unit_values(run_forwards(reader, texts), *at)
    places, passages = [*_peaks(values, 1), *_peaks(values, -1)], list[ColouredText]()
    for n, t, full in places:
        part = slice(max(0, t - BEFORE), t + 1 + AFTER)
        passages.append(ColouredText(vocabulary.decode(texts.ids[n, part]), values[n, part], full))
    n, t, full = max(places, key=lambda place: abs(place[2]), default=(0, 0, 0.0))
    logits, text = _added(reader, texts.part(slice(n, n + 1)), at, t), None
    if on is not None:
        (shown,) = unit_values(run_forwards(reader, on), *at)
        text = ColouredText(vocabulary.decode(on.ids[0]), shown, full)
    return Neuron(*at, survey, tuple(passages), logits, vocabulary.characters, text)


def _peaks(values: Array, sign: int) -> list[tuple[int, int, float]]:
    """The largest of (N, T) values with this sign, at some distance from each other: text, place,
    and the largest of all. None if they are near 0 compared with values of the other sign.
    """
    left, least = sign * values.astype(np.float64), LOW * np.abs(values).max()
    full, found = float(left.max()), list[tuple[int, int, float]]()
    while len(found) < PASSAGES and full > least and left.max() > 0:
        n, t = np.unravel_index(left.argmax(), left.shape)
        found.append((int(n), int(t), sign * full))
        left[n, max(0, t - BEFORE) : t + AFTER + 1] = 0
    return found


def _added(reader: Reader, text: Texts, at: tuple[int, int], place: int) -> Array:
    """(V,) what a unit adds to the logits after one place of a text, in float64, with the mean and
    scale of the last norm held (contributions.py).
    """
    exact, (layer, unit) = reader.in_float64(), at
    passed = ForwardPass(exact, text)
    back = BackwardPass(exact, np.arange(reader.config.vocab_size)[None])
    back.through("norm", passed.last[0, place : place + 1])
    weight, _ = exact.linear(f"blocks.{layer}.feed_forward.down")  # (C, U)
    value = passed.stages["ffn_hidden", layer][0, place, unit]
    back.add(Part("ffn", layer), value * weight[None, :, unit])
    [(_, found)] = back.found
    return found[0]  # type: ignore[no-any-return]
