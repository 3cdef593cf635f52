"""All measures of a model's heads: on the windows of a text, on synthetic texts, by ablation. At
several steps of a training, they show when each head became what it is.

A phase change, such as the sudden rise of induction heads (Olsson et al. 2022), is a jump of a
measure from one step to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt import showing
from gpt.blocks import Block, Cell, Column, Fold, Note, Records, Table, Title
from gpt.checks import TableResult
from gpt.config import Ablation, HeadsConfig
from gpt.devices import cores, require_memory
from gpt.errors import ConfigError, TextError
from gpt.heads.ablation import (
    MOST_SHAPLEY,
    REPLACED_BY,
    Done,
    Texts,
    measure_effects,
    replacement_parts,
    share_between,
    text_losses,
)
from gpt.heads.attention_map import AttentionMap
from gpt.heads.measures import (
    EFFECTS,
    RULE,
    Measure,
    head_columns,
    induction,
    measure_heads,
    name_heads,
    naming_measure,
    strengths,
)
from gpt.heads.paths import PathPatching, Paths, path_effects
from gpt.heads.places import head_name
from gpt.reading.gpt import MATRICES, Reader
from gpt.reading.layers import Array
from gpt.reading.proof import OpenDevice, open_proven
from gpt.storage.model_file import StoredModel
from gpt.storage.runs import Steps, run_of, step_numbers
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted, first_few, layers_and_heads

#: Measures that are shown without --all.
DEFAULT_MEASURES = (
    *("back", "duplicate", "induction", "induction_synthetic"),
    *("sink", "entropy", "distance", *EFFECTS),
)
NO_INDUCTION = (
    "no head gets the name induction; to train a model that has one, to its end: gptx train repeats"
)
CAVEAT = "weights show where a head looks, not what that causes"
CURVE_NOTE = "curve: all steps, from 0 to the highest value in its table"
MOST_PATHS = 16  # paths to show in a table
MOST_STEPS = 12  # columns of values in a table over a training
MOST_POINTS = 32  # values in a curve
MOST_NAMED = 24  # heads of one name to list one by one
MOST_PANELS = 4  # measures in a figure, if none are chosen
ADVICE = "give a text of at most"
SHORTEST = 3  # characters in a text: a query with two keys, and the next character


@dataclass(frozen=True, repr=False)
class Survey(TableResult):
    """The measures of all heads, on `windows` windows of `characters` characters each.

    text: the name of the text. For the same text and windows, the command and Python give equal
    surveys. paths: the effects of heads along paths, if they were asked for.
    """

    measures: tuple[Measure, ...]
    windows: int
    characters: int
    text: str = "a text"
    paths: Paths | None = None

    what, letter, even, caveat, top = "head", "H", "uniform", CAVEAT, None
    rule, title = RULE, "heads"

    def to_numpy(self) -> dict[str, npt.NDArray[Any]]:
        """Measure -> (L, H) values."""
        return {each.name: each.values for each in self.measures}

    def __repr__(self) -> str:
        layers, heads = self.measures[0].values.shape
        names = [name for row in name_heads(self.measures) for name in row if name]
        named = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        return (
            f"<Survey of {layers_and_heads(layers, heads)} on {self.measured}: "
            f"{named or 'no head of a named kind'}>"
        )

    @property
    def names(self) -> list[list[str]]:
        """(L, H) the name of each head, or ""."""
        return name_heads(self.measures)

    @property
    def measured(self) -> str:
        """Which text was measured, and how much of it."""
        return f"{counted(self.windows, 'window')} of {self.characters} characters of {self.text}"

    def shown(self, every: bool = False) -> list[Measure]:
        """The measures that tables and figures show: all with `every`, otherwise those in
        DEFAULT_MEASURES.
        """
        return [measure for measure in self.measures if every or measure.name in DEFAULT_MEASURES]

    def ranking(self, sort: str | None = None) -> list[tuple[int, int]]:
        """(layer, head) of every head, the largest of a measure first.

        Without `sort`: by how much the loss rises under ablation, if measured, else by how near a
        head is to a named kind. Correlations are sorted by absolute value. Raises ConfigError for
        an unknown measure.
        """
        known = {m.name: m.values if m.name in EFFECTS else abs(m.values) for m in self.measures}
        if sort is not None and sort not in known:
            if sort in EFFECTS:
                raise ConfigError("sort", f"{sort} is measured only with `ablate=mean`")
            raise ConfigError("sort", f"{sort!r} is not one of {', '.join(known)}")
        values = known.get(sort or "ablation")
        values = strengths(self.measures) if values is None else values
        return sorted_heads(np.nan_to_num(values, nan=-np.inf))

    def blocks(
        self, every: bool = False, sort: str | None = None, top: int | None = None
    ) -> list[Block]:
        """A row for each head and one for a uniform head, and what the columns mean.

        every: show all measures. sort: see `ranking`; top: only the first heads. Raises
        ConfigError.
        """
        chosen, named, rows = self.shown(every), self.names, list[list[Cell]]()
        shown = [each for one in chosen for each in one.every]
        for at in self.ranking(sort)[: top or self.top]:
            begin = Cell(head_name(*at, self.letter)), Cell(named[at[0]][at[1]] or "–")
            rows.append([*begin, *(each.cell(*at) for each in shown)])
        uniform = [Cell(self.even, tone="dim"), Cell(""), *(m.uniform_cell() for m in shown)]
        columns = [Column(self.what, left=True), Column("kind", left=True)]
        columns += [Column(each.title) for each in shown]
        notes = [each.meaning for each in shown if each.explained]
        notes += ["±: standard error" if self.windows > 1 else "one window: little evidence"]
        return [
            Title(self.title, [self.measured]),
            Table(columns, [*rows, uniform], labels=2),
            Fold("what the columns mean", [Note(each) for each in notes]),
            *(Note(each) for each in self.remarks),
            *(self.paths.blocks(top or MOST_PATHS) if self.paths else []),
        ]

    @property
    def remarks(self) -> list[str]:
        """What one has to know to read the table."""
        measured = {each.name for each in self.measures}
        hint = "; --ablate mean measures the effect"
        remarks = [self.rule, self.caveat + hint * ("ablation" not in measured)]
        if "ablation" in measured and "shapley" not in measured:
            remarks.append(f"Shapley values need at most {MOST_SHAPLEY} heads")
        if not any("induction" in row for row in self.names):
            remarks.insert(1, NO_INDUCTION)
        return remarks

    def records(self, sort: str | None = None) -> Records:
        """A row for each head, in the order of `ranking`. Raises ConfigError."""
        heads = self.measures[0].values.shape[1]
        order = [layer * heads + head for layer, head in self.ranking(sort)]
        columns = {name: each[order] for name, each in self.columns().items()}
        return Records(columns, self.facts)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The layer, head and kind of every head, and its measures."""
        layers, numbers = head_columns(self.measures[0].values.shape).values()
        columns = {"layer": layers, self.what: numbers, "kind": np.array(self.names).ravel()}
        for each in self.measures:
            columns |= each.columns()
        return columns

    @property
    def facts(self) -> dict[str, Any]:
        """What was measured, and what the measures are, for programs."""
        every = [each for measure in self.measures for each in measure.every]
        about = {each.name: {"title": each.title, "explained": each.explained} for each in every}
        return {
            "text": self.text,
            "windows": self.windows,
            "characters": self.characters,
            "rule": self.rule,
            "measures": about,
            **({"paths": self.paths.rows} if self.paths else {}),
        }


def survey(
    reader: Reader,
    ids: Ids,
    most: int = 32,
    ablation: Ablation | None = None,
    done: Done = lambda share: None,
    text: str = "a text",
    words: Ids | None = None,
) -> Survey:
    """(n,) ids -> every measure over at most `most` windows of block_size, spread over the
    text.

    text: the text's name; words: the ids of characters that occur in words, None: all. Raises
    TextError if the text is too short.
    """
    windows = spread_windows(ids, reader.config.block_size, most)
    config = reader.config
    heads = config.n_layer * config.n_head
    # Four matrices for each head, and a layer's measures in float64; or the forward passes of an
    # ablation.
    H, ablated = config.n_head, MATRICES * cores() if ablation else 0
    matrices = max((4 * config.n_layer + 6.25) * H + 4, ablated * H)
    rows = 10 * config.n_layer * config.n_embd
    length = windows.shape[1] - 1
    require_memory("measuring", length, lambda n: 4 * n * (matrices * n + rows), ADVICE)
    # On average, the ablation of a head costs half a forward pass over all windows; the measures
    # cost two.
    work = 2.0 + (heads / 2 if ablation else 0.0)

    def maps() -> Iterator[AttentionMap]:  # one at a time, as all stages of a window are large
        for number, window in enumerate(windows):
            yield AttentionMap("", window[:-1], reader.stages(window[:-1]), ())
            done(2 * (number + 1) / len(windows) / work)

    measures = measure_heads(reader, maps())
    letters = windows.ravel() if words is None else windows[np.isin(windows, words)]
    if found := induction(reader, letters):
        after = 1 + max(n for n, each in enumerate(measures) if each.name.startswith("induction"))
        measures.insert(after, found)
    if ablation:
        texts = Texts.of_windows(windows)
        measures += measure_effects(reader, texts, ablation, done=share_between(done, 2 / work))
    return Survey(tuple(measures), len(windows), windows.shape[1] - 1, text)


def survey_with_paths(
    reader: Reader, vocabulary: Vocabulary, ids: Ids, asked: HeadsConfig, name: str, done: Done
) -> Survey:
    """The survey of a text and, if they are asked for, the effects of heads along paths.

    Raises TextError.
    """
    words = np.array([n for n, each in enumerate(vocabulary.characters) if each.isalnum()], int)
    if not (asked.paths and asked.ablate):
        return survey(reader, ids, asked.windows, asked.ablate, done, name, words)
    first, second = share_between(done, 0, 0.5), share_between(done, 0.5)
    found = survey(reader, ids, asked.windows, asked.ablate, first, name, words)
    return replace(found, paths=loss_paths(reader, ids, asked.windows, asked.ablate, second))


def loss_paths(reader: Reader, ids: Ids, most: int, how: Ablation, done: Done) -> Paths:
    """The effects of heads along paths on the loss over the windows that `survey` uses."""
    texts = Texts.of_windows(spread_windows(ids, reader.config.block_size, most))
    parts = [
        PathPatching(
            reader, part.texts.ids, part.replaced, partial(text_losses, reader, part.texts)
        )
        for part in replacement_parts(reader, texts, how)
    ]
    return path_effects(parts, "the loss, in nats/char,", REPLACED_BY[how], done)


def spread_windows(ids: Ids, length: int, most: int) -> npt.NDArray[np.integer[Any]]:
    """At most `most` windows of `length` + 1 ids, evenly over the text; no two share a target.

    A shorter text is one window. Raises TextError below SHORTEST characters.
    """
    if len(ids) < SHORTEST:
        raise TextError(f"the text is too short for measures: it needs {SHORTEST} characters")
    length = min(length, len(ids) - 1)
    count = min(most, (len(ids) - 1) // length)
    starts = np.linspace(0, len(ids) - 1 - length, count).astype(np.int64)
    return np.stack([ids[start : start + length + 1] for start in starts])


@dataclass(frozen=True, repr=False)
class Development(TableResult):
    """M measures of the H heads of L layers, at S steps of a training, on the same text.

    steps (S,), ascending. names: the names of the measures. values and errors (S, M, L, H): means
    over the windows of text, and their standard errors. uniform (S, M, L, H): the values of a head
    that attends uniformly. kinds (S, L, H): the names of the heads, "" for none. surveys: the
    survey of each step.
    """

    steps: npt.NDArray[np.int64]
    names: tuple[str, ...]
    values: Array
    errors: Array
    uniform: Array
    kinds: npt.NDArray[np.str_]
    surveys: tuple[Survey, ...]

    def __repr__(self) -> str:
        S, _, layers, heads = self.values.shape
        return (
            f"<Development of {counted(layers, 'layer')} × {counted(heads, self.last.what)} at {S} "
            f"steps, {self.steps[0]:,} to {self.steps[-1]:,}, on {self.measured}>"
        )

    @property
    def last(self) -> Survey:
        """The measures at the last step."""
        return self.surveys[-1]

    @property
    def measured(self) -> str:
        """Which text was measured, and how much of it."""
        return self.last.measured

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures at the last step, with their titles and explanations."""
        return self.last.measures

    def of(self, name: str) -> Array:
        """(S, L, H) the values of one measure. Raises ValueError for an unknown name."""
        return self.values[:, self._number(name)]

    def change(self, name: str) -> Array:
        """(L, H) the largest minus the smallest value of a measure; 0 where it is unknown.

        Raises ValueError for an unknown name.
        """
        spread: Array = np.ptp(self.of(name), axis=0)
        return np.nan_to_num(spread)

    def named_since(self) -> npt.NDArray[np.int64]:
        """(L, H) the first step since which a head has had the name that it has at the last
        step.

        −1 for heads without a name at the last step.
        """
        same = self.kinds == self.kinds[-1]
        since = len(same) - np.logical_and.accumulate(same[::-1]).sum(axis=0)
        return np.where(self.kinds[-1] == "", -1, self.steps[since])

    def shown(self, every: bool = False) -> list[Measure]:
        """The measures that tables and figures show; see Survey.shown."""
        return self.last.shown(every)

    def main_measures(self) -> list[Measure]:
        """At most four measures for a figure: ablation, if measured, and those that name a head at
        some step, synthetic induction last. If no head has a name, the first ones that tables show.
        """
        heads = self.last.letter == "H"
        kinds = np.unique(self.kinds[self.kinds != ""]).tolist() if heads else []
        named = {"ablation", *(naming_measure(kind, self.measures).name for kind in kinds)}
        named |= {"induction_synthetic"} if "induction" in named else set()
        rank = {"ablation": 0, "induction_synthetic": 2}
        shown = sorted(self.shown(), key=lambda each: rank.get(each.name, 1))
        return [each for each in shown if not kinds or each.name in named][:MOST_PANELS]

    def ranking(self, sort: str) -> list[tuple[int, int]]:
        """(layer, head) of every head, those whose measure changed most first.

        Raises ConfigError for an unknown measure.
        """
        if sort not in self.names:
            raise ConfigError("sort", f"{sort!r} is not one of {', '.join(self.names)}")
        return sorted_heads(self.change(sort))

    def blocks(
        self, every: bool = False, sort: str | None = None, top: int | None = None
    ) -> list[Block]:
        """The heads' names with the step since which they have them, and a table for each
        measure.

        every: show all measures. sort: the measure that orders the heads in all tables; by default,
        each table is ordered by the change of its own measure; top: only the first heads. Raises
        ConfigError.
        """
        steps, shown, top = self.steps, self.shown(every), top or self.last.top
        facts = [f"{len(steps)} steps, {steps[0]:,} to {steps[-1]:,}", self.measured]
        tables = []
        for each in shown:
            title = f"{each.title} · {self.last.even} {each.uniform_cell().text}"
            tables.append(Fold(title, [self._table(each.name, sort, top)], opened=True))
        notes = [each.meaning for each in shown if each.explained]
        return [
            Title(f"{self.last.what}s over training", facts),
            *map(Note, self._names()),
            *tables,
            Fold("what the tables mean", [Note(each) for each in (*notes, CURVE_NOTE)]),
            *map(Note, (self.last.rule, self.last.caveat)),
        ]

    def _names(self) -> list[str]:
        """The names of heads, in the order in which heads got them."""
        since, last = self.named_since(), self.kinds[-1]
        named: dict[tuple[int, str], list[str]] = {}
        for place in zip(*np.nonzero(last != ""), strict=True):
            key = int(since[place]), str(last[place]).split(" '")[0]  # for any character
            named.setdefault(key, []).append(head_name(place[0], place[1], self.last.letter))
        return [
            f"{name} since step {step:,}: {first_few(heads, MOST_NAMED, ', ')}"
            for (step, name), heads in sorted(named.items())
        ] or [f"no {self.last.what} has a name at the last step"]

    def _table(self, name: str, sort: str | None, top: int | None) -> Table:
        """For each head, its curve and its values at some steps."""
        values, place = self.of(name), self._number(name)  # (S, L, H)
        S = len(values)
        low, high = float(np.nanmin(values, initial=0)), float(np.nanmax(values, initial=0))
        some, points = evenly_spaced(S, MOST_STEPS), evenly_spaced(S, MOST_POINTS)
        columns = [Column(self.last.what, left=True), Column("kind", left=True), Column(left=True)]
        columns += [Column(f"{self.steps[n]:,}", spare=True) for n in some]
        rows = []
        for layer, head in self.ranking(sort or name)[:top]:
            curve = (values[points, layer, head] - low) / max(1e-9, high - low)
            kind = str(self.kinds[-1, layer, head]) or "–"
            cells = [self.surveys[n].measures[place].cell(layer, head, errors=False) for n in some]
            begin = [
                Cell(head_name(layer, head, self.last.letter)),
                Cell(kind),
                Cell("", curve=curve.tolist()),
            ]
            rows.append([*begin, *cells])
        return Table(columns, rows, labels=2)

    def records(self, sort: str | None = None) -> Records:
        """A row for each step and head. Raises ConfigError."""
        every = [each.columns() for each in self.surveys]
        columns = {name: np.concatenate([each[name] for each in every]) for name in every[0]}
        steps = {"step": np.repeat(self.steps, self.kinds[0].size)}
        return Records(steps | columns, self.last.facts)

    def save(self, path: str | Path, *, every: bool = False, measures: Sequence[str] = ()) -> Path:
        """Draws measures over the steps into a .svg, .pdf or .png file; needs matplotlib.

        measures: their names; by default those of `main_measures`. every: draw all measures. Raises
        ConfigError for another ending and for an unknown measure, StorageError.
        """
        if self.last.letter != "H":
            raise ConfigError(
                "save: figures show heads; records() and to_pandas() have these numbers"
            )
        found: Path = showing.renderer().save_development(self, path, every=every, names=measures)
        return found

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"{name!r} is not one of {', '.join(self.names)}")
        return self.names.index(name)


def sorted_heads(values: Array) -> list[tuple[int, int]]:
    """(layer, head) of (L, H) values, those with the largest values first."""
    order = np.argsort(-values, axis=None, kind="stable")
    return [divmod(place, values.shape[1]) for place in order.tolist()]


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of the numbers 0 … count − 1, evenly spread; the last is always there and, if
    there are several, the first.
    """
    downward = np.linspace(count - 1, 0, min(count, most)).round().astype(int)
    return downward[::-1].tolist()  # type: ignore[no-any-return]


def development(steps: Sequence[int], surveys: Iterable[Survey]) -> Development:
    """The development of the surveys of one text at ascending steps."""
    every = tuple(surveys)

    def stacked(name: str) -> npt.NDArray[Any]:
        return np.stack([[getattr(each, name) for each in one.measures] for one in every])

    return Development(
        steps=np.array(steps, np.int64),
        names=tuple(measure.name for measure in every[-1].measures),
        values=stacked("values"),
        errors=stacked("errors"),
        uniform=stacked("uniform_values"),
        kinds=np.array([one.names for one in every]),
        surveys=every,
    )


def survey_steps(
    stored: StoredModel,
    open_device: OpenDevice | None,
    steps: Steps,
    measured: Callable[[Reader, Done], Survey],
    done: Done,
) -> Development:
    """Measures steps of a run, one model at a time. Raises CheckpointError, ConfigError."""
    run = run_of(stored)
    numbers = step_numbers(run, steps)

    def surveys() -> Iterator[Survey]:
        for n, number in enumerate(numbers):
            reader, _ = open_proven(run.model(number), open_device)
            yield measured(reader, share_between(done, n / len(numbers), (n + 1) / len(numbers)))

    return development(numbers, surveys())
