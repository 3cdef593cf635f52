"""The page's data of next characters: at each depth, and what the GPT, counting and both expect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt.characters import label
from gpt.heads.next_character import Experts, Lens
from gpt.view.page.packing import in_base64
from gpt.vocabulary import Ids

MOST = 8  # characters of a position, of which three experts have their likeliest ones


def lens_record(lens: Lens, characters: str) -> dict[str, Any]:
    """The likeliest characters at each depth and position. characters: id -> character."""
    depths, _, most = lens.ids.shape
    record = _characters(lens.ids, characters)
    return {
        "depths": depths,
        "most": most,
        **record,
        "probabilities": in_base64(lens.probabilities.astype("<f4")),
    }


def experts_record(experts: Experts, text: Ids, characters: str) -> dict[str, Any]:
    """Of each position of the (T,) text: the characters that one of the three expects most and the
    one that comes next, with their three probabilities; the gate's weights; counting's history.
    """
    chances = np.stack([experts.gpt, experts.counting, experts.both])  # (3, T, V)
    ids = likeliest(chances, text[1:])
    # (T, K, 3): the GPT, counting, both
    shown = np.take_along_axis(chances, ids[None], axis=2).transpose(1, 2, 0)
    history = np.stack([experts.lengths, experts.totals, experts.kinds, experts.pairs], axis=1)
    return {
        "most": ids.shape[1],
        **_characters(ids, characters),
        "probabilities": in_base64(shown.astype("<f4")),
        "weights": in_base64(experts.weights.astype("<f4")),
        "history": in_base64(history.astype("<u4")),
    }


def likeliest(
    chances: npt.NDArray[np.float64], following: Ids, most: int = MOST
) -> npt.NDArray[np.int64]:
    """(3, T, V) probabilities and the (T − 1,) ids that come after all positions but the last ->
    (T, K) ids, in the order of the third's probabilities: those with the best rank in one of the
    three, and the next character of the text.
    """
    order = np.argsort(-chances, axis=-1, kind="stable")
    ranks = np.argsort(order, axis=-1).min(axis=0)  # (T, V)
    ranks[np.arange(len(following)), following] = -1
    both = chances[2]
    found = np.lexsort((-both, ranks), axis=-1)[:, :most]
    by_both = np.argsort(-np.take_along_axis(both, found, axis=1), axis=1, kind="stable")
    return np.take_along_axis(found, by_both, axis=1)


def _characters(ids: npt.NDArray[np.int64], characters: str) -> dict[str, Sequence[Any] | str]:
    """Ids as indices of a list of the characters that occur."""
    used, places = np.unique(ids, return_inverse=True)
    return {
        "codes": [ord(characters[id]) for id in used],
        "labels": [label(characters[id]) for id in used],
        "ids": in_base64(places.astype("<u4")),
    }
