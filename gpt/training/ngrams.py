"""What counting alone reaches on a text: the yardstick that gives a loss a meaning.

Interpolated Witten–Bell n-grams (Witten & Bell 1991; Chen & Goodman 1999), in numpy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpt.vocabulary import Ids

MOST_TRAIN, MOST_VAL = 2_000_000, 500_000  # characters: 80 MB while they are counted
AT_ONCE = 2**18  # characters that are worked on together, for little memory
PACKED_BITS = 64  # of a history, its next character and a place in the text


def witten_bell(train: Ids, val: Ids, vocab_size: int, orders: int = 5) -> list[float]:
    """Mean nats per character of `val` under n-grams of `train`, for orders 1 … `orders`.

    P_n(c | h) = (count(hc) + T(h) · P_{n−1}(c | h')) / (count(h) + T(h)), where T(h) is how many
    distinct characters follow h in `train`, h' is h without its first character, and P_0 is
    uniform. The first character of `val` is context only, as for a GPT. Long texts are cut to the
    2 million training characters before the split and the half million after it.
    """
    train, val = train[-MOST_TRAIN:], val[:MOST_VAL]
    text = np.concatenate((train, val))
    boundary = len(train)
    probability = np.full(len(val) - 1, 1.0 / vocab_size)
    context = np.zeros(len(text), dtype=np.int32)  # which history precedes each character
    losses = []
    for order in range(1, orders + 1):
        gram, history = _grams(context, text, vocab_size)
        first = min(order - 1, boundary)  # the text's first characters have no full history
        gram_count = _counts(gram[first:boundary], len(history))
        histories = int(context.max()) + 1
        followers = _counts(history[gram_count > 0], histories)  # T(h) for each history
        after = context[boundary + 1 :]
        hits = gram_count[gram[boundary + 1 :]]
        del gram_count
        seen = _counts(context[first:boundary], histories)[after]
        probability = _interpolate(hits, seen, followers[after], probability)
        losses.append(float(-np.log(probability).mean()))
        # The history of order n+1 at a position is the gram of order n that ended just before it.
        context[1:] = gram[:-1]
        context[0] = len(history)
    return losses


def _grams(
    context: npt.NDArray[np.int32], text: Ids, vocab_size: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """(characters,) the number of each history with its next character, and (grams,) the history
    of each number. Equal pairs have equal numbers, which go up with history, then character.
    """
    size = len(text)
    bits = max(1, (size - 1).bit_length())
    gram = np.empty(size, np.int32)
    if (int(context.max()) * vocab_size + vocab_size - 1).bit_length() + bits > PACKED_BITS:
        keys, inverse = np.unique(context.astype(np.int64) * vocab_size + text, return_inverse=True)
        gram[:] = inverse.reshape(-1)
        return gram, (keys // vocab_size).astype(np.int32)
    # A pair and its place in one number: sorted where they lie, they need no second array.
    packed = context.astype(np.uint64)
    packed *= np.uint64(vocab_size)
    np.add(packed, text, out=packed, casting="unsafe")
    packed <<= np.uint64(bits)
    packed |= np.arange(size, dtype=np.uint32)
    packed.sort()
    history, last, grams = [], None, 0
    for start in range(0, size, AT_ONCE):
        part = packed[start : start + AT_ONCE]
        pairs = part >> np.uint64(bits)
        new = np.empty(len(part), np.bool_)
        new[0] = pairs[0] != last
        np.not_equal(pairs[1:], pairs[:-1], out=new[1:])
        places = (part & np.uint64((1 << bits) - 1)).astype(np.int64)
        numbers = grams + np.cumsum(new, dtype=np.int64)
        gram[places] = numbers - 1
        history.append((pairs[new] // np.uint64(vocab_size)).astype(np.int32))
        last, grams = pairs[-1], int(numbers[-1])
    return gram, np.concatenate(history)


def _counts(numbers: npt.NDArray[np.int32], kinds: int) -> npt.NDArray[np.int32]:
    """(kinds,) how often each number comes: bincount, a piece at a time."""
    counts = np.zeros(kinds, np.int32)
    for start in range(0, len(numbers), AT_ONCE):
        np.add.at(counts, numbers[start : start + AT_ONCE], 1)
    return counts


def _interpolate(
    hits: npt.NDArray[np.int32],
    seen: npt.NDArray[np.int32],
    followers: npt.NDArray[np.int32],
    shorter: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Witten–Bell's mixture; a history never seen leaves it to the shorter one."""
    total = seen + followers
    mixed = (hits + followers * shorter) / np.maximum(total, 1)
    return np.where(total > 0, mixed, shorter)
