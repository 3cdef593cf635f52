"""Validation loss with torch: of a split, of evenly distributed windows of it, or of pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from gpt.config import ModelConfig
from gpt.config.schedule import characters_read
from gpt.corpus.pair_batches import IGNORED, PairLines, padded
from gpt.corpus.pairs import Integers
from gpt.counting.mixture import Mixture
from gpt.model import GPT
from gpt.training import ranks
from gpt.training.device_batches import on_device
from gpt.vocabulary import Ids

NUMBERS_AT_ONCE = {"cpu": 2**20}  # in the widest layer; more would not fit a CPU's cache
NUMBERS_ELSEWHERE = 2**23
PAIRS_AT_ONCE = 2**21  # numbers in the widest layer
SHOWN = 50  # progress reports of a long evaluation


def at_once(config: ModelConfig, device: str) -> int:
    """Number of windows that are evaluated together."""
    most = NUMBERS_AT_ONCE.get(device, NUMBERS_ELSEWHERE)
    return max(1, most // (config.block_size * max(config.vocab_size, config.widened)))


@dataclass(frozen=True)
class Losses:
    """Mean nats per character; gpt: of the GPT alone, if counting predicts with it."""

    nats: float
    gpt: float | None = None


def evaluate(model: GPT, ids: Ids, device: str, most: int = 0) -> float:
    """The GPT's mean nats per character, see `evaluating`."""
    return losses_of(model, ids, device, most).nats


def losses_of(
    model: GPT,
    ids: Ids | PairLines,
    device: str,
    most: int = 0,
    mixture: Mixture | None = None,
) -> Losses:
    """The losses at the end of `evaluating`; of pairs, of all their lines."""
    if isinstance(ids, PairLines):
        return Losses(pair_loss(model, ids, device))
    *_, (_, losses) = evaluating(model, ids, device, most, mixture)
    return losses


@torch.no_grad()
def evaluating(
    model: GPT,
    ids: Ids,
    device: str,
    most: int = 0,
    mixture: Mixture | None = None,
) -> Iterator[tuple[float, Losses]]:
    """The losses over `ids` in non-overlapping windows of block_size, with progress: yields (share
    done, losses so far), at the end the whole losses.

    The first character is context only; the last window may be shorter. most: characters to
    predict, in evenly distributed windows of the split; 0: all. No dropout, float32. The ranks
    share the windows; all get the result.
    With several ranks, the losses before the end are each rank's own; all yield equally often.
    """
    gpt, together, done, spans = 0.0, 0.0, 0, _spans(model.config, ids, device, most)
    rounds = -(-len(spans) // ranks.size())
    for turn in range(rounds):
        number = turn * ranks.size() + ranks.rank()
        # All ranks must call a sharded model: a rank without a span computes the last one again.
        starts, length = spans[min(number, len(spans) - 1)]
        logits, came = _predicted(model, ids, starts, length, device)
        losses = F.cross_entropy(logits, came, reduction="sum")
        if number < len(spans):
            gpt, done = gpt + float(losses), done + len(starts) * length
            if mixture is not None:
                histories = mixture.expert.trie.histories_at(ids, starts + 1, length)
                together += mixture.loss(logits.cpu().numpy(), histories, came.cpu().numpy())
        if turn % (rounds // SHOWN + 1) == 0 and turn < rounds - 1:
            so_far = gpt / max(1, done)
            both = Losses(so_far) if mixture is None else Losses(together / max(1, done), so_far)
            yield (turn + 1) / rounds, both
    read = characters_read(len(ids) - 1, model.config.block_size, most)
    whole = ranks.total(gpt) / read
    yield 1.0, Losses(whole) if mixture is None else Losses(ranks.total(together) / read, whole)


@torch.no_grad()
def window_losses(
    model: GPT, ids: Ids, device: str, most: int, mixture: Mixture | None = None
) -> npt.NDArray[np.float64]:
    """(W,) mean nats per character of each window that `evaluating` reads; all ranks compute all.

    The windows have the same length: see `window_starts` for a part of a split.
    """
    found = []
    for starts, length in _spans(model.config, ids, device, most):
        scores, came = _predicted(model, ids, starts, length, device)
        if mixture is not None:
            histories = mixture.expert.trie.histories_at(ids, starts + 1, length)
            scores = torch.from_numpy(mixture.scores(scores.cpu().numpy(), histories))
        losses = F.cross_entropy(scores, came.to(scores.device), reduction="none")
        found.append(losses.reshape(len(starts), length).mean(dim=1).cpu().double().numpy())
    return np.concatenate(found)


def _spans(
    config: ModelConfig, ids: Ids, device: str, most: int
) -> list[tuple[npt.NDArray[np.int64], int]]:
    """The starts of windows that are computed together, and their length."""
    rows = at_once(config, device)
    return [
        (starts[first : first + rows], length)
        for starts, length in window_starts(len(ids) - 1, config.block_size, most)
        for first in range(0, len(starts), rows)
    ]


def _predicted(
    model: GPT, ids: Ids, starts: npt.NDArray[np.int64], length: int, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(b · length, vocab_size) logits of b windows without dropout, and the ids that came."""
    places = starts[:, None] + np.arange(length + 1)
    windows = torch.from_numpy(np.asarray(ids[places]).astype(np.int64)).to(device)
    was_training = model.training
    model.eval()
    logits = model(windows[:, :-1])  # (b, T, vocab_size)
    model.train(was_training)
    return logits.flatten(0, 1), windows[:, 1:].flatten()


def window_starts(total: int, block: int, most: int = 0) -> list[tuple[npt.NDArray[np.int64], int]]:
    """The start and length of each window; all its characters but the first are predicted.

    The windows cover the whole split (`total` characters after the first one). If `most` allows
    fewer characters, they are evenly distributed. Pure, so that all evaluations of a run read the
    same windows.
    """
    read, every = characters_read(total, block, most), total // block
    if read == total:
        starts = np.arange(every, dtype=np.int64) * block
        return [(starts, block)] * (every > 0) + [
            (np.array([every * block], dtype=np.int64), total % block)
        ] * (total % block > 0)
    count, length = (read // block, block) if read >= block else (1, read)
    chosen = (2 * np.arange(count, dtype=np.int64) + 1) * max(1, every) // (2 * count)
    return [(chosen * block, length)]


@torch.no_grad()
def pair_loss(model: GPT, split: PairLines, device: str) -> float:
    """Mean nats per target character, the NEWLINE of each included. No dropout, float32.

    Lines of similar lengths are computed together. The ranks share the batches; all get the result.
    """
    batches = _batches(split, model.config)
    was_training, total = model.training, 0.0
    model.eval()
    for turn in range(-(-len(batches) // ranks.size())):
        number = turn * ranks.size() + ranks.rank()
        # All ranks must call a sharded model: a rank without a batch computes the last one again.
        lines = batches[min(number, len(batches) - 1)]
        given, targets = on_device(padded(split.pairs, lines), device)
        logits = model(**given)  # (b, T, vocab_size)
        losses = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        total += float(losses) if number < len(batches) else 0.0
    model.train(was_training)
    return ranks.total(total) / split.characters


def _batches(split: PairLines, config: ModelConfig) -> list[Integers]:
    """The lines, shortest first, in batches whose widest layer has at most PAIRS_AT_ONCE."""
    pairs, lines = split.pairs, split.lines
    lengths = np.maximum(pairs.source_lengths[lines], pairs.target_lengths[lines])
    ordered = lines[np.lexsort((pairs.source_lengths[lines], lengths))]
    size = max(1, PAIRS_AT_ONCE // (int(lengths.max()) * max(config.widened, config.vocab_size)))
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]
