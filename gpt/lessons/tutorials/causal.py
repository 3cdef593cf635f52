"""The lesson "causal": three ways to hide later words, and the one that models use."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.lessons.ladder import CausalAttention, SelfAttention, causal, weights_of
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, input_tensor, table, torch_seed

D_OUT = 2
LINEAR_SEED, CAUSAL_SEED = 789, 123  # the tutorials'

#: If a row's sum is below this after erasing, its quotients are not exact.
LEAST = 1e-250
LOST = (
    "Here nearly all weight of a row belonged to later words: the rest is too small for an exact "
    "number, and dividing by it gives nothing useful. The third way avoids this."
)


def causal_weights(material: Material) -> Tensor:
    """(T, T) causal weights of this lesson, for the lesson on dropout."""
    x, attention = input_tensor(material), _attention(material)
    return weights_of(attention.query(x), attention.key(x), causal(len(x)))


def _attention(material: Material) -> SelfAttention:
    with torch_seed(material.seed_or(LINEAR_SEED)):
        return SelfAttention(material.embeddings.shape[1], D_OUT).double()


def steps(material: Material) -> Iterator[Step]:
    """A mask after softmax; masks before and after it; −∞ before it; then a batch."""
    x, words = input_tensor(material), material.words
    T, both = len(words), {"rows": words, "columns": words}
    attention = _attention(material)
    scores = attention.query(x) @ attention.key(x).T
    weights, root = F.softmax(scores / D_OUT**0.5, dim=-1), f"sqrt({D_OUT})"
    yield Step(
        "What must not be seen",
        "A GPT learns to predict the next word. If a word could attend to later words, the model "
        "would copy the answer. Here are scores and weights of `SelfAttention` from the lesson "
        "“trainable”: weights above the diagonal belong to later words.",
        tables=(
            table("scores", scores, **both),
            table("weights", weights, f"softmax(scores / {root})", **both),
        ),
    )
    allowed = torch.ones(T, T).tril().double()
    masked = weights * allowed
    first = masked / masked.sum(dim=-1, keepdim=True)
    kept, divided = bool((masked.sum(dim=-1) > LEAST).all()), "{0} / sum({0})[:, None]"
    yield Step(
        "First way: erase, then divide again",
        "Multiply by a triangle of ones: the weights of later words become 0. The rows no longer "
        "sum to 1, so each is divided by its new sum.",
        "w = softmax(scores / √D) × tril    weights = w / row sums of w",
        (
            table("tril", allowed, **both, digits=0),
            table("weights × tril", masked, "weights * tril", **both),
            table("renormalised", first, divided.format("weights_tril") * kept, **both),
        ),
        "The first word can only attend to itself: its weight is 1." if kept else LOST,
        (check_equal("rows sum to 1", first.sum(dim=-1), 1),) * kept,
    )
    early = F.softmax(scores * allowed / D_OUT**0.5, dim=-1)
    erased = early * allowed
    second = erased / erased.sum(dim=-1, keepdim=True)
    erased_kept = bool((erased.sum(dim=-1) > LEAST).all())
    both_kept = kept and erased_kept
    rule = f"softmax(scores * tril / {root})"
    again = divided.format(f"({rule} * tril)")
    yield Step(
        "Second way: erase the scores too",
        "Set the scores of later words to 0 before softmax. That alone hides nothing, as exp(0) is "
        "1: see the upper right corner. If these weights are erased too and each row is divided by "
        "its sum, the result is the same, as the other weights keep their proportions.",
        "w = softmax(scores × tril / √D) × tril    weights = w / row sums of w",
        (
            table("softmax(scores × tril / √D)", early, rule, **both),
            table("erased, renormalised", second, again * erased_kept, **both),
        ),
        notice="" if erased_kept else LOST,
        checks=(check_equal("= the first way", second, first),) * both_kept,
    )
    hidden = scores.masked_fill(allowed == 0, float("-inf"))
    third = F.softmax(hidden / D_OUT**0.5, dim=-1)
    yield Step(
        "Third way: −∞ before softmax",
        "exp(−∞) is exactly 0. One softmax is enough, and each row sums to 1 by itself. This is "
        "what models do.",
        "weights = softmax(masked / √D), masked[i, j] = −∞ for j > i",
        (
            table("masked", hidden, "where(tril == 0, -inf, scores)", **both),
            table("causal weights", third, f"softmax(masked / {root})", **both),
        ),
        checks=(
            *[check_equal("three ways, one result", third, first)] * both_kept,
            check_equal("each row sums to 1", third.sum(dim=-1), 1),
            check_equal("above the diagonal exactly 0", third.triu(diagonal=1), 0, bound=0),
        ),
    )
    seed = material.seed_or(CAUSAL_SEED)
    with torch_seed(seed):
        module = CausalAttention(x.shape[1], D_OUT, T).double()
    batch = torch.stack((x, x))  # (B, T, C)
    outputs = module(batch)
    changed = module(torch.cat((x[:-1], -x[-1:]))[None])[0]
    yield Step(
        "A module, and a batch",
        "`CausalAttention` adds the mask, as a buffer: it moves to the module’s device and is not "
        f"trained. The weights are new, seed {seed}. The batch has the same text twice, so the "
        "result has the same numbers twice.",
        tables=(
            table("batch", batch, rows=words),
            table("contexts of CausalAttention", outputs, rows=words),
        ),
        notice="If the sign of the last word’s row changes, no earlier context changes.",
        checks=(
            check_equal("both texts have equal contexts", outputs[0], outputs[1]),
            *(
                [check_equal("earlier contexts unchanged", changed[:-1], outputs[0, :-1])]
                if T > 1
                else []
            ),
        ),
    )
    unmasked = SelfAttention(x.shape[1], D_OUT).double()
    unmasked.load_state_dict(module.state_dict())
    shortened = torch.stack([unmasked(x[: t + 1])[t] for t in range(T)])
    yield Step(
        "What the mask means",
        "Give `SelfAttention`, which has no mask, the same weights and only the first t words, and "
        "keep the last row of its result. Doing that for every t gives the same contexts. With the "
        "mask, one pass computes all of them, so a GPT learns from every position of a text.",
        tables=(table("contexts, word by word", shortened, rows=words),),
        checks=(check_equal("= CausalAttention", shortened, outputs[0]),),
    )
