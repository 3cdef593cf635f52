"""Reads and writes model files (safetensors). Reading a file checks it completely.

The names, shapes and types of its tensors must be those that its config needs, and all numbers must
be finite. A sealed file contains a digest of its own bytes, so that it can be checked without its
run. Model files, state files (the optimizer's tensors) and manifests are sealed.

The digest (BLAKE3: O'Connor, Aumasson, Neves and Wilcox-O'Hearn, 2020) stands in the file's JSON.
gptx computes it from the file with BLANK in the digest's place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import safetensors.numpy
from blake3 import blake3
from safetensors import SafetensorError

from gpt.config import ModelConfig
from gpt.errors import CheckpointError
from gpt.show.result import Arrays
from gpt.storage import files
from gpt.vocabulary import Vocabulary
from gpt.words import printable, short_repr

SCHEMA = 1  # the version of manifests, model files, state files and records of encoded texts
BLANK = "0" * 64  # what a file has in place of its digest while the digest is computed
_DIGEST = re.compile(rb"digest\W+([0-9a-f]{64})")
Kind = TypeVar("Kind")
EXCERPT_LENGTH = 1000  # characters of the validation split that a model file contains
ENTRY = "gptx"  # the name of the file's metadata entry that has gptx's JSON
#: The arrays of counted n-grams (gpt/counting/tables.py), and of the gate that mixes them in.
COUNTING = ("symbols", "counts", "children", "gate")

Tensors = dict[str, npt.NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]


class _Schema(msgspec.Struct):
    schema: int


def to_json(values: Any, indent: int | None = None) -> str:
    """JSON with BLANK, the schema, and the values of a dataclass or dict. Raises ValueError for NaN
    and infinity.
    """
    sealed = {"digest": BLANK, "schema": SCHEMA, **msgspec.to_builtins(values)}
    return json.dumps(sealed, ensure_ascii=False, indent=indent, allow_nan=False)


def seal(data: bytes) -> bytes:
    """Replaces the first BLANK in a file's bytes by the digest of these bytes."""
    return data.replace(BLANK.encode(), blake3(data).hexdigest().encode(), 1)


def find_digest(data: bytes, source: Path) -> str:
    """The digest in a sealed file, unchecked. Raises CheckpointError if the file has none."""
    match = _DIGEST.search(data)
    if match is None:
        raise CheckpointError(f"damaged, or not a gptx checkpoint: {source}")
    return match[1].decode()


def check_seal(data: bytes, source: Path) -> str:
    """Returns the digest of a sealed file. Raises CheckpointError if a byte has changed."""
    digest, view = find_digest(data, source), memoryview(data)
    start = data.index(digest.encode())
    hashed = blake3(view[:start])
    hashed.update(BLANK.encode())
    hashed.update(view[start + len(BLANK) :])
    if hashed.hexdigest() != digest:
        raise CheckpointError(f"damaged: {source} has changed since it was written")
    return digest


def decode(text: bytes, kind: type[Kind], source: Path) -> Kind:
    """Decodes the JSON of a sealed file into the class `kind`. Raises CheckpointError for another
    schema or for values of other types.
    """
    try:
        schema = msgspec.json.decode(text, type=_Schema).schema
        if schema == SCHEMA:
            return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"damaged: {source} ({error!s:.300})") from error
    raise CheckpointError(f"{source} has the unknown schema {schema}; this gptx reads {SCHEMA}")


def seal_json(values: Any) -> bytes:
    """The bytes of a sealed JSON file with a dataclass."""
    return seal(to_json(values, indent=1).encode())


def open_json(data: bytes, kind: type[Kind], source: Path) -> Kind:
    """Checks a sealed JSON file, and decodes it into the class `kind`. Raises CheckpointError."""
    check_seal(data, source)
    return decode(data, kind, source)


class _About(msgspec.Struct):
    """The JSON in a model file; see StoredModel."""

    config: ModelConfig
    vocabulary: Vocabulary
    excerpt: str
    step: int


@dataclass(frozen=True)
class Probe(Arrays):
    """Texts, and the logits that torch computed for them in float64 when the model was saved.

    A program that computes the same logits reads the model correctly. ids: (R, L), R texts of L
    characters. logits: (P, K) for the P = R·L positions, rounded to float32. Position p has the
    logits of only K characters, whose ids are p·K, p·K + 1, … modulo vocab_size.
    """

    ids: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]

    def largest_error(self, rows: Iterable[npt.NDArray[Any]]) -> float:
        """The largest difference of R arrays of (L, vocab_size) logits from the stored ones."""
        logits = pick_probe_logits(rows, self.logits.shape[1])
        return float(np.abs(logits - self.logits).max())


def pick_probe_logits(rows: Iterable[npt.NDArray[Any]], count: int) -> npt.NDArray[Any]:
    """Picks the (P, count) logits that a probe stores from R arrays of (L, vocab_size) logits."""
    picked, first = list[npt.NDArray[Any]](), 0
    for logits in rows:
        columns = np.arange(first, first + len(logits) * count) % logits.shape[1]
        picked.append(np.take_along_axis(logits, columns.reshape(-1, count), axis=1))
        first += columns.size
    return np.concatenate(picked)


@dataclass(frozen=True, repr=False)
class StoredModel(Arrays):
    """The content of a model file: enough to run the model, and to check that it runs correctly.

    excerpt: the start of the validation split. counting: the arrays named in COUNTING; None if the
    model does not count n-grams. source: the file's path.
    """

    config: ModelConfig
    vocabulary: Vocabulary
    tensors: Tensors
    probe: Probe
    excerpt: str
    step: int
    digest: str
    source: Path
    counting: Tensors | None = None

    @property
    def name(self) -> str:
        """The name of the run, or of the file if the file is in no run's folder."""
        folder = self.source.parent
        is_step = folder.name == f"step-{self.step:08d}"
        return printable(folder.parent.name if is_step else self.source.name)

    @property
    def title(self) -> str:
        """The name and the step."""
        return f"{self.name} step {self.step:,}"

    @property
    def origin(self) -> dict[str, Any]:
        """Names the model in the JSON of a result: its run, step and digest."""
        return {"run": self.name, "step": self.step, "checkpoint": self.digest}

    def example_text(self, length: int = 12) -> str:
        """The excerpt's first line with at least `length` characters, cut to `length` or fewer at
        the end of a word.
        """
        lines = self.excerpt.split("\n")
        whole = lines[1:-1] or lines  # the first and last lines may be incomplete
        long = [line.strip() for line in whole if len(line.strip()) >= length]
        line = long[0] if long else max(map(str.strip, lines), key=len) or self.excerpt
        longest = min(length, self.config.block_size)
        cut = line[:longest]
        if len(line) > longest and " " in cut and line[longest] != " ":
            cut = cut[: cut.rindex(" ")]
        return cut.rstrip() or line[:longest]


def pack(tensors: Tensors, about: Mapping[str, Any]) -> bytes:
    """The bytes of a sealed safetensors file, equal for equal content. about: the JSON's values."""
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    # The library writes several metadata entries in a random order, so there is only one.
    return seal(safetensors.numpy.save(whole, {ENTRY: to_json(about)}))


def read_sealed(path: Path, recorded: str | None = None) -> tuple[Tensors, bytes, str]:
    """Reads the tensors, the JSON and the digest of a file that `pack` made.

    recorded: the digest in the manifest; None: not known. Raises CheckpointError if the file is
    missing, damaged, not written by gptx, or has another digest.
    """
    data = files.read(path)
    digest = check_seal(data, path)
    if recorded not in (None, digest):
        raise CheckpointError(f"damaged: {path} is not the file that its manifest records")
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    try:
        text: str = json.loads(header)["__metadata__"][ENTRY]
        return safetensors.numpy.load(data), text.encode(), digest
    except (ValueError, KeyError, SafetensorError):  # another sealed file, such as a manifest
        raise CheckpointError(f"not a gptx checkpoint: {path}") from None


def check_tensors(tensors: Tensors, shapes: Shapes, source: Path) -> None:
    """Raises CheckpointError unless the tensors have exactly these names and shapes, in float32."""
    for name in sorted(shapes.keys() ^ tensors.keys()):
        what = "lacks" if name in shapes else "has an unknown tensor"
        raise CheckpointError(f"damaged: {source} {what} {short_repr(name)}")
    for name, shape in shapes.items():
        if tensors[name].shape != shape or tensors[name].dtype != np.float32:
            raise CheckpointError(f"damaged: {source} {name} is not float32 of the shape {shape}")


def read_model(path: Path, recorded: str | None = None) -> StoredModel:
    """Reads and checks a model file. recorded: the digest in the manifest; None: not known.

    Raises CheckpointError if the file is missing, damaged or not a model of gptx.
    """
    tensors, text, digest = read_sealed(path, recorded)
    about = decode(text, _About, path)
    config = about.config
    if len(about.vocabulary) != config.vocab_size:
        raise CheckpointError(f"damaged: {path} (vocabulary and embedding differ in size)")
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise CheckpointError(
                f"damaged: {path} {short_repr(name)} holds numbers that are not finite"
            )
    counting = None
    try:
        probe = Probe(tensors.pop("probe.ids"), tensors.pop("probe.logits"))
        if config.counting:
            counting = {name: tensors.pop(f"counting.{name}") for name in COUNTING}
    except KeyError as missing:
        raise CheckpointError(f"damaged: {path} lacks {missing}") from None
    check_tensors(tensors, config.shapes(), path)
    return StoredModel(
        config=config,
        vocabulary=about.vocabulary,
        tensors=tensors,
        probe=probe,
        excerpt=about.excerpt,
        step=about.step,
        digest=digest,
        source=path,
        counting=counting,
    )
