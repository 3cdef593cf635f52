"""The lesson "simple": attention without weights, from dot products to mixed words."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from gpt.lessons.ladder import attend
from gpt.lessons.lesson import Material, Step
from gpt.lessons.tables import check_equal, input_tensor, table


def steps(material: Material) -> Iterator[Step]:
    """Attention of one word first, then of all words at once."""
    x, words, query = input_tensor(material), material.words, material.query
    word = words[query]
    yield Step(
        "Words are rows of numbers",
        "A model cannot read. Each word gets a row of numbers, its embedding. Words that are used "
        "alike should have rows that point the same way.",
        tables=(table("inputs", x, rows=words),),
    )

    scores = torch.stack([torch.dot(each, x[query]) for each in x])  # (T,)
    yield Step(
        "One word asks: who is like me?",
        f"The word that asks, “{word}”, is called the query. Its score with a word is their dot "
        "product: multiply the rows number by number and add the products. Rows that point the "
        "same way score high, and long rows score higher than short ones.",
        "score[j] = x[query] · x[j]",
        (table(f"scores of “{word}”", scores, f"inputs @ inputs[{query}]", columns=words),),
        _first_score(x, words, query),
    )

    yield _shares(scores, word, words)
    weights = F.softmax(scores, dim=0)
    by_hand, rule = scores.exp() / scores.exp().sum(), "exp(scores) / sum(exp(scores))"
    finite = bool(by_hand.isfinite().all())
    prose = "A library first subtracts the largest score, which only prevents overflow."
    yield Step(
        "Softmax",
        "The exponential makes every score positive and increases the differences. Then each "
        f"exponential is divided by their sum. The result can be read as probabilities. {prose}",
        "weight[j] = exp(score[j]) / Σ exp(score[k])",
        (
            table("weights by exp and sum", by_hand, rule, columns=words),
            table(f"weights of “{word}”", weights, "softmax(scores)", columns=words),
        ),
        "" if finite else "Here a score is too large: the plain formula overflows.",
        (
            *[check_equal("by hand = softmax", by_hand, weights)] * finite,
            check_equal("sum = 1", weights.sum(), 1),
        ),
    )

    parts = weights[:, None] * x  # (T, C)
    context = torch.zeros_like(x[query])
    for part in parts:
        context = context + part
    yield Step(
        "The context vector",
        "Each word’s row is multiplied by its weight, and all are added: a weighted mean of the "
        f"words, in which words similar to “{word}” count most. This row replaces the row of "
        f"“{word}”.",
        "context = Σ weight[j] × x[j]",
        (
            table("weight × row", parts, "weights[:, None] * inputs", rows=words),
            table(f"context of “{word}”", context, "weights @ inputs"),
        ),
        checks=(check_equal("added one by one = weights · inputs", context, weights @ x),),
    )

    one_by_one = torch.tensor([[float(torch.dot(a, b)) for b in x] for a in x]).to(x)
    all_scores = x @ x.T  # (T, T)
    yield Step(
        "All words ask at once",
        "Two loops over the words compute every score. One matrix product computes the same, "
        "faster. Rows are queries; columns are the words they are compared with.",
        "scores = X · Xᵀ",
        (table("scores", all_scores, "inputs @ inputs.T", rows=words, columns=words),),
        "The matrix is symmetric: two words have the same score in both directions. With trained "
        "matrices (lesson “trainable”) it is not symmetric.",
        (check_equal("two loops = one product", one_by_one, all_scores),),
    )
    all_weights = F.softmax(all_scores, dim=-1)
    yield Step(
        "A row of weights for each word",
        "Softmax is applied to each row, so each row sums to 1.",
        "weights = softmax(scores), row by row",
        (
            table("weights", all_weights, "softmax(scores)", rows=words, columns=words),
            table("row sums", all_weights.sum(dim=-1), "sum(weights)", columns=words),
        ),
        "The weights are not symmetric: each row was divided by its own sum.",
        (check_equal("rows sum to 1", all_weights.sum(dim=-1), 1),),
    )
    yield Step(
        "All context vectors",
        "One more product mixes all words. The result has a row for each word, which now depends "
        "on the other words. Nothing here was learned; learning is the next lesson.",
        "contexts = weights · X",
        (table("contexts", all_weights @ x, "weights @ inputs", rows=words),),
        checks=(
            check_equal(f"row of “{word}” = its context above", (all_weights @ x)[query], context),
            check_equal("= attend(X) of the library", attend(x), all_weights @ x),
        ),
    )


def _first_score(x: Tensor, words: tuple[str, ...], query: int) -> str:
    """The calculation of the first score."""
    if x.shape[1] > 4:
        return ""
    pairs = zip(x[query].tolist(), x[0].tolist(), strict=True)
    products = " + ".join(f"{a:.2f}×{b:.2f}" for a, b in pairs)
    total = f"{products} = {float(x[query] @ x[0]):.4f}".replace("-", "−")
    return f"“{words[query]}” with “{words[0]}”: {total}"


def _shares(scores: Tensor, word: str, words: tuple[str, ...]) -> Step:
    """The step that divides scores by their sum, which works for positive scores only."""
    total = scores.sum()
    none = bool(total.abs() <= 1e-12 * scores.abs().max())  # 0, except for rounding
    positive = bool((scores > 0).all())
    notice = "A negative score would become a negative share. Softmax avoids this."
    if not positive:
        notice = "Not all scores are above 0 here, so these are no shares. Hence softmax."
    if none:
        notice = "The scores’ sum is 0 here: nothing can be divided by it. Hence softmax."
    return Step(
        "Scores become weights: a first try",
        f"To mix words by their scores, “{word}” needs weights that sum to 1. The simplest way is "
        "to divide by the sum.",
        "weight[j] = score[j] / Σ score[k]",
        (table("scores / their sum", scores / total, "scores / sum(scores)", columns=words),)
        * (not none),
        notice,
        (check_equal("sum = 1", (scores / total).sum(), 1),) * positive,
    )
