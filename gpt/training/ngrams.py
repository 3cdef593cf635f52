"""What counting alone reaches on a text: the yardstick that gives a loss a meaning.

Interpolated Witten–Bell n-grams (Witten & Bell 1991; Chen & Goodman 1999), in numpy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.vocabulary import Ids

MOST_TRAIN, MOST_VAL = 4_000_000, 1_000_000  # characters


def witten_bell(train: Ids, val: Ids, vocab_size: int, orders: int = 5) -> list[float]:
    """Mean nats per character of `val` under n-grams of `train`, for orders 1 … `orders`.

    P_n(c | h) = (count(hc) + T(h) · P_{n−1}(c | h')) / (count(h) + T(h)), where T(h) is how many
    distinct characters follow h in `train`, h' is h without its first character, and P_0 is
    uniform. The first character of `val` is context only, as for a GPT. Long texts are cut to the
    4 million training characters before the split and the million after it.
    """
    train, val = train[-MOST_TRAIN:], val[:MOST_VAL]
    text = np.concatenate((train, val)).astype(np.int64)
    boundary = len(train)
    probability = np.full(len(val) - 1, 1.0 / vocab_size)
    context = np.zeros(len(text), dtype=np.int64)  # which history precedes each character
    losses = []
    for order in range(1, orders + 1):
        keys, gram = np.unique(context * vocab_size + text, return_inverse=True)
        gram = gram.reshape(-1)
        first = min(order - 1, boundary)  # the text's first characters have no full history
        gram_count = np.bincount(gram[first:boundary], minlength=len(keys))
        histories = int(context.max()) + 1
        history_count = np.bincount(context[first:boundary], minlength=histories)
        followers = np.bincount(
            keys[gram_count > 0] // vocab_size, minlength=histories
        )  # T(h) for each history
        probability = _interpolate(
            gram_count[gram[boundary + 1 :]],
            history_count[context[boundary + 1 :]],
            followers[context[boundary + 1 :]],
            probability,
        )
        losses.append(float(-np.log(probability).mean()))
        # The history of order n+1 at a position is the gram of order n that ended just before it.
        context = np.concatenate((np.full(1, len(keys)), gram[:-1]))
    return losses


def _interpolate(
    hits: npt.NDArray[np.int64],
    seen: npt.NDArray[np.int64],
    followers: npt.NDArray[np.int64],
    shorter: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Witten–Bell's mixture; a history never seen leaves it to the shorter one."""
    total = seen + followers
    mixed = (hits + followers * shorter) / np.maximum(total, 1)
    return np.where(total > 0, mixed, shorter)
