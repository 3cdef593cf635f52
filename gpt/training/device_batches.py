"""Copies the windows or pairs of a step to the device that computes it.

Each step sends its pairs. If the ids of a text take little of a GPU's memory, all are copied once,
and a step sends only the starts of its windows; else each step sends its windows.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from gpt.config import TrainConfig
from gpt.config.train import WindowOrder
from gpt.corpus import cache
from gpt.corpus.batches import batch, starts_of
from gpt.corpus.pair_batches import IGNORED, Batch, PairLines, batch_lines, padded
from gpt.counting.held_out import HeldOut
from gpt.devices import report_failure
from gpt.vocabulary import Ids

SHARE = 0.1  # largest share of a GPU's free memory for the ids
AT_ONCE = 2**24  # ids that are copied together
SIGNED = {1: np.uint8, 2: np.int16, 4: np.int32}  # bytes of an id -> a type that torch can index

Order: TypeAlias = "tuple[int, int, int, int, WindowOrder]"  # see batches.starts_of

Fed: TypeAlias = "Ids | Tensor"  # (N,) ids, in main memory or on the device


def kept_near(ids: Ids, device: str) -> Fed:
    """The ids on the device, if it is a GPU and they are few; else unchanged.

    They also stay in main memory if the GPU does not report its free memory, or the copy fails.
    """
    if device != "cuda":
        return ids
    try:
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        free = torch.cuda.mem_get_info()[0] + cached
        return copied(ids, device) if ids.nbytes <= SHARE * free else ids
    except RuntimeError as error:
        report_failure("copying the corpus to the GPU", error, "each step sends its windows")
        return ids


def copied(ids: Ids, device: str) -> Tensor:
    """(N,) ids on a device, copied in parts; types that torch cannot index with become signed."""
    signed = ids.view(SIGNED[ids.itemsize])
    there = torch.empty(len(ids), dtype=torch.from_numpy(signed[:0].copy()).dtype, device=device)
    for first in range(0, len(ids), AT_ONCE):
        part = np.array(signed[first : first + AT_ONCE])
        there[first : first + len(part)] = torch.from_numpy(part)
        cache.forget(ids)
    return there


def rows_of(
    fed: Fed | PairLines,
    config: TrainConfig,
    step: int,
    block_size: int,
    part: slice,
    device: torch.device,
    held: HeldOut | None = None,
) -> tuple[dict[str, Tensor], Tensor, float]:
    """The rows `part` of a step's batch: the model's arguments, (b, T) targets, and the share of
    the batch's targets that these are.
    """
    if isinstance(fed, PairLines):
        return _pair_rows(fed, config, step, part, device)
    inputs, targets = windows(fed, config, step, block_size, part, device, held)
    return {"ids": inputs}, targets, (part.stop - part.start) / config.batch_size


def _pair_rows(
    fed: PairLines, config: TrainConfig, step: int, part: slice, device: torch.device
) -> tuple[dict[str, Tensor], Tensor, float]:
    lines = batch_lines(fed.pairs, fed.lines, config.seed, step, config.batch_size)
    given, targets = on_device(padded(fed.pairs, lines[part]), device)
    return given, targets, fed.pairs.characters(lines[part]) / fed.pairs.characters(lines)


def on_device(batch: Batch, device: torch.device | str) -> tuple[dict[str, Tensor], Tensor]:
    """The model's arguments for pairs, and (b, T) targets, IGNORED where they are padding."""
    given = {"ids": batch.inputs, "source": batch.source, "seen": batch.seen}
    tensors = {name: torch.from_numpy(each).to(device) for name, each in given.items()}
    return tensors, torch.from_numpy(batch.targets).to(device)


def windows(
    ids: Fed,
    config: TrainConfig,
    step: int,
    block_size: int,
    part: slice,
    device: torch.device,
    held: HeldOut | None = None,
) -> tuple[Tensor, Tensor]:
    """(b, T) inputs and (b, T) targets on the device: the rows `part` of a step's batch.

    Targets that are held out are IGNORED.
    """
    order = config.seed, step, config.batch_size, block_size, config.window_order
    inputs, targets = _rows(ids, order, part, block_size, device)
    if held is not None:
        places = starts_of(len(ids), *order)[part, None] + np.arange(1, block_size + 1)
        ignored = torch.from_numpy(held.contains(places)).to(device)
        targets = targets.masked_fill(ignored, IGNORED)
    return inputs, targets


def _rows(
    ids: Fed, order: Order, part: slice, block_size: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    if not isinstance(ids, Tensor):
        inputs, targets = (torch.from_numpy(rows).to(device) for rows in batch(ids, *order, part))
        return inputs, targets
    starts = torch.from_numpy(starts_of(len(ids), *order)[part]).to(device)
    rows = ids[starts[:, None] + torch.arange(block_size + 1, device=device)].long()  # (b, T + 1)
    rows &= (1 << 8 * ids.element_size()) - 1  # undoes the sign
    return rows[:, :-1], rows[:, 1:]
