"""Every stage that a model computes for many texts, as named arrays; stages can be replaced.

A forward takes some texts at a time; only the stages that are asked for are kept. Texts of
different lengths are padded on the right: a causal model's earlier positions do not see that.
After a replaced stage, everything is computed from its new values: activation patching (Vig et al.
2020, Meng et al. 2022).
Tensor names: N texts, L kept layers, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt.blocks import Block, Title, shapes_of
from gpt.checks import Result, numbered
from gpt.config import ModelConfig, Stage, Unknown
from gpt.config.model import FINAL, NO_FEED_FORWARD, OF_HEADS, SQUARE, STAGES
from gpt.devices import available_memory
from gpt.errors import OutOfMemory, TextError
from gpt.heads.attention_map import require_decoder_only
from gpt.heads.places import Key, Place, parse
from gpt.reading import pairs
from gpt.reading.gpt import MATRICES, Reader
from gpt.reading.layers import Array
from gpt.reading.score import windows_at_once
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

#: What `TrainedGPT.activations` reads: a text, several texts, or (N, T) or (T,) ids.
Texts = str | Sequence[str] | Ids
#: What replaces a stage: an array or number that broadcasts to its shape, or a function that gets
#: the stage's array and returns one of the same shape. Arguments are Mapping[Any, Patch], as mypy
#: would reject a dict for Mapping[Key, Patch]: it takes the names in the dict's keys for str.
Patch: TypeAlias = Callable[[Array], npt.ArrayLike] | npt.ArrayLike


def shapes(config: ModelConfig, T: int) -> dict[Stage, tuple[int, ...]]:
    """Name -> shape of every stage for one text of T characters, in the order of computation;
    without feed-forward layers, none of theirs.
    """
    columns = {"ffn_hidden": config.ffn_hidden, "logits": config.vocab_size}
    columns |= dict.fromkeys(("q", "k", "v", "context"), config.head_size) | dict.fromkeys(
        SQUARE, T
    )
    heads = dict.fromkeys(OF_HEADS, (config.n_head,))
    widths = {name: columns.get(name, config.n_embd) for name in config.stages}
    return {name: (*heads.get(name, ()), T, width) for name, width in widths.items()}


@dataclass(frozen=True, repr=False, eq=False)
class Activations(Result):
    """Stages of N texts: acts["weights"] is (N, L, H, T, T), acts["weights", 1] layer 1 alone,
    acts["weights", 1, 2, 5] row 5 of its head 2, (N, T). Keys: gpt/heads/places.py.

    arrays: name -> array, (N, L, …) with an axis for the kept layers, but (N, …) for final_norm and
    logits. layers: the model's numbers of the kept layers. ids: (N, T). lengths: (N,) characters of
    each text; where a text is shorter than T, the numbers after its end are 0. `mask` selects the
    others: acts["resid_mid", 0][acts.mask] is (characters, C).

    acts[…] raises ValueError for a stage and IndexError for a layer that was not kept; if texts
    differ in length, also for a position that counts from the end.
    `np.savez("activations.npz", **acts.to_numpy())` saves the arrays.
    """

    arrays: Mapping[Stage, Array]
    layers: tuple[int, ...]
    ids: Ids
    lengths: npt.NDArray[np.int64]

    def to_numpy(self) -> dict[str, Array]:
        """The arrays by their names."""
        return dict(self.arrays.items())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.arrays)

    def __getitem__(self, key: Key) -> Array:
        shapes = {name: array.shape for name, array in self.arrays.items()}
        place = parse(key, shapes, self.layers, bool(self.mask.all()))
        array = self.arrays[place.stage]
        if place.layer is not None:
            array = array[:, self.layers.index(place.layer)]
        return place.part(array)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.arrays)

    def keys(self) -> Iterable[Stage]:
        """The names, so that `dict(acts)` and `**acts` give the arrays."""
        return self.arrays.keys()

    @property
    def names(self) -> tuple[Stage, ...]:
        """The kept stages, in the order of computation."""
        return tuple(self.arrays)

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """(N, T), True where a text has a character, False after its end."""
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def _facts(self) -> list[str]:
        (N, T), layers = self.ids.shape, ", ".join(map(str, self.layers))
        size = f"{self.nbytes / 2**20:,.1f} MB"
        return [f"{counted(N, 'text')} of {T} characters", f"layers {layers}", size]

    def blocks(self) -> list[Block]:
        """The names and shapes of its arrays."""
        return [Title("activations", self._facts), shapes_of(self.to_numpy())]

    def __repr__(self) -> str:
        each = ", ".join(f"{name} {array.shape}" for name, array in self.arrays.items())
        texts, layers, size = self._facts
        return f"<Activations of {texts}, {layers}: {each}; {size}>"


class Plan:
    """Which stages and layers to keep for which texts, with which replacements; all checked.

    ids: (N, T), N ≥ 1 and 1 ≤ T ≤ block_size. lengths: (N,), None: T each. names: None keeps every
    stage except head_output, layers: None keeps all. patch: key -> what replaces the stage, of the
    shape that activations have at this key; a function gets one layer. A key with fewer numbers is
    replaced first. Raises what `parse` raises, ValueError for an unknown name, head_output in patch
    and an array that does not broadcast, IndexError for a layer outside the model, TypeError for
    values that are no numbers.
    """

    def __init__(
        self,
        reader: Reader,
        ids: Ids,
        names: Stage | Iterable[Stage] | None = None,
        layers: SupportsIndex | Iterable[SupportsIndex] | None = None,
        *,
        patch: Mapping[Any, Patch] | None = None,
        lengths: npt.NDArray[np.int64] | None = None,
    ) -> None:
        config, (N, T) = reader.config, ids.shape
        self.reader, self.ids = reader, ids
        self.lengths = np.full(N, T) if lengths is None else lengths
        self.layers = _chosen_layers(layers, config.n_layer)
        known, kept = shapes(config, T), [len(self.layers)]
        chosen = _chosen_names(names, config)
        #: Name -> shape for one text of each kept stage.
        self._shapes = {n: (*kept * (n not in FINAL), *known[n]) for n in chosen}
        if not isinstance(patch or {}, Mapping):
            raise TypeError(f"patch: expected a dictionary, not {type(patch).__name__}")
        changes = [self._change(key, value) for key, value in (patch or {}).items()]
        self._changes = sorted(changes, key=lambda change: -change.place.count(None))

    def read(self, texts: slice = slice(None)) -> Activations:
        """The activations of these texts. Raises OutOfMemory before it computes anything."""
        places = range(len(self.ids))[texts]
        N, T = len(places), self.ids.shape[1]
        functions = any(callable(change.value) for change in self._changes)  # of all texts at once
        at_once = N if functions else min(N, windows_at_once(self.reader.config))
        self._require_memory(N, at_once)
        dtype = self.reader.dtype
        arrays = {name: np.empty((N, *shape), dtype) for name, shape in self._shapes.items()}
        for start in range(0, N, at_once):
            part = places[start : start + at_once]
            rooms = {name: array[start : start + len(part)] for name, array in arrays.items()}
            self._compute(slice(part.start, part.stop), rooms)
        lengths = self.lengths[texts]
        for number in np.flatnonzero(lengths < T):
            for name, array in arrays.items():
                _clear_end(name, array[number], lengths[number])
        return Activations(arrays, self.layers, self.ids[texts], lengths)

    def _change(self, key: Key, value: Any) -> _Change:
        """Checks a replacement."""
        (N, T), config = self.ids.shape, self.reader.config
        known, depth = shapes(config, T), config.n_layer
        _require_computed(config, key[:1] if isinstance(key, tuple) else (key,))
        place = parse(key, known, range(depth), bool((self.lengths == T).all()))
        if "head_output" in place or "mean" in place:
            raise ValueError(
                f"patch {key!r}: head_output and the mean of heads can only be read; "
                "patch ('context', layer, head), or the sum of all heads, ('proj', layer)"
            )
        if not callable(value):
            axis = [depth] if place.layer is None and place.stage not in FINAL else []
            whole = np.broadcast_to(0.0, (N, *axis, *known[place.stage]))
            value, shape = _numbers(key, value), place.part(whole).shape
            try:
                value = np.broadcast_to(value, shape)
            except ValueError:
                found = f"an array of shape {value.shape} does not broadcast to {shape}"
                raise ValueError(f"patch {key!r}: {found}") from None
        return _Change(key, place, value)

    def _compute(self, texts: slice, arrays: Mapping[Stage, Array]) -> None:
        """Computes these texts, and writes their stages into the arrays."""
        reader, config = self.reader, self.reader.config
        rooms: dict[tuple[str, int], Array] = {}
        for name, array in arrays.items():
            if name in FINAL:
                rooms[name, config.n_layer] = array
            else:
                rooms |= {(name, layer): array[:, at] for at, layer in enumerate(self.layers)}

        def keep(name: str, layer: int, stage: Array) -> Array:
            for change in self._changes:
                if change.place.stage == name and change.place.layer in (None, layer):
                    change.apply(stage, layer, texts)
            if (room := rooms.get((name, layer))) is not None:
                room[...] = stage
            if name == "context" and (room := rooms.get(("head_output", layer))) is not None:
                weight, _ = reader.linear(f"blocks.{layer}.attention.proj")  # (C, C)
                by_head = weight.T.reshape(config.n_head, config.head_size, -1)  # (H, D, C)
                np.matmul(stage, by_head, out=room)
            return stage

        to_the_end = not set(FINAL).isdisjoint(arrays)
        depth = config.n_layer if to_the_end else max(self.layers, default=-1) + 1
        stream = reader.blocks(reader.embed(self.ids[texts]), range(depth), keep)
        if to_the_end:
            reader.logits(reader.final_norm(stream, keep), keep)

    def _require_memory(self, N: int, at_once: int) -> None:
        """Raises OutOfMemory if the arrays of N texts and a forward of some do not fit."""
        config, T = self.reader.config, self.ids.shape[1]
        kept = sum(map(math.prod, self._shapes.values()))
        widest = 8 * config.n_embd + 2 * config.ffn_up + config.vocab_size
        computed = T * (MATRICES * config.n_head * T + widest)
        need = (N * kept + at_once * computed) * self.reader.dtype.itemsize
        has = available_memory()
        if has is not None and need > has:
            raise OutOfMemory(
                f"out of memory: {', '.join(self._shapes)} of {N:,} texts of {T} characters need "
                f"{need / 2**30:,.1f} GB, {has / 2**30:,.1f} GB are free; choose fewer "
                "texts, names or layers, or use activation_batches"
            )


def batches(plan: Plan, batch: int | None = None) -> Iterator[Activations]:
    """The activations of `batch` texts at a time; None: of as many as one forward takes.

    Raises ValueError for a batch below 1.
    """
    size = windows_at_once(plan.reader.config) if batch is None else batch
    if size < 1:
        raise ValueError(f"batch: {size} is less than 1")
    return (plan.read(slice(first, first + size)) for first in range(0, len(plan.ids), size))


def plan_of(
    reader: Reader,
    vocabulary: Vocabulary,
    texts: Texts,
    names: Stage | Iterable[Stage] | None,
    layers: SupportsIndex | Iterable[SupportsIndex] | None = None,
    patch: Mapping[Any, Patch] | None = None,
    unknown: Unknown = "error",
) -> Plan:
    """The plan for texts. Raises as `padded` and Plan; ConfigError for a model with an encoder."""
    what = "logits of texts" if names == "logits" else "activations and patches"
    require_decoder_only(reader.config, what)
    ids, lengths = padded(texts, vocabulary, reader.config, unknown)
    return Plan(reader, ids, names, layers, patch=patch, lengths=lengths)


def padded(
    texts: Texts, vocabulary: Vocabulary, config: ModelConfig, unknown: Unknown = "error"
) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Texts or ids -> (N, T) ids, padded on the right with id 0, and the (N,) lengths.

    Raises TextError for empty and too long texts and for unknown characters, ValueError for ids of
    another shape or outside the vocabulary, TypeError for what is neither text nor ids.
    """
    if isinstance(texts, str) or (isinstance(texts, np.ndarray) and texts.ndim <= 1):
        texts = [texts]  # type: ignore[list-item]
    rows = [
        vocabulary.encode(text, unknown) if isinstance(text, str) else np.asarray(text)
        for text in texts
    ]
    if not rows:
        raise ValueError("texts: there is none; give at least one")
    for number, row in enumerate(rows):
        if row.ndim != 1 or row.dtype.kind not in "iu":
            found = f"an array of {row.dtype} and shape {row.shape}"
            raise TypeError(f"texts: text {number} must be a str or a row of ids, not {found}")
        if not 1 <= len(row) <= config.block_size:
            raise TextError(
                f"text {number} has {len(row):,} characters; the model reads 1 to "
                f"{config.block_size:,} at once, so cut it into windows"
            )
    ids, known = pairs.padded(rows)
    if ids.min() < 0 or ids.max() >= len(vocabulary):
        raise ValueError(f"ids: {ids.min()} … {ids.max()} are not in 0 … {len(vocabulary) - 1}")
    return ids.astype(vocabulary.dtype), known.sum(axis=1)


def _chosen_names(names: Stage | Iterable[Stage] | None, config: ModelConfig) -> tuple[Stage, ...]:
    """The names in the order of computation."""
    if names is None:
        return tuple(name for name in config.stages if name != "head_output")
    asked = {names} if isinstance(names, str) else set(names)
    if unknown := asked - set(STAGES):
        raise ValueError(f"names: {min(unknown)!r} is not one of {', '.join(STAGES)}")
    _require_computed(config, asked)
    return tuple(name for name in STAGES if name in asked)


def _require_computed(config: ModelConfig, names: Collection[Any]) -> None:
    """Raises ValueError for a stage that only feed-forward layers have, if there are none."""
    for name in STAGES:
        if name in names and name not in config.stages:
            raise ValueError(f"{name!r}: {NO_FEED_FORWARD}")


def _chosen_layers(
    layers: SupportsIndex | Iterable[SupportsIndex] | None, count: int
) -> tuple[int, ...]:
    """The layers' numbers, in the order asked for."""
    if layers is None:
        return tuple(range(count))
    asked = layers if isinstance(layers, Iterable) else [layers]
    return tuple(dict.fromkeys(numbered("layer", layer, count) for layer in asked))


def _clear_end(name: Stage, stages: Array, length: int) -> None:
    """Sets the numbers after a text's end to 0: its rows, and columns of scores."""
    stages[..., length:, :] = 0
    if name in ("scores", "scaled"):
        stages[..., length:] = 0


@dataclass(frozen=True)
class _Change:
    """One replacement. value: a function, or an array for all N texts, (N, [L,] …)."""

    key: Key
    place: Place
    value: Any

    def apply(self, stage: Array, layer: int, texts: slice) -> None:
        """Writes the new values into the (B, …) stage of these texts.

        Its strides stay as they are, so that equal values give equal logits to the last bit.
        """
        part = self.place.part(stage)
        if not callable(self.value):
            new = self.value[texts]
            part[...] = new[:, layer] if new.ndim > part.ndim else new
            return
        found = self.value(part)
        if found is None:
            raise ValueError(f"patch {self.key!r}: the function returned None, not an array")
        if found is not part:
            new = _numbers(self.key, found)
            if new.shape != part.shape:
                raise ValueError(
                    f"patch {self.key!r}: the function returned an array of shape {new.shape}; "
                    f"it must keep the shape {part.shape}"
                )
            part[...] = new


def _numbers(key: Key, value: Any) -> Array:
    """The value as an array of real numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"patch {key!r}: expected numbers, not {array.dtype}")
    return array
