"""Reads and writes model files (safetensors); checks each against its own config before its
use.

Names, shapes and types must be exactly the config's before a tensor is allocated; no number may be
infinite. The file contains a digest of all its bytes, so that it can be checked without its run. A
state file (the optimizer's tensors) has such a digest, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from gpt.checks import Result
from gpt.config import ModelConfig
from gpt.config.train import MOST_STEPS
from gpt.errors import CheckpointError
from gpt.storage import files
from gpt.storage.json_values import check_schema, parse_value, parsing, read_json_object
from gpt.vocabulary import Vocabulary
from gpt.words import printable, short_repr

HEADER_LIMIT = 10 * 2**20  # bytes
MOST_TENSORS = 25_000  # more than MOST_LAYERS with their moments have
LARGEST_MODEL = 2**36  # bytes
EXCERPT_LENGTH = 1000  # characters of the validation split that a model file contains

Tensors = dict[str, npt.NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]

BLANK = "0" * 64  # placeholder for the digest in the file's header

_COUNTS = ("U8", "U16", "U32")  # safetensors' names of types
#: Tensor -> its possible types; every other tensor has floats.
_DTYPES: dict[str, tuple[str, ...]] = {"probe.ids": ("I32",)}
_DTYPES |= dict.fromkeys(("counting.symbols", "counting.counts", "counting.children"), _COUNTS)
_FLOATS = ("F64", "F32")
#: safetensors' names of types, in the order in which a file stores their tensors.
_TYPES = {"F64": "<f8", "F32": "<f4", "U32": "<u4", "I32": "<i4", "U16": "<u2", "U8": "<u1"}

#: Array of the counting expert (gpt/counting/tables.py) or its gate -> number of dimensions.
COUNTING = {"symbols": 1, "counts": 1, "children": 1, "gate": 2}


@dataclass(frozen=True)
class Probe(Result):
    """Ids, and the logits that torch computed for them in float64 when the model was saved.

    ids: (R, L), each row a separate text. logits: (P, K), P = R·L, rounded to float32. Position p
    stores the logits of K characters, those with the ids p·K, p·K + 1, … modulo vocab_size.
    """

    ids: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32]

    def of(self, rows: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """R rows of (L, vocab_size) logits -> (P, K), those that the probe stores."""
        return pick_probe_logits(rows, self.logits.shape[1])


def pick_probe_logits(rows: Iterable[npt.NDArray[Any]], count: int) -> npt.NDArray[Any]:
    """R rows of (L, vocab_size) logits -> (P, count), those that a probe stores."""
    kept, first = list[npt.NDArray[Any]](), 0
    for logits in rows:
        columns = np.arange(first, first + len(logits) * count) % logits.shape[1]
        kept.append(np.take_along_axis(logits, columns.reshape(-1, count), axis=1))
        first += columns.size
    return np.concatenate(kept)


@dataclass(frozen=True, repr=False)
class StoredModel(Result):
    """The content of a model file: enough to run the model, and to prove that it runs
    correctly.

    excerpt: the start of the validation split. counting: the arrays of COUNTING, if the model
    counts.
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

    def __repr__(self) -> str:
        return f"<StoredModel {self.title}>"

    @property
    def name(self) -> str:
        """The name of the run, or of the file if it is in no run's folder."""
        folder = self.source.parent
        is_step = folder.name == f"step-{self.step:08d}"
        return printable(folder.parent.name if is_step else self.source.name)

    @property
    def title(self) -> str:
        """The name and the step."""
        return f"{self.name} step {self.step:,}"

    @property
    def origin(self) -> dict[str, Any]:
        """The checkpoint that a result came from, for programs."""
        return {"run": self.name, "step": self.step, "checkpoint": self.digest}

    def example(self, length: int = 12) -> str:
        """The excerpt's first line with `length` characters or more, cut between words."""
        lines = self.excerpt.split("\n")
        whole = lines[1:-1] or lines  # the first and last lines may be incomplete
        good = [line.strip() for line in whole if len(line.strip()) >= length]
        line = good[0] if good else max(map(str.strip, lines), key=len) or self.excerpt
        longest = min(length, self.config.block_size)
        cut = line[:longest]
        if len(line) > longest and " " in cut and line[longest] != " ":
            cut = cut[: cut.rindex(" ")]
        return cut.rstrip() or line[:longest]


def pack_tensors(tensors: Tensors, about: Mapping[str, Any]) -> bytes:
    """The bytes of a safetensors file with its digest. Writes what the library writes, but needs
    one copy of all tensors instead of three. about: what gptx writes into the header.
    """
    # The digest comes first, so that no earlier bytes equal BLANK. The metadata has a single entry:
    # the library writes several in random order, but equal models must give equal bytes.
    about_file = json.dumps({"digest": BLANK, **about}, ensure_ascii=False)
    header: dict[str, Any] = {"__metadata__": {"gptx": about_file}}
    known = {np.dtype(written): name for name, written in _TYPES.items()}
    dtypes = {name: known[tensor.dtype.newbyteorder("<")] for name, tensor in tensors.items()}
    places = _places(dtypes, {name: tensor.shape for name, tensor in tensors.items()})
    parts = []
    for name, place in places.items():
        array = np.ascontiguousarray(tensors[name], _TYPES[dtypes[name]])
        parts.append(array.reshape(-1).view(np.uint8).data)
        shape = tensors[name].shape
        header[name] = {"dtype": dtypes[name], "shape": shape, "data_offsets": place}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return fill_digest(len(text).to_bytes(8, "little") + text, *parts)


def _places(dtypes: Mapping[str, str], shapes: Shapes) -> dict[str, list[int]]:
    """Each tensor's begin and end after the header, in the library's order: by type, then name."""
    types, places, end = [*_TYPES], dict[str, list[int]](), 0
    for name in sorted(shapes, key=lambda name: (types.index(dtypes[name]), name)):
        size = math.prod(shapes[name]) * np.dtype(_TYPES[dtypes[name]]).itemsize
        places[name] = [end, end + size]
        end += size
    return places


def fill_digest(data: bytes, *more: memoryview) -> bytes:
    """Replaces BLANK in `data`, a file's header, by the digest (BLAKE3) of the file with BLANK in
    it.

    more: the bytes after `data`.
    """
    place, digest = data.index(BLANK.encode()), blake3(data)
    for each in more:
        digest.update(each)
    found = digest.hexdigest().encode()
    return b"".join((data[:place], found, data[place + len(BLANK) :], *more))


def _is_sealed(data: bytes, digest: str) -> bool:
    place, view = data.find(digest.encode()), memoryview(data)
    found = blake3(view[:place])
    for part in (BLANK.encode(), view[place + len(BLANK) :]):  # a large file is not copied
        found.update(part)
    return found.hexdigest() == digest


def read_header(data: bytes, source: Path) -> dict[str, Any]:
    """A safetensors file's header. Raises CheckpointError if it has none."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(HEADER_LIMIT, len(data) - 8) or data[8:9] != b"{":
        raise CheckpointError(f"not a gptx checkpoint: {source}")
    text = data[8 : 8 + length]
    if text.count(b'"dtype"') > MOST_TENSORS:  # parsing more would take a second
        raise CheckpointError(f"damaged: {source} lists more tensors than any model has")
    return read_json_object(text, source)


def read_about(header: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """What gptx has written into a header. Raises CheckpointError if there is nothing."""
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("gptx"), str):
        raise CheckpointError(f"not a gptx checkpoint: {source}")
    return read_json_object(metadata["gptx"].encode("utf-8", "surrogatepass"), source)


def fingerprint(data: bytes, source: Path) -> tuple[int, str]:
    """What a manifest records of a file: its size in bytes, and the digest in its header."""
    return len(data), read_about(read_header(data, source), source)["digest"]


def read_sealed(
    path: Path, recorded: tuple[int, str] | None = None
) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    """A file's bytes, its header, and what gptx has written into the header.

    recorded: the fingerprint in a manifest. Raises CheckpointError if the file is missing, damaged,
    not of gptx, of another schema, or does not have this fingerprint.
    """
    data = files.read(path, limit=recorded[0] if recorded else LARGEST_MODEL)
    header = read_header(data, path)
    about = read_about(header, path)
    check_schema(about, path)
    digest = about.get("digest")
    is_whole = isinstance(digest, str) and _is_sealed(data, digest)
    if not is_whole or (recorded and (len(data), digest) != recorded):
        raise CheckpointError(f"damaged: {path} has changed since it was written")
    return data, header, about


def unpack(data: bytes, header: Mapping[str, Any], expected: Shapes, source: Path) -> Tensors:
    """The tensors of a safetensors file, if they are exactly the expected ones: read-only views of
    `data`, without a copy.

    Raises CheckpointError, which names the first tensor that is missing, unexpected or misshapen.
    """
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    for name in [*(set(expected) - set(entries)), *(set(entries) - set(expected))]:
        what = "lacks" if name in expected else "has an unknown tensor"
        raise CheckpointError(f"damaged: {source} {what} {short_repr(name)}")
    for name, shape in expected.items():
        entry = entries[name]
        sizes = all(type(size) is int and size >= 0 for size in shape)
        if not isinstance(entry, dict) or entry.get("shape") != list(shape) or not sizes:
            raise CheckpointError(f"damaged: {source} {name} does not have the shape {shape}")
        if entry.get("dtype") not in _DTYPES.get(name, _FLOATS):
            raise CheckpointError(f"damaged: {source} {name} has another type than gptx writes")
    dtypes = {name: entries[name]["dtype"] for name in expected}
    places, first = _places(dtypes, expected), 8 + int.from_bytes(data[:8], "little")
    if any(entries[name].get("data_offsets") != place for name, place in places.items()):
        raise CheckpointError(f"damaged: {source} has its tensors in the wrong places")
    if len(data) - first != max((end for _, end in places.values()), default=0):
        raise CheckpointError(f"damaged: {source} does not end with its last tensor")
    return {
        name: np.ndarray(expected[name], _TYPES[dtypes[name]], data, first + start)
        for name, (start, _) in places.items()
    }


def read_model(path: Path, recorded: tuple[int, str] | None = None) -> StoredModel:
    """Opens a model file, alone or with the fingerprint that its manifest recorded.

    Raises CheckpointError if it is missing, damaged or not a gptx model, SchemaError if it is of
    another schema.
    """
    data, header, about = read_sealed(path, recorded)
    with parsing(path):
        config = parse_value(ModelConfig, about["config"], "config")
        vocabulary = parse_value(Vocabulary, about["vocabulary"], "vocabulary")
        if len(vocabulary) != config.vocab_size:
            raise ValueError("vocabulary and embedding differ in size")
        (rows, length), (_, kept) = (header[f"probe.{it}"]["shape"] for it in ("ids", "logits"))
        if rows < 1 or not 1 <= length <= config.block_size:
            raise ValueError("the probe is longer than the context")
        if not 1 <= kept <= config.vocab_size:
            raise ValueError("the probe has more logits than there are characters")
        excerpt = parse_value(str, about["excerpt"], "excerpt")
        step = parse_value(int, about["step"], "step")
        if step > MOST_STEPS:
            raise ValueError(f"step: {step} is over {MOST_STEPS}")
        counting: Shapes = _counting_shapes(header) if config.counting else {}
    # A damaged config may claim a billion layers: compare sizes before listing the names of
    # tensors.
    if config.n_layer > len(header) or 4 * config.parameters() > len(data):
        raise CheckpointError(f"damaged: {path} is smaller than its model")
    shapes = config.shapes()
    expected = {"probe.ids": (rows, length), "probe.logits": (rows * length, kept)}
    tensors = unpack(data, header, {**shapes, **expected, **counting}, path)
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise CheckpointError(f"damaged: {path} {name} holds numbers that are not finite")
    ids, logits = tensors.pop("probe.ids"), tensors.pop("probe.logits")
    if ids.min() < 0 or ids.max() >= config.vocab_size:
        raise CheckpointError(f"damaged: {path} (the probe has unknown ids)")
    counted = {name: tensors.pop(f"counting.{name}") for name in COUNTING if counting}
    probe = Probe(ids, logits)
    return StoredModel(
        *(config, vocabulary, tensors, probe, excerpt, step, about["digest"], path), counted or None
    )


def _counting_shapes(header: Mapping[str, Any]) -> Shapes:
    """The shapes of the arrays of COUNTING in a header. Raises KeyError, ValueError."""
    shapes = {f"counting.{name}": tuple(header[f"counting.{name}"]["shape"]) for name in COUNTING}
    if any(len(shapes[f"counting.{name}"]) != COUNTING[name] for name in COUNTING):
        raise ValueError("the tables of counting have the wrong shape")
    return shapes
