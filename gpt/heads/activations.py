"""Every stage that a model computes for many texts, as named arrays; stages can be replaced.

A forward pass takes some texts at a time, and only requested stages are kept. Texts of different
lengths are padded on the right, which no earlier position reads.
If a stage is replaced, everything after it is computed from its new values: activation patching
(Vig et al. 2020, Meng et al. 2022).
Tensor names: N texts, L kept layers, T time, C n_embd, H heads, D head_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from gpt.checks import Arrays, check_number
from gpt.config import ModelConfig, Stage, Unknown
from gpt.config.model import FINAL_STAGES, HEAD_STAGES, NO_FEED_FORWARD, SQUARE, STAGES
from gpt.devices import available_memory
from gpt.errors import OutOfMemory, TextError
from gpt.heads.attention_map import shape_rows
from gpt.heads.places import Key, ParsedKey, parse_key
from gpt.reading.gpt import MATRICES, Reader
from gpt.reading.layers import Array
from gpt.reading.score import windows_at_once
from gpt.show.result import Column, Result
from gpt.vocabulary import Ids, Vocabulary
from gpt.words import counted

#: What `TrainedGPT.activations` accepts: a text, several texts, or (N, T) or (T,) ids.
Texts = str | Sequence[str] | Ids
#: What replaces a stage: an array or number that broadcasts to its shape, or a function that gets
#: the stage's array and returns one of the same shape. Arguments are Mapping[Any, Patch], because
#: mypy takes the names in a dict's keys for str and would reject it for Mapping[Key, Patch].
Patch: TypeAlias = Callable[[Array], npt.ArrayLike] | npt.ArrayLike


def stage_shapes(config: ModelConfig, T: int) -> dict[Stage, tuple[int, ...]]:
    """Name -> shape of every stage of one text of T characters, in the order of computation;
    without feed-forward layers, their stages are missing.
    """
    columns = {"ffn_hidden": config.ffn_hidden, "logits": config.vocab_size}
    columns |= dict.fromkeys(("q", "k", "v", "context"), config.head_size)
    columns |= dict.fromkeys(SQUARE, T)
    found = dict[Stage, tuple[int, ...]]()
    for name in config.stages:
        shape = T, columns.get(name, config.n_embd)
        found[name] = (config.n_head, *shape) if name in HEAD_STAGES else shape
    return found


@dataclass(frozen=True, repr=False, eq=False)
class Activations(Arrays, Result):
    """Stages of N texts: acts["weights"] is (N, L, H, T, T), acts["weights", 1] is layer 1,
    acts["weights", 1, 2, 5] is row 5 of its head 2, (N, T), and acts["weights", 1, 2, 5, 0] the
    same of text 0, (T,). gpt/heads/places.py explains the keys.

    arrays: name -> array, (N, L, …) with an axis for the kept layers, but (N, …) for final_norm and
    logits. layers: the numbers of the kept layers in the model. ids: (N, T). lengths: (N,)
    characters of each text; in a text shorter than T, the numbers after its end are 0. `mask`
    selects the real characters: `acts["resid_mid", 0][acts.mask]` is (characters, C).

    acts[…] raises ValueError for a stage that was not kept, IndexError for a layer that was not
    kept and, if texts differ in length, for a position that counts from the end.
    `np.savez("activations.npz", **acts.to_numpy())` saves the arrays.
    """

    arrays: Mapping[Stage, Array]
    layers: tuple[int, ...]
    ids: Ids
    lengths: npt.NDArray[np.int64]

    def to_numpy(self) -> dict[str, Array]:
        """Name -> array."""
        return dict(self.arrays.items())

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.arrays)

    def __getitem__(self, key: Key) -> Array:
        shapes = {name: array.shape for name, array in self.arrays.items()}
        place = parse_key(key, shapes, self.layers, bool(self.mask.all()), len(self.ids))
        array = self.arrays[place.stage]
        if place.layer is not None:
            array = array[:, self.layers.index(place.layer)]
        part = place.part(array)
        return part if place.text is None else part[place.text]

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.arrays)

    def keys(self) -> Iterable[Stage]:
        """The names, so that `dict(acts)` and `**acts` give name -> array."""
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
        """The size of all arrays in bytes."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def _facts(self) -> list[str]:
        (N, T), layers = self.ids.shape, f"layers {', '.join(map(str, self.layers))}"
        texts, size = f"{counted(N, 'text')} of {T} characters", f"{self.nbytes / 2**20:,.1f} MB"
        return [texts, layers, size]

    COLUMNS = Column("stage", "stage"), Column("shape", "shape")

    @property
    def title(self) -> str:
        return f"activations of {', '.join(self._facts)}"

    @property
    def rows(self) -> list[dict[str, str]]:
        """The names and shapes of the arrays."""
        return shape_rows(self.to_numpy())

    def __repr__(self) -> str:
        each = ", ".join(f"{name} {array.shape}" for name, array in self.arrays.items())
        texts, layers, size = self._facts
        return f"<Activations of {texts}, {layers}: {each}; {size}>"


class ActivationPlan:
    """Which stages and layers to keep for which texts, and which to replace; everything is
    checked.

    ids: (N, T), N ≥ 1 and 1 ≤ T ≤ block_size. lengths: (N,), None: T for each. names: None keeps
    every stage except head_output. layers: None keeps all. patch: key -> what replaces the stage,
    in the shape that activations have at this key; a function gets one layer. Keys with fewer parts
    apply first. Raises what `parse_key` raises; ValueError for an unknown name, for head_output in
    patch and for an array that does not broadcast; IndexError for a layer outside the model;
    TypeError for values that are not numbers.
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
        #: Name -> shape of every stage of one text.
        self._known = known = stage_shapes(config, T)
        self.layers = _chosen_layers(layers, config.n_layer)
        L = len(self.layers)
        #: Name -> shape of every kept stage of one text.
        self._shapes = {
            name: known[name] if name in FINAL_STAGES else (L, *known[name])
            for name in _chosen_names(names, config)
        }
        if not isinstance(patch or {}, Mapping):
            raise TypeError(f"patch: expected a dictionary, not {type(patch).__name__}")
        changes = [self._change(key, value) for key, value in (patch or {}).items()]
        self._changes = sorted(changes, key=lambda change: -change.place.count(None))

    def read(self, texts: slice = slice(None)) -> Activations:
        """The activations of these texts. Raises OutOfMemory before it computes anything."""
        places = range(len(self.ids))[texts]
        N = len(places)
        functions = any(callable(change.value) for change in self._changes)  # need all texts
        at_once = N if functions else min(N, windows_at_once(self.reader.config))
        self._require_memory(N, at_once)
        dtype = self.reader.dtype
        arrays = {name: np.empty((N, *shape), dtype) for name, shape in self._shapes.items()}
        for start in range(0, N, at_once):
            part = places[start : start + at_once]
            rooms = {name: array[start : start + len(part)] for name, array in arrays.items()}
            self._compute(slice(part.start, part.stop), rooms)
        lengths = self.lengths[texts]
        for number in np.flatnonzero(lengths < self.ids.shape[1]):  # clears what follows a text
            for name, array in arrays.items():
                array[number, ..., lengths[number] :, :] = 0
                if name in ("scores", "scaled"):
                    array[number, ..., lengths[number] :] = 0
        return Activations(arrays, self.layers, self.ids[texts], lengths)

    def _change(self, key: Key, value: Any) -> _Change:
        """Checks a replacement."""
        N, depth = len(self.ids), self.reader.config.n_layer
        _require_computed(self.reader.config, [key[0] if isinstance(key, tuple) and key else key])
        one_length = len(set(self.lengths)) == 1
        place = parse_key(key, self._known, range(depth), one_length, N)
        if place.stage == "head_output" or place.head == "mean":
            raise ValueError(
                f"patch {key!r}: head_output and the mean of heads can only be read; "
                "patch ('context', layer, head), or the sum of all heads, ('proj', layer)"
            )
        texts = range(N)[slice(None) if place.text is None else place.text]
        if not callable(value):
            layered = place.layer is None and place.stage not in FINAL_STAGES
            whole = 1, *[depth] * layered, *self._known[place.stage]
            each = place.part(np.broadcast_to(0.0, whole))[0].shape
            shape = each if isinstance(texts, int) else (len(texts), *each)
            value = _numbers(key, value)
            try:
                value = np.broadcast_to(value, shape)
            except ValueError:
                found = f"an array of shape {value.shape} does not broadcast to {shape}"
                raise ValueError(f"patch {key!r}: {found}") from None
            value = value[None] if isinstance(texts, int) else value
        texts = range(texts, texts + 1) if isinstance(texts, int) else texts
        return _Change(key, place, value, texts)

    def _compute(self, texts: slice, arrays: Mapping[Stage, Array]) -> None:
        """Computes these texts, and writes their stages into the arrays."""
        reader, config = self.reader, self.reader.config

        def room(name: Any, layer: int) -> Array | None:
            array = arrays.get(name)
            if array is None or name in FINAL_STAGES:
                return array
            return array[:, self.layers.index(layer)] if layer in self.layers else None

        def keep(name: str, layer: int, stage: Array) -> Array:
            for change in self._changes:
                if change.place.stage == name and change.place.layer in (None, layer):
                    change.apply(stage, layer, texts)
            if (kept := room(name, layer)) is not None:
                kept[...] = stage
            if name == "context" and (kept := room("head_output", layer)) is not None:
                weight, _ = reader.linear(f"blocks.{layer}.attention.proj")  # (C, C)
                by_head = weight.T.reshape(config.n_head, config.head_size, -1)  # (H, D, C)
                np.matmul(stage, by_head, out=kept)
            return stage

        to_the_end = not set(FINAL_STAGES).isdisjoint(arrays)
        depth = config.n_layer if to_the_end else max(self.layers, default=-1) + 1
        stream = reader.blocks(reader.embed(self.ids[texts]), range(depth), keep)
        if to_the_end:
            reader.logits(reader.final_norm(stream, keep), keep)

    def _require_memory(self, N: int, at_once: int) -> None:
        """Raises OutOfMemory if the arrays of N texts and a forward pass do not fit."""
        config, T = self.reader.config, self.ids.shape[1]
        kept = sum(map(math.prod, self._shapes.values()))
        widest = 8 * config.n_embd + 2 * config.ffn_hidden + config.vocab_size
        computed = T * (MATRICES * config.n_head * T + widest)
        need = (N * kept + at_once * computed) * self.reader.dtype.itemsize
        has = available_memory()
        if has is not None and need > has:
            raise OutOfMemory(
                f"out of memory: {', '.join(self._shapes)} of {N:,} texts of {T} characters need "
                f"{need / 2**30:,.1f} GB, {has / 2**30:,.1f} GB are free; choose fewer "
                "texts, names or layers, or use activation_batches"
            )


def read_batches(plan: ActivationPlan, batch: int | None = None) -> Iterator[Activations]:
    """The activations of `batch` texts at a time; None: as many as one forward pass takes.

    Raises ValueError for a batch below 1.
    """
    size = windows_at_once(plan.reader.config) if batch is None else batch
    if size < 1:
        raise ValueError(f"batch: {size} is less than 1")
    return (plan.read(slice(first, first + size)) for first in range(0, len(plan.ids), size))


def plan_activations(
    reader: Reader,
    vocabulary: Vocabulary,
    texts: Texts,
    names: Stage | Iterable[Stage] | None,
    layers: SupportsIndex | Iterable[SupportsIndex] | None = None,
    patch: Mapping[Any, Patch] | None = None,
    unknown: Unknown = "error",
) -> ActivationPlan:
    """The plan for these texts. Raises what `pad_texts` and ActivationPlan raise."""
    ids, lengths = pad_texts(texts, vocabulary, reader.config, unknown)
    return ActivationPlan(reader, ids, names, layers, patch=patch, lengths=lengths)


def pad_texts(
    texts: Texts, vocabulary: Vocabulary, config: ModelConfig, unknown: Unknown = "error"
) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Texts or ids -> (N, T) ids, padded on the right with id 0, and the (N,) lengths.

    Raises TextError for empty and too long texts and for unknown characters, ValueError for no
    texts and for ids of another shape or outside the vocabulary, TypeError for what is neither text
    nor ids.
    """
    is_one = isinstance(texts, str) or (isinstance(texts, np.ndarray) and texts.ndim <= 1)
    every: Sequence[Any] = [texts] if is_one else [*texts]
    if not every:
        raise ValueError("texts: there is none; give at least one")
    rows = [
        vocabulary.encode(text, unknown) if isinstance(text, str) else np.asarray(text)
        for text in every
    ]
    for number, row in enumerate(rows):
        if row.ndim != 1 or row.dtype.kind not in "iu":
            found = f"an array of {row.dtype} and shape {row.shape}"
            raise TypeError(f"texts: text {number} must be a str or a row of ids, not {found}")
        if not 1 <= len(row) <= config.block_size:
            raise TextError(
                f"text {number} has {len(row):,} characters; the model reads 1 to "
                f"{config.block_size:,} at once, so cut it into windows"
            )
    lengths = np.array([len(row) for row in rows])
    known = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(known.shape, np.int64)
    ids[known] = np.concatenate(rows)
    if ids.min() < 0 or ids.max() >= len(vocabulary):
        raise ValueError(f"ids: {ids.min()} … {ids.max()} are not in 0 … {len(vocabulary) - 1}")
    return ids.astype(vocabulary.dtype), lengths


def _chosen_names(names: Stage | Iterable[Stage] | None, config: ModelConfig) -> list[Stage]:
    """These names, checked, in the order of computation."""
    if names is None:
        return [name for name in config.stages if name != "head_output"]
    asked = {names} if isinstance(names, str) else set(names)
    _require_computed(config, asked)
    if unknown := asked - set(config.stages):
        raise ValueError(f"names: {min(unknown)!r} is not one of {', '.join(config.stages)}")
    return [name for name in config.stages if name in asked]


def _require_computed(config: ModelConfig, names: Collection[Any]) -> None:
    """Raises ValueError for a stage that only feed-forward layers have, if there are none."""
    for name in STAGES:
        if name in names and name not in config.stages:
            raise ValueError(f"{name!r}: {NO_FEED_FORWARD}")


def _chosen_layers(
    layers: SupportsIndex | Iterable[SupportsIndex] | None, count: int
) -> tuple[int, ...]:
    """The numbers of these layers, checked, in the given order."""
    if layers is None:
        return tuple(range(count))
    asked = layers if isinstance(layers, Iterable) else [layers]
    return tuple(dict.fromkeys(check_number("layer", layer, count) for layer in asked))


@dataclass(frozen=True)
class _Change:
    """One replacement. value: a function, or an (n, [L,] …) array for the n `texts`."""

    key: Key
    place: ParsedKey
    value: Any
    texts: range

    def apply(self, stage: Array, layer: int, texts: slice) -> None:
        """Writes the new values into the (B, …) stage of these texts.

        The array's strides stay as they are, so that equal values give equal logits to the last
        bit.
        """
        here = [n for n, text in enumerate(self.texts) if texts.start <= text < texts.stop]
        if not here:
            return
        first, last = (self.texts[n] - texts.start for n in (here[0], here[-1]))
        part = self.place.part(stage[first : last + 1 : self.texts.step])
        if not callable(self.value):
            new = self.value[here[0] : here[-1] + 1]
            part[...] = new[:, layer] if new.ndim > part.ndim else new
            return
        part = part[0] if isinstance(self.place.text, int) else part
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
